//! The state of the simulated Akahu, and how the world's data fills it.

use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use serde_json::json;

use super::connections::ConnectionView;
use super::ids;
use super::respond::iso;
use super::rows::{Entry, Names, pending};
use crate::members::Members;
use crate::world::new_zealand::{Holding, Institution, NEW_ZEALAND, Person, institution};
use crate::world::nz_rows::{Calendars, draw};
use crate::world::rng::{DIGITS, Rng};
use crate::world::template::Template;

/// The range of row numbers that each account reserves.
pub(super) const NUMBERS_PER_ACCOUNT: u64 = 1 << 32;
/// Age of the last bank refresh at the start.
const LAST_REFRESH_AGE: SignedDuration = SignedDuration::from_hours(3);
/// Age of the last refresh at the start for a login that the bank rejects.
const EXPIRED_LOGIN_AGE: SignedDuration = SignedDuration::from_hours(11 * 24);
/// How long a refresh takes (a sandbox choice).
const REFRESH_DURATION: SignedDuration = SignedDuration::from_secs(2);

/// When a refresh that starts now finishes.
pub(super) fn refresh_completion_time(now: Timestamp) -> Timestamp {
    now.saturating_add(REFRESH_DURATION).unwrap_or(now)
}

pub(super) struct Store {
    pub(super) seed: u64,
    /// Append-only, so an index stays valid.
    pub(super) users: Vec<User>,
    /// Append-only.
    pub(super) logins: Vec<Login>,
    pub(super) accounts: Vec<Account>,
    next_order: u64,
}

/// A person who shares logins with the app.
pub(super) struct User {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) email: String,
    pub(super) consented_at: Timestamp,
    /// Every token ever issued; the last is the current one.
    pub(super) tokens: Vec<Token>,
    /// Whether the user's logins are among the ready-made credentials.
    pub(super) is_listed: bool,
    pub(super) subscriptions: Vec<WebhookSubscription>,
}

pub(super) struct Token {
    pub(super) text: String,
    pub(super) alive: bool,
}

#[derive(Clone)]
pub(super) struct WebhookSubscription {
    pub(super) id: String,
    pub(super) kind: String,
    pub(super) state: Option<String>,
    pub(super) created_at: Timestamp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum State {
    Active,
    /// The bank rejects the login: accounts are INACTIVE, and data read earlier stay.
    Expired,
    /// No longer shared: accounts and rows are gone.
    Revoked,
}

/// An authorisation: one login at an institution.
pub(super) struct Login {
    pub(super) id: String,
    pub(super) user: usize,
    pub(super) institution: &'static Institution,
    pub(super) state: State,
    /// When the bank was last read.
    pub(super) refreshed_at: Timestamp,
    /// When a client last requested a refresh.
    pub(super) refresh_requested_at: Option<Timestamp>,
    /// When the running refresh finishes.
    pub(super) refresh_due_at: Option<Timestamp>,
}

impl Login {
    pub(super) const fn new(
        id: String,
        user: usize,
        institution: &'static Institution,
        state: State,
        refreshed_at: Timestamp,
    ) -> Self {
        Self {
            id,
            user,
            institution,
            state,
            refreshed_at,
            refresh_requested_at: None,
            refresh_due_at: None,
        }
    }
}

pub(super) struct Account {
    pub(super) id: String,
    pub(super) user: usize,
    pub(super) login: usize,
    pub(super) connection_id: &'static str,
    user_id: String,
    card: String,
    pub(super) members: Members,
    /// Newest first.
    pub(super) entries: Vec<Entry>,
    pub(super) pending: Vec<Members>,
    /// The balance in cents from which the rows' balances count back.
    pub(super) running: Option<i64>,
    /// Whether the user shares it with the app.
    pub(super) shared: bool,
    order: u64,
    next_row: u64,
}

impl Account {
    /// Creates an account without members or rows.
    pub(super) fn blank(store: &mut Store, login: usize, id: String) -> Self {
        let order = store.take_order();
        let Login {
            user, institution, ..
        } = store.logins[login];
        Self {
            id,
            user,
            login,
            connection_id: institution.id,
            user_id: store.users[user].id.clone(),
            card: Rng::new(store.seed, order).text(DIGITS, 4),
            members: Members::default(),
            entries: Vec::new(),
            pending: Vec::new(),
            running: None,
            shared: true,
            order,
            next_row: 0,
        }
    }

    pub(super) fn names(&self) -> Names<'_> {
        Names {
            account_id: &self.id,
            connection_id: self.connection_id,
            user_id: &self.user_id,
            card: &self.card,
        }
    }

    /// Reserves `count` row numbers and returns the first.
    pub(super) const fn take_numbers(&mut self, count: u64) -> u64 {
        let number = self.order * NUMBERS_PER_ACCOUNT + self.next_row;
        self.next_row += count;
        number
    }

    pub(super) fn insert(&mut self, entry: Entry) {
        let index = self
            .entries
            .partition_point(|known| known.position <= entry.position);
        self.entries.insert(index, entry);
    }

    /// Updates the refresh times that the account shows.
    pub(super) fn set_refreshed(&mut self, at: Timestamp) {
        let shown = self
            .members
            .get("refreshed")
            .and_then(|raw| Members::parse(raw.get().as_bytes()).ok());
        let Some(mut refreshed) = shown else { return };
        for name in ["balance", "meta", "transactions"] {
            if refreshed.get(name).is_some() {
                refreshed.set(name, &iso(at));
            }
        }
        self.members.set("refreshed", &refreshed);
    }
}

impl Store {
    /// Creates all data of the world, with dates counted back from `now`.
    pub(super) fn new(seed: u64, now: Timestamp) -> Self {
        // Whole seconds, so that two sandboxes with the same start are equal.
        let now = Timestamp::from_second(now.as_second()).unwrap_or(now);
        let mut store = Self {
            seed,
            users: Vec::new(),
            logins: Vec::new(),
            accounts: Vec::new(),
            next_order: 1,
        };
        let calendars = Calendars::new(now);
        for person in &NEW_ZEALAND.people {
            store.add_person(person, &calendars, now);
        }
        store
    }

    const fn take_order(&mut self) -> u64 {
        self.next_order += 1;
        self.next_order - 1
    }

    /// The user of a valid token who still shares a login.
    pub(super) fn user_of_token(&self, token: &str) -> Option<usize> {
        let user = self.users.iter().position(|user| {
            user.tokens
                .iter()
                .any(|known| known.alive && known.text == token)
        })?;
        let shares = self
            .logins
            .iter()
            .any(|login| login.user == user && login.state != State::Revoked);
        shares.then_some(user)
    }

    /// Indices of the user's logins that are still shared.
    pub(super) fn logins_of(&self, user: usize) -> Vec<usize> {
        let shared = |login: &Login| login.user == user && login.state != State::Revoked;
        (0..self.logins.len())
            .filter(|&index| shared(&self.logins[index]))
            .collect()
    }

    /// The accounts that the user's token can read.
    pub(super) fn accounts_of(&self, user: usize) -> Vec<&Account> {
        let is_visible = |account: &&Account| {
            account.user == user
                && account.shared
                && self.logins[account.login].state != State::Revoked
        };
        self.accounts.iter().filter(is_visible).collect()
    }

    /// One of the accounts that the user's token can read.
    pub(super) fn account_of(&self, user: usize, id: &str) -> Option<&Account> {
        self.accounts_of(user)
            .into_iter()
            .find(|account| account.id == id)
    }

    /// Changes the state of a login and of its accounts.
    pub(super) fn set_state(&mut self, login: usize, state: State, now: Timestamp) {
        let changed = &mut self.logins[login];
        changed.state = state;
        // A login that works again is refreshed at once; a pending refresh of another one is
        // cancelled.
        changed.refresh_due_at = (state == State::Active).then(|| refresh_completion_time(now));
        let status = if state == State::Active {
            "ACTIVE"
        } else {
            "INACTIVE"
        };
        for account in self
            .accounts
            .iter_mut()
            .filter(|account| account.login == login)
        {
            account.members.set("status", &status);
        }
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
                (State::Expired, EXPIRED_LOGIN_AGE)
            } else {
                (State::Active, LAST_REFRESH_AGE)
            };
            let login_entry = Login::new(
                ids::draw("authorisation_", &mut rng),
                self.users.len() - 1,
                institution,
                state,
                now - age,
            );
            self.logins.push(login_entry);
            for holding in &login.accounts {
                self.add_holding(
                    self.logins.len() - 1,
                    holding,
                    &mut rng,
                    Some(calendars),
                    now,
                );
            }
        }
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
            draw_rows(&mut account, self.seed, holding, calendars);
        }
        draw_pending(&mut account, rng, holding, now);
        self.accounts.push(account);
        self.accounts.last_mut().expect("one was pushed just now")
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

/// Sets the members that follow from the login.
pub(super) fn start_members(account: &mut Account, login: &Login) {
    account.members.set("_id", &account.id);
    account.members.set("_authorisation", &login.id);
    // Deprecated, but the official client's types still require it.
    account
        .members
        .set("_credentials", &ids::named("creds_", &login.id));
    account.members.set(
        "connection",
        &ConnectionView::for_account(login.institution),
    );
    account.members.set(
        "status",
        &if login.state == State::Active {
            "ACTIVE"
        } else {
            "INACTIVE"
        },
    );
}

fn draw_rows(account: &mut Account, seed: u64, holding: &Holding, calendars: &Calendars) {
    let base = account.take_numbers(0);
    let rows = draw(&holding.plan, seed, base, calendars, holding.running);
    account.take_numbers(rows.len() as u64);
    account.entries = rows.into_iter().map(Entry::drawn).collect();
    account.insert_odd_rows(&holding.odd_rows.rows(), seed, &calendars.nz);
    // The second of every three rows, from the newest on, gets an odd value and keeps its position.
    for (index, odd) in holding.odd.iter().enumerate() {
        let entry = &account.entries[index * 3 + 1];
        let mut members = entry.members(seed, account.names());
        members.merge(odd.clone());
        account.entries[index * 3 + 1] = Entry::given(members, entry.number());
    }
}

/// Adds purchases of the last hours that have not settled.
fn draw_pending(account: &mut Account, rng: &mut Rng, holding: &Holding, now: Timestamp) {
    let spending = NEW_ZEALAND.spending().iter();
    let shops: Vec<&Template> = spending.filter(|template| template.place).collect();
    for index in 0..u64::from(holding.plan.pending) {
        let template = shops[rng.next() as usize % shops.len()];
        let (low, high) = template.cents;
        let cents = -(rng.between(u64::from(low), u64::from(high)) as i64);
        let at =
            now.as_millisecond() - rng.between(60_000, 3_600_000) as i64 - index as i64 * 7_200_000;
        let place = rng.between(0, NEW_ZEALAND.places.len() as u64 - 1) as u8;
        account
            .pending
            .push(pending(template, place, cents, at, account.names()));
    }
}
