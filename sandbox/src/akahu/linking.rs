//! What the consent page offers, and what a consent changes in the store
//! (docs/providers/akahu.md#consent-page,
//! #relinking).

use jiff::Timestamp;
use serde_json::json;
use serde_json::value::RawValue;

use super::store::{Store, User};
use super::{LinkingOptions, ids};
use crate::consent::ConsentState;
use crate::consent_page::{Choice, OfferedAccount};
use crate::members::Members;
use crate::world::names::{first_row, first_word, full_name, stream, vary};
use crate::world::new_zealand::{Holding, Institution, NEW_ZEALAND};
use crate::world::nz_rows::{Calendars, draw};
use crate::world::rng::{DIGITS, Rng, label};
use crate::world::scaled::Scaled;

impl Store {
    fn find_user(&self, name: &str) -> Option<usize> {
        self.users.iter().position(|user| user.email == name)
    }

    fn find_login(&self, user: usize, institution: &Institution) -> Option<usize> {
        self.logins
            .iter()
            .position(|login| login.user == user && login.institution.id == institution.id)
    }

    /// The display name of the user with this login name, known or new.
    pub(super) fn display_name(&self, name: &str) -> String {
        self.find_user(name).map_or_else(
            || full_name(self.seed, name),
            |user| self.users[user].name.clone(),
        )
    }

    /// Whether the user is known, or fewer than `max` have been made up beside those of the world.
    pub(super) fn has_room_for(&self, name: &str, max: usize) -> bool {
        self.users.len() < NEW_ZEALAND.people.len() + max || self.find_user(name).is_some()
    }

    /// Whether that user shares any login.
    pub(super) fn has_shared_logins(&self, name: &str) -> bool {
        self.find_user(name)
            .is_some_and(|user| !self.logins_of(user).is_empty())
    }

    /// The accounts of a login: the stored ones, shared or not. A new login offers the same set for
    /// every user name.
    pub(super) fn offers(&self, institution: &Institution, name: &str) -> Vec<OfferedAccount> {
        let login = self
            .find_user(name)
            .and_then(|user| self.find_login(user, institution));
        let known = self
            .accounts
            .iter()
            .filter(|account| Some(account.login) == login);
        let offers: Vec<OfferedAccount> = known
            .map(|account| offer(&account.id, &account.members))
            .collect();
        if !offers.is_empty() {
            return offers;
        }
        let invented = |holding: &Holding| {
            let members = invented(self.seed, holding, institution, name).0;
            // The account has no id yet, so its name is the key.
            offer(&members.text("name").unwrap_or_default(), &members)
        };
        NEW_ZEALAND.new_login.iter().map(invented).collect()
    }

    /// Shares the chosen accounts of a login and no others. Returns the user's index.
    pub(super) fn share(
        &mut self,
        institution: &'static Institution,
        choice: &Choice,
        options: &LinkingOptions,
        now: Timestamp,
    ) -> usize {
        let name = &choice.name;
        let user = self
            .find_user(name)
            .unwrap_or_else(|| self.add_user(name, now));
        self.users[user].consented_at = now;
        let login = match self.find_login(user, institution) {
            Some(login) => {
                self.apply_due_refreshes(now);
                if options.new_authorisation {
                    self.rename_login(login);
                }
                self.set_state(login, ConsentState::Active, now);
                login
            }
            None => self.add_new_login(user, institution, name, now),
        };
        for account in self.accounts_at(login) {
            let own_name = account.members.text("name");
            account.shared = choice.accounts.iter().any(|offer| {
                offer.account_key == account.id || Some(&offer.account_key) == own_name.as_ref()
            });
        }
        user
    }

    fn add_user(&mut self, name: &str, now: Timestamp) -> usize {
        let seed = self.seed;
        self.users.push(User {
            id: ids::draw("user_", &mut Rng::new(seed, label(&["akahu user", name]))),
            name: full_name(seed, name),
            email: name.to_owned(),
            consented_at: now,
            tokens: Vec::new(),
            is_listed: false,
            subscriptions: Vec::new(),
        });
        self.users.len() - 1
    }

    fn add_new_login(
        &mut self,
        user: usize,
        institution: &'static Institution,
        name: &str,
        now: Timestamp,
    ) -> usize {
        let seed = self.seed;
        let mut rng = stream(seed, name, institution.id, "akahu login");
        let login = self.add_login(user, institution, ConsentState::Active, now, &mut rng);
        let calendars = Calendars::new(now);
        for holding in &NEW_ZEALAND.new_login {
            let (members, running) = invented(seed, holding, institution, name);
            let account = self.add_holding(login, holding, &mut rng, None, now);
            account.members.merge_all(members);
            account.running = Some(running);
            let base = first_row(name, institution.id, &holding.account.to_string());
            account.set_rows(draw(&holding.plan, seed, base, &calendars, Some(running)));
        }
        login
    }

    /// Gives a login a new id, also in its accounts.
    fn rename_login(&mut self, login: usize) {
        let id = ids::random("authorisation_");
        for account in self.accounts_at(login) {
            account.members.set("_authorisation", &id);
            account
                .members
                .set("_credentials", &ids::named("creds_", &id));
        }
        self.logins[login].id = id;
    }
}

fn offer(account_key: &str, members: &Members) -> OfferedAccount {
    let text = |name| members.text(name).unwrap_or_default();
    let (kind, number) = (text("type"), text("formatted_account"));
    let detail = if number.is_empty() {
        kind
    } else {
        masked(&number)
    };
    OfferedAccount {
        account_key: account_key.to_owned(),
        name: text("name"),
        detail,
    }
}

/// Hides all but the last four digits.
fn masked(number: &str) -> String {
    let digits = number.chars().filter(char::is_ascii_digit).count();
    let mut seen = 0;
    let hide = |character: char| {
        seen += usize::from(character.is_ascii_digit());
        if character.is_ascii_digit() && seen + 4 <= digits {
            '*'
        } else {
            character
        }
    };
    number.chars().map(hide).collect()
}

/// Returns the members that differ between users, and the balance in cents.
fn invented(seed: u64, holding: &Holding, institution: &Institution, name: &str) -> (Members, i64) {
    let mut members = holding.account.clone();
    let mut rng = stream(seed, name, institution.id, &members.to_string());
    let own = format!(
        "{} {}",
        first_word(institution.name),
        members.text("name").unwrap_or_default()
    );
    let number = match members.text("type").as_deref() {
        Some("CREDITCARD") => format!("4988-****-****-{}", rng.text(DIGITS, 4)),
        _ => format!("12-{}-{}-00", rng.text(DIGITS, 4), rng.text(DIGITS, 7)),
    };
    let cents = vary(&mut rng, holding.cents);
    members.set("name", &own);
    members.set("formatted_account", &number);
    let mut balance = Members::default();
    balance.set("currency", &"NZD");
    balance.set("current", &dollars(cents));
    if cents > 0 {
        balance.set("available", &dollars(cents));
    }
    balance.set("overdrawn", &false);
    members.set("balance", &balance);
    members.set(
        "meta",
        &json!({"holder": full_name(seed, name).to_uppercase()}),
    );
    (members, cents)
}

/// Akahu writes amounts as numbers without trailing zeros (docs/providers/akahu.md#amounts).
fn dollars(cents: i64) -> Option<Box<RawValue>> {
    RawValue::from_string(Scaled::cents(cents).to_string()).ok()
}
