//! A minimal browser over HTTP. It opens link URLs, answers the consent page of a simulated provider and opens the
//! callback URL.

use bellbird_connections::LinkTarget;
use bellbird_domain::{Connection, ConnectionId, UserId};
use reqwest::Url;
use reqwest::redirect::Policy;
use secrecy::ExposeSecret as _;

use crate::support::harness::App;

/// A response, as a browser shows it.
#[derive(Debug)]
pub(crate) struct BrowserPage {
    pub(crate) status: u16,
    pub(crate) text: String,
    pub(crate) headers: reqwest::header::HeaderMap,
}

impl BrowserPage {
    /// The target of the redirect.
    #[track_caller]
    pub(crate) fn location(&self) -> Url {
        assert_eq!(self.status, 303, "{}", self.text);
        self.headers["location"].to_str().unwrap().parse().unwrap()
    }

    #[track_caller]
    pub(crate) fn assert_shows(&self, status: u16, words: &str) {
        assert_eq!(self.status, status, "{}", self.text);
        let text = self.text.replace("&#x27;", "'").replace("&#39;", "'");
        assert!(text.contains(words), "no {words:?} in {text}");
    }
}

pub(crate) async fn browse(request: reqwest::RequestBuilder) -> BrowserPage {
    let answer = request.header("accept", "text/html").send().await.unwrap();
    let (status, headers) = (answer.status().as_u16(), answer.headers().clone());
    BrowserPage { status, headers, text: answer.text().await.unwrap() }
}

pub(crate) fn client() -> reqwest::Client {
    reqwest::Client::builder().no_proxy().redirect(Policy::none()).build().unwrap()
}

pub(crate) async fn open(url: &str) -> BrowserPage {
    browse(client().get(url)).await
}

impl App {
    pub(crate) async fn link_url(&self, user: UserId, to: LinkTarget<'_>) -> String {
        self.connections.create_link(user, to).await.unwrap().url.expose_secret().to_owned()
    }

    /// Opens the link URL, answers the provider's consent page and returns the callback URL, which is not opened yet.
    pub(crate) async fn answer_consent_page(&self, link_url: &str, answer: &str) -> Url {
        let page = open(link_url).await;
        let mut page = page.location();
        page.query_pairs_mut().append_pair("sandbox_auto", answer);
        open(page.as_str()).await.location()
    }

    /// Links in the browser. Returns the new connections and the page at the end.
    pub(crate) async fn link_in_browser(&self, user: UserId, to: LinkTarget<'_>) -> (Vec<Connection>, BrowserPage) {
        let before: Vec<ConnectionId> =
            self.connections_of(user).await.iter().map(|connection| connection.id).collect();
        let callback_url = self.answer_consent_page(&self.link_url(user, to).await, "accept").await;
        let shown = open(callback_url.as_str()).await;
        let mut now = self.connections_of(user).await;
        now.retain(|connection| !before.contains(&connection.id));
        (now, shown)
    }
}

/// The email address of a user with exactly one login at the simulated provider.
pub(crate) fn email_at(provider: &str) -> &'static str {
    if provider == "akahu" { "aroha.williams@example.com" } else { "me@example.com" }
}
