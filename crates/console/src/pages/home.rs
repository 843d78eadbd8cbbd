//! The start page. It explains how to link an institution, call the API and receive provider events.

use askama::Template;

use crate::assets::Assets;
use crate::state::ConsoleSettings;

#[derive(Template)]
#[template(path = "home.html")]
pub(crate) struct Home<'a> {
    pub(crate) assets: &'a Assets,
    pub(crate) settings: &'a ConsoleSettings,
}

impl Home<'_> {
    fn console_url(&self) -> &str {
        self.settings.console_url.trim_end_matches('/')
    }

    fn api_url(&self) -> &str {
        self.settings.api_url.trim_end_matches('/')
    }
}
