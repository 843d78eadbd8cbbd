// Runs docs/recipes/sheet.gs with stand-ins for Google's services. Its requests reach a running service.
//
//   BELLBIRD_URL=... BELLBIRD_KEY=... node sheet_check.mjs <sheet.gs>

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import vm from "node:vm";

const { BELLBIRD_URL, BELLBIRD_KEY } = process.env;
const requests = [];
const pauses = [];
let written = null;
let rejections = [];
let note = null;
// The end of the file of rows, if the service is to send another one.
let end = null;

// Google's call blocks, and so does curl.
function fetch(url, { headers, muteHttpExceptions }) {
  assert(muteHttpExceptions);
  requests.push(url);
  const [rejection] = rejections.splice(0, 1);
  if (rejection) return rejection;
  const arguments_ = ["--silent", "--globoff", "--header", `Authorization: ${headers.Authorization}`];
  const output = execFileSync("curl", [...arguments_, "--write-out", "\n%{http_code}", url], {
    encoding: "utf8",
    maxBuffer: 64 * 1024 * 1024,
  });
  const at = output.lastIndexOf("\n");
  let body = output.slice(0, at);
  if (url.includes("/v1/export/")) {
    const none = '{"leftOut":[]}\n';
    assert(body.endsWith(none));
    if (end !== null) body = body.slice(0, -none.length) + end;
  }
  return response(Number(output.slice(at + 1)), body, {});
}

function response(status, body, headers) {
  return { getResponseCode: () => status, getContentText: () => body, getAllHeaders: () => headers };
}

const sheet = {
  clearContents: () => (written = note = null),
  getRange: (row, column, rows, columns) => ({
    setValue: (value) => {
      assert.deepEqual([row, column], [1, written[0].length + 1]);
      note = value;
    },
    setValues: (values) => {
      assert.deepEqual([row, column], [1, 1]);
      assert.equal(values.length, rows);
      assert(values.every((cells) => cells.length === columns));
      written = values;
    },
  }),
};
const context = vm.createContext({
  PropertiesService: { getScriptProperties: () => ({ getProperty: (name) => process.env[name] }) },
  SpreadsheetApp: { getActiveSpreadsheet: () => ({ getSheetByName: () => null, insertSheet: () => sheet }) },
  UrlFetchApp: { fetch },
  Utilities: { sleep: (milliseconds) => pauses.push(milliseconds) },
});
vm.runInContext(readFileSync(process.argv[2], "utf8"), context);
// Each refresh begins at the same day, also at midnight.
vm.runInContext("Date.now = ((now) => () => now)(Date.now())", context);

// Texts never run as formulas, and amounts keep their digits.
for (const text of ["=1+1", "+1", "-1", "@SUM", "\t=1", "'quoted", "Café"]) {
  assert.equal(context.text(text), `'${text}`);
}
assert.deepEqual([context.text(null), context.text("")], ["", ""]);
assert.equal(context.number("-59.96"), -59.96);
assert.equal(context.number("0.000000000000000001"), 1e-18);
assert.equal(context.number("1234567890123456.78"), "'1234567890123456.78");

// A transient error is waited for, a lasting one leaves the sheet alone.
rejections = [response(429, "", { "Retry-After": "7" }), response(503, "", { "retry-after": "2" })];
context.refresh();
assert.deepEqual(pauses, [7000, 2000]);
const [head, ...rows] = written;
assert.equal(new Set(requests).size, requests.length - 2);
for (const failure of [response(401, "{}", {}), response(429, "{}", { "Retry-After": "3600" })]) {
  rejections = [failure];
  assert.throws(() => context.refresh(), /\/v1\/accounts: 4/);
}
assert.equal(written.length, rows.length + 1);
assert.equal(note, null);

// A bank that is left out is named beside the names of the columns. A file without its end is none.
end = '{"leftOut":[{"connectionId":"1","institutionName":"=Bank","error":"reconnect_required"}]}\n';
context.refresh();
assert.equal(note, "'Left out: =Bank (reconnect_required)");
assert.equal(written.length, rows.length + 1);
end = "";
assert.throws(() => context.refresh(), /broke off/);
assert.equal(written.length, rows.length + 1);
end = null;

// Every row of the banks is there, and no cell is something else than it should be.
async function get(path) {
  const answer = await globalThis.fetch(BELLBIRD_URL + path, { headers: { Authorization: `Bearer ${BELLBIRD_KEY}` } });
  assert.equal(answer.status, 200, path);
  return answer.json();
}
const expected = new Map();
const from = requests.find((url) => url.includes("from=")).match(/from=([0-9-]+)/)[1];
for (const connection of (await get("/v1/connections")).data.filter((one) => one.category === "banking")) {
  const accounts = (await get("/v1/accounts?limit=200")).data.filter((one) => one.connectionId === connection.id);
  for (const account of accounts) {
    for (let offset = 0, hasMore = true; hasMore; offset += 500) {
      const query = `connectionId=${connection.id}&accountId=${account.id}&from=${from}&limit=500&offset=${offset}`;
      const page = await get(`/v1/transactions?${query}`);
      hasMore = page.pagination.hasMore;
      for (const row of page.data) expected.set(`'${row.id} '${account.name}`, [row, account]);
    }
  }
}
assert.equal(rows.length, expected.size);
const at = Object.fromEntries(head.map((name, index) => [name, index]));
for (const cells of rows) {
  const [row, account] = expected.get(`${cells[at.id]} ${cells[at.account]}`);
  assert.deepEqual([cells[at.date], cells[at.currency]], [row.date, row.currency]);
  assert.equal(cells[at.accountNumber], context.text(account.accountNumber));
  assert.equal(cells[at.amount], context.number(row.amount));
  assert.equal(cells[at.description], context.text(row.description));
  assert.equal(cells[at.merchantName], context.text(row.merchantName));
  const texts = ["institution", "account", "description", "merchantName", "category", "id", "accountNumber"];
  assert(texts.every((name) => cells[at[name]] === "" || cells[at[name]].startsWith("'")));
}
assert(rows.every((cells, index) => index === 0 || cells[0] <= rows[index - 1][0]), "newest first");
console.log(rows.length);
