// Receives Bellbird's webhooks: verifies each, skips what came before, prints a line of JSON for each event.
//
//   npm install standardwebhooks
//   BELLBIRD_WEBHOOK_SECRET=whsec_... node receiver.mjs 9000

import { createServer } from "node:http";
import { Webhook } from "standardwebhooks";

const BODY_BYTES_MAX = 4 * 1024 * 1024;
const IDS_MAX = 10_000;

const webhook = new Webhook(process.env.BELLBIRD_WEBHOOK_SECRET);
// Ids of events that were taken, the oldest first. In a real receiver: a table, so that a restart does not lose them.
const taken = new Set();

// What you do with an event. If it takes long, put the event into a queue of your own here, and work later.
// Of two events that tell of one row, keep what the one with the later `created` says; where that is
// equal, the one with the later `webhook-timestamp`.
function take({ id, type, metadata }) {
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
  const body = Buffer.concat(parts); // as it came: what is signed are the bytes
  let event;
  try {
    event = webhook.verify(body, request.headers);
  } catch {
    return 400;
  }
  if (!taken.has(event.id)) {
    take(event);
    taken.add(event.id);
    if (taken.size > IDS_MAX) taken.delete(taken.values().next().value);
  }
  return 204;
}

const port = Number(process.argv[2] ?? process.env.PORT ?? 9000);
const server = createServer((request, response) => {
  receive(request)
    .catch(() => 400) // the sender went away
    .then((status) => response.writeHead(status, { connection: "close" }).end());
});
server.requestTimeout = 15_000;
server.listen(port, "127.0.0.1", () => console.error(`listening on http://127.0.0.1:${port}/`));
