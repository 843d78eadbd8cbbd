//! The pages: Askama templates and their data. Askama escapes all text. Names from providers are also sanitized and
//! shortened.

mod choice;
#[cfg(test)]
mod fixtures;
mod home;
mod names;
mod notice;
mod response;

pub(crate) use choice::Choice;
pub(crate) use home::Home;
pub(crate) use notice::{Notice, Tone};
pub(crate) use response::page_response;
