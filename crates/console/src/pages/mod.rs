//! The pages: Askama templates and their data. Askama escapes all text. Names from providers are
//! also sanitized and shortened.

mod bank;
mod bank_names;
mod bank_trouble;
mod choice;
mod disabled_endpoint;
mod done;
#[cfg(test)]
pub(crate) mod fixtures;
mod frame;
pub(crate) mod institution;
mod link_outcome;
mod local_time;
pub(crate) mod names;
mod notice;
mod number;
mod response;
mod signed_in;
mod words;

pub(crate) use bank::{BankRow, BankRows, BankState, ends_soon};
pub(crate) use bank_names::BankNames;
pub(crate) use bank_trouble::{AskedBank, BankTrouble, why_not_read};
pub(crate) use choice::Choice;
pub(crate) use disabled_endpoint::why_disabled;
pub(crate) use done::{Done, DoneAt};
pub(crate) use frame::Frame;
pub(crate) use institution::ImageOrigins;
pub(crate) use link_outcome::{Retry, WayBack};
pub(crate) use local_time::{LocalTime, When, day_of_week, shown_day};
pub(crate) use notice::{Notice, Tone};
pub(crate) use number::{Money, Number, is_nonzero};
pub(crate) use response::{
    REFRESH_AFTER, page_response, page_with_images, refresh_of, rendered_part,
};
pub(crate) use signed_in::{
    DEVELOPER_PAGES, OPERATOR_PAGES, OWN_PAGES, PAGES, SignedInFrame, page_of,
};
pub(crate) use words::{count, sentence, status_text, try_again_in};
