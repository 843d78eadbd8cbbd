export type { BellbirdOptions, CallOptions } from "./caller.js";
export { Bellbird } from "./client.js";
export { BellbirdError } from "./error.js";
export type { Batch, Store } from "./follow.js";
export { fromUnits, toUnits } from "./units.js";
export type * from "./types.js";
