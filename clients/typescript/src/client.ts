import { BellbirdError, errorOf } from "./error.js";
import { type ChangesPage, follow, type Store } from "./follow.js";
import { Slots } from "./slots.js";
import type {
  Account,
  Balance,
  Category,
  ChangesQuery,
  Connection,
  FollowQuery,
  Holding,
  HoldingsQuery,
  Me,
  Trade,
  TradeChangesPage,
  TradesQuery,
  Transaction,
  TransactionChangesPage,
  TransactionsQuery,
} from "./types.js";

const ACCOUNTS_MAX = 200;
const ROWS_MAX = 500;
const LIVE_REQUESTS_MAX = 4;
/** The service has 25 seconds for a read. */
const TIMEOUT_MS = 30_000;
/** Seconds before the second and the third try after a failure of the network. */
const FAILURE_DELAYS = [1, 2];

export interface BellbirdOptions {
  /** Such as `http://127.0.0.1:8080`. */
  url: string;
  key: string;
  /** For how many seconds a request may wait in all before it is repeated; 60 unless set. */
  waitUpTo?: number;
}

export interface CallOptions {
  signal?: AbortSignal | undefined;
}

interface Call extends CallOptions {
  query?: object;
  live?: boolean;
}

interface Window<Row> {
  data: Row[];
  pagination: { limit: number; hasMore: boolean };
}

/**
 * A method that fails throws a `BellbirdError`, or the reason of its signal. A list is read in
 * windows while it is iterated.
 */
export class Bellbird {
  readonly #url: string;
  readonly #authorization: string;
  readonly #waitUpTo: number;
  readonly #live = new Slots(LIVE_REQUESTS_MAX);

  constructor({ url, key, waitUpTo = 60 }: BellbirdOptions) {
    // An error of `fetch` about such a header would contain the key.
    if (!/^[\x21-\x7e]+$/.test(key)) throw new TypeError("The key has other than ASCII characters");
    this.#url = new URL(url).href.replace(/\/+$/, "");
    this.#authorization = `Bearer ${key}`;
    this.#waitUpTo = waitUpTo;
  }

  me(options?: CallOptions): Promise<Me> {
    return this.#data<Me>("/v1/me", options);
  }

  connections(options?: CallOptions): Promise<Connection[]> {
    return this.#data<Connection[]>("/v1/connections", options);
  }

  async categories(options?: CallOptions): Promise<Category[]> {
    return (await this.#get<{ categories: Category[] }>("/v1/categories", options)).categories;
  }

  /** Of up to 100 accounts, in any order. The values of an account that failed are null. */
  balances(accountIds: string[], options?: CallOptions): Promise<Balance[]> {
    const query = { accountIds: accountIds.join(",") };
    return this.#data<Balance[]>("/v1/balances", { ...options, query, live: true });
  }

  holdings(query: HoldingsQuery, options?: CallOptions): Promise<Holding[]> {
    return this.#data<Holding[]>("/v1/holdings", { ...options, query, live: true });
  }

  accounts(options?: CallOptions): AsyncGenerator<Account, void> {
    return this.#windows<Account>("/v1/accounts", { ...options, query: { limit: ACCOUNTS_MAX } });
  }

  /** The newest first. */
  transactions(query: TransactionsQuery, options?: CallOptions): AsyncGenerator<Transaction, void> {
    return this.#rows<Transaction>("/v1/transactions", query, options);
  }

  /** The newest first. A trade that appears meanwhile may make another one come twice. */
  trades(query: TradesQuery, options?: CallOptions): AsyncGenerator<Trade, void> {
    return this.#rows<Trade>("/v1/trades", query, options);
  }

  /** The pages from the cursor on. A page may be empty while there is more. */
  transactionChanges(
    query: ChangesQuery,
    options?: CallOptions,
  ): AsyncGenerator<TransactionChangesPage, void> {
    return this.#changes<TransactionChangesPage>("/v1/transactions/changes", query, options);
  }

  /** The pages from the cursor on. A page may be empty while there is more. */
  tradeChanges(
    query: ChangesQuery,
    options?: CallOptions,
  ): AsyncGenerator<TradeChangesPage, void> {
    return this.#changes<TradeChangesPage>("/v1/trades/changes", query, options);
  }

  /** Makes the store equal to the transactions of a connection, from its cursor on. */
  followTransactions(
    store: Store<Transaction>,
    query: FollowQuery,
    options?: CallOptions,
  ): Promise<void> {
    return follow(
      store,
      (cursor) => this.transactionChanges({ ...query, cursor }, options),
      ({ transaction }) => ({ row: transaction, day: transaction.date }),
    );
  }

  /** Makes the store equal to the trades of a connection, from its cursor on. */
  followTrades(store: Store<Trade>, query: FollowQuery, options?: CallOptions): Promise<void> {
    return follow(
      store,
      (cursor) => this.tradeChanges({ ...query, cursor }, options),
      ({ trade }) => ({ row: trade, day: trade.tradeDate.slice(0, "YYYY-MM-DD".length) }),
    );
  }

  #rows<Row>(path: string, query: object, options?: CallOptions): AsyncGenerator<Row, void> {
    return this.#windows(path, { ...options, query: { limit: ROWS_MAX, ...query }, live: true });
  }

  async *#windows<Row>(path: string, call: Call): AsyncGenerator<Row, void> {
    for (let offset = 0; ; ) {
      const query = { ...call.query, offset };
      const { data, pagination } = await this.#get<Window<Row>>(path, { ...call, query });
      yield* data;
      if (!pagination.hasMore) return;
      offset += pagination.limit;
    }
  }

  async *#changes<Page extends ChangesPage>(
    path: string,
    { cursor, from, ...rest }: ChangesQuery,
    options?: CallOptions,
  ): AsyncGenerator<Page, void> {
    for (let position = cursor; ; ) {
      const start = position ? { cursor: position } : { from };
      const query = { limit: ROWS_MAX, ...rest, ...start };
      const page = await this.#get<Page>(path, { ...options, query, live: true });
      yield page;
      if (!page.hasMore) return;
      position = page.cursor;
    }
  }

  async #data<Data>(path: string, call?: Call): Promise<Data> {
    return (await this.#get<{ data: Data }>(path, call)).data;
  }

  /** Repeats the request as long as that helps and the limit of waiting allows. */
  async #get<Body>(path: string, { query = {}, live, signal }: Call = {}): Promise<Body> {
    const url = new URL(this.#url + path);
    for (const [name, value] of Object.entries(query)) {
      if (value !== undefined && value !== null) url.searchParams.set(name, String(value));
    }
    let left = this.#waitUpTo;
    for (let failures = 0; ; ) {
      try {
        const read = () => this.#read(url, signal);
        return (await (live ? this.#live.run(read) : read())) as Body;
      } catch (error) {
        if (!(error instanceof BellbirdError)) throw error;
        const delay = error.status === null ? FAILURE_DELAYS[failures++] : delayOf(error);
        if (delay === undefined || delay > left) throw error;
        left -= delay;
        await this.sleep(delay, signal);
      }
    }
  }

  async #read(url: URL, signal?: AbortSignal): Promise<object> {
    const timeout = AbortSignal.timeout(TIMEOUT_MS);
    let response: Response;
    let text: string;
    try {
      response = await fetch(url, {
        headers: { authorization: this.#authorization },
        // The API has no redirects, and the key goes nowhere else.
        redirect: "manual",
        signal: signal ? AbortSignal.any([signal, timeout]) : timeout,
      });
      text = await response.text();
    } catch (cause) {
      signal?.throwIfAborted();
      throw new BellbirdError(`No complete response to GET ${url.pathname}`, { cause });
    }
    const body = parse(text);
    if (response.ok && body) return body;
    throw errorOf(response, body);
  }

  protected sleep(seconds: number, signal?: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      signal?.throwIfAborted();
      const abort = () => {
        clearTimeout(timer);
        reject(signal?.reason);
      };
      const timer = setTimeout(() => {
        signal?.removeEventListener("abort", abort);
        resolve();
      }, seconds * 1000);
      signal?.addEventListener("abort", abort, { once: true });
    });
  }
}

/** The seconds after which to repeat the request, or undefined if that would not help. */
function delayOf({ status, code, retryAfter }: BellbirdError): number | undefined {
  const transient = (status === 429 || status === 503) && code !== "reconnect_required";
  return (transient && retryAfter) || undefined;
}

/** The JSON object, or undefined if the text is something else. */
function parse(text: string): object | undefined {
  try {
    const body: unknown = JSON.parse(text);
    return typeof body === "object" && body !== null ? body : undefined;
  } catch {
    return undefined;
  }
}
