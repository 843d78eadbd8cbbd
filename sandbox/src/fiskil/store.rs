//! The state of the simulated Fiskil, and how the world's data fills it.

use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use super::paging::{HasPosition, Position};
use super::rows::{Entry, Names, decimal};
use crate::members::Members;
use crate::world::YEARS_DAYS;
use crate::world::au_rows::draw;
use crate::world::australia::{AUSTRALIA, Holding, Institution, Person, Shape, institution};
use crate::world::calendar::Calendar;
use crate::world::rng::{BASE62, DIGITS, Rng};

/// A year: the longest consent that the Australian rules allow.
pub(super) const CONSENT_SECONDS: i64 = 365 * 86_400;
/// The range of row numbers that each account reserves.
pub(super) const NUMBERS_PER_ACCOUNT: u64 = 1 << 32;

pub(super) struct Store {
    pub(super) seed: u64,
    pub(super) end_users: Vec<EndUser>,
    pub(super) consents: Vec<Consent>,
    pub(super) accounts: Vec<Account>,
    next_order: u64,
}

/// An end user; `deleted` ones no longer exist for the API.
pub(super) struct EndUser {
    pub(super) id: String,
    pub(super) members: Members,
    pub(super) deleted: bool,
    order: u64,
}

/// The stored status of a consent. An active consent also ends at `expires_at`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ConsentStatus {
    Active,
    Ended,
}

/// An arrangement between an end user and a bank.
pub(super) struct Consent {
    pub(super) arrangement_id: String,
    pub(super) end_user_id: String,
    pub(super) institution: &'static Institution,
    pub(super) created_at: Timestamp,
    pub(super) expires_at: Timestamp,
    pub(super) status: ConsentStatus,
}

impl Consent {
    pub(super) fn is_active(&self, now: Timestamp) -> bool {
        self.status == ConsentStatus::Active && now < self.expires_at
    }
}

pub(super) struct Account {
    pub(super) account_id: String,
    pub(super) fiskil_id: String,
    pub(super) arrangement_id: String,
    pub(super) institution_id: String,
    pub(super) end_user_id: String,
    pub(super) members: Members,
    pub(super) balance: Members,
    /// Sorted by position.
    pub(super) entries: Vec<Entry>,
    /// Grows with each change to the rows.
    pub(super) row_changes: u64,
    /// The user name at the bank; empty if a test added the account.
    pub(super) username: String,
    /// Identifies the account among the user's others at the bank, whatever its ids are.
    pub(super) account_key: String,
    /// The account is hidden before this time, because data lag behind a consent
    /// (docs/providers/fiskil.md#late-data).
    pub(super) visible_at: Timestamp,
    order: u64,
    pub(super) next_row: u64,
}

impl HasPosition for Account {
    fn position(&self) -> Position {
        Position {
            minor: self.order,
            ..Position::default()
        }
    }
}

impl HasPosition for EndUser {
    fn position(&self) -> Position {
        Position {
            minor: self.order,
            ..Position::default()
        }
    }
}

impl Account {
    pub(super) fn names(&self) -> Names<'_> {
        Names {
            account_id: &self.account_id,
            arrangement_id: &self.arrangement_id,
            institution_id: &self.institution_id,
        }
    }

    /// Accepts the bank's id, which other clients send, and Fiskil's own, because the documentation
    /// allows both readings (docs/providers/fiskil.md#transactions).
    pub(super) fn has_id(&self, id: &str) -> bool {
        self.account_id == id || self.fiskil_id == id
    }

    pub(super) const fn first_number(&self) -> u64 {
        self.order * NUMBERS_PER_ACCOUNT
    }

    /// Reserves a row number.
    pub(super) const fn take_number(&mut self) -> u64 {
        let number = self.first_number() + self.next_row;
        self.next_row += 1;
        number
    }

    pub(super) fn insert(&mut self, entry: Entry) {
        let index = self
            .entries
            .partition_point(|known| known.position <= entry.position);
        self.entries.insert(index, entry);
        self.row_changes += 1;
    }
}

impl Store {
    /// Creates all data of the world, with dates counted back from `now`.
    pub(super) fn new(seed: u64, busiest_rows: u32, now: Timestamp) -> Self {
        let mut store = Self {
            seed,
            end_users: Vec::new(),
            consents: Vec::new(),
            accounts: Vec::new(),
            next_order: 1,
        };
        // Two days more than the rows need, so that the calendar always has the oldest row's day.
        let calendar = Calendar::new(now, YEARS_DAYS + 2);
        for person in &AUSTRALIA.people {
            store.add_person(person, busiest_rows, &calendar, now);
        }
        store
    }

    /// The next place in the order of items, after all others.
    const fn take_order(&mut self) -> u64 {
        self.next_order += 1;
        self.next_order - 1
    }

    pub(super) fn add_end_user(&mut self, id: String, members: Members) {
        let order = self.take_order();
        self.end_users.push(EndUser {
            id,
            members,
            deleted: false,
            order,
        });
    }

    pub(super) fn end_user(&self, id: &str) -> Option<&EndUser> {
        self.end_users
            .iter()
            .find(|user| user.id == id && !user.deleted)
    }

    pub(super) fn end_user_mut(&mut self, id: &str) -> Option<&mut EndUser> {
        self.end_users
            .iter_mut()
            .find(|user| user.id == id && !user.deleted)
    }

    pub(super) fn consent(&self, arrangement_id: &str) -> Option<&Consent> {
        self.consents
            .iter()
            .find(|consent| consent.arrangement_id == arrangement_id)
    }

    /// The accounts that data calls return: those of the end user with an active consent. Accounts
    /// of an ended consent are simply absent (docs/providers/fiskil.md#end-users).
    pub(super) fn visible_accounts(&self, end_user_id: &str, now: Timestamp) -> Vec<&Account> {
        if self.end_user(end_user_id).is_none() {
            return Vec::new();
        }
        let is_visible = |account: &&Account| {
            account.end_user_id == end_user_id
                && account.visible_at <= now
                && self
                    .consent(&account.arrangement_id)
                    .is_some_and(|consent| consent.is_active(now))
        };
        self.accounts.iter().filter(is_visible).collect()
    }

    /// Adds an account after all others.
    pub(super) fn add_account(&mut self, mut account: Account) -> &mut Account {
        account.order = self.take_order();
        self.accounts.push(account);
        self.accounts.last_mut().expect("one was pushed just now")
    }

    fn add_person(
        &mut self,
        person: &Person,
        busiest_rows: u32,
        calendar: &Calendar,
        now: Timestamp,
    ) {
        let mut rng = Rng::new(self.seed, self.next_order);
        let id = format!("eu_{}", rng.text(BASE62, 27));
        let phone = person.phone;
        let members = json!({"email": person.email, "name": person.name, "phone": phone});
        self.add_end_user(id.clone(), Members::from_value(&members));
        for (number, held) in (0..).zip(&person.consents) {
            let institution = institution(held.institution)
                .expect("people hold accounts at institutions of the world");
            let created_at = now - SignedDuration::from_hours(24 * (60 + 9 * number));
            let arrangement_id = rng.uuid();
            self.consents.push(Consent {
                arrangement_id: arrangement_id.clone(),
                end_user_id: id.clone(),
                institution,
                created_at,
                expires_at: created_at + SignedDuration::from_secs(CONSENT_SECONDS),
                status: ConsentStatus::Active,
            });
            for holding in &held.accounts {
                let mut account = blank(&mut rng, &id, &arrangement_id, institution.id);
                (account.username, account.account_key) =
                    (person.email.to_owned(), holding.name.clone());
                let account = self.add_account(account);
                fill(account, holding, holding.cents, &mut rng, calendar);
            }
            self.draw_rows(&held.accounts, busiest_rows, calendar);
        }
    }

    /// Draws rows for the accounts that were added last.
    fn draw_rows(&mut self, holdings: &[Holding], busiest_rows: u32, calendar: &Calendar) {
        let (seed, first) = (self.seed, self.accounts.len() - holdings.len());
        for (account, holding) in self.accounts[first..].iter_mut().zip(holdings) {
            let rows = draw(
                &holding.plan,
                busiest_rows,
                seed,
                account.first_number(),
                calendar,
            );
            account.next_row = rows.len() as u64;
            account.entries = rows.into_iter().map(Entry::drawn).collect();
            account.entries.sort_unstable_by_key(|entry| entry.position);
            account.insert_odd_rows(&holding.plan.odd_rows.rows(), seed, calendar);
        }
    }
}

/// Creates an account without names, balance or rows.
pub(super) fn blank(
    rng: &mut Rng,
    end_user_id: &str,
    arrangement_id: &str,
    institution_id: &str,
) -> Account {
    Account {
        account_id: rng.text(DIGITS, 10),
        fiskil_id: format!("bank_account_{}", rng.text(b"0123456789abcdef", 32)),
        arrangement_id: arrangement_id.to_owned(),
        institution_id: institution_id.to_owned(),
        end_user_id: end_user_id.to_owned(),
        members: Members::default(),
        balance: Members::default(),
        entries: Vec::new(),
        row_changes: 0,
        username: String::new(),
        account_key: String::new(),
        visible_at: Timestamp::MIN,
        order: 0,
        next_row: 0,
    }
}

/// Sets the ids that every account and balance has.
pub(super) fn set_names(account: &mut Account, rng: &mut Rng) {
    let names = json!({
        "fiskil_id": account.fiskil_id, "account_id": account.account_id,
        "arrangement_id": account.arrangement_id, "institution_id": account.institution_id,
    });
    account.members = Members::from_value(&names);
    account.balance = Members::from_value(&names);
    account.balance.set(
        "fiskil_id",
        &format!("bank_balance_{}", rng.text(b"0123456789abcdef", 32)),
    );
}

/// Fills an account and its balance in Fiskil's format (docs/providers/fiskil.md#accounts and
/// #balances).
pub(super) fn fill(
    account: &mut Account,
    holding: &Holding,
    cents: i64,
    rng: &mut Rng,
    calendar: &Calendar,
) {
    set_names(account, rng);
    let members = &mut account.members;
    members.set("display_name", &holding.name);
    if let Some(nickname) = holding.nickname {
        members.set("nickname", &nickname);
    }
    members.set("product_name", &holding.name);
    members.set("product_category", &holding.category);
    let number = rng.text(DIGITS, 9);
    let last = &number[5..];
    // Cards have no account number (docs/providers/fiskil.md#accounts). The masks follow the
    // standard (docs/providers/fiskil.md#masked-numbers).
    if matches!(holding.shape, Shape::Card | Shape::Travel) {
        members.set("masked_number", &format!("xxxx xxxx xxxx {last}"));
    } else {
        members.set("masked_number", &format!("xxx-xxx xxxxx{last}"));
        members.set("bsb", &rng.text(DIGITS, 6));
        members.set("account_number", &number);
    }
    let shared = holding.shape == Shape::Mortgage;
    members.set(
        "account_ownership",
        &if shared { "TWO_PARTY" } else { "ONE_PARTY" },
    );
    members.set("is_owned", &true);
    let closed = holding.shape == Shape::Closed;
    members.set("open_status", &if closed { "CLOSED" } else { "OPEN" });
    let age = YEARS_DAYS + rng.between(30, 3000) as u32;
    members.set("creation_date", &calendar.day(age).to_string());
    fill_balance(&mut account.balance, holding, cents);
}

fn fill_balance(balance: &mut Members, holding: &Holding, cents: i64) {
    // What a card can still spend, or an account holds; a loan has nothing available.
    let available = holding.limit.map_or(cents, |limit| limit + cents).max(0);
    balance.set("current_balance", &decimal(cents));
    balance.set("available_balance", &decimal(available));
    if let Some(limit) = holding.limit {
        balance.set("credit_limit", &decimal(limit));
    }
    if holding.shape == Shape::Mortgage {
        balance.set("amortised_limit", &decimal(50_000_000));
    }
    balance.set("currency", &"AUD");
    if holding.shape == Shape::Travel {
        let purses = json!([
            {"amount": "214.50", "currency": "EUR"}, {"amount": "97.10", "currency": "USD"},
            {"amount": "15200", "currency": "JPY"},
        ]);
        balance.set("purses", &purses);
    }
}
