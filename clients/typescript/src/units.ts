/**
 * The amount in units of 10^-scale, so that sums are exact: `toUnits("-49.13", 4)` is `-491300n`.
 *
 * @throws RangeError if the text is not a decimal, or would have to be rounded.
 */
export function toUnits(amount: string, scale: number): bigint {
  const [, whole, fraction = ""] = /^(-?\d+)(?:\.(\d+))?$/.exec(amount) ?? [];
  if (whole === undefined || /[1-9]/.test(fraction.slice(scale))) {
    throw new RangeError(`Not a decimal with ${scale} places or fewer`);
  }
  return BigInt(whole + fraction.slice(0, scale).padEnd(scale, "0"));
}

/** The reverse, without zeros at the end: `fromUnits(-491300n, 4)` is `"-49.13"`. */
export function fromUnits(units: bigint, scale: number): string {
  const digits = String(units < 0n ? -units : units).padStart(scale + 1, "0");
  const whole = digits.slice(0, digits.length - scale);
  const fraction = digits.slice(digits.length - scale).replace(/0+$/, "");
  return (units < 0n ? "-" : "") + whole + (fraction && `.${fraction}`);
}
