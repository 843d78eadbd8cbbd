//! Fills Fiskil's store with the data of the world.

use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use super::rows::odd_row;
use super::store::{
    Account, CONSENT_SECONDS, Consent, ConsentStatus, Entry, OwnAccount, State, Store,
};
use crate::members::Members;
use crate::world::YEARS_DAYS;
use crate::world::au_rows::draw;
use crate::world::australia::{AUSTRALIA, Holding, Person, Shape, institution};
use crate::world::calendar::Calendar;
use crate::world::odd_rows::instant;
use crate::world::rng::{BASE62, DIGITS, Rng};
use crate::world::scaled::decimal;

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
