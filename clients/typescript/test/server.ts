// A server that expects the requests of a list in their order, and sends the responses of the list.

import assert from "node:assert/strict";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";

export interface Exchange {
  request: {
    method?: string;
    path: string;
    query: Record<string, string | null>;
    body?: unknown;
    idempotencyKey?: string;
  };
  response: null | {
    status: number;
    headers?: Record<string, string>;
    body?: unknown;
    rawBody?: string;
    cutAfter?: number;
  };
}

export const KEY = "bb_0123456789ABCDEFGHIJabcdefghijKLMNOPQR";

/** Parameters that a client adds by itself. */
const ADDED = new Set(["limit", "offset"]);

/** Runs the test with the URL of such a server. */
export async function withServer(
  exchanges: Exchange[],
  test: (url: string) => Promise<void>,
): Promise<void> {
  const remaining = [...exchanges];
  const problems: unknown[] = [];
  const idempotencyKeys = new Set<unknown>();
  const server = createServer(async (request, response) => {
    try {
      const exchange = remaining.shift();
      assert(exchange, `no request is expected after the last one: ${request.url}`);
      await check(request, exchange.request);
      if (request.method === "POST") idempotencyKeys.add(request.headers["idempotency-key"]);
      respond(response, exchange.response);
    } catch (problem) {
      problems.push(problem);
      response.writeHead(418).end();
    }
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  try {
    await test(`http://127.0.0.1:${(server.address() as AddressInfo).port}`);
  } catch (problem) {
    problems.push(problem);
  } finally {
    server.closeAllConnections();
    server.close();
  }
  if (problems.length > 0) throw problems[0];
  assert.deepEqual(remaining, [], "requests that did not come");
  assert(idempotencyKeys.size <= 1, "one change has several Idempotency-Keys");
}

async function check(request: IncomingMessage, expected: Exchange["request"]): Promise<void> {
  const url = new URL(request.url!, "http://localhost");
  let body = "";
  for await (const part of request) body += part;
  assert.equal(request.method, expected.method ?? "GET");
  assert.deepEqual(body ? JSON.parse(body) : undefined, expected.body);
  const key = request.headers["idempotency-key"];
  assert.equal(key !== undefined, request.method === "POST", "Idempotency-Key");
  if (expected.idempotencyKey) assert.equal(key, expected.idempotencyKey);
  assert.equal(request.headers.authorization, `Bearer ${KEY}`);
  assert.equal(url.pathname, expected.path);
  for (const [name, value] of Object.entries(expected.query)) {
    assert.deepEqual(url.searchParams.getAll(name), value === null ? [] : [value], name);
  }
  const others = [...url.searchParams.keys()].filter((name) => !(name in expected.query));
  assert.deepEqual(
    others.filter((name) => !ADDED.has(name)),
    [],
    "other parameters",
  );
}

function respond(to: ServerResponse, response: Exchange["response"]): void {
  if (!response) {
    to.socket!.destroy();
    return;
  }
  const body = Buffer.from(response.rawBody ?? JSON.stringify(response.body));
  to.writeHead(response.status, {
    "Content-Type": "application/json",
    ...(response.status !== 204 && { "Content-Length": body.length }),
    ...response.headers,
  });
  if (response.cutAfter === undefined) to.end(body);
  else to.write(body.subarray(0, response.cutAfter), () => to.socket!.destroy());
}
