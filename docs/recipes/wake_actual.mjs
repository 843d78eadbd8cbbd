// Receives Bellbird's webhooks, and lets Actual Budget sync its linked accounts when one reports a
// change. The rows themselves reach Actual by SimpleFIN.
//
//   npm install standardwebhooks @actual-app/api
//   export BELLBIRD_WEBHOOK_SECRET=whsec_... ACTUAL_SERVER_URL=http://127.0.0.1:5006
//   export ACTUAL_PASSWORD=... ACTUAL_SYNC_ID=...
//   node wake_actual.mjs 9000

import { mkdirSync } from "node:fs";
import { createServer } from "node:http";
import api from "@actual-app/api";
import { Webhook } from "standardwebhooks";

const BODY_BYTES_MAX = 4 * 1024 * 1024;
// One sync of Bellbird may send several events: wait for the last of them.
const QUIET_MS = 2_000;
const RETRY_MS = 600_000;
const RETRIES_MAX = 3;

const webhook = new Webhook(process.env.BELLBIRD_WEBHOOK_SECRET);
let timer = null;
let isRunning = false;
let isWanted = false;

const say = (text) => console.log(`${new Date().toISOString()} ${text}`);

async function syncBudget() {
  const dataDir = process.env.ACTUAL_DATA_DIR ?? "actual-data";
  mkdirSync(dataDir, { recursive: true });
  const { ACTUAL_SERVER_URL: serverURL, ACTUAL_PASSWORD: password } = process.env;
  await api.init({ dataDir, serverURL, password });
  try {
    // The password of an encrypted budget, if it has one.
    const encryption = { password: process.env.ACTUAL_ENCRYPTION_PASSWORD };
    await api.downloadBudget(process.env.ACTUAL_SYNC_ID, encryption);
    await api.runBankSync();
  } finally {
    await api.shutdown(); // sends the new rows to Actual's server, also those before an error
  }
}

function schedule(delay, retries) {
  clearTimeout(timer);
  timer = setTimeout(run, delay, retries);
}

// At most one run at a time, and one more afterwards, however many events come meanwhile.
async function run(retries) {
  isRunning = true;
  isWanted = false;
  let hasFailed = false;
  try {
    await syncBudget();
    say("synced");
  } catch (error) {
    say(`could not sync: ${error.message}`);
    hasFailed = true;
  }
  isRunning = false;
  if (isWanted) schedule(hasFailed ? RETRY_MS : QUIET_MS, RETRIES_MAX);
  else if (hasFailed && retries > 0) schedule(RETRY_MS, retries - 1);
}

function wake() {
  isWanted = true;
  if (!isRunning) schedule(QUIET_MS, RETRIES_MAX);
}

async function receive(request) {
  if (request.method !== "POST") return 405;
  const length = request.headers["content-length"];
  if (length === undefined) return 411;
  if (Number(length) > BODY_BYTES_MAX) return 413;
  const parts = [];
  for await (const part of request) parts.push(part);
  let event;
  try {
    event = webhook.verify(Buffer.concat(parts), request.headers);
  } catch {
    return 400;
  }
  say(`received ${event.type}`);
  // A repeated event costs one sync that finds nothing, so no ids are kept. Trades are not in
  // SimpleFIN, and pings change nothing.
  if (["transactions.synced", "connection.updated"].includes(event.type)) wake();
  return 204;
}

const port = Number(process.argv[2] ?? 9000);
const server = createServer((request, response) => {
  receive(request)
    .catch(() => 400) // the sender disconnected
    .then((status) => response.writeHead(status, { connection: "close" }).end());
});
server.requestTimeout = 15_000;
server.listen(port, "127.0.0.1", () => console.error(`listening on http://127.0.0.1:${port}/`));
