//! Linking in the browser: the address that a user opens, and the way to the provider.
//!
//! An address holds a secret of its own: who has it may link for that user, until it expires. It can be opened several
//! times. Each time the browser leaves for the provider with a `state` that serves once, and is nothing but random:
//! whose it is, what for, and until when is in our database under its hash. There is no cookie, as banks' apps may send
//! the user back in another browser than the one that left.

use std::time::Duration;

use bellbird_domain::{Connection, ConnectionId, User, UserId};
use bellbird_providers::linking::{Departure, Purpose, Return, Url};
use bellbird_providers::registry::PROVIDERS;
use bellbird_providers::{Linking, Standing};
use bellbird_storage::{Link, NewLink, NewLinkSession};
use jiff::Timestamp;
use secrecy::{ExposeSecret as _, SecretString};

use crate::{Connections, ConnectionsError};

/// How long an address can be opened.
const ADDRESS_LIFE: Duration = Duration::from_secs(30 * 60);
/// How long a browser may be at the provider.
pub(crate) const TRIP_LIFE: Duration = Duration::from_secs(30 * 60);
/// How often an address takes somebody to a provider.
const DEPARTURES_MAX: u32 = 20;
/// When a trip from which nobody came back is looked into for the first time: most who consent are back by then.
pub(crate) const FIRST_LOOK: Duration = Duration::from_secs(5 * 60);
const DEPART_DEADLINE: Duration = Duration::from_secs(25);

/// What an address is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkTo<'a> {
    /// Whatever the user chooses on the page.
    Choice,
    /// This provider.
    Provider(&'a str),
    /// This connection of the user, to be repaired.
    Connection(ConnectionId),
}

/// A new address.
pub struct NewAddress {
    /// Where it is.
    pub url: SecretString,
    /// Until when it can be opened.
    pub expires_at: Timestamp,
}

/// A provider that has a consent page here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Linkable {
    /// The word that the API shows.
    pub name: &'static str,
    /// Its own name, as it writes it.
    pub title: &'static str,
    /// What it reaches, as people say it.
    pub reaches: &'static str,
}

/// What the page of an address shows.
#[derive(Debug)]
pub struct LinkPage {
    /// Whose accounts will be linked.
    pub email: String,
    /// The provider, where the address is for one only.
    pub provider: Option<String>,
    /// The connection, where the address is for repairing one only.
    pub repairs: Option<Connection>,
    /// The providers that can be linked here.
    pub providers: Vec<Linkable>,
    /// The user's connections, newest first.
    pub connections: Vec<Connection>,
    /// Until when it can be opened.
    pub expires_at: Timestamp,
}

/// One trip to the provider.
struct Trip<'a> {
    user: &'a User,
    provider: &'a str,
    linking: &'a dyn Linking,
    repairs: Option<&'a Connection>,
}

impl Connections {
    /// Makes an address for a user. `provider` or connection are checked now, so that the person who asks is told.
    ///
    /// # Errors
    /// [`ConnectionsError::NotOffered`], [`ConnectionsError::NoConsentPage`], [`ConnectionsError::NotFound`].
    pub async fn new_address(&self, user: UserId, to: LinkTo<'_>) -> Result<NewAddress, ConnectionsError> {
        let mut url = self.page("link")?;
        let (provider, connection_id) = match to {
            LinkTo::Choice if self.linkable().is_empty() => return Err(ConnectionsError::NothingToLink),
            LinkTo::Choice => (None, None),
            LinkTo::Provider(name) => (Some(name.to_owned()), None),
            LinkTo::Connection(id) => {
                let found = self.storage.find_connection(user, id).await?.ok_or(ConnectionsError::NotFound)?;
                (Some(found.provider), Some(id))
            }
        };
        if let Some(name) = &provider {
            self.linking_of(name)?;
        }
        let token = random_text()?;
        let now = self.clock.now();
        let expires_at = now.saturating_add(ADDRESS_LIFE).unwrap_or(now);
        // For people to read.
        let expires_at = Timestamp::from_second(expires_at.as_second()).unwrap_or(expires_at);
        let provider = provider.as_deref();
        let link = NewLink { user_id: user, token: token.expose_secret(), provider, connection_id, expires_at };
        self.storage.insert_link(&link, now).await?;
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.push(token.expose_secret());
        }
        Ok(NewAddress { url: String::from(url).into(), expires_at })
    }

    /// What an address shows; none when it has expired or never was.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn find_address(&self, token: &str) -> Result<Option<LinkPage>, ConnectionsError> {
        let Some((link, user)) = self.opened(token).await? else { return Ok(None) };
        let connections = self.storage.list_connections(user.id).await?;
        let repairs = connections.iter().find(|connection| Some(connection.id) == link.connection_id).cloned();
        Ok(Some(LinkPage {
            email: user.email,
            provider: link.provider,
            repairs,
            providers: self.linkable(),
            connections,
            expires_at: link.expires_at,
        }))
    }

    /// The way to the provider's consent page. `to` has to be what the address is for.
    ///
    /// # Errors
    /// [`ConnectionsError::AddressEnded`] for an address that has expired, never was, was used too often, or is for
    /// something else; [`ConnectionsError`] when the provider cannot be asked.
    pub async fn depart(&self, token: &str, to: LinkTo<'_>) -> Result<Url, ConnectionsError> {
        let (link, user) = self.opened(token).await?.ok_or(ConnectionsError::AddressEnded)?;
        let connection_id = match (to, link.connection_id) {
            (LinkTo::Choice, fixed) => fixed,
            (LinkTo::Connection(asked), Some(fixed)) if asked != fixed => return Err(ConnectionsError::AddressEnded),
            (LinkTo::Connection(asked), _) => Some(asked),
            (LinkTo::Provider(_), Some(_)) => return Err(ConnectionsError::AddressEnded),
            (LinkTo::Provider(_), None) => None,
        };
        let repairs = match connection_id {
            Some(id) => Some(self.storage.find_connection(user.id, id).await?.ok_or(ConnectionsError::AddressEnded)?),
            None => None,
        };
        let asked = match (&repairs, to) {
            (Some(connection), _) => Some(connection.provider.as_str()),
            (None, LinkTo::Provider(name)) => Some(name),
            (None, _) => link.provider.as_deref(),
        };
        let provider = asked.filter(|name| link.provider.as_deref().is_none_or(|fixed| fixed == *name));
        let provider = provider.ok_or(ConnectionsError::AddressEnded)?;
        let linking = self.linking_of(provider)?;
        if !self.storage.open_link(token, DEPARTURES_MAX, self.clock.now()).await? {
            return Err(ConnectionsError::AddressEnded);
        }
        let trip = Trip { user: &user, provider, linking, repairs: repairs.as_ref() };
        if let Some(connection) = trip.repairs {
            let grant = self.storage.find_grant(user.id, connection.id).await?.ok_or(ConnectionsError::AddressEnded)?;
            let purpose = Purpose::Repair { grant: &grant, institution_id: &connection.institution_id };
            match self.send_off(&trip, purpose).await {
                // Its own user at the provider is gone: it is repaired by what ours there consents to.
                Err(ConnectionsError::Broken(_)) if linking.registers_users() => {}
                departed => return departed,
            }
        }
        if !linking.registers_users() {
            return self.send_off(&trip, Purpose::Link { owner: None }).await;
        }
        let owner = self.owner(&user, provider, linking).await?;
        match self.send_off(&trip, Purpose::Link { owner: Some(&owner) }).await {
            Err(ConnectionsError::Broken(_)) => {}
            departed => return departed,
        }
        // Our user there is gone, by the provider's own word: there will be another one.
        if let Some(gone) = linking.owner_id(&owner) {
            self.storage.delete_provider_user_of(user.id, provider, &gone).await?;
        }
        let owner = self.owner(&user, provider, linking).await?;
        self.send_off(&trip, Purpose::Link { owner: Some(&owner) }).await
    }

    /// Writes the trip down, then asks the provider for its page: whoever consents there has a trip here.
    async fn send_off(&self, trip: &Trip<'_>, purpose: Purpose<'_>) -> Result<Url, ConnectionsError> {
        let Trip { user, provider, linking, repairs } = trip;
        let return_url = self.page("link/callback")?;
        let call = self.call_within(DEPART_DEADLINE);
        // What is there already was not consented to on this trip, whatever has become of it here.
        let mut known: Vec<String> = Vec::new();
        if linking.registers_users() {
            let before = Return { purpose, return_url: &return_url, answer: &[] };
            let grant = linking.finish(&call, &before).await?;
            let mut found = self.provider(provider)?.discover(&call, &grant).await?;
            if let (Some(_), Some(owner)) = (repairs, self.storage.find_owner(user.id, provider).await?) {
                found.extend(self.discover(self.provider(provider)?.as_ref(), &call, &owner).await?);
            }
            found.retain(|consent| consent.standing == Standing::Active);
            known.extend(found.into_iter().map(|consent| consent.provider_connection_id));
        }
        let known: Vec<&str> = known.iter().map(String::as_str).collect();
        let state = random_text()?;
        let now = self.clock.now();
        let after = |time: Duration| now.saturating_add(time).unwrap_or(now);
        let session = NewLinkSession {
            user_id: user.id,
            provider,
            connection_id: repairs.map(|connection| connection.id),
            state: state.expose_secret(),
            known: &known,
            expires_at: after(TRIP_LIFE),
            due_at: after(if linking.can_finish(&[]) { FIRST_LOOK } else { TRIP_LIFE }),
        };
        self.storage.insert_link_session(&session, now).await?;
        let departure = Departure { purpose, email: &user.email, return_url: &return_url, state: session.state };
        Ok(linking.depart(&call, &departure).await?)
    }

    async fn opened(&self, token: &str) -> Result<Option<(Link, User)>, ConnectionsError> {
        let Some(link) = self.storage.find_link(token, self.clock.now()).await? else { return Ok(None) };
        let user = self.storage.find_user(link.user_id).await?;
        Ok(user.map(|user| (link, user)))
    }

    /// The providers that have a consent page here.
    #[must_use]
    pub fn linkable(&self) -> Vec<Linkable> {
        let has_page = |name: &str| self.providers.find(name).is_some_and(|provider| provider.linking().is_some());
        let linkable = PROVIDERS.iter().filter(|provider| has_page(provider.name.as_str()));
        linkable
            .map(|provider| Linkable { name: provider.name.as_str(), title: provider.title, reaches: provider.reaches })
            .collect()
    }

    /// A provider's own name, as it writes it; the word that the API shows where it is none of ours.
    #[must_use]
    pub fn title_of<'a>(&self, provider: &'a str) -> &'a str {
        let known = PROVIDERS.iter().find(|known| known.name.as_str() == provider);
        known.map_or(provider, |known| known.title)
    }

    pub(crate) fn linking_of(&self, provider: &str) -> Result<&dyn Linking, ConnectionsError> {
        let linking = self.provider(provider)?.linking();
        linking.ok_or_else(|| ConnectionsError::NoConsentPage(provider.to_owned()))
    }

    /// A page of the console, as browsers reach it.
    pub(crate) fn page(&self, path: &str) -> Result<Url, ConnectionsError> {
        let mut url = self.console_url.clone().ok_or(ConnectionsError::NoConsole)?;
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(path.split('/'));
        }
        Ok(url)
    }
}

/// 256 random bits, in letters and digits.
fn random_text() -> Result<SecretString, ConnectionsError> {
    let mut bytes = [0; 32];
    aws_lc_rs::rand::fill(&mut bytes).map_err(|_| ConnectionsError::NoRandomNumbers)?;
    let text: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(text.into())
}
