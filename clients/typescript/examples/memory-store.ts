import type { Batch, Store } from "bellbird-client";

/** Follows the rows of one connection for as long as the program runs. */
export class MemoryStore<Row> implements Store<Row> {
  readonly rows = new Map<string, { row: Row; day: string }>();
  #marked = new Set<string>();
  #cursor: string | null = null;

  cursor(): string | null {
    return this.#cursor;
  }

  begin(): void {
    this.#marked = new Set(this.rows.keys());
    this.#cursor = null;
  }

  apply({ upserts, removals, cursor, completeFrom }: Batch<Row>): void {
    for (const [key, upsert] of upserts) {
      this.rows.set(key, upsert);
      this.#marked.delete(key);
    }
    for (const key of removals) this.rows.delete(key);
    if (completeFrom !== null) {
      for (const [key, { day }] of this.rows) {
        if (this.#marked.has(key) && day >= completeFrom) this.rows.delete(key);
      }
      this.#marked.clear();
    }
    this.#cursor = cursor;
  }
}
