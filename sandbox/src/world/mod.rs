//! The invented people, their institutions and years of rows, independent of any provider's format.
//! The same seed gives the same world, except for dates, which count back from the day of the
//! start.

pub(crate) mod brokerage;
pub(crate) mod calendar;
pub(crate) mod invented;
pub(crate) mod merchants;
pub(crate) mod nz;
pub(crate) mod odd_rows;
pub(crate) mod people;
pub(crate) mod rng;
pub(crate) mod rows;
pub(crate) mod standing_orders;
pub(crate) mod template;
