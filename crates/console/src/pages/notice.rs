//! The pages with a message: errors, results, and questions.

use std::sync::Arc;

use askama::Template;
use axum::Extension;
use axum::response::{IntoResponse, Response};
use bellbird_connections::{AppReturn, LinkedConnection};
use bellbird_providers::registry::provider_title;
use http::StatusCode;
use http::header::RETRY_AFTER;

use super::frame::Frame;
use super::institution::{AccountRow, ImageOrigins, Institution, account_rows};
use super::response::page_with_images;
use super::signed_in::SignedInFrame;

/// The colour of the page.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tone {
    /// Success.
    Good,
    /// In progress, or worth trying again.
    Waiting,
    /// Failure.
    Attention,
    /// Nothing happened.
    #[default]
    Neutral,
}

impl Tone {
    fn class(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Waiting => "waiting",
            Self::Attention => "attention",
            Self::Neutral => "neutral",
        }
    }
}

/// As a response it has nothing to show, until a layer of the router makes its page.
#[derive(Default)]
pub(crate) struct Notice {
    pub(super) status: StatusCode,
    /// In seconds, for programs.
    pub(super) retry_after: Option<u64>,
    pub(super) tone: Tone,
    pub(super) title: String,
    /// The user whose accounts they become.
    pub(super) email: Option<String>,
    /// Whether the user who gave the consent can deny it.
    pub(super) can_deny: bool,
    /// Whether it is about a provider that is simulated.
    pub(super) is_sandbox: bool,
    pub(super) connected: Vec<Connected>,
    pub(super) paragraphs: Vec<String>,
    /// Submit a form to the page's own URL, or to [`Self::form_path`].
    pub(super) buttons: Vec<Button>,
    pub(super) form_path: Option<&'static str>,
    pub(super) links: Vec<PageLink>,
    /// Where a link session leads back.
    pub(super) app_return: Option<AppReturn>,
    /// Whether the user needs a new link URL, which the demo offers.
    pub(super) needs_new_link: bool,
}

pub(super) struct PageLink {
    class: &'static str,
    /// Of the console, with its query. None: the page's own URL.
    path: Option<String>,
    label: &'static str,
}

/// A submit button.
pub(super) struct Button {
    pub(super) class: &'static str,
    pub(super) name: &'static str,
    pub(super) value: String,
    pub(super) label: &'static str,
}

/// A connection with its accounts.
pub(super) struct Connected {
    institution: Institution,
    /// The provider's title.
    provider: String,
    accounts: Vec<AccountRow>,
}

impl Connected {
    /// With all accounts.
    pub(super) fn of(linked: &LinkedConnection, frame: &Frame) -> Self {
        Self {
            institution: Institution::of(&linked.connection, frame),
            provider: provider_title(&linked.connection.provider).to_owned(),
            accounts: account_rows(linked),
        }
    }
}

#[derive(Template)]
#[template(path = "notice.html")]
pub(super) struct NoticePage<'a> {
    frame: &'a Frame,
    notice: &'a Notice,
}

#[derive(Template)]
#[template(path = "notice_signed_in.html")]
struct SignedInNoticePage<'a> {
    frame: &'a SignedInFrame<'a>,
    notice: &'a Notice,
}

impl Notice {
    pub(crate) fn new(tone: Tone, title: impl Into<String>) -> Self {
        Self {
            tone,
            title: title.into(),
            ..Self::default()
        }
    }

    /// Unless it is 200.
    pub(crate) fn with_status(self, status: StatusCode) -> Self {
        Self { status, ..self }
    }

    pub(crate) fn with_retry_after(self, seconds: u64) -> Self {
        Self {
            retry_after: Some(seconds),
            ..self
        }
    }

    pub(crate) fn with(mut self, paragraph: &str) -> Self {
        self.paragraphs.push(paragraph.to_owned());
        self
    }

    /// Adds a link that opens the page's URL.
    pub(crate) fn with_retry_link(self) -> Self {
        self.with_return_link("Try again")
    }

    /// As [`Self::with_retry_link`], with another label.
    pub(crate) fn with_return_link(self, label: &'static str) -> Self {
        self.with_link("button", None, label)
    }

    /// Adds the demo's button for a new link URL.
    pub(crate) fn with_new_link(self) -> Self {
        Self {
            needs_new_link: true,
            ..self
        }
    }

    /// Adds a link to a page of the console.
    pub(crate) fn with_page_link(self, path: &'static str, label: &'static str) -> Self {
        self.with_link("button", Some(path), label)
    }

    pub(crate) fn with_link(
        mut self,
        class: &'static str,
        path: Option<&str>,
        label: &'static str,
    ) -> Self {
        let path = path.map(str::to_owned);
        self.links.push(PageLink { class, path, label });
        self
    }

    pub(super) fn with_button(
        mut self,
        class: &'static str,
        (name, value): (&'static str, &str),
        label: &'static str,
    ) -> Self {
        self.buttons.push(Button {
            class,
            name,
            value: value.to_owned(),
            label,
        });
        self
    }

    /// Adds a link to the app.
    pub(crate) fn with_app_return(self, app_return: Option<AppReturn>) -> Self {
        Self { app_return, ..self }
    }

    pub(super) fn page<'a>(&'a self, frame: &'a Frame) -> NoticePage<'a> {
        NoticePage {
            frame,
            notice: self,
        }
    }

    pub(crate) fn response(&self, frame: &Frame) -> Response {
        self.response_with(&self.page(frame))
    }

    /// With the menus of the user who is signed in.
    pub(crate) fn response_with_menus(&self, frame: &SignedInFrame<'_>) -> Response {
        self.response_with(&SignedInNoticePage {
            frame,
            notice: self,
        })
    }

    fn response_with(&self, page: &impl Template) -> Response {
        let institutions = self.connected.iter().map(|one| &one.institution);
        let mut response = page_with_images(self.status, page, ImageOrigins::of(institutions));
        if let Some(seconds) = self.retry_after {
            response.headers_mut().insert(RETRY_AFTER, seconds.into());
        }
        response
    }
}

impl IntoResponse for Notice {
    fn into_response(self) -> Response {
        (self.status, Extension(Arc::new(self))).into_response()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn html(notice: &Notice, frame: &Frame) -> String {
        notice.page(frame).render().unwrap()
    }

    #[test]
    fn error_without_another_way_leads_to_the_start() {
        let home = "href=\"/\">Go to the start page</a>";
        let notice = Notice::new(Tone::Neutral, "Page not found");
        let frame = Frame::default();
        assert!(html(&notice, &frame).contains(home));
        assert!(!html(&notice.with_retry_link(), &frame).contains(home));
    }

    #[test]
    fn new_link_button_is_the_demos() {
        let notice = Notice::new(Tone::Attention, "Expired").with_new_link();
        assert!(!html(&notice, &Frame::default()).contains("/demo/link"));
        let frame = Frame {
            is_demo: true,
            ..Frame::default()
        };
        assert!(html(&notice, &frame).contains("action=\"/demo/link\""));
    }
}
