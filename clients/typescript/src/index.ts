export { Bellbird, type BellbirdOptions, type CallOptions } from "./client.js";
export { BellbirdError } from "./error.js";
export type { Batch, Store } from "./follow.js";
export { fromUnits, toUnits } from "./units.js";
export type * from "./types.js";
