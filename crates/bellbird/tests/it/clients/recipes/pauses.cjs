// Lets the pauses of a program end when a line comes on standard input, so that none ends early on a busy machine.

const pauses = new Map();
let last = 0;

globalThis.setTimeout = (run, milliseconds, ...values) => {
  if (!(milliseconds >= 1_000)) throw new Error(`no pause: ${milliseconds} ms`);
  last += 1;
  pauses.set(last, () => run(...values));
  return last;
};
globalThis.clearTimeout = (pause) => pauses.delete(pause);

require("node:readline")
  .createInterface({ input: process.stdin })
  .on("line", () => {
    const ended = [...pauses.values()];
    pauses.clear();
    for (const run of ended) run();
  });
