//! A minimal browser over HTTP. It opens link URLs, answers the consent page of a simulated
//! provider and opens the callback URL.

use std::collections::BTreeMap;
use std::sync::Mutex;

use bellbird_connections::{
    ConnectionsError, CreatedLink, LinkTarget, NewLinkSession, PreparedLink,
};
use bellbird_domain::{Connection, ConnectionId, Plan, UserId};
use bellbird_storage::in_tx;
use reqwest::header::{HeaderMap, LOCATION, SET_COOKIE};
use reqwest::redirect::Policy;
use reqwest::{Response, Url};
use secrecy::ExposeSecret as _;

use crate::support::harness::App;

/// A response, as a browser shows it.
#[derive(Debug)]
pub(crate) struct BrowserPage {
    /// Its URL, and its form if the console posted it, for a test that fails.
    pub(crate) request: String,
    pub(crate) status: u16,
    /// Where a redirect leads.
    pub(crate) location: Option<String>,
    /// The value of the cookie of the console's session, if the response sets it.
    pub(crate) cookie: Option<String>,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

/// The cookies that a response sets, as a browser sends them.
fn cookies_set(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let set = headers.get_all(SET_COOKIE).iter();
    set.map(|cookie| cookie.to_str().unwrap().split(';').next().unwrap())
}

impl BrowserPage {
    pub(crate) async fn of(response: Response) -> Self {
        let headers = response.headers().clone();
        let location = headers.get(LOCATION);
        let location = location.map(|value| value.to_str().unwrap().to_owned());
        let session = |cookie: &str| Some(cookie.strip_prefix("bellbird-session=")?.to_owned());
        let cookie = cookies_set(&headers).find_map(session);
        Self {
            request: response.url().to_string(),
            status: response.status().as_u16(),
            location,
            cookie,
            text: response.text().await.unwrap(),
            headers,
        }
    }

    /// All cookies that the response sets, as the browser sends them.
    pub(crate) fn set_cookies(&self) -> String {
        cookies_set(&self.headers).collect::<Vec<_>>().join("; ")
    }

    #[track_caller]
    pub(crate) fn assert_status(&self, status: u16) {
        let (request, text) = (&self.request, &self.text);
        assert_eq!(self.status, status, "{request}: {text}");
    }

    #[track_caller]
    pub(crate) fn assert_has(&self, words: &str) {
        let (request, text) = (&self.request, &self.text);
        assert!(text.contains(words), "{request}: no {words:?} in {text}");
    }

    /// The target of the redirect.
    #[track_caller]
    pub(crate) fn location(&self) -> Url {
        assert_eq!(self.status, 303, "{}", self.text);
        self.headers["location"].to_str().unwrap().parse().unwrap()
    }

    #[track_caller]
    pub(crate) fn assert_lacks(&self, words: &str) {
        let (request, text) = (&self.request, &self.text);
        assert!(!text.contains(words), "{request}: {words:?} in {text}");
    }

    /// The form that confirms the only session which the page of a link URL offers.
    pub(crate) fn session_form(&self) -> String {
        let (_, rest) = self.text.split_once("name=\"session\"").expect("a session");
        format!("session={}", rest.split('"').nth(1).unwrap())
    }

    #[track_caller]
    pub(crate) fn assert_shows(&self, status: u16, words: &str) {
        self.assert_status(status);
        self.assert_has(words);
    }
}

/// The cookies of the console, by name. A test is a process, and so has one browser.
static COOKIES: Mutex<BTreeMap<String, String>> = Mutex::new(BTreeMap::new());

/// Sends a request of the test's browser.
pub(crate) async fn browse(request: reqwest::RequestBuilder) -> BrowserPage {
    let page = browse_elsewhere(with_cookie(request)).await;
    for cookie in page.headers.get_all("set-cookie") {
        let cookie = cookie.to_str().unwrap();
        assert!(cookie.contains("; HttpOnly; SameSite=Lax"), "{cookie}");
        let (name, value) = cookie.split(';').next().unwrap().split_once('=').unwrap();
        COOKIES
            .lock()
            .unwrap()
            .insert(name.to_owned(), value.to_owned());
    }
    page
}

pub(crate) fn with_cookie(request: reqwest::RequestBuilder) -> reqwest::RequestBuilder {
    let cookies: Vec<String> = COOKIES
        .lock()
        .unwrap()
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    if cookies.is_empty() {
        request
    } else {
        request.header("cookie", cookies.join("; "))
    }
}

/// Sends a request of another browser, which has no cookie.
pub(crate) async fn browse_elsewhere(request: reqwest::RequestBuilder) -> BrowserPage {
    let request = request.header("accept", "text/html");
    BrowserPage::of(request.send().await.unwrap()).await
}

pub(crate) async fn open_elsewhere(url: impl AsRef<str>) -> BrowserPage {
    browse_elsewhere(client().get(url.as_ref())).await
}

/// A form of a page of the same site, as a browser posts it over plain HTTP.
pub(crate) fn post(url: &str, form: &str) -> reqwest::RequestBuilder {
    let origin = url.parse::<Url>().unwrap().origin().ascii_serialization();
    foreign_post(url, form).header("origin", origin)
}

/// A form of which nobody says where it comes from.
pub(crate) fn foreign_post(url: &str, form: &str) -> reqwest::RequestBuilder {
    client()
        .post(url)
        .header("content-type", "application/x-www-form-urlencoded")
        .body(form.to_owned())
}

/// Answers the question of a callback page in another browser.
pub(crate) async fn answer_elsewhere(callback_url: impl AsRef<str>, answer: &str) -> BrowserPage {
    browse_elsewhere(post(callback_url.as_ref(), &format!("answer={answer}"))).await
}

/// Posts a form of the test's browser.
pub(crate) async fn submit(url: impl AsRef<str>, form: &str) -> BrowserPage {
    browse(post(url.as_ref(), form)).await
}

/// The form of the only button on the page of a link URL. The page without one.
async fn only_choice(link_url: &str) -> Result<String, BrowserPage> {
    let page = open(link_url).await;
    let mut choices = Vec::new();
    for name in ["provider", "connection"] {
        let attribute = format!("name=\"{name}\"");
        for rest in page.text.split(attribute.as_str()).skip(1) {
            let value = rest
                .trim_start()
                .strip_prefix("value=\"")
                .unwrap()
                .split('"')
                .next()
                .unwrap();
            choices.push(format!("{name}={value}"));
        }
    }
    match &choices[..] {
        [only] => Ok(only.clone()),
        _ => Err(page),
    }
}

/// The request of the only button on the page of a link URL.
pub(crate) async fn start_request(link_url: &str) -> reqwest::RequestBuilder {
    post(
        link_url,
        &only_choice(link_url).await.expect("a page with one button"),
    )
}

/// Opens a link URL for one provider or connection, and presses its button.
pub(crate) async fn start(link_url: &str) -> BrowserPage {
    match only_choice(link_url).await {
        Ok(form) => submit(link_url, &form).await,
        Err(page) => page,
    }
}

pub(crate) fn client() -> reqwest::Client {
    reqwest::Client::builder()
        .no_proxy()
        .redirect(Policy::none())
        .build()
        .unwrap()
}

pub(crate) async fn open(url: impl AsRef<str>) -> BrowserPage {
    browse(client().get(url.as_ref())).await
}

impl App {
    /// Gives the user the plan with which everything can be linked.
    pub(crate) async fn allow_all_providers(&self, user: UserId) {
        self.set_plan(user, Plan::Professional).await;
    }

    /// Creates a link, as an operator does.
    pub(crate) async fn create_link(
        &self,
        user: UserId,
        to: LinkTarget<'_>,
    ) -> Result<CreatedLink, ConnectionsError> {
        let prepared = self.connections.links().prepare_link(user, to, None);
        self.store_link(prepared.await?).await
    }

    pub(crate) async fn create_link_session(
        &self,
        user: UserId,
        to: LinkTarget<'_>,
        session: NewLinkSession<'_>,
    ) -> Result<CreatedLink, ConnectionsError> {
        let links = self.connections.links();
        let prepared = links.prepare_link_session(user, to, session);
        self.store_link(prepared.await?).await
    }

    async fn store_link(&self, link: PreparedLink<'_>) -> Result<CreatedLink, ConnectionsError> {
        let (new, now) = (link.new_link(), self.clock.now());
        let id = in_tx!(self.storage, links::insert(&new, now)).await?;
        Ok(link.into_created(id))
    }

    pub(crate) async fn link_url(&self, user: UserId, to: LinkTarget<'_>) -> String {
        self.allow_all_providers(user).await;
        let link = self.create_link(user, to).await.unwrap();
        link.url.expose_secret().to_owned()
    }

    /// Opens the link URL, answers the provider's consent page and returns the callback URL, which
    /// is not opened yet.
    pub(crate) async fn answer_consent_page(&self, link_url: &str, answer: &str) -> Url {
        let mut page = start(link_url).await.location();
        page.query_pairs_mut().append_pair("sandbox_auto", answer);
        open(&page).await.location()
    }

    /// As [`Self::answer_consent_page`], with a new link to a provider.
    pub(crate) async fn callback_url(&self, user: UserId, provider: &str, answer: &str) -> Url {
        let link_url = self.link_url(user, LinkTarget::Provider(provider)).await;
        self.answer_consent_page(&link_url, answer).await
    }

    /// A new user, and what they have linked at a provider.
    pub(crate) async fn linked_user(
        &self,
        email: &str,
        provider: &str,
    ) -> (UserId, Vec<Connection>) {
        let person = self.add_person(email, Plan::Professional, &[]).await;
        let user = person.user.id;
        (user, self.link_at(user, provider).await.0)
    }

    /// Links at a provider, in the browser. Returns the new connections and the page at the end.
    pub(crate) async fn link_at(
        &self,
        user: UserId,
        provider: &str,
    ) -> (Vec<Connection>, BrowserPage) {
        self.link_in_browser(user, LinkTarget::Provider(provider))
            .await
    }

    pub(crate) async fn reconnect(
        &self,
        user: UserId,
        connection: ConnectionId,
    ) -> (Vec<Connection>, BrowserPage) {
        self.link_in_browser(user, LinkTarget::Connection(connection))
            .await
    }

    /// Links in the browser. Returns the new connections and the page at the end.
    pub(crate) async fn link_in_browser(
        &self,
        user: UserId,
        to: LinkTarget<'_>,
    ) -> (Vec<Connection>, BrowserPage) {
        let before = self.connections_of(user).await;
        let link_url = self.link_url(user, to).await;
        let callback_url = self.answer_consent_page(&link_url, "accept").await;
        let shown = open(&callback_url).await;
        (self.new_connections(user, &before).await, shown)
    }

    /// The connections that a user has now, without those from before.
    pub(crate) async fn new_connections(
        &self,
        user: UserId,
        before: &[Connection],
    ) -> Vec<Connection> {
        let mut now = self.connections_of(user).await;
        now.retain(|connection| before.iter().all(|known| known.id != connection.id));
        now
    }
}
