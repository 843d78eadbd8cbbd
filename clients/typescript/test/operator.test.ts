// Against the operator's API of a running service, if BELLBIRD_TEST_ADMIN_URL and
// BELLBIRD_TEST_OPERATOR_KEY are set. It has to allow the return origin https://app.example.com and
// webhook endpoints on loopback.

import assert from "node:assert/strict";
import { test } from "node:test";
import { Bellbird, BellbirdError } from "bellbird-client";
import { BellbirdOperator } from "bellbird-client/operator";

const adminUrl = process.env.BELLBIRD_TEST_ADMIN_URL;
const key = process.env.BELLBIRD_TEST_OPERATOR_KEY ?? "";
const skip = !adminUrl;
const operator = skip ? null! : new BellbirdOperator({ url: adminUrl, key });
const NOBODY = "00000000-0000-7000-8000-000000000000";

/** Nobody listens there. */
const WEBHOOK_URL = "http://127.0.0.1:1024/";

async function collect<T>(rows: AsyncIterable<T>): Promise<T[]> {
  const all = [];
  for await (const row of rows) all.push(row);
  return all;
}

function newUser() {
  const reference = `customer-${crypto.randomUUID()}`;
  return { email: `${reference}@example.com`, reference };
}

async function assertFails(call: Promise<unknown>, status: number, code: string): Promise<void> {
  await assert.rejects(call, (error) => {
    assert(error instanceof BellbirdError);
    assert.deepEqual([error.status, error.code], [status, code], error.message);
    return true;
  });
}

test("live: a user from creation to removal", { skip }, async () => {
  const body = newUser();
  const idempotencyKey = crypto.randomUUID();
  const user = await operator.createUser(body, { idempotencyKey });
  assert.deepEqual(await operator.createUser(body, { idempotencyKey }), user);
  assert.deepEqual(await collect(operator.users({ reference: body.reference })), [user]);
  assert.deepEqual(await operator.user(user.id), user);
  await assertFails(operator.createUser(body), 409, "conflict");
  const other = operator.createUser(newUser(), { idempotencyKey });
  await assertFails(other, 409, "idempotency_conflict");
  const changed = await operator.updateUser(user.id, { timezone: "Pacific/Auckland" });
  assert.equal(changed.timezone, "Pacific/Auckland");
  await operator.removeUser(user.id);
  await assertFails(operator.user(user.id), 404, "not_found");
  const actions = (await collect(operator.audit({ userId: user.id }))).map(({ action }) => action);
  assert.deepEqual(actions, ["user.remove", "user.update", "user.create"]);
});

test("live: keys", { skip }, async () => {
  const { id: userId } = await operator.createUser(newUser());
  const created = await operator.createKey(userId, { name: "app" });
  const client = new Bellbird({ url: process.env.BELLBIRD_TEST_URL!, key: created.key });
  assert.equal((await client.me()).key.prefix, created.prefix);
  const rotated = await operator.rotateKey(created.id, { graceSeconds: 0 });
  await assertFails(client.me(), 401, "invalid_key");
  await operator.revokeKey(rotated.id);
  const keys = await operator.keys(userId);
  const revoked = Object.fromEntries(keys.map(({ id, revokedAt }) => [id, revokedAt !== null]));
  assert.deepEqual(revoked, { [created.id]: false, [rotated.id]: true });
  assert.notEqual((await operator.createSetupToken(userId)).token, "");
  await operator.revokeSetupTokens(userId);
});

test("live: a link session", { skip }, async () => {
  const { id: userId } = await operator.createUser(newUser());
  const returnUrl = "https://app.example.com/linked";
  const body = { userId, returnUrl, state: "1" };
  const { id, url, expiresAt } = await operator.createLinkSession(body);
  assert(url.startsWith("http"));
  const session = await operator.linkSession(id);
  const open = { id, userId, status: "open", connections: [], reason: null, expiresAt };
  assert.deepEqual(session, open);
  const elsewhere = operator.createLinkSession({ userId, returnUrl: "https://evil.example/" });
  await assertFails(elsewhere, 400, "invalid_parameters");
  await assertFails(operator.linkSession(NOBODY), 404, "not_found");
});

test("live: all pages of users and connections", { skip }, async () => {
  const created = [];
  for (let count = 0; count < 201; count += 1) {
    created.push((await operator.createUser(newUser())).id);
  }
  const listed = new Set((await collect(operator.users())).map(({ id }) => id));
  assert(created.every((id) => listed.has(id)));
  const [connection] = await collect(operator.connections());
  const found = await operator.connection(connection!.id);
  assert.equal(found.userId, connection!.userId);
  assert.equal((await operator.syncConnection(found.id)).id, found.id);
  await assertFails(operator.removeConnection(NOBODY), 404, "not_found");
});

test("live: a webhook endpoint", { skip }, async () => {
  const { id: userId } = await operator.createUser(newUser());
  const body = { userId, url: WEBHOOK_URL };
  const { secret, ...endpoint } = await operator.createWebhookEndpoint(body);
  assert(secret.startsWith("whsec_"));
  assert.deepEqual(await collect(operator.webhookEndpoints({ userId })), [endpoint]);
  assert.deepEqual(await operator.webhookEndpoint(endpoint.id), endpoint);
  const disabled = await operator.updateWebhookEndpoint(endpoint.id, { enabled: false });
  assert.equal(disabled.status, "disabled");
  assert.notEqual((await operator.rotateWebhookSecret(endpoint.id)).secret, secret);
  const { eventId, delivered } = await operator.pingWebhookEndpoint(endpoint.id);
  assert.equal(delivered, false);
  const failed = await collect(operator.deliveries(endpoint.id, { state: "failed" }));
  assert.deepEqual(failed.map((delivery) => delivery.eventId), [eventId]);
  assert.equal((await operator.delivery(endpoint.id, eventId)).attemptLog.length, 1);
  await assertFails(operator.redeliver(endpoint.id, NOBODY), 404, "not_found");
  await operator.updateWebhookEndpoint(endpoint.id, { enabled: true });
  const since = endpoint.createdAt;
  assert.equal((await operator.recover(endpoint.id, { since })).recovered, 0);
  await operator.removeWebhookEndpoint(endpoint.id);
  await assertFails(operator.webhookEndpoint(endpoint.id), 404, "not_found");
});

test("live: a key that is not an operator's", { skip }, async () => {
  const wrong = new BellbirdOperator({ url: adminUrl!, key: process.env.BELLBIRD_TEST_KEY! });
  await assertFails(collect(wrong.users()), 401, "invalid_key");
});
