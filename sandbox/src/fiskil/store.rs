//! The state of the simulated Fiskil.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::Fiskil;
use crate::members::Members;
use crate::merge::HasPosition;
use crate::saved;
use crate::store::Position;
use crate::world::australia::Institution;

/// A year: the longest consent that the Australian rules allow.
pub(super) const CONSENT_SECONDS: i64 = 365 * 86_400;
pub(super) type Store = crate::store::Store<Fiskil>;
pub(super) type Account = crate::store::Account<Fiskil>;
pub(super) type Entry = crate::store::Entry<Fiskil>;

#[derive(Clone, Default, Serialize, Deserialize)]
pub(crate) struct State {
    pub(super) end_users: Vec<EndUser>,
    pub(super) consents: Vec<Consent>,
}

/// An end user; `deleted` ones no longer exist for the API.
#[derive(Clone, Serialize, Deserialize)]
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
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Consent {
    pub(super) arrangement_id: String,
    pub(super) end_user_id: String,
    #[serde(with = "saved")]
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

#[derive(Clone, Serialize, Deserialize)]
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

    /// A text member of the end user who gave a consent, even of a deleted one.
    pub(super) fn text_of_giver(&self, consent: &Consent, name: &str) -> Option<String> {
        let mut users = self.end_users.iter();
        let user = users.find(|user| user.id == consent.end_user_id)?;
        user.members.text(name)
    }

    pub(super) fn consent(&self, arrangement_id: &str) -> Option<&Consent> {
        self.consents
            .iter()
            .find(|consent| consent.arrangement_id == arrangement_id)
    }

    pub(super) fn consent_mut(&mut self, arrangement_id: &str) -> Option<&mut Consent> {
        self.consents
            .iter_mut()
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
}
