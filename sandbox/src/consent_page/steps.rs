//! How a form changes the session that it belongs to.

use jiff::{SignedDuration, Timestamp};

use super::ConsentProvider;
use super::session::{Choice, ConsentResult, ConsentSession, NAME_CHARS_MAX, Reason, Step};
use crate::clock::after;
use crate::query::Query;

/// Limit from the first form on. Fiskil's own kit waits that long
/// (docs/providers/fiskil.md#sessions); for the other providers it is a sandbox choice.
const SESSION_DURATION: SignedDuration = SignedDuration::from_mins(10);
/// This code simulates an unavailable institution.
const UNAVAILABLE_CODE: &str = "000000";
/// This code simulates a login that the institution rejects.
const REJECTED_CODE: &str = "111111";

impl<S> ConsentSession<S> {
    /// Applies a form.
    pub(super) fn advance<H: ConsentProvider<AuthRequest = S>>(
        &mut self,
        provider: &H,
        form: &Query,
        now: Timestamp,
    ) {
        let submitted = form
            .get("form_number")
            .and_then(|number| number.parse().ok());
        if self.step == Step::Done || submitted != Some(self.form_number) {
            return;
        }
        if !self.is_open(now) {
            // Before the first form the session is not bound to a browser, so there is no redirect.
            if self.step == Step::Consent {
                self.complete(None);
            } else {
                self.fail(provider, Reason::TimedOut);
            }
            return;
        }
        self.form_number += 1;
        self.message = None;
        match form.get("do") {
            Some("cancel") if matches!(self.step, Step::SignIn | Step::Accounts) => {
                return self.fail(provider, Reason::Denied);
            }
            Some("cancel") => return self.fail(provider, Reason::Cancelled),
            Some("close") if self.has_close_button => return self.fail(provider, Reason::Closed),
            _ => {}
        }
        match self.step {
            Step::Consent => self.begin(provider, now),
            Step::Institution => {
                self.choose_institution(provider, form.get("institution").unwrap_or_default());
            }
            Step::SignIn => self.sign_in(provider, form),
            Step::Accounts => self.allow(provider, form),
            Step::Done => {}
        }
    }

    fn begin<H: ConsentProvider<AuthRequest = S>>(&mut self, provider: &H, now: Timestamp) {
        self.expires_at = after(now, SESSION_DURATION);
        self.step = Step::Institution;
        if let Some(institution_id) = self.fixed_institution.clone() {
            if let Some(reason) = provider.why_unavailable(&institution_id) {
                return self.fail(provider, reason);
            }
            (self.step, self.institution_id) = (Step::SignIn, Some(institution_id));
        }
    }

    fn choose_institution<H: ConsentProvider<AuthRequest = S>>(&mut self, provider: &H, id: &str) {
        let found = provider
            .institutions()
            .into_iter()
            .find(|option| option.id == id && option.note.is_none());
        match found {
            Some(option) => {
                (self.step, self.institution_id) = (Step::SignIn, Some(option.id.to_owned()));
            }
            None => self.message = Some("Choose an available institution.".to_owned()),
        }
    }

    fn sign_in<H: ConsentProvider<AuthRequest = S>>(&mut self, provider: &H, form: &Query) {
        let name = form.get("name").unwrap_or_default().trim();
        self.name = name.chars().take(NAME_CHARS_MAX).collect();
        if name.is_empty() || name != self.name || name.chars().any(char::is_control) {
            self.message = Some(format!(
                "Enter a user name of at most {NAME_CHARS_MAX} characters."
            ));
            return;
        }
        let code: String = form
            .get("code")
            .unwrap_or_default()
            .split_whitespace()
            .collect();
        match code.as_str() {
            UNAVAILABLE_CODE => return self.fail(provider, Reason::Unavailable),
            REJECTED_CODE => return self.fail(provider, Reason::LoginRejected),
            code if code == self.code => {}
            _ => return self.reject_code(provider),
        }
        let institution_id = self.institution_id.clone().unwrap_or_default();
        match provider.sign_in(
            &self.auth_request,
            &institution_id,
            &self.name.to_lowercase(),
        ) {
            Ok((display_name, offers)) => {
                (self.display_name, self.offers, self.step) =
                    (display_name, offers, Step::Accounts);
            }
            Err(reason) => self.fail(provider, reason),
        }
    }

    fn reject_code<H: ConsentProvider<AuthRequest = S>>(&mut self, provider: &H) {
        self.attempts_left -= 1;
        self.message = match self.attempts_left {
            0 => return self.fail(provider, Reason::WrongCode),
            1 => Some("That is not the code. You can try once more.".to_owned()),
            left => Some(format!(
                "That is not the code. You can try {left} times more."
            )),
        };
    }

    fn allow<H: ConsentProvider<AuthRequest = S>>(&mut self, provider: &H, form: &Query) {
        let picked: Vec<usize> = form
            .all("account")
            .filter_map(|index| index.parse().ok())
            .collect();
        let offers = self.offers.iter().enumerate();
        let choice = Choice {
            institution_id: self.institution_id.clone().unwrap_or_default(),
            name: self.name.to_lowercase(),
            accounts: offers
                .filter(|(index, _)| picked.contains(index))
                .map(|(_, offer)| offer.clone())
                .collect(),
        };
        if choice.accounts.is_empty() {
            self.message = Some("Choose at least one account.".to_owned());
            return;
        }
        match provider.share(&self.auth_request, &choice) {
            Ok(result) => self.complete(Some(result)),
            Err(reason) => self.fail(provider, reason),
        }
    }

    fn fail<H: ConsentProvider<AuthRequest = S>>(&mut self, provider: &H, reason: Reason) {
        self.complete(Some(provider.fail(&self.auth_request, reason)));
    }

    fn complete(&mut self, result: Option<ConsentResult>) {
        (self.step, self.result) = (Step::Done, result);
    }
}
