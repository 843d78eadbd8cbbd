// The stores of examples/, with their rows as an object.

import type { Store } from "bellbird-client";
import wasm from "node-sqlite3-wasm";
import { MemoryStore } from "../examples/memory-store.js";
import { type Database, SqliteStore } from "../examples/sqlite-store.js";

export interface OpenStore {
  store: Store<any>;
  rows(): Record<string, unknown>;
}

export const storeKinds: Record<string, () => OpenStore> = {
  memory: () => {
    const store = new MemoryStore<unknown>();
    return {
      store,
      rows: () => Object.fromEntries([...store.rows].map(([key, { row }]) => [key, row])),
    };
  },
  sqlite: () => {
    const { database, all } = openDatabase();
    return {
      store: new SqliteStore<unknown>(database, "test"),
      rows: () => {
        const rows = all("SELECT key, row FROM rows") as { key: string; row: string }[];
        return Object.fromEntries(rows.map(({ key, row }) => [key, JSON.parse(row)]));
      },
    };
  },
};

/** From Node 22.13 on. Before, SQLite in WebAssembly replaces it. */
const builtin = await import("node:sqlite").catch(() => null);

function openDatabase(): { database: Database; all(sql: string): unknown[] } {
  if (builtin) {
    const database = new builtin.DatabaseSync(":memory:");
    return { database, all: (sql) => database.prepare(sql).all() };
  }
  const database = new wasm.Database(":memory:");
  return {
    database: {
      exec: (sql) => database.exec(sql),
      prepare: (sql) => ({
        get: (...values) => database.get(sql, values as string[]),
        run: (...values) => database.run(sql, values as string[]),
      }),
    },
    all: (sql) => database.all(sql),
  };
}
