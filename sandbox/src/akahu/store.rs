//! Everything the pretended Akahu remembers, and how it is filled from the world.

use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use serde_json::json;

use super::connections::Shown;
use super::ids;
use super::respond::iso;
use super::rows::{Entry, Names, pending};
use crate::members::Members;
use crate::world::nz::holding::Holding;
use crate::world::nz::institutions::{Institution, find};
use crate::world::nz::merchants::{PLACES, SPENDING};
use crate::world::nz::people::{PEOPLE, Person};
use crate::world::nz::rows::{Calendars, draw};
use crate::world::nz::template::Template;
use crate::world::rng::{DIGITS, Rng};

/// Each account has room for this many rows in the numbers of rows.
pub(super) const NUMBERS_PER_ACCOUNT: u64 = 1 << 32;
/// How long before the start everything was read from the banks.
const LAST_REFRESH_AGE: SignedDuration = SignedDuration::from_hours(3);
/// How long before the start a login that is not let in any more was last read.
const EXPIRED_LOGIN_AGE: SignedDuration = SignedDuration::from_hours(11 * 24);
/// How long a refresh takes: ours.
const REFRESH_DURATION: SignedDuration = SignedDuration::from_secs(2);

/// When a reading that begins now is done.
pub(super) fn refresh_completion_time(now: Timestamp) -> Timestamp {
    now.saturating_add(REFRESH_DURATION).unwrap_or(now)
}

/// The memory of the provider.
pub(super) struct Store {
    pub(super) seed: u64,
    /// None is ever taken out, so a place stays good.
    pub(super) users: Vec<User>,
    /// None is ever taken out.
    pub(super) logins: Vec<Login>,
    pub(super) accounts: Vec<Account>,
    next_order: u64,
}

/// Somebody who shares logins with the app.
pub(super) struct User {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) email: String,
    pub(super) consented_at: Timestamp,
    /// Every token there was; the last is the current one.
    pub(super) tokens: Vec<Token>,
    /// Shown among the ready-made credentials.
    pub(super) is_listed: bool,
    pub(super) subscriptions: Vec<WebhookSubscription>,
}

/// Lets the app in, while it is alive.
pub(super) struct Token {
    pub(super) text: String,
    pub(super) alive: bool,
}

/// A subscription of a user's.
#[derive(Clone)]
pub(super) struct WebhookSubscription {
    pub(super) id: String,
    pub(super) kind: String,
    pub(super) state: Option<String>,
    pub(super) created_at: Timestamp,
}

/// What became of a login.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum State {
    Active,
    /// The bank lets nobody in: accounts are INACTIVE, what was read stays.
    Expired,
    /// Shared no more: accounts and rows are gone.
    Revoked,
}

/// An authorisation: a login at an institution.
pub(super) struct Login {
    pub(super) id: String,
    pub(super) user: usize,
    pub(super) institution: &'static Institution,
    pub(super) state: State,
    /// When it was last read from the bank.
    pub(super) refreshed_at: Timestamp,
    /// When somebody last asked for a refresh.
    pub(super) refresh_requested_at: Option<Timestamp>,
    /// When what was asked for is done.
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
        Self { id, user, institution, state, refreshed_at, refresh_requested_at: None, refresh_due_at: None }
    }
}

/// An account with its rows.
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
    /// Whether its owner shares it with the app.
    pub(super) shared: bool,
    order: u64,
    next_row: u64,
}

impl Account {
    /// An account without members or rows.
    pub(super) fn blank(store: &mut Store, login: usize, id: String) -> Self {
        let order = store.take_order();
        let Login { user, institution, .. } = store.logins[login];
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
        Names { account_id: &self.id, connection_id: self.connection_id, user_id: &self.user_id, card: &self.card }
    }

    /// The first of so many numbers for rows that are new.
    pub(super) const fn take_numbers(&mut self, count: u64) -> u64 {
        let number = self.order * NUMBERS_PER_ACCOUNT + self.next_row;
        self.next_row += count;
        number
    }

    pub(super) fn insert(&mut self, entry: Entry) {
        let index = self.entries.partition_point(|known| known.position <= entry.position);
        self.entries.insert(index, entry);
    }

    /// Sets those times of the last reading that the account shows.
    pub(super) fn set_refreshed(&mut self, at: Timestamp) {
        let shown = self.members.get("refreshed").and_then(|raw| Members::parse(raw.get().as_bytes()).ok());
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
    /// Everything of the world, with dates counted back from `now`.
    pub(super) fn new(seed: u64, now: Timestamp) -> Self {
        // To the second, so that two sandboxes of the same start are the same.
        let now = Timestamp::from_second(now.as_second()).unwrap_or(now);
        let mut store = Self { seed, users: Vec::new(), logins: Vec::new(), accounts: Vec::new(), next_order: 1 };
        let calendars = Calendars::new(now);
        for person in PEOPLE {
            store.add_person(person, &calendars, now);
        }
        store
    }

    const fn take_order(&mut self) -> u64 {
        self.next_order += 1;
        self.next_order - 1
    }

    /// Whose token it is, as long as it is alive and there is anything left to see.
    pub(super) fn user_of_token(&self, token: &str) -> Option<usize> {
        let user = self.users.iter().position(|user| user.tokens.iter().any(|one| one.alive && one.text == token))?;
        let shares = self.logins.iter().any(|login| login.user == user && login.state != State::Revoked);
        shares.then_some(user)
    }

    /// The places of a user's logins that are still shared.
    pub(super) fn logins_of(&self, user: usize) -> Vec<usize> {
        let shared = |login: &Login| login.user == user && login.state != State::Revoked;
        (0..self.logins.len()).filter(|&index| shared(&self.logins[index])).collect()
    }

    /// The accounts that a user's token sees.
    pub(super) fn accounts_of(&self, user: usize) -> Vec<&Account> {
        let seen = |account: &&Account| {
            account.user == user && account.shared && self.logins[account.login].state != State::Revoked
        };
        self.accounts.iter().filter(seen).collect()
    }

    /// One of the accounts that a user's token sees.
    pub(super) fn account_of(&self, user: usize, id: &str) -> Option<&Account> {
        self.accounts_of(user).into_iter().find(|account| account.id == id)
    }

    /// Makes something else of a login, and of its accounts.
    pub(super) fn set_state(&mut self, login: usize, state: State, now: Timestamp) {
        let one = &mut self.logins[login];
        one.state = state;
        // A login that is let in again is read at once; one that is not is not read any more.
        one.refresh_due_at = (state == State::Active).then(|| refresh_completion_time(now));
        let status = if state == State::Active { "ACTIVE" } else { "INACTIVE" };
        for account in self.accounts.iter_mut().filter(|account| account.login == login) {
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
            tokens: vec![Token { text: ids::draw("user_token_", &mut rng), alive: true }],
            is_listed: person.is_listed,
            subscriptions: Vec::new(),
        });
        for login in person.logins {
            let institution = find(login.connection).expect("people hold accounts at institutions of the world");
            let state = if login.active { State::Active } else { State::Expired };
            let refreshed_at = now - if login.active { LAST_REFRESH_AGE } else { EXPIRED_LOGIN_AGE };
            let one = Login::new(
                ids::draw("authorisation_", &mut rng),
                self.users.len() - 1,
                institution,
                state,
                refreshed_at,
            );
            self.logins.push(one);
            for holding in login.accounts {
                self.add_holding(self.logins.len() - 1, holding, &mut rng, Some(calendars), now);
            }
        }
    }

    /// An account of a login, with everything on it; without a calendar, without settled rows.
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

/// The members of an account (docs/providers/akahu.md#accounts).
fn describe(account: &mut Account, login: &Login, holding: &Holding) {
    let own = Members::parse(one_line(holding.account).as_bytes()).expect("the world's accounts are JSON objects");
    start_members(account, login);
    account.members.merge_all(own);
    let at = iso(login.refreshed_at);
    let mut refreshed = Members::from_value(&json!({"balance": at, "meta": at}));
    if holding.synced {
        refreshed.set("transactions", &at);
    }
    refreshed.set("party", &iso(login.refreshed_at - SignedDuration::from_hours(9 * 24)));
    account.members.set("refreshed", &refreshed);
    account.running = holding.running;
}

/// The members that say whose account it is.
pub(super) fn start_members(account: &mut Account, login: &Login) {
    account.members.set("_id", &account.id);
    account.members.set("_authorisation", &login.id);
    // Deprecated, but the official client's types still promise it.
    account.members.set("_credentials", &ids::named("creds_", &login.id));
    account.members.set("connection", &Shown::inside_an_account(login.institution));
    account.members.set("status", &if login.state == State::Active { "ACTIVE" } else { "INACTIVE" });
}

/// The world's JSON is broken into lines for those who read it; numbers stay as they are written.
fn one_line(json: &str) -> String {
    json.lines().map(str::trim_start).collect()
}

fn draw_rows(account: &mut Account, seed: u64, holding: &Holding, calendars: &Calendars) {
    let base = account.take_numbers(0);
    let rows = draw(&holding.plan, seed, base, calendars, holding.running);
    account.take_numbers(rows.len() as u64);
    account.entries = rows.into_iter().map(Entry::drawn).collect();
    // Every third row from the newest takes on an oddity, with its place in the order.
    for (index, odd) in holding.odd.iter().enumerate() {
        let given = Members::parse(one_line(odd).as_bytes()).expect("the world's rows are JSON objects");
        let entry = &account.entries[index * 3 + 1];
        let mut members = entry.members(seed, account.names());
        members.merge(given);
        account.entries[index * 3 + 1] = Entry::given(members, entry.number());
    }
}

/// Some purchases of the last hours that have not settled.
fn draw_pending(account: &mut Account, rng: &mut Rng, holding: &Holding, now: Timestamp) {
    let shops: Vec<&Template> = SPENDING.iter().filter(|template| template.placed).collect();
    for index in 0..u64::from(holding.plan.pending) {
        let template = shops[rng.next() as usize % shops.len()];
        let (low, high) = template.cents;
        let cents = -(rng.between(u64::from(low), u64::from(high)) as i64);
        let at = now.as_millisecond() - rng.between(60_000, 3_600_000) as i64 - index as i64 * 7_200_000;
        let place = rng.between(0, PLACES.len() as u64 - 1) as u8;
        account.pending.push(pending(template, place, cents, at, account.names()));
    }
}
