//! What the consent page offers, and what a consent changes in the store
//! (docs/providers/fiskil.md#sessions). One bank account can belong to several consents. Each
//! consent shows it under its own ids, unless a test asks for the same ones.

use indexmap::IndexMap;
use jiff::{SignedDuration, Timestamp};

use super::fill::{blank, fill};
use super::rows::transaction_id;
use super::store::{Account, CONSENT_SECONDS, Consent, ConsentStatus, Entry, Store};
use crate::clock::after;
use crate::consent_page::OfferedAccount;
use crate::store::{Body, NUMBERS_PER_ACCOUNT};
use crate::world::YEARS_DAYS;
use crate::world::au_rows::{Row, draw};
use crate::world::australia::{AUSTRALIA, Holding, Institution};
use crate::world::calendar::Calendar;
use crate::world::names::{first_row, first_word, full_name, stream, vary};
use crate::world::rng::Rng;

/// The parameters of a new consent.
pub(super) struct NewConsent<'a> {
    pub(super) end_user_id: &'a str,
    pub(super) institution: &'static Institution,
    /// The user name at the bank.
    pub(super) username: &'a str,
    pub(super) chosen: &'a [OfferedAccount],
    /// Whether accounts that the end user linked before keep their ids.
    pub(super) same_ids: bool,
    pub(super) now: Timestamp,
    /// When accounts and rows become visible.
    pub(super) visible_at: Timestamp,
}

/// The display name of the user with this login name, known or new.
pub(super) fn display_name(seed: u64, username: &str) -> String {
    let known = AUSTRALIA
        .people
        .iter()
        .find(|person| person.email == username);
    known.map_or_else(
        || full_name(seed, username),
        |person| person.name.to_owned(),
    )
}

impl Store {
    /// The accounts of a login: the stored ones, or for a new login the same set for every user
    /// name.
    pub(super) fn offers(
        &self,
        institution: &Institution,
        username: &str,
        now: Timestamp,
    ) -> Vec<OfferedAccount> {
        let own = self
            .accounts
            .iter()
            .filter(|account| account.belongs(username, institution.id));
        // Several consents may show one account; the last one is taken.
        let known: IndexMap<String, OfferedAccount> = own
            .map(|account| (account.account_key.clone(), offer(account)))
            .collect();
        if !known.is_empty() {
            return known.into_values().collect();
        }
        let calendar = Calendar::new(now, 1);
        let invented = |holding| offer(&self.invented(holding, institution, username, &calendar));
        AUSTRALIA.new_login.iter().map(invented).collect()
    }

    /// Adds a consent with the chosen accounts, and returns its arrangement id.
    pub(super) fn consent_to(&mut self, consent: &NewConsent<'_>) -> String {
        let arrangement_id = uuid::Uuid::new_v4().to_string();
        self.consents.push(Consent {
            arrangement_id: arrangement_id.clone(),
            end_user_id: consent.end_user_id.to_owned(),
            institution: consent.institution,
            created_at: consent.now,
            expires_at: after(consent.now, SignedDuration::from_secs(CONSENT_SECONDS)),
            status: ConsentStatus::Active,
        });
        for offer in consent.chosen {
            self.share(consent, offer, &arrangement_id);
        }
        arrangement_id
    }

    fn share(&mut self, consent: &NewConsent<'_>, offer: &OfferedAccount, arrangement_id: &str) {
        let is_same_account = |account: &Account| {
            account.belongs(consent.username, consent.institution.id)
                && account.account_key == offer.account_key
        };
        if consent.same_ids {
            let of_end_user = |account: &&mut Account| {
                is_same_account(account) && account.end_user_id == consent.end_user_id
            };
            if let Some(account) = self.accounts.iter_mut().rev().find(of_end_user) {
                account.move_to(arrangement_id, consent.visible_at);
                return;
            }
        }
        let known = self.accounts.iter().rposition(is_same_account);
        let mut rng = Rng::random();
        let mut account = blank(
            &mut rng,
            consent.end_user_id,
            arrangement_id,
            consent.institution.id,
        );
        (account.username, account.account_key) =
            (consent.username.to_owned(), offer.account_key.clone());
        account.visible_at = consent.visible_at;
        let rows: Vec<(Body<Row>, u64)> = match known {
            Some(known) => {
                let known = &self.accounts[known];
                (account.members, account.balance) = (known.members.clone(), known.balance.clone());
                let copied = |entry: &Entry| (entry.body.clone(), entry.number());
                known.entries.iter().map(copied).collect()
            }
            None => {
                let Some(holding) = AUSTRALIA
                    .new_login
                    .iter()
                    .find(|holding| holding.name == offer.account_key)
                else {
                    return;
                };
                let calendar = Calendar::new(consent.now, YEARS_DAYS + 2);
                let seen = self.invented(holding, consent.institution, consent.username, &calendar);
                (account.members, account.balance) = (seen.members, seen.own.balance);
                let base = first_row(consent.username, consent.institution.id, &holding.name);
                draw(&holding.plan, 0, self.seed, base, &calendar)
                    .into_iter()
                    .map(|row| (Body::Drawn(row.clone()), row.number))
                    .collect()
            }
        };
        account.rename(&mut rng);
        let seed = self.seed;
        self.add_account(account).copy_rows(rows, seed);
    }

    /// Creates an account that was never linked, without rows and ids.
    fn invented(
        &self,
        holding: &Holding,
        institution: &Institution,
        username: &str,
        calendar: &Calendar,
    ) -> Account {
        let mut rng = stream(self.seed, username, institution.id, &holding.name);
        let mut account = blank(&mut rng, "", "", institution.id);
        let cents = vary(&mut rng, holding.cents);
        fill(&mut account, holding, cents, &mut rng, calendar);
        let name = format!("{} {}", first_word(institution.name), holding.name);
        account.members.set("display_name", &name);
        account.members.set("product_name", &name);
        account.account_key.clone_from(&holding.name);
        account
    }
}

fn offer(account: &Account) -> OfferedAccount {
    let text = |name| account.members.text(name).unwrap_or_default();
    OfferedAccount {
        account_key: account.account_key.clone(),
        name: text("display_name"),
        detail: text("masked_number"),
    }
}

impl Account {
    fn belongs(&self, username: &str, institution_id: &str) -> bool {
        self.username == username && self.institution_id == institution_id
    }

    /// Moves the account to another consent. All ids stay.
    fn move_to(&mut self, arrangement_id: &str, visible_at: Timestamp) {
        arrangement_id.clone_into(&mut self.arrangement_id);
        self.visible_at = visible_at;
        self.members.set("arrangement_id", &arrangement_id);
        self.balance.set("arrangement_id", &arrangement_id);
        self.set_row_ids();
    }

    /// Replaces the ids that were copied from another consent's view.
    fn rename(&mut self, rng: &mut Rng) {
        for members in [&mut self.members, &mut self.own.balance] {
            members.set("fiskil_id", &self.own.fiskil_id);
            members.set("account_id", &self.id);
            members.set("arrangement_id", &self.own.arrangement_id);
        }
        self.balance.set(
            "fiskil_id",
            &format!("bank_balance_{}", rng.text(b"0123456789abcdef", 32)),
        );
    }

    /// Takes over rows, whose numbers, and so ids, move to the range of this account.
    fn copy_rows(&mut self, rows: Vec<(Body<Row>, u64)>, seed: u64) {
        let first = self.first_number();
        let entry = |(body, number): (Body<Row>, u64)| {
            let number = first + number % NUMBERS_PER_ACCOUNT;
            match body {
                Body::Drawn(row) => Entry::drawn(Row { number, ..row }),
                Body::Given(mut row) => {
                    row.set("fiskil_id", &transaction_id(seed, number));
                    Entry::given(row, number)
                }
            }
        };
        self.set_entries(rows.into_iter().map(entry).collect());
        self.set_row_ids();
    }

    /// Stored rows repeat the ids of their account and arrangement.
    fn set_row_ids(&mut self) {
        for entry in &mut self.entries {
            if let Body::Given(row) = &mut entry.body {
                row.set("account_id", &self.id);
                row.set("arrangement_id", &self.own.arrangement_id);
            }
        }
    }
}
