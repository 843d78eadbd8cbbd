// Against a running service, such as the demo, if BELLBIRD_TEST_URL and BELLBIRD_TEST_KEY are set.
// BELLBIRD_TEST_CONTROL and BELLBIRD_TEST_AKAHU_CONTROL are the URLs of the simulated Fiskil and
// Akahu behind it, whose rows the tests then change. Akahu's events have to reach the service.

import assert from "node:assert/strict";
import { test } from "node:test";
import { setTimeout } from "node:timers/promises";
import { Bellbird, BellbirdError, type Store, type Transaction } from "bellbird-client";
import { MemoryStore } from "../examples/memory-store.js";

const url = process.env.BELLBIRD_TEST_URL;
const key = process.env.BELLBIRD_TEST_KEY ?? "";
const control = process.env.BELLBIRD_TEST_CONTROL;
const akahu = process.env.BELLBIRD_TEST_AKAHU_CONTROL;
const skip = !url;
const client = skip ? null! : new Bellbird({ url, key, waitUpTo: 60 });
const FROM = "2025-01-01";

async function collect<T>(rows: AsyncIterable<T>): Promise<T[]> {
  const all = [];
  for await (const row of rows) all.push(row);
  return all;
}

/** Asks for the last row, with a request that shares no code with the client. */
async function assertCount(
  count: number,
  path: string,
  query: Record<string, string>,
): Promise<void> {
  const window = { limit: "1", offset: String(Math.max(count - 1, 0)) };
  const response = await fetch(`${url}${path}?${new URLSearchParams({ ...query, ...window })}`, {
    headers: { authorization: `Bearer ${key}` },
  });
  assert.equal(response.status, 200);
  const { data, pagination } = await response.json();
  const found = { rows: data.length, total: pagination.total, hasMore: pagination.hasMore };
  assert.deepEqual(found, { rows: Math.min(count, 1), total: count, hasMore: false });
}

async function connectionsOf(category: string) {
  return (await client.connections()).filter((connection) => connection.category === category);
}

test("live: whose key it is", { skip }, async () => {
  const me = await client.me();
  assert(key.startsWith(me.key.prefix));
});

test("live: accounts and their balances", { skip }, async () => {
  const accounts = await collect(client.accounts());
  assert(accounts.length > 0);
  await assertCount(accounts.length, "/v1/accounts", {});
  const ids = accounts.slice(0, 100).map(({ id }) => id);
  const balances = await client.balances(ids);
  assert.deepEqual(balances.map(({ accountId }) => accountId).sort(), ids.sort());
});

test("live: categories", { skip }, async () => {
  assert((await client.categories()).some((category) => category.key === "FOOD_AND_DRINK"));
});

test("live: transactions of an account of each bank", { skip }, async () => {
  const accounts = await collect(client.accounts());
  for (const { id: connectionId } of await connectionsOf("banking")) {
    const account = accounts.find((account) => account.connectionId === connectionId);
    if (!account) continue;
    const query = { connectionId, accountId: account.id, from: FROM };
    const rows = await collect(client.transactions(query));
    assert.equal(new Set(rows.map(({ id }) => id)).size, rows.length);
    await assertCount(rows.length, "/v1/transactions", query);
  }
});

test("live: holdings and trades of each broker", { skip }, async () => {
  for (const { id: connectionId } of await connectionsOf("brokerage")) {
    await client.holdings({ connectionId });
    const rows = await collect(client.trades({ connectionId }));
    await assertCount(rows.length, "/v1/trades", { connectionId });
  }
});

test("live: an error", { skip }, async () => {
  const accountId = "00000000-0000-7000-8000-000000000000";
  await assert.rejects(client.balances([accountId]), (error) => {
    assert(error instanceof BellbirdError);
    assert.deepEqual([error.status, error.code], [404, "not_found"]);
    return error.requestId !== null;
  });
});

test("live: transactions are followed", { skip }, async () => {
  const [connection] = await connectionsOf("banking");
  const connectionId = connection!.id;
  const accounts = await collect(client.accounts());
  const accountId = accounts.find((account) => account.connectionId === connectionId)!.id;
  const copy = await followTwice((store) =>
    client.followTransactions(store, { connectionId, accountId, from: FROM }),
  );
  const rows = await collect(client.transactions({ connectionId, accountId, from: FROM }));
  assert(rows.length > 0);
  assert.deepEqual(sorted(copy), sorted(rows));
});

test("live: trades are followed", { skip }, async () => {
  const [connection] = await connectionsOf("brokerage");
  await followTwice((store) => client.followTrades(store, { connectionId: connection!.id }));
});

test("live: changes at the provider are followed", { skip: skip || !control }, async () => {
  const connections = await client.connections();
  const connectionId = connections.find(({ provider }) => provider === "fiskil")!.id;
  const store = new MemoryStore<Transaction>();
  const follow = () => client.followTransactions(store, { connectionId });
  const descriptions = () => [...store.rows.values()].map(({ row }) => row.description);
  await follow();
  const [[changedKey, changed], [removedKey, removed]] = [...store.rows] as [Entry, Entry];
  const [description, added] = [`CHANGED ${Date.now()}`, `ADDED ${Date.now()}`];
  const ask = (method: string, path: string, body?: object) => tell(control!, method, path, body);
  const row = await ask("PATCH", `/${changed.row.id}`, { description });
  await ask("POST", "", { account_id: row.account_id, amount: "-1.25", description: added });
  await ask("DELETE", `/${removed.row.id}`);
  // The service syncs first, but only if its last sync is older than changes_max_age_seconds.
  for (let tries = 0; tries < 240 && !descriptions().includes(added); tries += 1) {
    await setTimeout(250);
    await follow();
  }
  assert.equal(store.rows.get(changedKey)?.row.description, description);
  // A provider that leaves a row out for a moment has not removed it.
  assert.deepEqual(store.rows.get(removedKey), removed);
  store.rows.delete(removedKey);
  const oldest = [...store.rows.values()].map(({ day }) => day).sort()[0]!;
  const copy = [...store.rows.values()].map(({ row }) => row);
  const accounts = new Set(copy.map(({ accountId }) => accountId));
  const listed = [...accounts].map((accountId) =>
    collect(client.transactions({ connectionId, accountId, from: oldest })),
  );
  assert.deepEqual(sorted(copy), sorted((await Promise.all(listed)).flat()));
});

test("live: a removal is followed", { skip: skip || !akahu }, async () => {
  const connections = await client.connections();
  const connectionId = connections.find(({ provider }) => provider === "akahu")!.id;
  const store = new MemoryStore<Transaction>();
  const follow = () => client.followTransactions(store, { connectionId });
  await follow();
  const copied = new Map(store.rows);
  const [[key, { row }]] = [...copied] as [Entry];
  await tell(akahu!, "DELETE", `/${row.id}`);
  for (let tries = 0; tries < 240 && store.rows.has(key); tries += 1) {
    await setTimeout(250);
    await follow();
  }
  copied.delete(key);
  assert.deepEqual(store.rows, copied);
});

type Entry = [string, { row: Transaction; day: string }];

async function tell(
  provider: string,
  method: string,
  path: string,
  body?: object,
): Promise<Record<string, string>> {
  const response = await fetch(`${provider}/__control/transactions${path}`, {
    method,
    ...(body && { body: JSON.stringify(body) }),
  });
  assert(response.ok, `${method} ${response.status}`);
  return response.status === 204 ? {} : await response.json();
}

/** The rows of an empty store after a first copy, which a second call does not change. */
async function followTwice<Row>(follow: (store: Store<Row>) => Promise<void>): Promise<Row[]> {
  const store = new MemoryStore<Row>();
  await follow(store);
  const apply = store.apply;
  let changes = 0;
  store.apply = (batch) => {
    changes += batch.upserts.size + batch.removals.size;
    apply.call(store, batch);
  };
  await follow(store);
  assert.equal(changes, 0);
  return [...store.rows.values()].map(({ row }) => row);
}

function sorted(rows: unknown[]): string[] {
  return rows.map((row) => JSON.stringify(row)).sort();
}
