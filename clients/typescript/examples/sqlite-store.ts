import type { Batch, Store } from "bellbird-client";

/** Of `node:sqlite` (`DatabaseSync`) or `better-sqlite3`. */
export interface Database {
  exec(sql: string): unknown;
  prepare(sql: string): {
    get(...values: unknown[]): unknown;
    run(...values: unknown[]): unknown;
  };
}

/** Follows the rows of one connection, which is a part of the table. */
export class SqliteStore<Row> implements Store<Row> {
  readonly #db: Database;
  readonly #connection: string;

  constructor(db: Database, connection: string) {
    this.#db = db;
    this.#connection = connection;
    db.exec(`CREATE TABLE IF NOT EXISTS cursors (connection TEXT PRIMARY KEY, cursor TEXT NOT NULL);
      CREATE TABLE IF NOT EXISTS rows (connection TEXT, key TEXT, day TEXT NOT NULL,
        row TEXT NOT NULL, marked INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (connection, key))`);
  }

  cursor(): string | null {
    const select = this.#db.prepare("SELECT cursor FROM cursors WHERE connection = ?");
    return (select.get(this.#connection) as { cursor: string } | undefined)?.cursor ?? null;
  }

  begin(): void {
    this.#transaction((run) => {
      run("UPDATE rows SET marked = 1 WHERE connection = ?");
      run("DELETE FROM cursors WHERE connection = ?");
    });
  }

  apply({ upserts, removals, cursor, completeFrom }: Batch<Row>): void {
    this.#transaction((run) => {
      for (const [key, { row, day }] of upserts) {
        const json = JSON.stringify(row);
        run("REPLACE INTO rows (connection, key, day, row) VALUES (?, ?, ?, ?)", key, day, json);
      }
      for (const key of removals) run("DELETE FROM rows WHERE connection = ? AND key = ?", key);
      if (completeFrom !== null) {
        run("DELETE FROM rows WHERE connection = ? AND marked AND day >= ?", completeFrom);
        run("UPDATE rows SET marked = 0 WHERE connection = ? AND marked");
      }
      run("REPLACE INTO cursors VALUES (?, ?)", cursor);
    });
  }

  #transaction(work: (run: (sql: string, ...values: unknown[]) => void) => void): void {
    this.#db.exec("BEGIN IMMEDIATE");
    try {
      work((sql, ...values) => this.#db.prepare(sql).run(this.#connection, ...values));
      this.#db.exec("COMMIT");
    } catch (error) {
      this.#db.exec("ROLLBACK");
      throw error;
    }
  }
}
