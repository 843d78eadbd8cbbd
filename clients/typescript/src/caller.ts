import { BellbirdError, errorOf } from "./error.js";
import { Slots } from "./slots.js";

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

export interface Request extends CallOptions {
  method?: "DELETE" | "GET" | "PATCH" | "POST";
  query?: object;
  body?: object | undefined;
  idempotencyKey?: string | undefined;
  live?: boolean;
}

/** Sends requests with a key, and repeats those that may succeed later. */
export class Caller {
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

  protected async data<Data>(path: string, request?: Request): Promise<Data> {
    return (await this.call<{ data: Data }>(path, request)).data;
  }

  /** Repeats the request as long as that helps and the limit of waiting allows. */
  protected async call<Body>(path: string, request: Request = {}): Promise<Body> {
    const { query = {}, live, signal } = request;
    const url = new URL(this.#url + path);
    for (const [name, value] of Object.entries(query)) {
      if (value !== undefined && value !== null) url.searchParams.set(name, String(value));
    }
    let left = this.#waitUpTo;
    for (let failures = 0; ; ) {
      try {
        const send = () => this.#send(url, request);
        return (await (live ? this.#live.run(send, signal) : send())) as Body;
      } catch (error) {
        if (!(error instanceof BellbirdError)) throw error;
        const delay = error.status === null ? FAILURE_DELAYS[failures++] : delayOf(error);
        if (delay === undefined || delay > left) throw error;
        left -= delay;
        await this.sleep(delay, signal);
      }
    }
  }

  async #send(
    url: URL,
    { method = "GET", body, idempotencyKey, signal }: Request,
  ): Promise<object | undefined> {
    const timeout = AbortSignal.timeout(TIMEOUT_MS);
    let response: Response;
    let text: string;
    try {
      response = await fetch(url, {
        method,
        headers: {
          authorization: this.#authorization,
          ...(body && { "content-type": "application/json" }),
          ...(idempotencyKey !== undefined && { "idempotency-key": idempotencyKey }),
        },
        body: body ? JSON.stringify(body) : null,
        // The API has no redirects, and the key goes nowhere else.
        redirect: "manual",
        signal: signal ? AbortSignal.any([signal, timeout]) : timeout,
      });
      text = await response.text();
    } catch (cause) {
      signal?.throwIfAborted();
      throw new BellbirdError(`No complete response to ${method} ${url.pathname}`, { cause });
    }
    if (response.status === 204) return undefined;
    const json = parse(text);
    if (response.ok && json) return json;
    throw errorOf(response, json);
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
