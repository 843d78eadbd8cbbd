// Fills the sheet "Bellbird" with the transactions of the last days, from a file of Bellbird.
//
// Extensions > Apps Script, paste this, then Project settings > Script properties: BELLBIRD_URL
// such as https://bellbird.example.com, and BELLBIRD_KEY. Run `refresh`, or add a time-driven
// trigger for it.

const DAYS = 90;
const SHEET = "Bellbird";
const COLUMNS = ["date", "institution", "account", "amount", "currency", "description",
  "merchantName", "category", "id", "accountNumber"];
// A run of Apps Script ends after six minutes.
const TRIES_MAX = 5;
const PAUSE_SECONDS_MAX = 60;

function onOpen() {
  SpreadsheetApp.getUi().createMenu("Bellbird").addItem("Refresh", "refresh").addToUi();
}

function refresh() {
  const { rows, leftOut } = read(); // whole but for the banks left out, or an error
  const spreadsheet = SpreadsheetApp.getActiveSpreadsheet();
  const sheet = spreadsheet.getSheetByName(SHEET) || spreadsheet.insertSheet(SHEET);
  sheet.clearContents();
  sheet.getRange(1, 1, rows.length + 1, COLUMNS.length).setValues([COLUMNS, ...rows]);
  if (leftOut.length > 0) {
    const banks = leftOut.map((bank) => `${bank.institutionName} (${bank.error})`);
    sheet.getRange(1, COLUMNS.length + 1).setValue(text(`Left out: ${banks.join(", ")}`));
  }
}

function read() {
  const from = new Date(Date.now() - DAYS * 86_400_000).toISOString().slice(0, 10);
  const accounts = new Map(readAll("/v1/accounts", {}).map((account) => [account.id, account]));
  const file = fetch("/v1/export/transactions.jsonl", { from, partial: true });
  const lines = file.trim().split("\n").map((line) => JSON.parse(line));
  const { leftOut } = lines.pop();
  if (!leftOut) throw new Error("The file broke off: try again");
  const unknown = { institutionName: null, accountNumber: null };
  const rows = lines.map((row) => cells(accounts.get(row.accountId) || unknown, row));
  rows.sort((one, next) => (one[0] < next[0] ? 1 : one[0] > next[0] ? -1 : 0));
  return { rows, leftOut };
}

function cells(account, row) {
  return [
    row.date, text(account.institutionName), text(row.accountName), number(row.amount),
    row.currency, text(row.description), text(row.merchantName), text(row.category),
    text(row.id), text(account.accountNumber),
  ];
}

// Untrusted texts: the apostrophe makes each one a text, so that none that begins with
// "=" runs as a formula. Sheets does not show it.
function text(value) {
  return value === null || value === "" ? "" : `'${value}`;
}

// A number of a sheet has 15 digits. A longer amount stays exact as a text, which sums leave out.
function number(amount) {
  const digits = amount.replace(/[^0-9]/g, "").replace(/^0+/, "");
  return digits.length <= 15 ? Number(amount) : text(amount);
}

function readAll(path, query) {
  const rows = [];
  for (let offset = 0, hasMore = true; hasMore; ) {
    const page = JSON.parse(fetch(path, { ...query, limit: 200, offset }));
    rows.push(...page.data);
    offset += page.pagination.limit;
    hasMore = page.pagination.hasMore;
  }
  return rows;
}

function fetch(path, query) {
  const properties = PropertiesService.getScriptProperties();
  const key = properties.getProperty("BELLBIRD_KEY");
  const options = { headers: { Authorization: `Bearer ${key}` }, muteHttpExceptions: true };
  const pairs = Object.entries(query).map(([name, value]) => `${name}=${encodeURIComponent(value)}`);
  const url = `${properties.getProperty("BELLBIRD_URL")}${path}?${pairs.join("&")}`;
  for (let tries = 1; ; tries += 1) {
    const response = UrlFetchApp.fetch(url, options);
    const status = response.getResponseCode();
    if (status === 200) return response.getContentText();
    const headers = Object.entries(response.getAllHeaders());
    const [, pause] = headers.find(([name]) => name.toLowerCase() === "retry-after") || [];
    if (!pause || pause > PAUSE_SECONDS_MAX || tries === TRIES_MAX) {
      throw new Error(`${path}: ${status} ${response.getContentText()}`);
    }
    Utilities.sleep(1000 * pause);
  }
}
