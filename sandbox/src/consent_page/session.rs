//! The sessions of users on the consent pages.

use jiff::Timestamp;
use parking_lot::Mutex;
use serde::Deserialize;
use uuid::Uuid;

/// Limit for a user name.
pub(super) const NAME_CHARS_MAX: usize = 100;
/// How many wrong codes end a session.
const CODE_ATTEMPTS_MAX: u8 = 3;
/// Sessions that a provider keeps; a new one evicts the oldest.
const SESSIONS_MAX: usize = 1_000;

/// An account that the user can share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OfferedAccount {
    /// Identifies the account within the login; never shown.
    pub(crate) account_key: String,
    pub(crate) name: String,
    /// The masked number or the kind of account.
    pub(crate) detail: String,
}

/// The page that a session shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    Consent,
    Institution,
    SignIn,
    Accounts,
    Done,
}

/// What the user shares.
pub(crate) struct Choice {
    pub(crate) institution_id: String,
    /// The user name in lower case.
    pub(crate) name: String,
    pub(crate) accounts: Vec<OfferedAccount>,
}

/// Why a session ended without a consent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub(crate) enum Reason {
    /// The user cancelled before the institution's own step.
    Cancelled,
    /// The user cancelled from the institution's own step on.
    Denied,
    /// The user pressed the close button.
    Closed,
    WrongCode,
    /// The institution does not respond.
    Unavailable,
    /// The institution rejects the login.
    LoginRejected,
    /// The user signed in with another login than the one to repair.
    WrongLogin,
    /// The connection to repair has been deleted meanwhile.
    Deleted,
    /// The app's user has been deleted meanwhile.
    UserDeleted,
    /// The session took too long.
    TimedOut,
}

/// Where a finished session leads.
#[derive(Debug, Clone)]
pub(crate) struct ConsentResult {
    /// The redirect URI with the result; `None` if the app gave no URI.
    pub(crate) location: Option<String>,
    /// Shows a last page with a link instead of redirecting at once.
    pub(crate) shows_page: bool,
    /// The text of the last page.
    pub(crate) title: &'static str,
    pub(crate) text: String,
}

/// A user's session on the pages. `S` is what the provider stores with it.
pub(crate) struct ConsentSession<S> {
    /// The session's id in the provider's URL; `None` if it starts with a form.
    entry: Option<String>,
    /// The value of the hidden field.
    pub(crate) token: String,
    pub(crate) auth_request: S,
    /// The institution that the app requested.
    pub(super) fixed_institution: Option<String>,
    pub(super) step: Step,
    /// Grows with each form, so that a form that is sent twice has no effect the second time.
    pub(super) form_number: u32,
    pub(crate) has_close_button: bool,
    pub(super) institution_id: Option<String>,
    pub(super) name: String,
    /// The name of the person behind that user name.
    pub(super) display_name: String,
    pub(super) code: String,
    pub(super) attempts_left: u8,
    pub(super) offers: Vec<OfferedAccount>,
    pub(super) message: Option<String>,
    pub(super) result: Option<ConsentResult>,
    /// Until the first form, the time by which the session must start; afterwards, its end.
    pub(super) expires_at: Timestamp,
}

impl<S> ConsentSession<S> {
    /// Creates a session that must start before `expires_at`. A fixed institution skips the list.
    pub(crate) fn new(
        entry: Option<String>,
        auth_request: S,
        fixed_institution: Option<String>,
        expires_at: Timestamp,
    ) -> Self {
        let (high, low) = Uuid::new_v4().as_u64_pair();
        // Six digits, none of them a code with a meaning.
        let code = format!("{:06}", 111_112 + (high ^ low) % 888_888);
        Self {
            entry,
            token: Uuid::new_v4().simple().to_string(),
            auth_request,
            fixed_institution,
            step: Step::Consent,
            form_number: 0,
            has_close_button: false,
            institution_id: None,
            name: String::new(),
            display_name: String::new(),
            code,
            attempts_left: CODE_ATTEMPTS_MAX,
            offers: Vec::new(),
            message: None,
            result: None,
            expires_at,
        }
    }

    /// Prefills the user name.
    pub(crate) fn with_username(mut self, name: &str) -> Self {
        self.name = name.chars().take(NAME_CHARS_MAX).collect();
        self
    }

    /// Whether the session can go on and be shown.
    pub(super) fn is_open(&self, now: Timestamp) -> bool {
        now < self.expires_at
    }
}

pub(crate) struct ConsentSessions<S>(Mutex<Vec<ConsentSession<S>>>);

impl<S> Default for ConsentSessions<S> {
    fn default() -> Self {
        Self(Mutex::new(Vec::new()))
    }
}

impl<S> ConsentSessions<S> {
    /// Adds a session and evicts the oldest one beyond the limit.
    pub(crate) fn open(&self, session: ConsentSession<S>) {
        let mut sessions = self.0.lock();
        if sessions.len() >= SESSIONS_MAX {
            sessions.remove(0);
        }
        sessions.push(session);
    }

    /// Whether a session has this hidden-field value.
    pub(crate) fn has(&self, token: &str) -> bool {
        self.by_token(token, |_| ()).is_some()
    }

    /// Removes and returns a session that has not started, for tests that skip the pages.
    pub(crate) fn redeem(&self, entry: &str, now: Timestamp) -> Option<ConsentSession<S>> {
        let mut sessions = self.0.lock();
        let index = sessions
            .iter()
            .position(|session| session.entry.as_deref() == Some(entry))?;
        let good = sessions[index].step == Step::Consent && sessions[index].is_open(now);
        good.then(|| sessions.remove(index))
    }

    /// Runs `action` on the session with this id in the URL.
    pub(super) fn by_entry<T>(
        &self,
        entry: &str,
        action: impl FnOnce(&ConsentSession<S>) -> T,
    ) -> Option<T> {
        let sessions = self.0.lock();
        sessions
            .iter()
            .find(|session| session.entry.as_deref() == Some(entry))
            .map(action)
    }

    /// Runs `action` on the session with this hidden-field value.
    pub(super) fn by_token<T>(
        &self,
        token: &str,
        action: impl FnOnce(&mut ConsentSession<S>) -> T,
    ) -> Option<T> {
        let mut sessions = self.0.lock();
        sessions
            .iter_mut()
            .find(|session| session.token == token)
            .map(action)
    }
}
