// Lets Actual Budget read Bellbird: its sync server claims a setup token, its engine links each account and syncs.
//
//   node actual.mjs <folder> <setup token>        TZ is the timezone of both
//
// Prints lines of JSON: what was linked and synced, then after each line of standard input what a further sync gave.

import { spawn } from "node:child_process";
import { Console } from "node:console";
import { createWriteStream, mkdirSync } from "node:fs";
import { createServer } from "node:net";
import { createInterface } from "node:readline";

const [folder, token] = process.argv.slice(2);
const password = "actual";

// The engine logs what it does, rows included, to standard output.
globalThis.console = new Console(createWriteStream(`${folder}/api.log`));

// The engine can compute for longer than its server keeps an idle connection, and would then use a closed one.
const { fetch } = globalThis;
globalThis.fetch = (url, options) => fetch(url, { ...options, headers: { ...options?.headers, connection: "close" } });

const api = await import("@actual-app/api");

const print = (value) => process.stdout.write(`${JSON.stringify(value)}\n`);

/** Below the ports that the system gives to others, because the sync server binds it only later. */
const freePort = async () => {
  for (;;) {
    const port = 10_000 + Math.floor(Math.random() * 20_000);
    const server = createServer();
    const isFree = await new Promise((resolve) => {
      server.on("error", () => resolve(false));
      server.listen(port, "127.0.0.1", () => resolve(true));
    });
    if (!isFree) continue;
    await new Promise((resolve) => server.close(resolve));
    return port;
  }
};

/** Starts the sync server and waits until it listens. */
const startServer = async (port) => {
  const program = new URL("node_modules/@actual-app/sync-server/build/bin/actual-server.js", import.meta.url).pathname;
  const data = `${folder}/server`;
  mkdirSync(data);
  const env = { ...process.env, ACTUAL_DATA_DIR: data, ACTUAL_PORT: `${port}`, ACTUAL_HOSTNAME: "127.0.0.1" };
  const child = spawn(process.execPath, [program], { cwd: data, env, stdio: ["ignore", "pipe", "inherit"] });
  process.on("exit", () => child.kill());
  const log = createWriteStream(`${folder}/server.log`);
  await new Promise((resolve, reject) => {
    child.on("exit", (code) => reject(new Error(`Actual's server ended with ${code}`)));
    createInterface(child.stdout).on("line", (line) => {
      log.write(`${line}\n`);
      if (line.startsWith("Listening on")) resolve();
    });
  });
  child.removeAllListeners("exit");
};

const port = await freePort();
const serverURL = `http://127.0.0.1:${port}`;
await startServer(port);
const bootstrapped = await fetch(`${serverURL}/account/bootstrap`, {
  method: "POST",
  headers: { "content-type": "application/json" },
  body: JSON.stringify({ password }),
});
if (!bootstrapped.ok) throw new Error(`bootstrap: ${bootstrapped.status} ${await bootstrapped.text()}`);
const dataDir = `${folder}/api`;
mkdirSync(dataDir);
const { send } = await api.init({ serverURL, password, dataDir });
await send("create-budget", { budgetName: "test", avoidUpload: true });

const fields = ["account", "date", "amount", "imported_id", "imported_payee", "notes", "cleared"];
/** Everything that the engine has stored, by the account's id at Bellbird. */
const stored = async () => {
  const accounts = await send("accounts-get");
  const rows = (await api.aqlQuery(api.q("transactions").select([...fields, "starting_balance_flag"]))).data;
  return Object.fromEntries(
    accounts.map((account) => [
      account.account_id,
      {
        name: account.name,
        status: account.bank_sync_status,
        balance: account.balance_current,
        rows: rows.filter((row) => row.account === account.id),
      },
    ]),
  );
};

/** Syncs all accounts as the button of the web page does. */
const sync = async () => {
  let error = null;
  try {
    await api.runBankSync();
  } catch (caught) {
    error = caught.message;
  }
  return { error, accounts: await stored() };
};

const saved = await send("secret-set", { name: "simplefin_token", value: token });
const status = await send("simplefin-status");
const listed = await send("simplefin-accounts");
const failed = {};
for (const account of listed.accounts ?? []) {
  // What the web page makes of an account of the list.
  const externalAccount = {
    account_id: account.id,
    name: account.name,
    institution: account.org.name,
    orgDomain: account.org.domain,
    orgId: account.org.id,
    balance: account.balance,
  };
  try {
    await send("simplefin-accounts-link", { externalAccount });
  } catch (error) {
    failed[account.id] = `${error.category ?? ""} ${error.message ?? JSON.stringify(error)}`;
  }
}
print({ saved, status, listed, failed, linked: await stored(), synced: await sync() });

for await (const _ of createInterface(process.stdin)) print(await sync());
process.exit(0);
