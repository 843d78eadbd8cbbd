//! What every simulated provider is made of, whatever its protocol.

use std::collections::HashSet;
use std::io;
use std::ops::Deref;

use http::StatusCode;
use jiff::Timestamp;
use parking_lot::Mutex;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use crate::calls::Calls;
use crate::clock::Clock;
use crate::consent::ConsentState;
use crate::consent_page::ConsentSessions;
use crate::empty_pages::EmptyPages;
use crate::faults::Faults;
use crate::members::Members;
use crate::refused::Refused;
use crate::state::{self, StateFile};
use crate::store::{Moment, Protocol, SharedStore, Store};
use crate::webhooks::WebhookQueue;
use crate::{Credentials, Options};

/// The parts that do not depend on the protocol.
pub(crate) struct Shared {
    pub(crate) clock: Clock,
    pub(crate) faults: Faults,
    pub(crate) calls: Calls,
    pub(crate) empty_pages: EmptyPages,
    /// Accounts that lists leave out. All other responses have them.
    pub(crate) unlisted: Mutex<HashSet<String>>,
    pub(crate) webhooks: WebhookQueue,
    pub(crate) state_file: Option<StateFile>,
}

/// The whole state of a provider.
pub(crate) struct Core<P: Provider> {
    pub(crate) shared: Shared,
    pub(crate) store: SharedStore<P>,
    pub(crate) options: Mutex<P::Options>,
    pub(crate) consent_sessions: ConsentSessions<P::AuthRequest>,
    /// The state at the last comparison for webhooks; `None` while no URL is set.
    pub(crate) compared: Mutex<Option<Moment<P>>>,
}

impl<P: Provider> Core<P> {
    /// Goes on with a state that was saved, or else fills one, with dates counted back from the
    /// start of the clock.
    pub(crate) fn new(
        options: &Options,
        fill: impl FnOnce(Timestamp) -> Store<P>,
    ) -> io::Result<Self> {
        let clock = Clock::new(options.now);
        let saved = state::load(options, P::NAME)?;
        Ok(Self {
            store: SharedStore::new(saved.unwrap_or_else(|| fill(clock.now()))),
            shared: Shared {
                clock,
                faults: Faults::default(),
                calls: Calls::default(),
                empty_pages: EmptyPages::default(),
                unlisted: Mutex::default(),
                webhooks: WebhookQueue::new(options.webhooks_anywhere),
                state_file: options
                    .state
                    .as_deref()
                    .map(|folder| StateFile::new(folder, P::NAME)),
            },
            options: Mutex::default(),
            consent_sessions: ConsentSessions::default(),
            compared: Mutex::new(None),
        })
    }
}

impl<P: Provider> Deref for Core<P> {
    type Target = Shared;
    fn deref(&self) -> &Shared {
        &self.shared
    }
}

/// What a test can do to a provider, where each does it in its own way.
pub(crate) trait Controls: Send + Sync {
    /// The ready-made credentials in the order of the users, each with its owner's name and
    /// institution; with `all` those of every connection.
    fn credentials(&self, all: bool) -> Vec<(Credentials, String)>;
    fn set_consent(
        &self,
        id: &str,
        state: ConsentState,
        expires_at: Option<Timestamp>,
    ) -> Result<(), Refused>;
    /// Whether the credentials of a user are valid: Akahu's user token, or SnapTrade's user.
    fn set_user(&self, id: &str, _valid: bool) -> Result<(), Refused> {
        Err(Refused::unknown("user", id))
    }
    fn add_account(&self, given: Members) -> Result<Members, Refused>;
    fn change_account(&self, id: &str, given: Members) -> Result<Members, Refused>;
    fn set_balance(&self, id: &str, given: Box<RawValue>) -> Result<Box<RawValue>, Refused>;
    /// Replaces all rows of an account with `rows` drawn ones, some of which may share an instant.
    fn fill(&self, id: &str, _rows: u32) -> Result<(), Refused> {
        Err(Refused::unknown("account to fill", id))
    }
    /// Adds a position to an account.
    fn add_position(&self, _: Members) -> Result<Members, Refused> {
        Err("only SnapTrade has positions".into())
    }
}

/// A simulated provider.
pub(crate) trait Provider: Controls + Protocol + Deref<Target = Core<Self>> {
    /// What the provider keeps with a session of the consent page.
    type AuthRequest: Send + 'static;
    /// How the provider behaves where its real behaviour is unknown.
    type Options: Default + Serialize + DeserializeOwned + Send;
    /// One of [`crate::PROVIDERS`].
    const NAME: &'static str;

    /// Content type and body of the provider's error for a path and status.
    fn error_body(path: &str, status: StatusCode) -> (&'static str, Vec<u8>);
    /// Checks changed options, and lets them take effect.
    fn apply_options(&self, _: &Self::Options) -> Result<(), Refused> {
        Ok(())
    }
}
