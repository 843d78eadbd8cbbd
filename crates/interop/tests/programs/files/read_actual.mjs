// Reads files as Actual's file import does, imports each twice into an account of a new budget, and prints what the
// budget then has: {file: {read: [...], budget: [[day, cents, id]], addedAgain}}.
//
//     node read_actual.mjs PLACE FILE...

import { mkdtempSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

const [place, ...files] = process.argv.slice(2);
const api = createRequire(join(place, 'package.json'))('@actual-app/api');
const print = console.log;
// The library reports what it does.
console.log = console.info = () => {};

const dataDir = mkdtempSync(join(tmpdir(), 'actual-'));
await api.init({ dataDir });
await api.runImport('files', async () => {});
const found = {};
for (const file of files) {
  const options = { hasHeaderRow: true, importNotes: true };
  const { errors, transactions } = await api.internal.send('transactions-parse-file', { filepath: file, options });
  if (errors.length > 0) throw new Error(JSON.stringify(errors));
  const account = await api.createAccount({ name: file });
  // Amounts beyond what Actual holds cannot be imported, by Actual's own import neither.
  const rows = transactions
    .filter(row => Math.abs(row.amount) < 1e9)
    .map(row => ({
      account,
      date: row.date,
      amount: api.utils.amountToInteger(row.amount),
      payee_name: row.payee_name,
      notes: row.notes,
      imported_id: row.imported_id,
    }));
  const first = await api.importTransactions(account, rows);
  const again = row => row.imported_id !== undefined;
  const second = rows.every(again) ? await api.importTransactions(account, rows) : { added: [] };
  if (first.errors?.length) throw new Error(JSON.stringify(first.errors));
  const kept = await api.getTransactions(account, '1970-01-01', '2100-01-01');
  found[file] = {
    read: transactions.map(row => [row.date, row.amount, row.imported_id ?? null, row.payee_name, row.notes]),
    budget: kept.map(row => [row.date, row.amount, row.imported_id]),
    addedAgain: second.added.length,
  };
}
await api.shutdown();
rmSync(dataDir, { recursive: true });
print(JSON.stringify(found));
