//! One person's way through the pages: where they are, and what a form makes of that.

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use uuid::Uuid;

use super::{Host, Offer};
use crate::query::Query;

/// Longest user name.
pub(super) const NAME_CHARS_MAX: usize = 100;
/// How often a code may be wrong.
const TRIES: u8 = 3;
/// How long somebody may take once they have begun: as long as Fiskil's own kit waits
/// (docs/providers/fiskil.md#sessions), ours for the others.
const MINUTES: SignedDuration = SignedDuration::from_mins(10);
/// Visits that are remembered; the oldest are forgotten.
const VISITS_MAX: usize = 5_000;
/// The code of an institution that does not answer.
const FAILS: &str = "000000";
/// The code of an institution that lets nobody in.
const REFUSES: &str = "111111";

/// Which page is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    Ask,
    Place,
    SignIn,
    Accounts,
    Over,
}

/// How a visit came to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum End {
    /// Yes, to these accounts of this login; the user name in small letters.
    Allowed { place: String, name: String, chosen: Vec<Offer> },
    /// No. Whether the institution's own part had been reached.
    Cancelled { signing_in: bool },
    /// The pages were closed.
    Left,
    /// The code was wrong too often.
    WrongCode,
    /// The institution does not answer.
    Failed,
    /// The institution does not let this user in.
    Refused,
    /// Another login than the one that was to be repaired.
    Different,
    /// What it was about has been deleted meanwhile.
    Gone,
    /// It took too long.
    TimedOut,
}

/// Where a visit leads.
#[derive(Debug, Clone)]
pub(crate) struct Landing {
    /// The app's own address with the result; `None`: there is nowhere to go.
    pub(crate) location: Option<String>,
    /// There is a last page, with a link; otherwise the browser is sent on at once.
    pub(crate) stays: bool,
    /// What the last page says.
    pub(crate) title: String,
    pub(crate) text: String,
}

/// A visit to the pages. `S` is what the provider has to know of it.
pub(crate) struct Visit<S> {
    /// What the provider calls it in the address; none for what began with a form.
    entry: Option<String>,
    /// The hidden field.
    pub(super) token: String,
    subject: S,
    /// The institution that the app asked for.
    pub(super) locked: Option<String>,
    pub(super) step: Step,
    /// Counts what happened, so that a form that is sent twice does nothing the second time.
    pub(super) turn: u32,
    pub(super) closes: bool,
    pub(super) place: Option<String>,
    pub(super) name: String,
    /// Who that is.
    pub(super) who: String,
    pub(super) code: String,
    tries: u8,
    pub(super) offers: Vec<Offer>,
    pub(super) message: Option<String>,
    pub(super) landing: Option<Landing>,
    /// Until when it must have begun, and from then on, be over.
    ends: Timestamp,
}

impl<S> Visit<S> {
    /// A visit that must begin before `ends`.
    pub(crate) fn new(entry: Option<String>, subject: S, ends: Timestamp) -> Self {
        let (high, low) = Uuid::new_v4().as_u64_pair();
        // Six digits, none of the codes that mean something.
        let code = format!("{:06}", 111_112 + (high ^ low) % 888_888);
        Self {
            entry,
            token: Uuid::new_v4().simple().to_string(),
            subject,
            locked: None,
            step: Step::Ask,
            turn: 0,
            closes: false,
            place: None,
            name: String::new(),
            who: String::new(),
            code,
            tries: TRIES,
            offers: Vec::new(),
            message: None,
            landing: None,
            ends,
        }
    }

    /// The institution is given, so nobody is asked for it.
    pub(crate) fn at(mut self, place: Option<String>) -> Self {
        self.locked = place;
        self
    }

    /// Somebody's name stands in the field already.
    pub(crate) fn named(mut self, name: &str) -> Self {
        self.name = name.chars().take(NAME_CHARS_MAX).collect();
        self
    }

    /// With a button that closes the pages.
    pub(crate) const fn closing(mut self, closes: bool) -> Self {
        self.closes = closes;
        self
    }

    /// What the provider has to know of it.
    pub(crate) fn into_subject(self) -> S {
        self.subject
    }

    /// Given by the caller, who has made it.
    pub(crate) fn with_token(mut self, token: String) -> Self {
        self.token = token;
        self
    }

    /// Can go on, or be looked at.
    pub(super) fn is_open(&self, now: Timestamp) -> bool {
        now < self.ends
    }

    /// Goes on by one form.
    pub(super) fn advance<H: Host<Subject = S>>(&mut self, host: &H, form: &Query, now: Timestamp) {
        let meant = form.get("turn").and_then(|turn| turn.parse().ok());
        if self.step == Step::Over || meant != Some(self.turn) {
            return;
        }
        if !self.is_open(now) {
            // Nothing has begun: there is no way back, as nothing says who came.
            return if self.step == Step::Ask { self.over(None) } else { self.end(host, End::TimedOut) };
        }
        self.turn += 1;
        self.message = None;
        match form.get("do") {
            Some("cancel") => {
                let signing_in = matches!(self.step, Step::SignIn | Step::Accounts);
                return self.end(host, End::Cancelled { signing_in });
            }
            Some("close") if self.closes => return self.end(host, End::Left),
            _ => {}
        }
        match self.step {
            Step::Ask => self.begin(host, now),
            Step::Place => self.choose(host, form.get("institution").unwrap_or_default()),
            Step::SignIn => self.sign_in(host, form),
            Step::Accounts => self.allow(host, form),
            Step::Over => {}
        }
    }

    fn begin<H: Host<Subject = S>>(&mut self, host: &H, now: Timestamp) {
        self.ends = now.saturating_add(MINUTES).unwrap_or(Timestamp::MAX);
        self.step = Step::Place;
        if let Some(place) = self.locked.clone() {
            if let Some(end) = host.barred(&place) {
                return self.end(host, end);
            }
            (self.step, self.place) = (Step::SignIn, Some(place));
        }
    }

    fn choose<H: Host<Subject = S>>(&mut self, host: &H, id: &str) {
        let found = host.places().into_iter().find(|place| place.id == id && place.note.is_none());
        match found {
            Some(place) => (self.step, self.place) = (Step::SignIn, Some(place.id)),
            None => self.message = Some("Choose one that is available.".to_owned()),
        }
    }

    fn sign_in<H: Host<Subject = S>>(&mut self, host: &H, form: &Query) {
        let name = form.get("name").unwrap_or_default().trim();
        self.name = name.chars().take(NAME_CHARS_MAX).collect();
        if name.is_empty() || name != self.name || name.chars().any(char::is_control) {
            self.message = Some(format!("Enter a user name of at most {NAME_CHARS_MAX} characters."));
            return;
        }
        let code: String = form.get("code").unwrap_or_default().split_whitespace().collect();
        match code.as_str() {
            FAILS => return self.end(host, End::Failed),
            REFUSES => return self.end(host, End::Refused),
            code if code == self.code => {}
            _ => return self.miss(host),
        }
        let place = self.place.clone().unwrap_or_default();
        match host.sign_in(&self.subject, &place, &self.name.to_lowercase()) {
            Ok((who, offers)) => {
                (self.who, self.offers, self.step) = (who, offers, Step::Accounts);
            }
            Err(end) => self.end(host, end),
        }
    }

    fn miss<H: Host<Subject = S>>(&mut self, host: &H) {
        self.tries -= 1;
        self.message = match self.tries {
            0 => return self.end(host, End::WrongCode),
            1 => Some("That is not the code. You can try once more.".to_owned()),
            left => Some(format!("That is not the code. You can try {left} times more.")),
        };
    }

    fn allow<H: Host<Subject = S>>(&mut self, host: &H, form: &Query) {
        let picked: Vec<usize> = form.all("account").filter_map(|index| index.parse().ok()).collect();
        let offers = self.offers.iter().enumerate();
        let chosen: Vec<Offer> =
            offers.filter(|(index, _)| picked.contains(index)).map(|(_, offer)| offer.clone()).collect();
        if chosen.is_empty() {
            self.message = Some("Choose at least one account.".to_owned());
            return;
        }
        let place = self.place.clone().unwrap_or_default();
        self.end(host, End::Allowed { place, name: self.name.to_lowercase(), chosen });
    }

    /// It is over, in this way.
    fn end<H: Host<Subject = S>>(&mut self, host: &H, end: End) {
        let landing = host.finish(&self.subject, end);
        self.over(Some(landing));
    }

    fn over(&mut self, landing: Option<Landing>) {
        (self.step, self.landing) = (Step::Over, landing);
    }
}

/// The visits of a provider.
pub(crate) struct Desk<S>(Mutex<Vec<Visit<S>>>);

impl<S> Default for Desk<S> {
    fn default() -> Self {
        Self(Mutex::new(Vec::new()))
    }
}

impl<S> Desk<S> {
    /// Remembers a visit, the newest last.
    pub(crate) fn open(&self, visit: Visit<S>) {
        let mut visits = self.0.lock();
        if visits.len() >= VISITS_MAX {
            visits.remove(0);
        }
        visits.push(visit);
    }

    /// Whether there is a visit of that hidden field.
    pub(crate) fn has(&self, token: &str) -> bool {
        self.by_token(token, |_| ()).is_some()
    }

    /// Takes a visit out that nobody has begun: for those who want no pages.
    pub(crate) fn redeem(&self, entry: &str, now: Timestamp) -> Option<Visit<S>> {
        let mut visits = self.0.lock();
        let index = visits.iter().position(|visit| visit.entry.as_deref() == Some(entry))?;
        let good = visits[index].step == Step::Ask && visits[index].is_open(now);
        good.then(|| visits.remove(index))
    }

    /// Does something with the visit of that name in the address.
    pub(super) fn by_entry<T>(&self, entry: &str, what: impl FnOnce(&Visit<S>) -> T) -> Option<T> {
        let visits = self.0.lock();
        visits.iter().find(|visit| visit.entry.as_deref() == Some(entry)).map(what)
    }

    /// Does something with the visit of that hidden field.
    pub(super) fn by_token<T>(&self, token: &str, what: impl FnOnce(&mut Visit<S>) -> T) -> Option<T> {
        let mut visits = self.0.lock();
        visits.iter_mut().find(|visit| visit.token == token).map(what)
    }
}
