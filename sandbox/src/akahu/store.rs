//! The state of the simulated Akahu, and how the world's data fills it.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::connections;
use super::respond::iso;
use super::rows::{odd_row, pending};
use super::{Akahu, ids};
use crate::bank::ConsentState;
use crate::members::Members;
use crate::saved;
use crate::world::new_zealand::{Holding, Institution, NEW_ZEALAND, Person, institution};
use crate::world::nz_rows::{Calendars, draw};
use crate::world::rng::{DIGITS, Rng};
use crate::world::template::Template;

pub(super) type Store = crate::store::Store<Akahu>;
pub(super) type Account = crate::store::Account<Akahu>;
pub(super) type Entry = crate::store::Entry<Akahu>;

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

#[derive(Default, Serialize, Deserialize)]
pub(crate) struct State {
    /// Append-only, so an index stays valid.
    pub(super) users: Vec<User>,
    /// Append-only.
    pub(super) logins: Vec<Login>,
}

/// A person who shares logins with the app.
#[derive(Serialize, Deserialize)]
pub(crate) struct User {
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

#[derive(Serialize, Deserialize)]
pub(crate) struct Token {
    pub(super) text: String,
    pub(super) alive: bool,
}

#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct WebhookSubscription {
    pub(super) id: String,
    pub(super) kind: String,
    pub(super) state: Option<String>,
    pub(super) created_at: Timestamp,
}

/// An authorisation: one login at an institution.
#[derive(Serialize, Deserialize)]
pub(crate) struct Login {
    pub(super) id: String,
    pub(super) user: usize,
    #[serde(with = "saved::nz_institution")]
    pub(super) institution: &'static Institution,
    pub(super) state: ConsentState,
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
        state: ConsentState,
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

#[derive(Serialize, Deserialize)]
pub(crate) struct OwnAccount {
    pub(super) user: usize,
    pub(super) login: usize,
    #[serde(with = "saved::text")]
    pub(super) connection_id: saved::Text,
    pub(super) user_id: String,
    /// The last digits of the card.
    pub(super) card: String,
    pub(super) pending: Vec<Members>,
    /// The balance in cents from which the rows' balances count back.
    pub(super) running: Option<i64>,
    /// Whether the user shares it with the app.
    pub(super) shared: bool,
}

impl Account {
    /// Creates an account without members or rows.
    pub(super) fn blank(store: &mut Store, login: usize, id: String) -> Self {
        let order = store.take_order();
        let Login {
            user, institution, ..
        } = store.logins[login];
        let own = OwnAccount {
            user,
            login,
            connection_id: institution.id,
            user_id: store.users[user].id.clone(),
            card: Rng::new(store.seed, order).text(DIGITS, 4),
            pending: Vec::new(),
            running: None,
            shared: true,
        };
        Self::new(id, order, own)
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
        let mut store = Self::empty(seed, State::default());
        let calendars = Calendars::new(now);
        for person in &NEW_ZEALAND.people {
            store.add_person(person, &calendars, now);
        }
        store
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
            .any(|login| login.user == user && login.state != ConsentState::Revoked);
        shares.then_some(user)
    }

    /// Indices of the user's logins that are still shared.
    pub(super) fn logins_of(&self, user: usize) -> Vec<usize> {
        let shared = |login: &Login| login.user == user && login.state != ConsentState::Revoked;
        (0..self.logins.len())
            .filter(|&index| shared(&self.logins[index]))
            .collect()
    }

    /// The accounts that the user's token can read.
    pub(super) fn accounts_of(&self, user: usize) -> Vec<&Account> {
        let is_visible = |account: &&Account| {
            account.user == user
                && account.shared
                && self.logins[account.login].state != ConsentState::Revoked
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
    pub(super) fn set_state(&mut self, login: usize, state: ConsentState, now: Timestamp) {
        let changed = &mut self.logins[login];
        changed.state = state;
        // A login that works again is refreshed at once; a pending refresh of another one is
        // cancelled.
        changed.refresh_due_at =
            (state == ConsentState::Active).then(|| refresh_completion_time(now));
        let status = if state == ConsentState::Active {
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
                (ConsentState::Expired, EXPIRED_LOGIN_AGE)
            } else {
                (ConsentState::Active, LAST_REFRESH_AGE)
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

/// Sets the members that follow from the login.
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
    account.members.set(
        "status",
        &if login.state == ConsentState::Active {
            "ACTIVE"
        } else {
            "INACTIVE"
        },
    );
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
    let spending = NEW_ZEALAND.spending().iter();
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
