import assert from "node:assert/strict";
import { createServer, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { test } from "node:test";
import { inspect } from "node:util";
import { type Batch, Bellbird, fromUnits, toUnits } from "bellbird-client";
import { verifyWebhook, WebhookVerificationError } from "bellbird-client/webhooks";
import { Webhook } from "standardwebhooks";
import { KEY, withServer } from "./server.js";
import { storeKinds } from "./stores.js";

const unavailable = (retryAfter: string) => ({
  request: { path: "/v1/me", query: {} },
  response: { status: 503, headers: { "Retry-After": retryAfter }, rawBody: "" },
});
const me = {
  request: { path: "/v1/me", query: {} },
  response: { status: 200, body: { data: {} } },
};

test("four_live_requests_at_once", async () => {
  const waiting: ServerResponse[] = [];
  let arrived = 0;
  let most = 0;
  const respond = () => waiting.splice(0).forEach((response) => response.end('{"data":[]}'));
  const server = createServer((_, response) => {
    arrived += 1;
    waiting.push(response);
    most = Math.max(most, waiting.length);
    // A fifth would come in this time.
    if (waiting.length === 4 || arrived === 10) setTimeout(respond, 50);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  const client = new Bellbird({ url: `http://127.0.0.1:${port}`, key: KEY });
  try {
    const requests = Array.from({ length: 10 }, () => client.holdings({ connectionId: "c" }));
    assert.equal((await Promise.all(requests)).length, 10);
    assert.equal(most, 4);
  } finally {
    server.closeAllConnections();
    server.close();
  }
});

test("an_abort_ends_a_wait_for_other_requests", async () => {
  const pending: ServerResponse[] = [];
  let isReleased = false;
  const server = createServer(({ url }, response) => {
    if (url === "/v1/me" || isReleased) response.end('{"data":[]}');
    else pending.push(response);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  const client = new Bellbird({ url: `http://127.0.0.1:${port}`, key: KEY });
  const controller = new AbortController();
  const read = (signal?: AbortSignal) => client.holdings({ connectionId: "c" }, { signal });
  try {
    const others = Array.from({ length: 4 }, () => read());
    let failure: unknown;
    const aborted = read(controller.signal).catch((error: unknown) => (failure = error));
    const last = read();
    controller.abort();
    // Meanwhile the others run, because the server sends no response to them.
    await client.me();
    assert.equal((failure as Error | undefined)?.name, "AbortError");
    isReleased = true;
    for (const response of pending) response.end('{"data":[]}');
    assert.equal((await Promise.all([...others, last])).length, 5);
    await aborted;
  } finally {
    server.closeAllConnections();
    server.close();
  }
});

test("a_wait_takes_its_time", () =>
  withServer([unavailable("1"), me], async (url) => {
    const started = performance.now();
    await new Bellbird({ url, key: KEY }).me();
    assert(performance.now() - started >= 990);
  }));

test("an_abort_ends_a_wait", () =>
  withServer([unavailable("30")], async (url) => {
    const controller = new AbortController();
    class Waiting extends Bellbird {
      protected override sleep(seconds: number, signal?: AbortSignal): Promise<void> {
        const wait = super.sleep(seconds, signal);
        controller.abort();
        return wait;
      }
    }
    const call = new Waiting({ url, key: KEY }).me({ signal: controller.signal });
    await assert.rejects(call, { name: "AbortError" });
  }));

test("an_aborted_call_is_not_repeated", () =>
  withServer([], async (url) => {
    const call = new Bellbird({ url, key: KEY }).me({ signal: AbortSignal.abort() });
    await assert.rejects(call, { name: "AbortError" });
  }));

test("the_service_may_be_below_a_path", () =>
  withServer(
    [{ request: { path: "/bellbird/v1/me", query: {} }, response: me.response }],
    async (url) => {
      await new Bellbird({ url: `${url}/bellbird/`, key: KEY }).me();
    },
  ));

test("a_list_is_read_no_further_than_it_is_iterated", () =>
  withServer(
    [
      {
        request: { path: "/v1/accounts", query: {} },
        response: {
          status: 200,
          body: {
            data: [{}, {}],
            pagination: { total: 9, limit: 2, offset: 0, hasMore: true },
          },
        },
      },
    ],
    async (url) => {
      for await (const _ of new Bellbird({ url, key: KEY }).accounts()) break;
    },
  ));

test("the_key_is_not_shown", () => {
  const client = new Bellbird({ url: "http://127.0.0.1:8080", key: KEY });
  assert(!inspect(client, { showHidden: true, depth: null }).includes(KEY));
  assert(!JSON.stringify(client).includes(KEY));
  const create = () => new Bellbird({ url: "http://127.0.0.1:8080", key: `${KEY}\n` });
  assert.throws(create, (error) => error instanceof TypeError && !inspect(error).includes(KEY));
});

test("units_are_exact", () => {
  const pairs: [string, bigint][] = [
    ["-49.13", -49130n],
    ["1500", 1500000n],
    ["-0.005", -5n],
    ["0", 0n],
    ["-123456789012345678901234567.89", -123456789012345678901234567890n],
  ];
  for (const [amount, units] of pairs) {
    assert.equal(toUnits(amount, 3), units);
    assert.equal(fromUnits(units, 3), amount);
  }
  assert.equal(toUnits("84.3000", 2), 8430n);
  assert.equal(toUnits("7.00", 0), 7n);
  assert.equal(fromUnits(-70n, 0), "-70");
  for (const text of ["0.125", "1e3", "", ".5", "5.", "+5", " 5", "NaN"]) {
    assert.throws(() => toUnits(text, 2), RangeError, text);
  }
});

test("a_batch_is_kept_whole_or_not_at_all", async () => {
  const { store, rows } = storeKinds.sqlite!();
  const batch = { removals: new Set<string>(), completeFrom: null };
  const first = new Map([["k1", { row: 1, day: "2026-11-20" }]]);
  await store.apply({ ...batch, upserts: first, cursor: "c1" });
  const second = new Map<string, unknown>([
    ["k2", { row: 2, day: "2026-11-20" }],
    ["k3", { row: 3, day: null }],
  ]);
  await assert.rejects(async () =>
    store.apply({ ...batch, upserts: second as Batch<number>["upserts"], cursor: "c2" }),
  );
  assert.deepEqual([await store.cursor(), rows()], ["c1", { k1: 1 }]);
});

const secret = `whsec_${Buffer.from("0123456789abcdef01234567").toString("base64")}`;
const body = '{"id":"e1","type":"endpoint.ping","note":"ō"}';

function signed(at: Date) {
  return {
    "webhook-id": "e1",
    "webhook-timestamp": String(Math.floor(at.getTime() / 1000)),
    "webhook-signature": new Webhook(secret).sign("e1", at, body),
  };
}

test("an_event_is_verified", () => {
  const headers = signed(new Date());
  assert.equal(verifyWebhook(body, headers, secret).id, "e1");
  assert.equal(verifyWebhook(Buffer.from(body), headers, secret).type, "endpoint.ping");
  assert.equal(
    verifyWebhook(new TextEncoder().encode(body), new Headers(headers), secret).id,
    "e1",
  );
});

test("an_event_that_is_forged_or_old_is_rejected", () => {
  const headers = signed(new Date());
  const old = signed(new Date(Date.now() - 301_000));
  const reject = (call: () => unknown) => assert.throws(call, WebhookVerificationError);
  reject(() => verifyWebhook(body.replace("e1", "e2"), headers, secret));
  reject(() => verifyWebhook(body, old, secret));
  reject(() => verifyWebhook(body, {}, secret));
});
