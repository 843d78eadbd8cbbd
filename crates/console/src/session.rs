//! Who is signed in: extractors for pages and forms. A handler of a page takes [`Session`], and one
//! of a form takes [`OwnForm`], so neither runs for anybody else, or for more requests of one user
//! than the limits allow. Where nobody has to be signed in, they are a [`Guest`] and a
//! [`GuestForm`]. No form runs for a page of another site.

use std::net::IpAddr;
use std::ops::Deref;
use std::str::FromStr;
use std::sync::{Arc, OnceLock};

use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{FromRequest, FromRequestParts, OptionalFromRequestParts, Path, Request};
use bellbird_api::http::body;
use bellbird_domain::{Actor, Caller, UserId};
use bellbird_limits::RateLimiter;
use bellbird_management::{ManagementChange, Refusal};
use bellbird_storage::{SignedIn, StorageError};
use http::HeaderMap;
use http::Uri;
use http::header::USER_AGENT;
use http::request::Parts;
use http::uri::{Authority, PathAndQuery};
use jiff::Timestamp;
use jiff::civil::Date;
use uuid::Uuid;

use crate::browser_name::browser_name;
use crate::error_page::Failure;
use crate::local::{home_authority, is_from_here, is_loopback_url, is_own_form};
use crate::pages::{DoneAt, LocalTime, SignedInFrame, page_of};
use crate::settings::Demo;
use crate::state::Console;

const FORM_BYTES_MAX: usize = 4 * 1024;

/// A part of a path.
pub(crate) type PathText = Result<Path<String>, PathRejection>;

/// The id in a path. What is not an id is nothing's.
pub(crate) fn id_of<T: FromStr>(text: PathText) -> Result<T, Failure> {
    let id = text.ok().and_then(|Path(id)| id.parse().ok());
    id.ok_or(Failure::NotFound)
}

/// The session that an extractor has found for a request, for the menus of a page that is missing.
/// Empty until one has.
pub(crate) type FoundSession = Arc<OnceLock<Session>>;

/// A request of a browser in which a user is signed in, which has all of the console.
#[derive(Clone)]
pub(crate) struct Session {
    pub(crate) caller: Caller,
    pub(crate) email: String,
    pub(crate) is_operator: bool,
    pub(crate) now: Timestamp,
    console: Console,
    /// Where the browser has the console, if that is at an address at home which no setting names.
    pub(crate) at_home: Option<Authority>,
    /// What the form that led to the page has done.
    done: Option<DoneAt>,
}

impl Session {
    pub(crate) fn user(&self) -> UserId {
        self.caller.user_id
    }

    /// Its id, which is no secret.
    pub(crate) fn id(&self) -> Uuid {
        self.caller.key_id.uuid()
    }

    /// Begins a change by the user, for [`Self::commit`].
    pub(crate) async fn begin(&self) -> Result<ManagementChange<'_>, StorageError> {
        let storage = self.storage();
        storage
            .begin_own_change(self.user(), self.id(), self.now)
            .await
    }

    /// Begins a change by the user as an operator.
    pub(crate) async fn begin_as_operator(&self) -> Result<ManagementChange<'_>, StorageError> {
        let actor = Actor::operator(self.user());
        self.storage().begin_change(actor, self.now).await
    }

    /// Commits a change by the user, and logs it.
    pub(crate) async fn commit(&self, change: ManagementChange<'_>) -> Result<(), Refusal> {
        let action = change
            .action()
            .map(|(name, subject)| (name, subject.map(str::to_owned)));
        change.commit().await?;
        if let Some((action, subject)) = action {
            tracing::info!(user_id = %self.user(), session_id = %self.id(), action, subject, "console change made");
        }
        Ok(())
    }

    /// In the timezone of the user.
    pub(crate) fn today(&self) -> Date {
        let zone = self.caller.timezone.clone();
        self.now.to_zoned(zone).date()
    }

    /// The clock of the user.
    pub(crate) fn zone(&self) -> LocalTime {
        LocalTime::of(self.caller.timezone.iana_name(), self.now)
    }

    /// The URL of the console, for links that are shown here and opened elsewhere.
    pub(crate) fn console_url(&self) -> String {
        let url = &self.site.console_url;
        match &self.at_home {
            Some(host) => format!("http://{host}{}", self.console.frame.root),
            None => url.trim_end_matches('/').to_owned(),
        }
    }

    /// The URL of the API, without a slash at its end, as far as the browser can tell.
    pub(crate) fn api_url(&self) -> String {
        let site = &self.site;
        let url = site.api_url.trim_end_matches('/');
        let port = url.parse().ok().and_then(|url: Uri| url.port_u16());
        match (&self.at_home, port) {
            (Some(host), Some(port)) if site.is_api_open && is_loopback_url(url) => {
                format!("http://{}:{port}", host.host())
            }
            _ => url.to_owned(),
        }
    }

    /// The frame of a page of the menu, or of one that belongs to it.
    pub(crate) fn frame(&self, current: &'static str) -> SignedInFrame<'_> {
        SignedInFrame {
            frame: &self.console.frame,
            email: &self.email,
            is_operator: self.is_operator,
            plan: self.caller.plan,
            current,
            docs: format!("{}/docs", self.api_url()),
            timezone: self.caller.timezone.iana_name(),
            done: self.done.as_ref(),
        }
    }

    /// Finds who is signed in, and takes one request of theirs out of a limit. None: nobody is.
    async fn find(
        parts: &Parts,
        console: &Console,
        limit: Option<&RateLimiter<UserId>>,
    ) -> Result<Option<Self>, Failure> {
        let now = console.clock.now();
        let headers = &parts.headers;
        let found = match console.cookies.session.value(headers) {
            Some(token) => console.find_session(token, now).await?,
            None => None,
        };
        let Some(SignedIn {
            caller,
            email,
            is_operator,
            ..
        }) = found
        else {
            return Ok(None);
        };
        if let Some(limit) = limit {
            let decision = limit.take(caller.user_id, now).await;
            if let Some(seconds) = decision.seconds_to_wait() {
                return Err(Failure::TooManyOfUser(seconds));
            }
        }
        let session = Self {
            caller,
            email,
            is_operator,
            now,
            console: console.clone(),
            at_home: home_authority(&console.site.console_url, headers),
            done: None,
        };
        if let Some(found) = parts.extensions.get::<FoundSession>() {
            found.get_or_init(|| session.clone());
        }
        Ok(Some(session))
    }
}

impl Deref for Session {
    type Target = Console;

    fn deref(&self) -> &Console {
        &self.console
    }
}

impl FromRequestParts<Console> for Session {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, console: &Console) -> Result<Self, Failure> {
        let found =
            <Self as OptionalFromRequestParts<Console>>::from_request_parts(parts, console).await?;
        found.ok_or_else(|| {
            let uri = parts.uri.path_and_query().map(PathAndQuery::as_str);
            let page = uri.and_then(page_of);
            Failure::NotSignedIn(page.and_then(|page| console.cookies.page.text_header(page)))
        })
    }
}

/// None: nobody is signed in.
impl OptionalFromRequestParts<Console> for Session {
    type Rejection = Failure;

    async fn from_request_parts(
        parts: &mut Parts,
        console: &Console,
    ) -> Result<Option<Self>, Failure> {
        let found = Self::find(parts, console, console.page_limit.as_ref()).await?;
        Ok(found.map(|session| Self {
            done: DoneAt::of_query(parts.uri.query()),
            ..session
        }))
    }
}

/// A form that a page of the console submits, in a browser in which a user is signed in.
pub(crate) struct OwnForm {
    pub(crate) session: Session,
    pub(crate) fields: Vec<(String, String)>,
}

impl OwnForm {
    /// The value of a field that the form has once.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        only_field(&self.fields, name)
    }

    /// Whether its page did not list the newest key, token or endpoint of the user. The change that
    /// reads it keeps another one from making one meanwhile.
    pub(crate) fn is_sent_again(&self, newest: Option<impl Ord + ToString>) -> bool {
        let newest = newest_of(newest);
        self.field("newest").is_some_and(|known| known != newest)
    }

    /// As [`Self::field`], parsed.
    pub(crate) fn parsed<T: FromStr>(&self, name: &str) -> Option<T> {
        self.field(name)?.parse().ok()
    }
}

impl FromRequest<Console> for OwnForm {
    type Rejection = Failure;

    async fn from_request(request: Request, console: &Console) -> Result<Self, Failure> {
        let (parts, form) = own_form(request, console)?;
        let session = Session::find(&parts, console, console.form_limit.as_ref()).await?;
        let session = session.ok_or(Failure::NotSignedIn(None))?;
        let fields = read_fields(&parts.headers, form).await?;
        Ok(Self { session, fields })
    }
}

/// A request of a browser in which nobody has to be signed in, which has all of the console.
pub(crate) struct Guest {
    pub(crate) now: Timestamp,
    parts: Parts,
    console: Console,
}

impl Guest {
    fn new(parts: Parts, console: &Console) -> Self {
        Self {
            now: console.clock.now(),
            parts,
            console: console.clone(),
        }
    }

    pub(crate) fn headers(&self) -> &HeaderMap {
        &self.parts.headers
    }

    pub(crate) fn query(&self) -> Option<&str> {
        self.parts.uri.query()
    }

    /// The value of the browser's cookie `browser`.
    pub(crate) fn browser(&self) -> Option<&str> {
        self.cookies.browser.value(self.headers())
    }

    pub(crate) fn browser_name(&self) -> String {
        let user_agent = self.headers().get(USER_AGENT);
        let user_agent = user_agent.and_then(|value| value.to_str().ok());
        browser_name(user_agent.unwrap_or_default())
    }

    /// The client's address, as limits count it. None without a listener.
    pub(crate) fn address(&self) -> Option<IpAddr> {
        self.limited_address(&self.parts.extensions, self.headers())
    }

    /// The demo, for a browser on this machine.
    pub(crate) fn demo(&self) -> Result<&Demo, Failure> {
        let demo = self.site.demo.as_ref().ok_or(Failure::NotFound)?;
        match is_from_here(self.headers(), &self.parts.extensions) {
            true => Ok(demo),
            false => Err(Failure::CrossSite),
        }
    }
}

impl Deref for Guest {
    type Target = Console;

    fn deref(&self) -> &Console {
        &self.console
    }
}

impl FromRequestParts<Console> for Guest {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, console: &Console) -> Result<Self, Failure> {
        Ok(Self::new(parts.clone(), console))
    }
}

/// A form that a page of the console submits, in a browser in which nobody has to be signed in.
pub(crate) struct GuestForm {
    pub(crate) guest: Guest,
    pub(crate) fields: Vec<(String, String)>,
}

impl GuestForm {
    /// As [`OwnForm::field`].
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        only_field(&self.fields, name)
    }
}

impl FromRequest<Console> for GuestForm {
    type Rejection = Failure;

    async fn from_request(request: Request, console: &Console) -> Result<Self, Failure> {
        let (parts, form) = own_form(request, console)?;
        let fields = read_fields(&parts.headers, form).await?;
        let guest = Guest::new(parts, console);
        Ok(Self { guest, fields })
    }
}

/// Every form begins here, because every one is read by an extractor of this file.
fn own_form(request: Request, console: &Console) -> Result<(Parts, Body), Failure> {
    let (parts, form) = request.into_parts();
    match is_own_form(&console.site.console_url, &parts.headers) {
        true => Ok((parts, form)),
        false => Err(Failure::CrossSite),
    }
}

async fn read_fields(headers: &HeaderMap, form: Body) -> Result<Vec<(String, String)>, Failure> {
    let form = body::read(headers, form, FORM_BYTES_MAX).await;
    let form = form.map_err(Failure::FormBody)?;
    Ok(form_urlencoded::parse(&form).into_owned().collect())
}

/// The newest of a user's keys, tokens or endpoints, for a form that makes one. A form that is sent
/// again names an older one. Ids are UUIDv7, so the largest is the newest. Empty without any.
pub(crate) fn newest_of(ids: impl IntoIterator<Item = impl Ord + ToString>) -> String {
    let newest = ids.into_iter().max();
    newest.map(|id| id.to_string()).unwrap_or_default()
}

/// The value of a field that is there once.
pub(crate) fn only_field<'a>(fields: &'a [(String, String)], name: &str) -> Option<&'a str> {
    let mut values = fields
        .iter()
        .filter(|(key, _)| key == name)
        .map(|(_, value)| value.as_str());
    values.next().filter(|_| values.next().is_none())
}

/// Whoever is signed in, for the menus of a page that is missing.
pub(crate) type Anybody = Result<Option<Session>, Failure>;

/// Where there is no page. It counts as a page, so that the limit does not show which paths there
/// are. While the database is down, nobody is known to be signed in.
pub(crate) async fn not_found(session: Anybody) -> Failure {
    match session {
        Err(limited @ Failure::TooManyOfUser(_)) => limited,
        _ => Failure::NotFound,
    }
}
