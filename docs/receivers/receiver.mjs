// Receives Bellbird's webhooks: verifies each event, skips repeated ones, and prints one line of
// JSON for each.
//
//   npm install standardwebhooks
//   BELLBIRD_WEBHOOK_SECRET=whsec_... node receiver.mjs 9000

import { createServer } from "node:http";
import { Webhook } from "standardwebhooks";

const BODY_BYTES_MAX = 4 * 1024 * 1024;
const IDS_MAX = 10_000;

const webhook = new Webhook(process.env.BELLBIRD_WEBHOOK_SECRET);
// Ids of handled events, the oldest first. In production use a database table, so that a restart
// keeps them.
const handled = new Set();

// Your own handling. If it takes long, put the event into your own queue here and process it later.
// If two events contain the same row, keep the row of the event with the later `created`. If those
// are equal, the later `webhook-timestamp` wins.
function handle({ id, type, metadata }) {
  const { new_count, updated_count, chunk, total_chunks } = metadata;
  console.log(JSON.stringify({ id, type, new_count, updated_count, chunk, total_chunks }));
}

async function receive(request) {
  if (request.method !== "POST") return 405;
  const length = request.headers["content-length"];
  if (length === undefined) return 411;
  if (Number(length) > BODY_BYTES_MAX) return 413;
  const parts = [];
  for await (const part of request) parts.push(part);
  const body = Buffer.concat(parts); // the raw body: the signature covers its exact bytes
  let event;
  try {
    event = webhook.verify(body, request.headers);
  } catch {
    return 400;
  }
  if (!handled.has(event.id)) {
    handle(event);
    handled.add(event.id);
    if (handled.size > IDS_MAX) handled.delete(handled.values().next().value);
  }
  return 204;
}

const port = Number(process.argv[2] ?? process.env.PORT ?? 9000);
const server = createServer((request, response) => {
  receive(request)
    .catch(() => 400) // the sender disconnected
    .then((status) => response.writeHead(status, { connection: "close" }).end());
});
server.requestTimeout = 15_000;
server.listen(port, "127.0.0.1", () => console.error(`listening on http://127.0.0.1:${port}/`));
