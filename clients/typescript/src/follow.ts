import { BellbirdError } from "./error.js";
import type { TradeChangesPage, TransactionChangesPage } from "./types.js";

/** A table with the rows of one connection, or of one account of it, by their keys. */
export interface Store<Row> {
  /** The cursor of the batch that was applied last, or null if there is none since `begin`. */
  cursor(): Awaitable<string | null>;

  /** In one transaction, forgets the cursor and marks all rows. */
  begin(): Awaitable<void>;

  /** In one transaction, writes the upserts without a mark, the removals and the cursor. */
  apply(batch: Batch<Row>): Awaitable<void>;
}

type Awaitable<T> = T | Promise<T>;

export type ChangesPage = TransactionChangesPage | TradeChangesPage;

type Upsert<Page extends ChangesPage> = Extract<Page["data"][number], { op: "upsert" }>;

/** The changes of a page, the last one of each key. */
export interface Batch<Row> {
  upserts: Map<string, { row: Row; day: string }>;
  removals: Set<string>;
  cursor: string;
  /**
   * On the last page a day: of the rows that are still marked, those of this day or a later one are
   * removed, and the others lose their mark. All in the same transaction.
   */
  completeFrom: string | null;
}

/** Applies the pages from the store's cursor on, and begins again once if that has expired. */
export async function follow<Row, Page extends ChangesPage>(
  store: Store<Row>,
  pagesFrom: (cursor: string | null) => AsyncIterable<Page>,
  rowOf: (upsert: Upsert<Page>) => { row: Row; day: string },
): Promise<void> {
  for (let restarted = false; ; restarted = true) {
    try {
      for await (const page of pagesFrom(await store.cursor())) {
        await store.apply(batchOf(page, rowOf));
      }
      return;
    } catch (error) {
      const expired = error instanceof BellbirdError && error.status === 410;
      if (!expired || restarted) throw error;
      await store.begin();
    }
  }
}

function batchOf<Row, Page extends ChangesPage>(
  { data, cursor, hasMore, watchedFrom }: Page,
  rowOf: (upsert: Upsert<Page>) => { row: Row; day: string },
): Batch<Row> {
  const upserts: Batch<Row>["upserts"] = new Map();
  const removals: Batch<Row>["removals"] = new Set();
  for (const change of data) {
    if (change.op === "upsert") {
      upserts.set(change.key, rowOf(change as Upsert<Page>));
      removals.delete(change.key);
    } else if (change.op === "remove") {
      upserts.delete(change.key);
      removals.add(change.key);
    }
  }
  return { upserts, removals, cursor, completeFrom: hasMore ? null : watchedFrom };
}
