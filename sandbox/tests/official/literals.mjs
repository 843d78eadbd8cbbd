// Writes responses as literals of the client's own types, and runs the TypeScript compiler over them.

import { execFileSync } from "node:child_process";
import { mkdirSync, rmSync, writeFileSync } from "node:fs";

export class Literals {
  #lines = [];

  constructor(client) {
    this.client = client;
  }

  /** Adds a response that should have a type that the client exports. */
  add(type, value) {
    const json = JSON.stringify(value, null, 1);
    this.#lines.push(`{ const value: client.${type} = ${json}; void value; }`);
  }

  /** Throws the compiler's errors, if any. */
  check() {
    const folder = `checked-${this.client}`;
    mkdirSync(folder, { recursive: true });
    const source = `import type * as client from "${this.client}";\n${this.#lines.join("\n")}\n`;
    writeFileSync(`${folder}/answers.ts`, source);
    const options = ["--noEmit", "--strict", "--skipLibCheck", "--module", "nodenext", "--target", "es2022"];
    try {
      execFileSync("node_modules/.bin/tsc", [...options, `${folder}/answers.ts`], { encoding: "utf8", stdio: "pipe" });
    } catch (error) {
      throw new Error(`answers differ from the client's types:\n${error.stdout.slice(0, 4000)}`);
    }
    rmSync(folder, { recursive: true });
  }
}
