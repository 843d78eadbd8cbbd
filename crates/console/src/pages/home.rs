//! The start page, which leads to the page to sign in. On this machine it also explains how to call
//! the API, make links, and receive provider events.

use askama::Template;

use super::frame::Frame;
use crate::settings::{Demo, Site};

#[derive(Template)]
#[template(path = "home.html")]
pub(crate) struct Home<'a> {
    pub(crate) frame: &'a Frame,
    pub(crate) site: &'a Site,
    /// Whether the browser is on this machine.
    pub(crate) is_local: bool,
    /// Whether a first start has made no operator yet, so that nobody can sign in.
    pub(crate) awaits_operator: bool,
}

impl Home<'_> {
    fn console_url(&self) -> &str {
        self.site.console_url.trim_end_matches('/')
    }

    fn api_url(&self) -> &str {
        self.site.api_url.trim_end_matches('/')
    }

    fn key_command(&self, demo: &Demo) -> String {
        let database = demo
            .database
            .as_ref()
            .map(|url| format!("BELLBIRD_DATABASE__URL='{url}' "));
        format!(
            "{}bellbird key create --user {} --name mine",
            database.unwrap_or_default(),
            demo.email
        )
    }
}
