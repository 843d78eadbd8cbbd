// Runs Akahu's own client against the sandbox. The client validates nothing itself, so each response is also written as
// a literal, which the TypeScript compiler compares with the client's declared types.

import { readFileSync } from "node:fs";
import assert from "node:assert/strict";
import { createServer } from "node:http";
import { AkahuClient } from "akahu";
import { Literals } from "./literals.mjs";

const sandbox = JSON.parse(readFileSync(process.argv[2], "utf8"));
const { baseUrl, appToken, appSecret } = sandbox.akahu;
const { hostname: host, port } = new URL(baseUrl);
const at = { protocol: "http", host, port: Number(port) };
const akahu = new AkahuClient({ appToken, appSecret, ...at });
const [{ userToken }] = sandbox.credentials.filter((credentials) => credentials.provider === "akahu");
const types = new Literals("akahu");

types.add("User", await akahu.users.get(userToken));
types.add("Connection[]", await akahu.connections.list());
types.add("Category[]", await akahu.categories.list());
const accounts = await akahu.accounts.list(userToken);
types.add("Account[]", accounts);
const kinds = new Set(accounts.map((account) => account.type));
assert.equal(kinds.size, 11, `all account types: ${[...kinds]}`);

const walk = async (list) => {
  const rows = [];
  let pages = 0;
  let cursor;
  do {
    const page = await list({ start: "2000-01-01T00:00:00.000Z", cursor });
    assert.ok(page.items.length <= 100);
    rows.push(...page.items);
    cursor = page.cursor.next;
    pages += 1;
  } while (cursor !== null);
  const dates = rows.map((row) => row.date);
  assert.deepEqual(dates, [...dates].sort().reverse(), "newest first");
  assert.equal(new Set(rows.map((row) => row._id)).size, rows.length, "each once");
  return { rows, pages };
};

/** Removes members that real responses have but the client's types lack (docs/providers/akahu.md#transactions). */
const typed = (row) => {
  if (row.merchant === undefined) return row;
  const { nzbn, ...merchant } = row.merchant;
  return { ...row, merchant };
};

let sum = 0;
for (const account of accounts) {
  const { rows } = await walk((query) => akahu.accounts.listTransactions(userToken, account._id, query));
  assert.ok(rows.every((row) => row._account === account._id));
  types.add("Transaction[]", rows.slice(0, 200).map(typed));
  await akahu.accounts.listPendingTransactions(userToken, account._id);
  sum += rows.length;
}
const { rows, pages } = await walk((query) => akahu.transactions.list(userToken, query));
assert.equal(rows.length, sum);
assert.ok(pages > 3);
const some = rows.slice(0, 3).map((row) => row._id);
assert.deepEqual((await akahu.transactions.getMany(userToken, some)).map((row) => row._id).sort(), [...some].sort());
assert.equal((await akahu.transactions.get(userToken, some[0]))._id, some[0]);

const rejected = (status, call) =>
  assert.rejects(call, (error) => error.status === status || error.response?.status === status);
await rejected(401, () => akahu.users.get("user_token_wrong"));
await rejected(404, () => akahu.accounts.get(userToken, `acc_${"c".repeat(25)}`));

// Subscriptions, and a refresh with its rate limit.
const hook = await akahu.webhooks.subscribe(userToken, { webhook_type: "TRANSACTION", state: "ours" });
assert.ok((await akahu.webhooks.list(userToken)).some((known) => known._id === hook));
await akahu.webhooks.unsubscribe(userToken, hook);
await akahu.accounts.refreshAll(userToken);
await rejected(429, () => akahu.accounts.refreshAll(userToken));

// A webhook. The client checks its signature (docs/providers/akahu.md#webhook-keys).
let deliver;
const delivered = new Promise((resolve) => (deliver = resolve));
const listener = createServer(async (request, response) => {
  const parts = [];
  for await (const part of request) parts.push(part);
  response.end();
  deliver({ headers: request.headers, body: Buffer.concat(parts).toString() });
});
await new Promise((resolve) => listener.listen(0, "127.0.0.1", resolve));
const control = async (path, body) => {
  const url = `${new URL(baseUrl).origin}/__control/${path}`;
  const response = await fetch(url, { method: "POST", body: JSON.stringify(body) });
  assert.ok(response.ok, `${path}: ${response.status}`);
  return response.json();
};
await control("webhooks", { url: `http://127.0.0.1:${listener.address().port}/` });
await akahu.webhooks.subscribe(userToken, { webhook_type: "TRANSACTION", state: "ours" });
const row = await control("transactions", { _account: accounts[0]._id });
const { headers, body } = await delivered;
listener.close();
const keyId = Number(headers["x-akahu-signing-key"]);
const payload = await akahu.webhooks.validateWebhook(keyId, headers["x-akahu-signature"], body);
assert.deepEqual(payload.new_transaction_ids, [row._id]);
await assert.rejects(() => akahu.webhooks.validateWebhook(keyId, headers["x-akahu-signature"], `${body} `));
await control("webhooks", { url: null });

// Consent: the hosted page, the code and its exchange. The sandbox accepts any loopback redirect URI, and
// `sandbox_auto` consents without the page.
const redirect_uri = "http://127.0.0.1:9/cb";
const url = akahu.auth.buildAuthorizationUrl({ ...at, path: "authorize", redirect_uri, state: "s" });
const page = await fetch(url);
assert.equal(page.status, 200);
assert.match(await page.text(), /This is a sandbox/);
const auto = await fetch(`${url}&sandbox_auto=accept`, { redirect: "manual" });
const callback = new URL(auto.headers.get("location"));
assert.equal(callback.searchParams.get("state"), "s");
const token = await akahu.auth.exchange(callback.searchParams.get("code"), redirect_uri);
assert.ok((await akahu.accounts.list(token.access_token)).length > 0);
await assert.rejects(() => akahu.auth.exchange(callback.searchParams.get("code"), redirect_uri), "a code is used once");

// A new user goes through the pages.
let shown = { url, html: await (await fetch(url)).text() };
const send = async (fields) => {
  const field = (name) => [name, shown.html.match(new RegExp(`name="${name}" value="([^"]*)"`))[1]];
  const action = new URL(shown.html.match(/<form method="post" action="([^"]*)"/)?.[1] ?? shown.url, shown.url);
  const body = new URLSearchParams([field("session"), field("form_number"), ...fields]);
  const response = await fetch(action, { method: "POST", body, redirect: "manual" });
  const next = new URL(response.headers.get("location"), action);
  if (next.host === action.host) shown = { url: next, html: await (await fetch(next)).text() };
  return next;
};
await send([["do", "allow"]]);
await send([["institution", shown.html.match(/name="institution" value="(\w+)">/)[1]]]);
await send([["name", "new@example.com"], ["code", shown.html.match(/class="code">([^<]*)</)[1]]]);
const returned = await send([0, 1, 2, 3].map((index) => ["account", index]));
const fresh = (await akahu.auth.exchange(returned.searchParams.get("code"), redirect_uri)).access_token;
types.add("User", await akahu.users.get(fresh));
const own = await akahu.accounts.list(fresh);
types.add("Account[]", own);
assert.deepEqual(own.map((account) => account.type), ["CHECKING", "SAVINGS", "CREDITCARD", "LOAN"]);
const freshRows = (await walk((query) => akahu.transactions.list(fresh, query))).rows;
types.add("Transaction[]", freshRows.slice(0, 200).map(typed));

types.check();
const counted = `${accounts.length} accounts of ${kinds.size} types, ${sum} transactions in ${pages} pages`;
console.log(`Akahu client: ${counted}; types agree`);
