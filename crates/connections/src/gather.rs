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
    /// Connected since the trip began, though not now: by itself, before it was interrupted, or by another one.
    pub(crate) meanwhile: Vec<Connection>,
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
    /// The connection that is to be repaired, and, unless the user said yes on this trip, those that other trips of
    /// theirs are to repair.
    pub(crate) repairs: &'a [Connection],
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
        let mut consents: Vec<(&FoundConnection, Option<Connection>)> = Vec::with_capacity(found.len());
        for consent in found.iter().filter(|consent| consent.standing == Standing::Active) {
            let id = &consent.provider_connection_id;
            if consents.iter().all(|(other, _)| other.provider_connection_id != *id) {
                match self.find_before(gathering, id).await? {
                    Before::Nobodys => consents.push((consent, None)),
                    Before::Ours(connection) => consents.push((consent, Some(connection))),
                    Before::AnothersUsers => gathered.taken = true,
                }
            }
        }
        // The own consent of what is to be repaired comes before one that could take its place.
        let is_to_be_repaired = |before: &Connection| gathering.repairs.iter().any(|one| one.id == before.id);
        consents.sort_by_key(|(_, before)| !before.as_ref().is_some_and(is_to_be_repaired));
        for (consent, before) in consents {
            if let Err(error) = self.take_in(gathering, consent, before, gathered).await {
                failed = failed.or(Some(error));
            }
        }
        match failed {
            Some(error) if error.is_passing() || gathered.is_empty() => Err(error),
            _ => Ok(()),
        }
    }

    /// Whose a consent is by now.
    async fn find_before(&self, gathering: &Gathering<'_>, id: &str) -> Result<Before, ConnectionsError> {
        let (user_id, name) = (gathering.claim.session.user_id, gathering.provider.name());
        let known = self.storage.find_concerned(name.as_str(), &[Concerned::Connection(id)]).await?;
        Ok(match known.first() {
            Some((owner, _)) if *owner != user_id => Before::AnothersUsers,
            Some((_, connection)) => {
                let found = self.storage.find_connection(user_id, *connection).await?;
                found.map_or(Before::Nobodys, Before::Ours)
            }
            None => Before::Nobodys,
        })
    }

    /// Connects one consent, unless there is nothing to do.
    async fn take_in(
        &self,
        gathering: &Gathering<'_>,
        consent: &FoundConnection,
        before: Option<Connection>,
        gathered: &mut Gathered,
    ) -> Result<(), ConnectionsError> {
        let Gathering { claim, provider, call, answer, tries, .. } = gathering;
        let user_id = claim.session.user_id;
        let id = consent.provider_connection_id.as_str();
        let is_done = |repairs: &&Connection| !gathered.reconnected.iter().any(|one| one.id == repairs.id);
        let repairs: Vec<&Connection> = gathering.repairs.iter().filter(is_done).collect();
        let to_be_repaired = |id| repairs.iter().any(|repairs| repairs.id == id);
        let is_named = answer.iter().any(|(_, value)| value == id);
        let works = |before: &Connection| before.status == ConnectionStatus::Active;
        // Connected since the trip began: by itself, before it was interrupted, or by another one of the same user.
        let is_new = |before: &Connection| {
            !claim.knew(id) && before.created_at >= claim.session.created_at && !to_be_repaired(before.id)
        };
        // That the former consent of what is to be repaired still works tells nothing about this trip.
        let is_repaired =
            before.as_ref().is_some_and(|before| to_be_repaired(before.id) && !(claim.knew(id) && works(before)));
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
                    add(if is_named { &mut gathered.linked } else { &mut gathered.meanwhile }, before.clone());
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
        let may_inherit = |repairs: &&Connection| before.is_none() && repairs.institution_id == consent.institution_id;
        let heirs: Vec<&Connection> = repairs.iter().copied().filter(may_inherit).collect();
        let in_time = self.clock.now() < claim.session.expires_at;
        if accounts.is_empty() && in_time && (!heirs.is_empty() || *tries < ACCOUNTS_TRIES) {
            gathered.undecided = true;
            return Ok(());
        }
        let (mut in_place_of, mut known_as) = (None, Vec::new());
        for connection in heirs {
            let ours = self.storage.list_connection_accounts(user_id, connection.id).await?;
            let matched = match_accounts(&ours, &accounts);
            // At least one account is certainly one of its, or it is another login at the same institution.
            if matched.iter().any(Option::is_some) {
                (in_place_of, known_as) = (Some(connection.id), matched);
                break;
            }
        }
        let arrived = Arrived { consent, accounts: &accounts, known_as: &known_as, repairs: in_place_of };
        let connection = match self.store_arrived(user_id, *provider, &arrived).await {
            // It is being removed.
            Err(ConnectionsError::Taken) => return Ok(()),
            stored => stored?,
        };
        let list = match &before {
            _ if to_be_repaired(connection.id) => &mut gathered.reconnected,
            Some(before) if works(before) && is_new(before) => &mut gathered.meanwhile,
            Some(before) if works(before) => &mut gathered.renewed,
            Some(_) => &mut gathered.reconnected,
            None => &mut gathered.linked,
        };
        add(list, connection);
        Ok(())
    }
}

/// What a consent was before it was found.
enum Before {
    Nobodys,
    Ours(Connection),
    AnothersUsers,
}

fn add(list: &mut Vec<Connection>, connection: Connection) {
    if !list.iter().any(|other| other.id == connection.id) {
        list.push(connection);
    }
}
