import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { inspect } from "node:util";
import { Bellbird, BellbirdError, type BellbirdOptions, type Store } from "bellbird-client";
import { BellbirdOperator } from "bellbird-client/operator";
import { type Exchange, KEY, withServer } from "./server.js";
import { type OpenStore, storeKinds } from "./stores.js";

type Json = Record<string, any>;

interface Case {
  name: string;
  call: { client?: "operator"; method: string; arguments: Json; waitUpTo?: number; times?: number };
  store?: { cursor: string | null; rows: Json; failsAtPage?: number };
  exchanges: Exchange[];
  expect: { value?: unknown; rows?: unknown; cursor?: string; error?: Json; waited?: number[] };
}

const file = new URL("../../../conformance.json", import.meta.url);
const { cases } = JSON.parse(readFileSync(file, "utf8")) as { cases: Case[] };

let waited: number[];

async function sleep(seconds: number): Promise<void> {
  waited.push(seconds);
}

class TestedClient extends Bellbird {
  protected override sleep = sleep;
}

class TestedOperator extends BellbirdOperator {
  protected override sleep = sleep;
}

type Call<Result, Client = Bellbird> = (client: Client, query: any) => Result;

const values: Record<string, Call<Promise<unknown>>> = {
  balances: (client, { accountIds }) => client.balances(accountIds),
  categories: (client) => client.categories(),
  connections: (client) => client.connections(),
  holdings: (client, query) => client.holdings(query),
  me: (client) => client.me(),
};

const iterations: Record<string, Call<AsyncIterable<unknown>>> = {
  accounts: (client) => client.accounts(),
  tradeChanges: (client, query) => client.tradeChanges(query),
  trades: (client, query) => client.trades(query),
  transactionChanges: (client, query) => client.transactionChanges(query),
  transactions: (client, query) => client.transactions(query),
};

const changes: Record<string, Call<Promise<unknown>, BellbirdOperator>> = {
  createKey: (operator, { userId, key }) => operator.createKey(userId, key),
  createUser: (operator, { user }) => operator.createUser(user),
  revokeKey: (operator, { id }) => operator.revokeKey(id),
  syncConnection: (operator, { id, ...options }) => operator.syncConnection(id, options),
  updateUser: (operator, { id, change }) => operator.updateUser(id, change),
};

const follows: Record<string, (client: Bellbird, store: Store<any>, query: any) => Promise<void>> =
  {
    followTrades: (client, store, query) => client.followTrades(store, query),
    followTransactions: (client, store, query) => client.followTransactions(store, query),
  };

for (const one of cases) {
  if (one.store) {
    for (const [kind, open] of Object.entries(storeKinds)) {
      test(`${one.name} (${kind})`, () => conforms(one, open()));
    }
  } else {
    test(one.name, () => conforms(one));
  }
}

async function conforms(one: Case, copy?: OpenStore): Promise<void> {
  await withServer(one.exchanges, async (url) => {
    const { value, rows, cursor, error, waited: expectedWaits = [] } = one.expect;
    waited = [];
    const options = { url, key: KEY, waitUpTo: one.call.waitUpTo ?? 60 };
    const outcome: Json = {};
    const failure = await run(one, options, outcome, copy).then(
      () => null,
      (reason) => reason,
    );
    if (error) compareErrors(failure, error);
    else if (failure) throw failure;
    if (copy) Object.assign(outcome, { rows: copy.rows(), cursor: await copy.store.cursor() });
    const expected = { value, rows, cursor };
    assert.deepEqual(
      { value: undefined, rows: undefined, cursor: undefined, ...outcome },
      expected,
    );
    assert.deepEqual(waited, expectedWaits);
  });
}

async function run(
  { call, store }: Case,
  options: BellbirdOptions,
  outcome: Json,
  copy?: OpenStore,
): Promise<void> {
  const client = new TestedClient(options);
  if (call.client === "operator") {
    const operator = new TestedOperator(options);
    if (call.method === "users") outcome.rows = await collect(operator.users(call.arguments));
    else outcome.value = await changes[call.method]!(operator, call.arguments);
  } else if (copy) {
    await fill(copy.store, store!);
    const follow = () => follows[call.method]!(client, copy.store, call.arguments);
    await followTwiceIfItFails(copy.store, store!.failsAtPage, follow);
    for (let times = 1; times < (call.times ?? 1); times += 1) await follow();
  } else if (call.method in values) {
    outcome.value = await values[call.method]!(client, call.arguments);
  } else {
    outcome.rows = [];
    for await (const row of iterations[call.method]!(client, call.arguments))
      outcome.rows.push(row);
  }
}

async function collect(rows: AsyncIterable<unknown>): Promise<unknown[]> {
  const all = [];
  for await (const row of rows) all.push(row);
  return all;
}

async function fill(
  store: Store<any>,
  { cursor, rows }: NonNullable<Case["store"]>,
): Promise<void> {
  if (cursor === null) return;
  const upserts = new Map<string, { row: any; day: string }>();
  for (const [key, row] of Object.entries(rows)) {
    upserts.set(key, { row, day: row.date ?? row.tradeDate.slice(0, 10) });
  }
  await store.apply({ upserts, removals: new Set(), cursor, completeFrom: null });
}

/** The store keeps nothing of the n-th page. */
async function followTwiceIfItFails(
  store: Store<any>,
  failsAtPage: number | undefined,
  follow: () => Promise<void>,
): Promise<void> {
  if (failsAtPage !== undefined) {
    const crash = new Error("the store failed");
    const apply = store.apply;
    let pages = 0;
    store.apply = (batch) => {
      pages += 1;
      if (pages === failsAtPage) throw crash;
      return apply.call(store, batch);
    };
    await assert.rejects(follow(), crash);
  }
  await follow();
}

function compareErrors(actual: unknown, expected: Json): void {
  assert(actual instanceof BellbirdError, "no BellbirdError was thrown");
  const members = Object.keys(expected).map((name) => [name, actual[name as keyof BellbirdError]]);
  assert.deepEqual(Object.fromEntries(members), expected);
  assert(!inspect(actual).includes(KEY), "the error contains the key");
}
