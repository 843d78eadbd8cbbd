//! The pages: Askama templates and their data. Askama escapes all text. Names from providers are also sanitized and
//! shortened.

mod choice;
#[cfg(test)]
mod fixtures;
mod frame;
mod home;
mod institution;
mod local_time;
mod names;
mod notice;
mod response;

pub(crate) use choice::Choice;
pub(crate) use frame::Frame;
pub(crate) use home::Home;
pub(crate) use institution::ImageOrigins;
pub(crate) use notice::{Notice, Tone};
pub(crate) use response::{REFRESH_AFTER, page_response, page_with_images};
