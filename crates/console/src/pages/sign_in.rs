//! The page to sign in, without a link, or with one that another browser asked for.

use askama::Template;

use super::done::DoneAt;
use super::frame::Frame;

#[derive(Template)]
#[template(path = "sign_in.html")]
pub(crate) struct SignIn<'a> {
    frame: &'a Frame,
    /// The user of the link. None: the browser has no link.
    email: Option<&'a str>,
    /// Where the user can sign in instead of with a link.
    identity_provider: Option<&'a str>,
    /// Whether links are sent by e-mail.
    sends_links: bool,
    /// What the form that led here has done.
    done: Option<&'static str>,
}

impl<'a> SignIn<'a> {
    pub(crate) fn without_link(
        frame: &'a Frame,
        identity_provider: Option<&'a str>,
        sends_links: bool,
        done: Option<&DoneAt>,
    ) -> Self {
        Self {
            frame,
            email: None,
            identity_provider,
            sends_links,
            done: done.and_then(|done| done.text_at("sign-in")),
        }
    }

    pub(crate) fn with_link(frame: &'a Frame, email: &'a str) -> Self {
        Self {
            frame,
            email: Some(email),
            identity_provider: None,
            sends_links: false,
            done: None,
        }
    }
}
