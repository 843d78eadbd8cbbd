//! Fills Akahu's store with the data of the world.

use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use super::respond::iso;
use super::rows::{odd_row, pending};
use super::store::{Account, Entry, Login, State, Store, Token, User};
use super::{connections, ids};
use crate::consent::ConsentState;
use crate::members::Members;
use crate::world::new_zealand::{Holding, Institution, NEW_ZEALAND, Person, institution};
use crate::world::nz_rows::{Calendars, draw};
use crate::world::rng::Rng;
use crate::world::template::Template;

/// Age of the last bank refresh at the start.
const LAST_REFRESH_AGE: SignedDuration = SignedDuration::from_hours(3);
/// Age of the last refresh at the start for a login that the bank rejects.
const EXPIRED_LOGIN_AGE: SignedDuration = SignedDuration::from_hours(11 * 24);
impl Store {
    /// Creates all data of the world, with dates counted back from `now`.
    pub(super) fn new(seed: u64, now: Timestamp) -> Self {
        // Whole seconds, so that two sandboxes with the same start are equal.
        let now = Timestamp::from_second(now.as_second()).unwrap_or(now);
        let mut store = Self::empty(seed, State::default());
        let calendars = Calendars::new(now);
        for person in &NEW_ZEALAND.people {
            store.add_person(person, &calendars, now);
        }
        store
    }

    fn add_person(&mut self, person: &Person, calendars: &Calendars, now: Timestamp) {
        let mut rng = Rng::new(self.seed, 0x616b_6168_7500 + self.users.len() as u64);
        self.users.push(User {
            id: ids::draw("user_", &mut rng),
            name: person.name.to_owned(),
            email: person.email.to_owned(),
            consented_at: now - SignedDuration::from_hours(61 * 24),
            tokens: vec![Token {
                text: ids::draw("user_token_", &mut rng),
                alive: true,
            }],
            is_listed: person.is_listed,
            subscriptions: Vec::new(),
        });
        for login in &person.logins {
            let institution = institution(login.connection)
                .expect("people hold accounts at institutions of the world");
            let (state, age) = if login.rejected {
                (ConsentState::Expired, EXPIRED_LOGIN_AGE)
            } else {
                (ConsentState::Active, LAST_REFRESH_AGE)
            };
            let user = self.users.len() - 1;
            let index = self.add_login(user, institution, state, now - age, &mut rng);
            for holding in &login.accounts {
                self.add_holding(index, holding, &mut rng, Some(calendars), now);
            }
        }
    }

    pub(super) fn add_login(
        &mut self,
        user: usize,
        institution: &'static Institution,
        state: ConsentState,
        refreshed_at: Timestamp,
        rng: &mut Rng,
    ) -> usize {
        self.logins.push(Login {
            id: ids::draw("authorisation_", rng),
            user,
            institution,
            state,
            refreshed_at,
            refresh_requested_at: None,
            refresh_due_at: None,
        });
        self.logins.len() - 1
    }

    /// Adds an account of a login with all its data. Without a calendar it has no settled rows.
    pub(super) fn add_holding(
        &mut self,
        login: usize,
        holding: &Holding,
        rng: &mut Rng,
        calendars: Option<&Calendars>,
        now: Timestamp,
    ) -> &mut Account {
        let mut account = Account::blank(self, login, ids::draw("acc_", rng));
        describe(&mut account, &self.logins[login], holding);
        if let Some(calendars) = calendars {
            draw_rows(self, &mut account, holding, calendars);
        }
        draw_pending(&mut account, rng, holding, now);
        self.push(account)
    }
}

/// Sets the members of an account (docs/providers/akahu.md#accounts).
fn describe(account: &mut Account, login: &Login, holding: &Holding) {
    start_members(account, login);
    account.members.merge_all(holding.account.clone());
    let at = iso(login.refreshed_at);
    let mut refreshed = Members::from_value(&json!({"balance": at, "meta": at}));
    if holding.synced {
        refreshed.set("transactions", &at);
    }
    refreshed.set(
        "party",
        &iso(login.refreshed_at - SignedDuration::from_hours(9 * 24)),
    );
    account.members.set("refreshed", &refreshed);
    account.running = holding.running;
}

/// Sets the fields that follow from the login.
pub(super) fn start_members(account: &mut Account, login: &Login) {
    account.members.set("_id", &account.id);
    account.members.set("_authorisation", &login.id);
    // Deprecated, but the official client's types still require it.
    account
        .members
        .set("_credentials", &ids::named("creds_", &login.id));
    account
        .members
        .set("connection", &connections::for_account(login.institution));
    account.members.set("status", &login.status());
}

/// Draws the rows of an account. The second of every three, from the newest on, can have odd values
/// and keeps its position.
fn draw_rows(store: &Store, account: &mut Account, holding: &Holding, calendars: &Calendars) {
    let (seed, base) = (store.seed, account.first_number());
    account.set_rows(draw(&holding.plan, seed, base, calendars, holding.running));
    for (index, row) in holding.odd_rows.rows().into_iter().enumerate() {
        let number = account.take_number();
        let row = odd_row(account, row, seed, number, index, &calendars.nz);
        account.insert(Entry::given(row, number));
    }
    for (index, odd) in holding.odd.iter().enumerate() {
        let entry = &account.entries[index * 3 + 1];
        let (mut members, number) = (entry.members(store, account), entry.number());
        members.merge(odd.clone());
        account.entries[index * 3 + 1] = Entry::given(members, number);
    }
}

/// Adds purchases of the last hours that have not settled.
fn draw_pending(account: &mut Account, rng: &mut Rng, holding: &Holding, now: Timestamp) {
    let spending = NEW_ZEALAND.lists.spending().iter();
    let shops: Vec<&Template> = spending.filter(|template| template.place).collect();
    for index in 0..u64::from(holding.plan.pending) {
        let template = shops[rng.next() as usize % shops.len()];
        let (low, high) = template.cents;
        let cents = -(rng.between(u64::from(low), u64::from(high)) as i64);
        let at =
            now.as_millisecond() - rng.between(60_000, 3_600_000) as i64 - index as i64 * 7_200_000;
        let place = rng.between(0, NEW_ZEALAND.places.len() as u64 - 1) as u8;
        let row = pending(template, place, cents, at, account);
        account.pending.push(row);
    }
}
