//! The state of the simulated Fiskil, and how the world's data fills it.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::Fiskil;
use super::paging::HasPosition;
use super::rows::{decimal, odd_row};
use crate::members::Members;
use crate::saved;
use crate::store::Position;
use crate::world::YEARS_DAYS;
use crate::world::au_rows::draw;
use crate::world::australia::{AUSTRALIA, Holding, Institution, Person, Shape, institution};
use crate::world::calendar::Calendar;
use crate::world::odd_rows::instant;
use crate::world::rng::{BASE62, DIGITS, Rng};

/// A year: the longest consent that the Australian rules allow.
pub(super) const CONSENT_SECONDS: i64 = 365 * 86_400;
pub(super) type Store = crate::store::Store<Fiskil>;
pub(super) type Account = crate::store::Account<Fiskil>;
pub(super) type Entry = crate::store::Entry<Fiskil>;

#[derive(Default, Serialize, Deserialize)]
pub(crate) struct State {
    pub(super) end_users: Vec<EndUser>,
    pub(super) consents: Vec<Consent>,
}

/// An end user; `deleted` ones no longer exist for the API.
#[derive(Serialize, Deserialize)]
pub(crate) struct EndUser {
    pub(super) id: String,
    pub(super) members: Members,
    pub(super) deleted: bool,
    order: u64,
}

/// The stored status of a consent. An active consent also ends at `expires_at`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ConsentStatus {
    Active,
    Ended,
}

/// An arrangement between an end user and a bank.
#[derive(Serialize, Deserialize)]
pub(crate) struct Consent {
    pub(super) arrangement_id: String,
    pub(super) end_user_id: String,
    #[serde(with = "saved::au_institution")]
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

#[derive(Serialize, Deserialize)]
pub(crate) struct OwnAccount {
    pub(super) fiskil_id: String,
    pub(super) arrangement_id: String,
    pub(super) institution_id: String,
    pub(super) end_user_id: String,
    pub(super) balance: Members,
    /// The user name at the bank; empty if a test added the account.
    pub(super) username: String,
    /// Identifies the account among the user's others at the bank, whatever its ids are.
    pub(super) account_key: String,
    /// The account is hidden before this time, because data lag behind a consent
    /// (docs/providers/fiskil.md#late-data).
    pub(super) visible_at: Timestamp,
}

impl HasPosition for Account {
    fn position(&self) -> Position {
        Position::ordered(self.order)
    }
}

impl HasPosition for Entry {
    fn position(&self) -> Position {
        self.position
    }
}

impl HasPosition for EndUser {
    fn position(&self) -> Position {
        Position::ordered(self.order)
    }
}

impl Account {
    /// Accepts the bank's id, which other clients send, and Fiskil's own, because the documentation
    /// allows both readings (docs/providers/fiskil.md#transactions).
    pub(super) fn has_id(&self, id: &str) -> bool {
        self.id == id || self.fiskil_id == id
    }
}

impl Store {
    /// Creates all data of the world, with dates counted back from `now`.
    pub(super) fn new(seed: u64, busiest_rows: u32, now: Timestamp) -> Self {
        let mut store = Self::empty(seed, State::default());
        // Two days more than the rows need, so that the calendar always has the oldest row's day.
        let calendar = Calendar::new(now, YEARS_DAYS + 2);
        for person in &AUSTRALIA.people {
            store.add_person(person, busiest_rows, &calendar, now);
        }
        store
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
        self.push(account)
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
            let base = account.first_number();
            account.set_rows(draw(&holding.plan, busiest_rows, seed, base, calendar));
            for (index, row) in holding.plan.odd_rows.rows().into_iter().enumerate() {
                let number = account.take_number();
                let row = odd_row(account, row, seed, number, instant(calendar, index));
                account.insert(Entry::given(row, number));
            }
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
    let id = rng.text(DIGITS, 10);
    let own = OwnAccount {
        fiskil_id: format!("bank_account_{}", rng.text(b"0123456789abcdef", 32)),
        arrangement_id: arrangement_id.to_owned(),
        institution_id: institution_id.to_owned(),
        end_user_id: end_user_id.to_owned(),
        balance: Members::default(),
        username: String::new(),
        account_key: String::new(),
        visible_at: Timestamp::MIN,
    };
    Account::new(id, 0, own)
}

/// Sets the ids that every account and balance has.
pub(super) fn set_names(account: &mut Account, rng: &mut Rng) {
    let names = json!({
        "fiskil_id": account.fiskil_id, "account_id": account.id,
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
