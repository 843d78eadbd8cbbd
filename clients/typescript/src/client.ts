import { Caller, type CallOptions, type Request } from "./caller.js";
import { type ChangesPage, follow, type Store } from "./follow.js";
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

interface Window<Row> {
  data: Row[];
  pagination: { limit: number; hasMore: boolean };
}

/**
 * A method that fails throws a `BellbirdError`, or the reason of its signal. A list is read in
 * windows while it is iterated.
 */
export class Bellbird extends Caller {
  me(options?: CallOptions): Promise<Me> {
    return this.data<Me>("/v1/me", options);
  }

  connections(options?: CallOptions): Promise<Connection[]> {
    return this.data<Connection[]>("/v1/connections", options);
  }

  async categories(options?: CallOptions): Promise<Category[]> {
    return (await this.call<{ categories: Category[] }>("/v1/categories", options)).categories;
  }

  /** Of up to 100 accounts, in any order. The values of an account that failed are null. */
  balances(accountIds: string[], options?: CallOptions): Promise<Balance[]> {
    const query = { accountIds: accountIds.join(",") };
    return this.data<Balance[]>("/v1/balances", { ...options, query, live: true });
  }

  holdings(query: HoldingsQuery, options?: CallOptions): Promise<Holding[]> {
    return this.data<Holding[]>("/v1/holdings", { ...options, query, live: true });
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

  async *#windows<Row>(path: string, request: Request): AsyncGenerator<Row, void> {
    for (let offset = 0; ; ) {
      const query = { ...request.query, offset };
      const { data, pagination } = await this.call<Window<Row>>(path, { ...request, query });
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
      const page = await this.call<Page>(path, { ...options, query, live: true });
      yield page;
      if (!page.hasMore) return;
      position = page.cursor;
    }
  }
}
