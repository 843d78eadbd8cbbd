//! One person's way through the pages: where they are, and what a form makes of that.

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use uuid::Uuid;

use super::{ConsentProvider, OfferedAccount};
use crate::query::Query;

/// Longest user name.
pub(super) const NAME_CHARS_MAX: usize = 100;
/// How often a code may be wrong.
const CODE_ATTEMPTS_MAX: u8 = 3;
/// How long somebody may take once they have begun: as long as Fiskil's own kit waits
/// (docs/providers/fiskil.md#sessions), ours for the others.
const SESSION_DURATION: SignedDuration = SignedDuration::from_mins(10);
/// Visits that are remembered; the oldest are forgotten.
const SESSIONS_MAX: usize = 5_000;
/// The code of an institution that does not answer.
const UNAVAILABLE_CODE: &str = "000000";
/// The code of an institution that lets nobody in.
const REJECTED_CODE: &str = "111111";

/// Which page is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    Consent,
    Institution,
    SignIn,
    Accounts,
    Done,
}

/// How a visit came to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ConsentOutcome {
    /// Yes, to these accounts of this login; the user name in small letters.
    Allowed { institution_id: String, name: String, chosen: Vec<OfferedAccount> },
    /// No. Whether the institution's own part had been reached.
    Cancelled { signing_in: bool },
    /// The pages were closed.
    Closed,
    /// The code was wrong too often.
    WrongCode,
    /// The institution does not answer.
    Unavailable,
    /// The institution does not let this user in.
    LoginRejected,
    /// Another login than the one that was to be repaired.
    WrongLogin,
    /// What it was about has been deleted meanwhile.
    Deleted,
    /// It took too long.
    TimedOut,
}

/// Where a visit leads.
#[derive(Debug, Clone)]
pub(crate) struct ConsentResult {
    /// The app's own address with the result; `None`: there is nowhere to go.
    pub(crate) location: Option<String>,
    /// There is a last page, with a link; otherwise the browser is sent on at once.
    pub(crate) shows_page: bool,
    /// What the last page says.
    pub(crate) title: String,
    pub(crate) text: String,
}

/// A visit to the pages. `S` is what the provider has to know of it.
pub(crate) struct ConsentSession<S> {
    /// What the provider calls it in the address; none for what began with a form.
    entry: Option<String>,
    /// The hidden field.
    pub(super) token: String,
    auth_request: S,
    /// The institution that the app asked for.
    pub(super) fixed_institution: Option<String>,
    pub(super) step: Step,
    /// Counts what happened, so that a form that is sent twice does nothing the second time.
    pub(super) form_number: u32,
    pub(super) has_close_button: bool,
    pub(super) institution_id: Option<String>,
    pub(super) name: String,
    /// Who that is.
    pub(super) display_name: String,
    pub(super) code: String,
    attempts_left: u8,
    pub(super) offers: Vec<OfferedAccount>,
    pub(super) message: Option<String>,
    pub(super) result: Option<ConsentResult>,
    /// Until when it must have begun, and from then on, be over.
    expires_at: Timestamp,
}

impl<S> ConsentSession<S> {
    /// A visit that must begin before `ends`.
    pub(crate) fn new(entry: Option<String>, auth_request: S, expires_at: Timestamp) -> Self {
        let (high, low) = Uuid::new_v4().as_u64_pair();
        // Six digits, none of the codes that mean something.
        let code = format!("{:06}", 111_112 + (high ^ low) % 888_888);
        Self {
            entry,
            token: Uuid::new_v4().simple().to_string(),
            auth_request,
            fixed_institution: None,
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

    /// The institution is given, so nobody is asked for it.
    pub(crate) fn with_institution(mut self, institution_id: Option<String>) -> Self {
        self.fixed_institution = institution_id;
        self
    }

    /// Somebody's name stands in the field already.
    pub(crate) fn with_username(mut self, name: &str) -> Self {
        self.name = name.chars().take(NAME_CHARS_MAX).collect();
        self
    }

    /// With a button that closes the pages.
    pub(crate) const fn with_close_button(mut self, has_close_button: bool) -> Self {
        self.has_close_button = has_close_button;
        self
    }

    /// What the provider has to know of it.
    pub(crate) fn into_auth_request(self) -> S {
        self.auth_request
    }

    /// Given by the caller, who has made it.
    pub(crate) fn with_token(mut self, token: String) -> Self {
        self.token = token;
        self
    }

    /// Can go on, or be looked at.
    pub(super) fn is_open(&self, now: Timestamp) -> bool {
        now < self.expires_at
    }

    /// Goes on by one form.
    pub(super) fn advance<H: ConsentProvider<AuthRequest = S>>(&mut self, provider: &H, form: &Query, now: Timestamp) {
        let submitted = form.get("form_number").and_then(|number| number.parse().ok());
        if self.step == Step::Done || submitted != Some(self.form_number) {
            return;
        }
        if !self.is_open(now) {
            // Nothing has begun: there is no way back, as nothing says who came.
            if self.step == Step::Consent {
                self.complete(None);
            } else {
                self.finish(provider, ConsentOutcome::TimedOut);
            }
            return;
        }
        self.form_number += 1;
        self.message = None;
        match form.get("do") {
            Some("cancel") => {
                let signing_in = matches!(self.step, Step::SignIn | Step::Accounts);
                return self.finish(provider, ConsentOutcome::Cancelled { signing_in });
            }
            Some("close") if self.has_close_button => return self.finish(provider, ConsentOutcome::Closed),
            _ => {}
        }
        match self.step {
            Step::Consent => self.begin(provider, now),
            Step::Institution => self.choose_institution(provider, form.get("institution").unwrap_or_default()),
            Step::SignIn => self.sign_in(provider, form),
            Step::Accounts => self.allow(provider, form),
            Step::Done => {}
        }
    }

    fn begin<H: ConsentProvider<AuthRequest = S>>(&mut self, provider: &H, now: Timestamp) {
        self.expires_at = now.saturating_add(SESSION_DURATION).unwrap_or(Timestamp::MAX);
        self.step = Step::Institution;
        if let Some(institution_id) = self.fixed_institution.clone() {
            if let Some(outcome) = provider.unavailable_outcome(&institution_id) {
                return self.finish(provider, outcome);
            }
            (self.step, self.institution_id) = (Step::SignIn, Some(institution_id));
        }
    }

    fn choose_institution<H: ConsentProvider<AuthRequest = S>>(&mut self, provider: &H, id: &str) {
        let found = provider.institutions().into_iter().find(|option| option.id == id && option.note.is_none());
        match found {
            Some(option) => (self.step, self.institution_id) = (Step::SignIn, Some(option.id)),
            None => self.message = Some("Choose one that is available.".to_owned()),
        }
    }

    fn sign_in<H: ConsentProvider<AuthRequest = S>>(&mut self, provider: &H, form: &Query) {
        let name = form.get("name").unwrap_or_default().trim();
        self.name = name.chars().take(NAME_CHARS_MAX).collect();
        if name.is_empty() || name != self.name || name.chars().any(char::is_control) {
            self.message = Some(format!("Enter a user name of at most {NAME_CHARS_MAX} characters."));
            return;
        }
        let code: String = form.get("code").unwrap_or_default().split_whitespace().collect();
        match code.as_str() {
            UNAVAILABLE_CODE => return self.finish(provider, ConsentOutcome::Unavailable),
            REJECTED_CODE => return self.finish(provider, ConsentOutcome::LoginRejected),
            code if code == self.code => {}
            _ => return self.reject_code(provider),
        }
        let institution_id = self.institution_id.clone().unwrap_or_default();
        match provider.sign_in(&self.auth_request, &institution_id, &self.name.to_lowercase()) {
            Ok((display_name, offers)) => {
                (self.display_name, self.offers, self.step) = (display_name, offers, Step::Accounts);
            }
            Err(outcome) => self.finish(provider, outcome),
        }
    }

    fn reject_code<H: ConsentProvider<AuthRequest = S>>(&mut self, provider: &H) {
        self.attempts_left -= 1;
        self.message = match self.attempts_left {
            0 => return self.finish(provider, ConsentOutcome::WrongCode),
            1 => Some("That is not the code. You can try once more.".to_owned()),
            left => Some(format!("That is not the code. You can try {left} times more.")),
        };
    }

    fn allow<H: ConsentProvider<AuthRequest = S>>(&mut self, provider: &H, form: &Query) {
        let picked: Vec<usize> = form.all("account").filter_map(|index| index.parse().ok()).collect();
        let offers = self.offers.iter().enumerate();
        let chosen: Vec<OfferedAccount> =
            offers.filter(|(index, _)| picked.contains(index)).map(|(_, offer)| offer.clone()).collect();
        if chosen.is_empty() {
            self.message = Some("Choose at least one account.".to_owned());
            return;
        }
        let institution_id = self.institution_id.clone().unwrap_or_default();
        self.finish(provider, ConsentOutcome::Allowed { institution_id, name: self.name.to_lowercase(), chosen });
    }

    /// It is over, in this way.
    fn finish<H: ConsentProvider<AuthRequest = S>>(&mut self, provider: &H, outcome: ConsentOutcome) {
        let result = provider.finish(&self.auth_request, outcome);
        self.complete(Some(result));
    }

    fn complete(&mut self, result: Option<ConsentResult>) {
        (self.step, self.result) = (Step::Done, result);
    }
}

/// The visits of a provider.
pub(crate) struct ConsentSessions<S>(Mutex<Vec<ConsentSession<S>>>);

impl<S> Default for ConsentSessions<S> {
    fn default() -> Self {
        Self(Mutex::new(Vec::new()))
    }
}

impl<S> ConsentSessions<S> {
    /// Remembers a session, the newest last.
    pub(crate) fn open(&self, session: ConsentSession<S>) {
        let mut sessions = self.0.lock();
        if sessions.len() >= SESSIONS_MAX {
            sessions.remove(0);
        }
        sessions.push(session);
    }

    /// Whether there is a visit of that hidden field.
    pub(crate) fn has(&self, token: &str) -> bool {
        self.by_token(token, |_| ()).is_some()
    }

    /// Takes a visit out that nobody has begun: for those who want no pages.
    pub(crate) fn redeem(&self, entry: &str, now: Timestamp) -> Option<ConsentSession<S>> {
        let mut sessions = self.0.lock();
        let index = sessions.iter().position(|session| session.entry.as_deref() == Some(entry))?;
        let good = sessions[index].step == Step::Consent && sessions[index].is_open(now);
        good.then(|| sessions.remove(index))
    }

    /// Does something with the visit of that name in the address.
    pub(super) fn by_entry<T>(&self, entry: &str, what: impl FnOnce(&ConsentSession<S>) -> T) -> Option<T> {
        let sessions = self.0.lock();
        sessions.iter().find(|session| session.entry.as_deref() == Some(entry)).map(what)
    }

    /// Does something with the visit of that hidden field.
    pub(super) fn by_token<T>(&self, token: &str, what: impl FnOnce(&mut ConsentSession<S>) -> T) -> Option<T> {
        let mut sessions = self.0.lock();
        sessions.iter_mut().find(|session| session.token == token).map(what)
    }
}
