import type { components } from "./schema.js";

type Schemas = components["schemas"];

export type Account = Schemas["Account"];
export type Balance = Schemas["Balance"];
export type Category = Schemas["Category"];
export type Connection = Schemas["Connection"];
export type Holding = Schemas["Holding"];
export type Me = Schemas["MeData"];
export type Trade = Schemas["Trade"];
export type TradeChange = Schemas["TradeChange"];
export type TradeChangesPage = Schemas["TradeChangesPage"];
export type Transaction = Schemas["Transaction"];
export type TransactionChange = Schemas["TransactionChange"];
export type TransactionChangesPage = Schemas["TransactionChangesPage"];

/** What every row of a list is selected by. `from` and `to` are a day or an RFC 3339 timestamp. */
export interface RangeQuery {
  connectionId: string;
  from?: string | undefined;
  to?: string | undefined;
  /** Rows of one request, 500 unless set. */
  limit?: number | undefined;
}

export interface TransactionsQuery extends RangeQuery {
  accountId: string;
}

export interface TradesQuery extends RangeQuery {
  accountId?: string | undefined;
}

export interface HoldingsQuery {
  connectionId: string;
  accountId?: string | undefined;
}

export interface FollowQuery {
  connectionId: string;
  accountId?: string | undefined;
  /** A day or an RFC 3339 timestamp at which the first copy begins, 30 days ago unless set. */
  from?: string | undefined;
}

export interface ChangesQuery extends FollowQuery {
  /** Of the last page that was applied. With it, `from` is not sent. */
  cursor?: string | null | undefined;
  /** Entries of one page, 500 unless set. */
  limit?: number | undefined;
}
