//! The console of a user who is signed in, on the real listener.

mod banks;
mod chromium;
mod developers;
mod identity_provider;
mod money;
mod operator;
mod pages;
mod provider_settings;
mod setup;
mod sign_in;
mod transactions;
mod webhooks;

use bellbird_domain::{Clock, Plan, User, UserId};
use bellbird_management::sign_in::create_asked_link;
use bellbird_storage::{NewUser, in_tx};
use reqwest::Response;
use reqwest::header::{LOCATION, SET_COOKIE};
use secrecy::ExposeSecret as _;

use crate::support::browser;
use crate::support::harness::App;

/// A page as a browser gets it.
pub(crate) struct Page {
    /// Its URL and form, for a test that fails.
    request: String,
    pub(crate) status: u16,
    pub(crate) location: Option<String>,
    /// The value of the session's cookie, if the response sets it.
    pub(crate) cookie: Option<String>,
    headers: reqwest::header::HeaderMap,
    pub(crate) text: String,
}

impl Page {
    pub(crate) async fn of(response: Response) -> Self {
        let headers = response.headers().clone();
        let location = headers
            .get(LOCATION)
            .map(|value| value.to_str().unwrap().to_owned());
        let cookies = headers
            .get_all(SET_COOKIE)
            .iter()
            .map(|value| value.to_str().unwrap());
        let cookie = cookies
            .filter_map(|cookie| cookie.strip_prefix("bellbird-session="))
            .next();
        let cookie = cookie.map(|cookie| cookie.split(';').next().unwrap().to_owned());
        Self {
            request: response.url().to_string(),
            status: response.status().as_u16(),
            location,
            cookie,
            headers,
            text: response.text().await.unwrap(),
        }
    }

    /// The cookies that the response sets, as the browser sends them.
    pub(crate) fn set_cookies(&self) -> String {
        let set = self
            .headers
            .get_all(SET_COOKIE)
            .iter()
            .map(|value| value.to_str().unwrap());
        set.map(|cookie| cookie.split(';').next().unwrap())
            .collect::<Vec<_>>()
            .join("; ")
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

    #[track_caller]
    pub(crate) fn assert_lacks(&self, words: &str) {
        let (request, text) = (&self.request, &self.text);
        assert!(!text.contains(words), "{request}: {words:?} in {text}");
    }

    #[track_caller]
    pub(crate) fn assert_shows(&self, status: u16, words: &str) {
        self.assert_status(status);
        self.assert_has(words);
    }

    /// After a form that has done something.
    #[track_caller]
    pub(crate) fn assert_leads_to(&self, path: &str) {
        self.assert_status(303);
        let (request, location) = (&self.request, self.location.as_deref());
        assert_eq!(location, Some(path), "{request}");
    }

    #[track_caller]
    fn assert_needs_sign_in(&self, what: &str) {
        let (text, location) = (&self.text, self.location.as_deref());
        assert_eq!(
            (self.status, location),
            (303, Some("/sign-in")),
            "{what}: {text}"
        );
    }

    /// With this status, and without a session.
    #[track_caller]
    fn assert_signs_nobody_in(&self, status: u16) {
        self.assert_status(status);
        assert_eq!(self.cookie, None, "{}", self.request);
    }
}

/// Where a browser that signs out goes, which says that it is signed out.
pub(crate) const SIGNED_OUT: &str = "/sign-in?done=goodbye&at=sign-in#done";

/// A browser in which a user is signed in.
pub(crate) struct SignedIn<'a> {
    app: &'a App,
    cookie: String,
}

impl App {
    /// A new user who has nothing.
    pub(crate) async fn add_user(&self, email: &str, plan: Plan) -> User {
        let new = NewUser {
            email,
            plan,
            timezone: None,
            reference: None,
            console_sign_in: true,
        };
        in_tx!(self.storage, user::insert(&new, self.clock.now()))
            .await
            .unwrap()
    }

    /// A page of the console, with the cookie of a session or without one.
    async fn page(&self, path: &str, cookie: Option<&str>) -> Page {
        get(&format!("{}{path}", self.console_url), cookie).await
    }

    /// As `bellbird console login` prints it.
    pub(crate) async fn sign_in_link(&self, user: UserId) -> String {
        let now = Clock::now(&self.clock);
        let url = create_asked_link(&self.storage, user, None, &self.console_url, now)
            .await
            .unwrap();
        url.expose_secret().to_owned()
    }

    pub(crate) async fn sign_in(&self, user: UserId) -> SignedIn<'_> {
        let page = post(&self.sign_in_link(user).await, None, "").await;
        assert_eq!(page.status, 303, "{}", page.text);
        SignedIn {
            app: self,
            cookie: page.cookie.unwrap(),
        }
    }
}

impl SignedIn<'_> {
    pub(crate) async fn get(&self, path: &str) -> Page {
        self.app.page(path, Some(&self.cookie)).await
    }

    pub(crate) async fn post(&self, path: &str, form: &str) -> Page {
        let url = format!("{}{path}", self.app.console_url);
        post(&url, Some(&self.cookie), form).await
    }

    /// Sends a form, and asserts that its page then says what was done, such as
    /// `key-revoked&at=keys`.
    async fn submit(&self, path: &str, form: &str, done: &str) {
        let page = self.post(path, form).await;
        page.assert_leads_to(&format!("{path}?done={done}#done"));
    }

    /// Sends a form, and asserts the status of the page that comes.
    async fn try_submit(&self, path: &str, form: &str, status: u16) -> Page {
        let page = self.post(path, form).await;
        page.assert_status(status);
        page
    }
}

fn with_session(request: reqwest::RequestBuilder, cookie: Option<&str>) -> reqwest::RequestBuilder {
    match cookie {
        Some(cookie) => request.header("cookie", format!("bellbird-session={cookie}")),
        None => request,
    }
}

pub(crate) async fn get(url: &str, cookie: Option<&str>) -> Page {
    let request = browser::client().get(url).header("accept", "text/html");
    Page::of(with_session(request, cookie).send().await.unwrap()).await
}

/// A form of the console's own page.
pub(crate) async fn post(url: &str, cookie: Option<&str>, form: &str) -> Page {
    let request = browser::post(url, form)
        .header("accept", "text/html")
        .header("sec-fetch-site", "same-origin");
    let page = Page::of(with_session(request, cookie).send().await.unwrap()).await;
    Page {
        request: format!("{url} {form}"),
        ..page
    }
}
