//! The state of the simulated Akahu.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::Akahu;
use super::errors::Failure;
use super::respond::iso;
use crate::clock::after;
use crate::consent::ConsentState;
use crate::members::Members;
use crate::saved;
use crate::world::new_zealand::Institution;
use crate::world::rng::{DIGITS, Rng};

pub(super) type Store = crate::store::Store<Akahu>;
pub(super) type Account = crate::store::Account<Akahu>;
pub(super) type Entry = crate::store::Entry<Akahu>;

/// How long a refresh takes (a sandbox choice).
const REFRESH_DURATION: SignedDuration = SignedDuration::from_secs(2);

/// When a refresh that starts now finishes.
pub(super) fn refresh_completion_time(now: Timestamp) -> Timestamp {
    after(now, REFRESH_DURATION)
}

#[derive(Clone, Default, Serialize, Deserialize)]
pub(crate) struct State {
    /// Append-only, so an index stays valid.
    pub(super) users: Vec<User>,
    /// Append-only.
    pub(super) logins: Vec<Login>,
}

/// A person who shares logins with the app.
#[derive(Clone, Serialize, Deserialize)]
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

#[derive(Clone, Serialize, Deserialize)]
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
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Login {
    pub(super) id: String,
    pub(super) user: usize,
    #[serde(with = "saved")]
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
    /// The status that its accounts show.
    pub(super) fn status(&self) -> &'static str {
        match self.state {
            ConsentState::Active => "ACTIVE",
            ConsentState::Expired | ConsentState::Revoked => "INACTIVE",
        }
    }
}

#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct OwnAccount {
    pub(super) user: usize,
    pub(super) login: usize,
    pub(super) connection_id: String,
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
            connection_id: institution.id.to_owned(),
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
    pub(super) fn account_of(&self, user: usize, id: &str) -> Result<&Account, Failure> {
        let mut accounts = self.accounts_of(user).into_iter();
        accounts
            .find(|account| account.id == id)
            .ok_or_else(Failure::not_found)
    }

    /// All accounts of a login.
    pub(super) fn accounts_at(&mut self, login: usize) -> impl Iterator<Item = &mut Account> {
        let accounts = self.accounts.iter_mut();
        accounts.filter(move |account| account.login == login)
    }

    /// Changes the state of a login and of its accounts.
    pub(super) fn set_state(&mut self, login: usize, state: ConsentState, now: Timestamp) {
        let changed = &mut self.logins[login];
        changed.state = state;
        // A login that works again is refreshed at once; a pending refresh of another one is
        // cancelled.
        changed.refresh_due_at =
            (state == ConsentState::Active).then(|| refresh_completion_time(now));
        let status = changed.status();
        for account in self.accounts_at(login) {
            account.members.set("status", &status);
        }
    }
}
