//! The invented people, their banks and years of rows: what all providers show, without any provider's words for it.
//! The same seed gives the same world, but for the dates, which are counted back from the day of the start.

pub(crate) mod brokerage;
pub(crate) mod calendar;
pub(crate) mod invented;
pub(crate) mod merchants;
pub(crate) mod nz;
pub(crate) mod people;
pub(crate) mod rng;
pub(crate) mod rows;
pub(crate) mod standing_orders;
pub(crate) mod template;
