//! The invented people, their institutions and years of rows, independent of any provider's format.
//! Names, shops, prices and plans are in `data/`. The same seed gives the same world, except for
//! dates, which count back from the day of the start.

pub(crate) mod au_rows;
pub(crate) mod australia;
pub(crate) mod brokerage;
pub(crate) mod calendar;
pub(crate) mod names;
pub(crate) mod new_zealand;
pub(crate) mod nz_rows;
pub(crate) mod nzfcc;
pub(crate) mod odd_rows;
pub(crate) mod rng;
pub(crate) mod scaled;
pub(crate) mod securities;
pub(crate) mod template;
pub(crate) mod trades;

/// About three years.
pub(crate) const YEARS_DAYS: u32 = 1095;

/// Reads a file of `data/`.
fn load<T: serde::Deserialize<'static>>(json: &'static str) -> T {
    serde_json::from_str(json).expect("a file of the world has the documented shape")
}
