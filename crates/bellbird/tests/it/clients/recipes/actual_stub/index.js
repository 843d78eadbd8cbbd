// Stands in for @actual-app/api: prints each call, and fails while there is a file "fail".

import { existsSync } from "node:fs";

const print = (name, ...values) => console.log(`${name} ${JSON.stringify(values)}`);

export default {
  init: async ({ serverURL, password }) => print("init", serverURL, password),
  downloadBudget: async (id, { password }) => print("downloadBudget", id, password ?? null),
  runBankSync: async () => {
    print("runBankSync");
    if (existsSync("fail")) throw new Error("no server");
  },
  shutdown: async () => print("shutdown"),
};
