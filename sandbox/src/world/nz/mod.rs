//! New Zealand, which only Akahu covers: people, logins, shops and years of rows in Akahu's terms.
//! Every name except those of the category codes is invented.

pub(crate) mod holding;
pub(crate) mod institutions;
pub(crate) mod invented;
pub(crate) mod merchants;
pub(crate) mod nzfcc;
pub(crate) mod people;
pub(crate) mod rows;
pub(crate) mod spare;
pub(crate) mod standing_orders;
pub(crate) mod template;
