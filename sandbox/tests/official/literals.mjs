// Answers, written down as literals of the client's own types and given to the type checker.

import { execFileSync } from "node:child_process";
import { mkdirSync, rmSync, writeFileSync } from "node:fs";

export class Literals {
  #lines = [];

  constructor(client) {
    this.client = client;
  }

  /** An answer that should be of a type the client exports. */
  add(type, value) {
    const name = type.replace("[]", "");
    this.#lines.push(`{ const value: client.${name}${type.slice(name.length)} = ${JSON.stringify(value, null, 1)}; void value; }`);
  }

  /** Throws what the type checker says. */
  check() {
    const folder = `checked-${this.client}`;
    mkdirSync(folder, { recursive: true });
    writeFileSync(`${folder}/answers.ts`, `import type * as client from "${this.client}";\n${this.#lines.join("\n")}\n`);
    const options = ["--noEmit", "--strict", "--skipLibCheck", "--module", "nodenext", "--target", "es2022"];
    try {
      execFileSync("node_modules/.bin/tsc", [...options, `${folder}/answers.ts`], { encoding: "utf8", stdio: "pipe" });
    } catch (error) {
      throw new Error(`answers that are not of the client's types:\n${error.stdout.slice(0, 4000)}`);
    }
    rmSync(folder, { recursive: true });
  }
}
