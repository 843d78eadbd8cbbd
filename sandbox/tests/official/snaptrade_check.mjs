// Runs SnapTrade's own TypeScript client against the sandbox. Each response is also written as a literal, which the
// TypeScript compiler compares with the client's declared types.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import assert from "node:assert/strict";
import { Literals } from "./literals.mjs";

const { Snaptrade, SnaptradeAuth } = createRequire(import.meta.url)("snaptrade-typescript-sdk");

const sandbox = JSON.parse(readFileSync(process.argv[2], "utf8"));
const { baseUrl, clientId, consumerKey } = sandbox.snaptrade;
const [credentials] = sandbox.credentials.filter((credentials) => credentials.provider === "snaptrade");
const user = { userId: credentials.userId, userSecret: credentials.userSecret };
const connect = (key) =>
  new Snaptrade({ basePath: baseUrl, auth: SnaptradeAuth.commercialApiKey({ clientId, consumerKey: key }) });
const snaptrade = connect(consumerKey);
const types = new Literals("snaptrade-typescript-sdk");

const connections = (await snaptrade.connections.listBrokerageAuthorizations(user)).data;
assert.ok(connections.some((connection) => connection.id === credentials.authorizationId));
// The newer Python client declares an object here, this client a string (docs/providers/snaptrade.md#connections).
types.add("BrokerageAuthorization[]", connections.map(({ data_freshness_mode, ...rest }) => rest));
const all = (await snaptrade.accountInformation.listUserAccounts(user)).data;
types.add("Account[]", all);

const accounts = all.filter((account) => account.brokerage_authorization === credentials.authorizationId);
let rows = 0;
for (const { id: accountId } of accounts) {
  const named = { ...user, accountId };
  types.add("Balance[]", (await snaptrade.accountInformation.getUserAccountBalance(named)).data);
  const positions = (await snaptrade.accountInformation.getAllAccountPositions(named)).data;
  assert.ok(positions.results.every((position) => typeof position.units === "string"));
  // This client writes a space as +, the Python client as %20. Both sign what they send.
  const page = (
    await snaptrade.accountInformation.getAccountActivities({
      ...named, startDate: "2020-01-01", offset: 0, limit: 200, type: "BUY,SELL,DIVIDEND,ODD TYPE",
    })
  ).data;
  assert.equal(page.pagination.limit, 200);
  types.add("PaginatedUniversalActivity", page);
  rows += page.data.length;
}
assert.ok(rows > 0);

const rejected = (status, call) => assert.rejects(call, (error) => (error.status ?? error.response?.status) === status);
await rejected(401, () => connect("another-key").accountInformation.listUserAccounts(user));
await rejected(404, () =>
  snaptrade.accountInformation.getUserAccountBalance({ ...user, accountId: "00000000-0000-4000-8000-000000000000" }),
);
// Retired for new customers.
await rejected(410, () => snaptrade.accountInformation.getUserHoldings({ ...user, accountId: accounts[0].id }));

types.check();
const counted = `${connections.length} connections, ${all.length} accounts, ${rows} activities`;
console.log(`SnapTrade, TypeScript client: ${counted}; types agree`);
