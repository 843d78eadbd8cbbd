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

use bellbird_console::OidcSettings;
use bellbird_domain::{Clock, Plan, User, UserId};
use bellbird_management::sign_in::create_asked_link;
use bellbird_storage::{NewUser, in_tx};
use secrecy::ExposeSecret as _;

use crate::support::browser::{self, browse_elsewhere};
use crate::support::harness::App;

pub(crate) use crate::support::browser::BrowserPage as Page;

impl Page {
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

/// An identity provider that nothing calls, at which operators have to sign in.
pub(crate) fn provider_of_operators() -> OidcSettings {
    OidcSettings {
        issuer: "http://127.0.0.1:1".to_owned(),
        client_id: "bellbird".to_owned(),
        client_secret: "secret".to_owned().into(),
        create_users: None,
        operators_only_here: true,
    }
}

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
    browse_elsewhere(with_session(browser::client().get(url), cookie)).await
}

/// A form of the console's own page.
pub(crate) async fn post(url: &str, cookie: Option<&str>, form: &str) -> Page {
    let request = browser::post(url, form).header("sec-fetch-site", "same-origin");
    let page = browse_elsewhere(with_session(request, cookie)).await;
    Page {
        request: format!("{url} {form}"),
        ..page
    }
}
