//! Who is signed in: extractors for pages and forms. A handler of a page takes [`Session`], and one of a form takes
//! [`OwnForm`], so neither runs for anybody else, and no form runs for a page of another site.

use axum::body::Body;
use axum::extract::{FromRequest, FromRequestParts, OptionalFromRequestParts, Request};
use axum::response::{IntoResponse as _, Redirect, Response};
use bellbird_domain::{Caller, UserId};
use bellbird_storage::{OperatorChange, OwnAction, SignedIn, StorageError};
use http::HeaderMap;
use http::request::Parts;
use jiff::Timestamp;
use uuid::Uuid;

use crate::link::FORM_BYTES_MAX;
use crate::local::is_same_origin;
use crate::pages::{LocalTime, SignedInFrame};
use crate::state::Console;
use crate::{body, error_page};

/// A request of a browser in which a user is signed in.
pub(crate) struct Session {
    pub(crate) caller: Caller,
    pub(crate) email: String,
    pub(crate) is_operator: bool,
    pub(crate) now: Timestamp,
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
    pub(crate) async fn begin<'c>(&self, console: &'c Console) -> Result<OperatorChange<'c>, StorageError> {
        console.storage().begin_own_change(self.user(), self.id(), self.now).await
    }

    /// Commits a change with its row in the user's audit, and logs it.
    pub(crate) async fn commit(&self, change: OperatorChange<'_>, action: &OwnAction<'_>) -> Result<(), StorageError> {
        change.commit_own(self.user(), action).await?;
        let OwnAction { name, subject, detail: _ } = *action;
        tracing::info!(user_id = %self.user(), session_id = %self.id(), action = name, subject, "console change made");
        Ok(())
    }

    /// The clock of the user.
    pub(crate) fn zone(&self) -> LocalTime {
        LocalTime::of(self.caller.timezone.iana_name())
    }

    /// The frame of a page of the menu, or of one that belongs to it.
    pub(crate) fn frame<'a>(&'a self, console: &'a Console, current: &'static str) -> SignedInFrame<'a> {
        SignedInFrame::new(&console.inner.frame, &self.email, self.is_operator, self.caller.plan, current)
    }
}

impl FromRequestParts<Console> for Session {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, console: &Console) -> Result<Self, Response> {
        let now = console.inner.access.clock().now();
        let found = match console.inner.session_cookie.value(&parts.headers) {
            Some(token) => console.storage().sessions().find(token, now).await,
            None => Ok(None),
        };
        match found {
            Ok(Some(SignedIn { caller, email, is_operator, .. })) => Ok(Self { caller, email, is_operator, now }),
            Ok(None) => Err(Redirect::to(&console.path("/sign-in")).into_response()),
            Err(error) => Err(error_page::storage_error(console, &error)),
        }
    }
}

/// None: nobody is signed in.
impl OptionalFromRequestParts<Console> for Session {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, console: &Console) -> Result<Option<Self>, Response> {
        let has_cookie = console.inner.session_cookie.value(&parts.headers).is_some();
        let found = <Self as FromRequestParts<Console>>::from_request_parts(parts, console).await;
        match found {
            Ok(session) => Ok(Some(session)),
            Err(response) if has_cookie && response.status().is_server_error() => Err(response),
            Err(_) => Ok(None),
        }
    }
}

/// A form that a page of the console submits, in a browser in which a user is signed in.
pub(crate) struct OwnForm {
    pub(crate) session: Session,
    fields: Vec<(String, String)>,
}

impl OwnForm {
    /// The value of a field that the form has once.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        only_field(&self.fields, name)
    }

    pub(crate) fn fields(&self) -> &[(String, String)] {
        &self.fields
    }

    /// As [`Self::field`], parsed.
    pub(crate) fn parsed<T: std::str::FromStr>(&self, name: &str) -> Option<T> {
        self.field(name)?.parse().ok()
    }
}

impl FromRequest<Console> for OwnForm {
    type Rejection = Response;

    async fn from_request(request: Request, console: &Console) -> Result<Self, Response> {
        let (mut parts, form) = request.into_parts();
        if !is_same_origin(&parts.headers) {
            return Err(error_page::cross_site_form(console));
        }
        let session = <Session as FromRequestParts<Console>>::from_request_parts(&mut parts, console).await?;
        let fields = read_fields(console, &parts.headers, form).await?;
        Ok(Self { session, fields })
    }
}

/// A form that a page of the console submits, in a browser in which nobody may be signed in.
pub(crate) struct GuestForm {
    pub(crate) headers: HeaderMap,
    fields: Vec<(String, String)>,
}

impl GuestForm {
    /// As [`OwnForm::field`].
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        only_field(&self.fields, name)
    }
}

impl FromRequest<Console> for GuestForm {
    type Rejection = Response;

    async fn from_request(request: Request, console: &Console) -> Result<Self, Response> {
        let (parts, form) = request.into_parts();
        if !is_same_origin(&parts.headers) {
            return Err(error_page::cross_site_form(console));
        }
        let fields = read_fields(console, &parts.headers, form).await?;
        Ok(Self { headers: parts.headers, fields })
    }
}

async fn read_fields(console: &Console, headers: &HeaderMap, form: Body) -> Result<Vec<(String, String)>, Response> {
    let form = body::read(headers, form, FORM_BYTES_MAX).await;
    let form = form.map_err(|error| error_page::form_body_error(console, error))?;
    Ok(form_urlencoded::parse(&form).into_owned().collect())
}

fn only_field<'a>(fields: &'a [(String, String)], name: &str) -> Option<&'a str> {
    let mut values = fields.iter().filter(|(key, _)| key == name).map(|(_, value)| value.as_str());
    values.next().filter(|_| values.next().is_none())
}
