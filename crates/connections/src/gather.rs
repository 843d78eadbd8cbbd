//! What the user has consented to becomes connections: new ones, a repaired one, and those that work again.

use bellbird_domain::{Connection, ConnectionStatus};
use bellbird_providers::{Call, Error, FoundConnection, Provider, Standing};
use bellbird_storage::{ClaimedLinkSession, Concerned};

use crate::adopt::Arrived;
use crate::matching::match_accounts;
use crate::{Connections, ConnectionsError};

/// Attempts after which a new consent is taken without its accounts. They come later.
const ACCOUNTS_TRIES: u32 = 6;
/// Attempts after which a consent that was there before, and is given once more, is taken.
const FORMER_TRIES: u32 = 4;

/// What came of asking the provider so far.
#[derive(Default)]
pub(crate) struct Gathered {
    pub(crate) linked: Vec<Connection>,
    pub(crate) reconnected: Vec<Connection>,
    /// Worked before, and have a new grant.
    pub(crate) renewed: Vec<Connection>,
    /// One of the consents is connected for somebody else.
    pub(crate) taken: bool,
    /// A consent that cannot be judged before its accounts are there.
    pub(crate) undecided: bool,
}

impl Gathered {
    fn is_empty(&self) -> bool {
        self.linked.is_empty() && self.reconnected.is_empty()
    }
}

/// What is gathered for.
pub(crate) struct Gathering<'a> {
    pub(crate) claim: &'a ClaimedLinkSession,
    pub(crate) provider: &'a dyn Provider,
    pub(crate) call: &'a Call,
    /// The connection that is to be repaired.
    pub(crate) repairs: Option<&'a Connection>,
    /// What came back with the browser.
    pub(crate) answer: &'a [(String, String)],
    /// Attempts before this one.
    pub(crate) tries: u32,
}

impl Gathering<'_> {
    fn registers_users(&self) -> bool {
        self.provider.linking().is_some_and(bellbird_providers::Linking::registers_users)
    }
}

impl Connections {
    /// Connects what was found and works. One consent that fails ends no other.
    ///
    /// # Errors
    /// The first failure, if it may pass or nothing was connected.
    pub(crate) async fn gather(
        &self,
        gathering: &Gathering<'_>,
        found: &[FoundConnection],
        gathered: &mut Gathered,
    ) -> Result<(), ConnectionsError> {
        gathered.undecided = false;
        let mut failed: Option<ConnectionsError> = None;
        for consent in found.iter().filter(|consent| consent.standing == Standing::Active) {
            if let Err(error) = self.take_in(gathering, consent, gathered).await {
                failed = failed.or(Some(error));
            }
        }
        match failed {
            Some(error) if error.is_passing() || gathered.is_empty() => Err(error),
            _ => Ok(()),
        }
    }

    /// Connects one consent, unless there is nothing to do.
    async fn take_in(
        &self,
        gathering: &Gathering<'_>,
        consent: &FoundConnection,
        gathered: &mut Gathered,
    ) -> Result<(), ConnectionsError> {
        let Gathering { claim, provider, call, answer, tries, .. } = gathering;
        let user_id = claim.session.user_id;
        let id = consent.provider_connection_id.as_str();
        let known = self.storage.find_concerned(provider.name().as_str(), &[Concerned::Connection(id)]).await?;
        let before = match known.first() {
            Some((owner, _)) if *owner != user_id => {
                gathered.taken = true;
                return Ok(());
            }
            Some((_, connection)) => self.storage.find_connection(user_id, *connection).await?,
            None => None,
        };
        let repairs = gathering.repairs.filter(|repairs| !gathered.reconnected.iter().any(|one| one.id == repairs.id));
        let is_named = answer.iter().any(|(_, value)| value == id);
        let works = |before: &Connection| before.status == ConnectionStatus::Active;
        // Connected since the trip began: by itself, before it was interrupted, or by another one of the same user.
        let is_new = |before: &Connection| !claim.knew(id) && before.created_at >= claim.session.created_at;
        // That the former consent of what is to be repaired still works tells nothing about this trip.
        let is_repaired = before.as_ref().zip(repairs).is_some_and(|(before, repairs)| before.id == repairs.id)
            && !(claim.knew(id) && before.as_ref().is_some_and(works));
        match &before {
            // There before this trip, and no connection of ours: it was forgotten, or is just being withdrawn.
            None if claim.knew(id) && !is_named => return Ok(()),
            // The user gave it once more. It may yet go: a withdrawal takes its time.
            None if claim.knew(id) && *tries < FORMER_TRIES => {
                gathered.undecided = true;
                return Ok(());
            }
            // Where users are registered, a grant stays as it was.
            Some(before) if works(before) && gathering.registers_users() => {
                if is_new(before) {
                    add(&mut gathered.linked, before.clone());
                    return Ok(());
                }
                if !is_named && !is_repaired {
                    return Ok(());
                }
            }
            _ => {}
        }
        let accounts = match provider.accounts(call, &consent.grant).await {
            Err(Error::ReconnectNeeded(_)) => return Ok(()),
            accounts => accounts?,
        };
        // A consent that was not seen before, at the institution of what is to be repaired, may take its place.
        let may_inherit =
            |connection: &&Connection| before.is_none() && connection.institution_id == consent.institution_id;
        let in_place_of = repairs.filter(may_inherit);
        let in_time = self.clock.now() < claim.session.expires_at;
        if accounts.is_empty() && in_time && (in_place_of.is_some() || *tries < ACCOUNTS_TRIES) {
            gathered.undecided = true;
            return Ok(());
        }
        let known_as = match in_place_of {
            Some(connection) => {
                let ours = self.storage.list_connection_accounts(user_id, connection.id).await?;
                match_accounts(&ours, &accounts)
            }
            None => Vec::new(),
        };
        // At least one account is certainly one of its, or it is another login at the same institution.
        let in_place_of = in_place_of.filter(|_| known_as.iter().any(Option::is_some)).map(|connection| connection.id);
        let arrived = Arrived { consent, accounts: &accounts, known_as: &known_as, repairs: in_place_of };
        let connection = match self.store_arrived(user_id, *provider, &arrived).await {
            // It is being removed.
            Err(ConnectionsError::Taken) => return Ok(()),
            stored => stored?,
        };
        let list = match &before {
            _ if repairs.is_some_and(|repairs| repairs.id == connection.id) => &mut gathered.reconnected,
            Some(before) if works(before) && is_new(before) => &mut gathered.linked,
            Some(before) if works(before) => &mut gathered.renewed,
            Some(_) => &mut gathered.reconnected,
            None => &mut gathered.linked,
        };
        add(list, connection);
        Ok(())
    }
}

fn add(list: &mut Vec<Connection>, connection: Connection) {
    if !list.iter().any(|other| other.id == connection.id) {
        list.push(connection);
    }
}
