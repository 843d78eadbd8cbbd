//! A browser over HTTP, with the cookies of each origin.

use std::collections::BTreeMap;

use reqwest::header::{COOKIE, SET_COOKIE};
use reqwest::{RequestBuilder, Response, Url};

use crate::console::Page;
use crate::support::browser;
use crate::support::harness::App;

#[derive(Default)]
pub(super) struct Visitor {
    /// By origin and name.
    cookies: BTreeMap<String, BTreeMap<String, String>>,
}

impl Visitor {
    /// Presses the button on the page to sign in. Returns what the provider is asked.
    pub(super) async fn leave(&mut self, app: &App) -> Page {
        let url = format!("{}/sign-in/oidc", app.console_url).parse().unwrap();
        let request = browser::post(&format!("{}/sign-in/oidc", app.console_url), "");
        Page::of(
            self.send(&url, request.header("sec-fetch-site", "same-origin"))
                .await,
        )
        .await
    }

    /// Leaves, and follows the provider to its end. Returns the callback URL, which is not opened
    /// yet.
    pub(super) async fn callback_url(&mut self, app: &App) -> Url {
        let page = self.leave(app).await;
        assert_eq!(page.status, 303, "{}", page.text);
        let mut url: Url = page.location.unwrap().parse().unwrap();
        for _ in 0..10 {
            if url.as_str().starts_with(&app.console_url) {
                return url;
            }
            let response = self.send(&url, browser::client().get(url.clone())).await;
            let page = Page::of(response).await;
            let location = page
                .location
                .unwrap_or_else(|| panic!("{url}: {} {}", page.status, page.text));
            url = url.join(&location).unwrap();
        }
        panic!("the provider redirects too often: {url}");
    }

    /// Opens a page of the console.
    pub(super) async fn open(&mut self, url: &Url) -> Page {
        Page::of(
            self.send(
                url,
                browser::client()
                    .get(url.clone())
                    .header("accept", "text/html"),
            )
            .await,
        )
        .await
    }

    /// The whole way.
    pub(super) async fn sign_in(&mut self, app: &App) -> Page {
        let url = self.callback_url(app).await;
        self.open(&url).await
    }

    async fn send(&mut self, url: &Url, request: RequestBuilder) -> Response {
        let cookies = self
            .cookies
            .entry(url.origin().ascii_serialization())
            .or_default();
        let sent: Vec<_> = cookies
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        let response = request
            .header(COOKIE, sent.join("; "))
            .send()
            .await
            .unwrap();
        for cookie in response.headers().get_all(SET_COOKIE) {
            let cookie = cookie.to_str().unwrap();
            let (name, value) = cookie.split(';').next().unwrap().split_once('=').unwrap();
            if value.is_empty() {
                cookies.remove(name);
            } else {
                cookies.insert(name.to_owned(), value.to_owned());
            }
        }
        response
    }
}
