//! What the page of a link URL shows and does: the user's connections, sessions to confirm, and
//! removals.

use bellbird_domain::{
    Account, Confirmation, Connection, ConnectionCategory, ConnectionId, ConnectionStatus, User,
    UserId,
};
use bellbird_storage::{ConsentSession, Link};
use jiff::Timestamp;
use uuid::Uuid;

use crate::ConnectionsError;
use crate::linking::Links;
use crate::return_url::AppReturn;

/// Consent sessions that one link URL can start.
pub(crate) const SESSIONS_PER_LINK_MAX: u32 = 20;

/// Consent sessions of a user and provider that are open at a time, whatever the links.
pub(crate) const OPEN_SESSIONS_MAX: u64 = 5;

/// A configured provider that has a consent page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkableProvider {
    /// Whether it is simulated.
    pub is_sandbox: bool,
    /// The name in the API.
    pub name: &'static str,
    /// The name for people, as the provider writes it.
    pub title: &'static str,
    /// The institutions that it reaches, for people.
    pub reaches: &'static str,
    /// The plan of a user decides which category the user reads.
    pub category: ConnectionCategory,
}

/// A connection with its visible accounts, by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkedConnection {
    pub connection: Connection,
    pub accounts: Vec<Account>,
}

/// What a link URL leads to.
#[derive(Debug)]
pub enum FoundLink {
    Page(Box<LinkPage>),
    /// It has started as many sessions as it can, and none of them waits for this browser.
    UsedUp(Option<AppReturn>),
    /// It is a link session that has connected.
    Connected(Option<AppReturn>),
    Expired(Option<AppReturn>),
    /// The token is incomplete or made up, or its user or connection has been removed.
    Unknown,
}

/// The contents of the page at a link URL.
#[derive(Debug)]
pub struct LinkPage {
    /// The user whose accounts will be linked.
    pub email: String,
    /// The user's timezone, an IANA name. None: the default.
    pub timezone: Option<String>,
    /// The only provider that the link allows, if it is restricted.
    pub provider: Option<String>,
    /// The only connection that the link repairs, if it is restricted.
    pub repair_target: Option<LinkedConnection>,
    /// Those that the user's plan includes.
    pub providers: Vec<LinkableProvider>,
    /// Those that the plan does not include.
    pub not_in_plan: Vec<LinkableProvider>,
    /// Newest first. Empty if the link is restricted.
    pub connections: Vec<LinkedConnection>,
    /// The sessions that this browser started and that have no result yet.
    pub unfinished: Vec<UnfinishedSession>,
    /// Whether the link starts no further session.
    pub is_used_up: bool,
    pub expires_at: Timestamp,
    /// Where a link session leads back.
    pub app_return: Option<AppReturn>,
}

/// A consent session without a result.
#[derive(Debug)]
pub struct UnfinishedSession {
    pub id: Uuid,
    pub provider: String,
    pub started_at: Timestamp,
    /// Whether it waits for the provider. Otherwise it has neither a callback nor a confirmation.
    pub is_confirmed: bool,
    /// The connection that it is to repair. None: it links a new one, which is not known yet.
    pub repaired: Option<Connection>,
}

/// A connection that the holder of a link can remove, and its user.
#[derive(Debug)]
pub struct RemovalPage {
    pub link_id: Uuid,
    /// Whether the link is for this connection only.
    pub is_only: bool,
    pub email: String,
    pub linked: LinkedConnection,
    /// Where a link session leads back.
    pub app_return: Option<AppReturn>,
}

impl Links<'_> {
    /// Returns what a link URL leads to, for the browser with this cookie.
    pub async fn find_page(
        self,
        token: &str,
        browser: Option<&str>,
    ) -> Result<FoundLink, ConnectionsError> {
        let Some((link, user)) = self.find_link(token).await? else {
            return Ok(FoundLink::Unknown);
        };
        let (is_open, is_used_up) = (self.is_open(&link), is_used_up(&link));
        let unfinished = if is_open {
            self.find_unfinished(user.id, browser).await?
        } else {
            Vec::new()
        };
        if !is_open || is_used_up && unfinished.is_empty() {
            let ended = match (link.has_connected, is_open) {
                (true, _) => FoundLink::Connected,
                (false, true) => FoundLink::UsedUp,
                (false, false) => FoundLink::Expired,
            };
            return Ok(ended(self.app_return(&link)));
        }
        let repair_target = match link.connection_id {
            Some(id) => self.0.storage.connections().find(user.id, id).await?,
            None => None,
        };
        if link.connection_id.is_some() && repair_target.is_none() {
            return Ok(FoundLink::Unknown);
        }
        let mut connections = Vec::new();
        if link.provider.is_none() {
            for connection in self.0.storage.connections().list(user.id).await? {
                connections.push(self.with_accounts(connection).await?);
            }
        }
        let repair_target = match repair_target {
            Some(connection) => Some(self.with_accounts(connection).await?),
            None => None,
        };
        let app_return = self.app_return(&link);
        let (providers, not_in_plan) = self
            .providers()
            .into_iter()
            .partition(|provider| user.plan.reads(provider.category));
        Ok(FoundLink::Page(Box::new(LinkPage {
            email: user.email,
            timezone: user.timezone,
            provider: link.provider,
            repair_target,
            providers,
            not_in_plan,
            connections,
            unfinished,
            is_used_up,
            expires_at: link.expires_at,
            app_return,
        })))
    }

    /// The sessions of a user that this browser started and that have no result yet, newest first.
    pub async fn find_unfinished(
        self,
        user: UserId,
        browser: Option<&str>,
    ) -> Result<Vec<UnfinishedSession>, ConnectionsError> {
        let Some(browser) = browser else {
            return Ok(Vec::new());
        };
        let sessions = self
            .0
            .storage
            .consent_sessions()
            .list_unfinished(user, browser, self.0.clock.now())
            .await?;
        if sessions.is_empty() {
            return Ok(Vec::new());
        }
        let connections = self.0.storage.connections().list(user).await?;
        let is_unfinished = |session: &ConsentSession| {
            if session.confirmation == Confirmation::Confirmed {
                // It continues until its callback or its end, because more consents may follow.
                return !connections
                    .iter()
                    .any(|connection| is_result(connection, session));
            }
            // Without its callback, a session whose code is to be exchanged has no result.
            let provider = self.0.provider(&session.provider).ok();
            let linking = provider.as_ref().and_then(|provider| provider.linking());
            linking.is_some_and(|linking| linking.can_finish(&[]))
        };
        let repaired = |session: &ConsentSession| {
            let mut connections = connections.iter();
            let found = connections.find(|one| Some(one.id) == session.connection_id);
            found.cloned()
        };
        let sessions = sessions.into_iter().filter(is_unfinished);
        let unfinished = sessions.map(|session| UnfinishedSession {
            id: session.id(),
            started_at: session.created_at,
            is_confirmed: session.confirmation == Confirmation::Confirmed,
            repaired: repaired(&session),
            provider: session.provider,
        });
        Ok(unfinished.collect())
    }

    pub(crate) async fn with_accounts(
        self,
        connection: Connection,
    ) -> Result<LinkedConnection, ConnectionsError> {
        let accounts = self
            .0
            .storage
            .accounts()
            .list_of_connection(connection.user_id, connection.id)
            .await?;
        Ok(LinkedConnection {
            connection,
            accounts,
        })
    }

    /// Confirms a consent session without a callback, for the browser that started it, and polls it
    /// once.
    ///
    /// Fails with [`ConnectionsError::LinkExpired`] if the link or the session is unknown or has
    /// expired.
    pub async fn confirm_consent_session(
        self,
        token: &str,
        session: Uuid,
        browser: &str,
    ) -> Result<(), ConnectionsError> {
        let (_, user) = self
            .find_open_link(token)
            .await?
            .ok_or(ConnectionsError::LinkExpired)?;
        self.confirm_own_consent_session(user.id, session, browser)
            .await
    }

    /// As [`Self::confirm_consent_session`], for a user who is signed in.
    pub async fn confirm_own_consent_session(
        self,
        user: UserId,
        session: Uuid,
        browser: &str,
    ) -> Result<(), ConnectionsError> {
        let confirmed = self
            .0
            .storage
            .consent_sessions()
            .confirm(user, session, browser, self.0.clock.now())
            .await?;
        let key = confirmed.ok_or(ConnectionsError::LinkExpired)?;
        self.run_session_now(&key).await
    }

    /// Finds a connection that the holder of this link can remove. A link for one provider removes
    /// nothing, and one for a repair only the connection that it repairs.
    ///
    /// Fails with [`ConnectionsError::LinkExpired`] if the link does not allow it, and with
    /// [`ConnectionsError::NotFound`] if the user has no such connection.
    pub async fn find_removal_page(
        self,
        token: &str,
        id: ConnectionId,
    ) -> Result<RemovalPage, ConnectionsError> {
        let open = self
            .find_open_link(token)
            .await?
            .filter(|(link, _)| !is_used_up(link));
        let (link, user) = open.ok_or(ConnectionsError::LinkExpired)?;
        let is_allowed = link
            .connection_id
            .map_or(link.provider.is_none(), |allowed| allowed == id);
        if !is_allowed {
            return Err(ConnectionsError::LinkExpired);
        }
        let connection = self.0.connection(user.id, id).await?;
        let app_return = self.app_return(&link);
        Ok(RemovalPage {
            link_id: link.id,
            is_only: link.connection_id.is_some(),
            email: user.email,
            linked: self.with_accounts(connection).await?,
            app_return,
        })
    }

    /// Finds a link that has not expired, with its user.
    pub(crate) async fn find_open_link(
        self,
        token: &str,
    ) -> Result<Option<(Link, User)>, ConnectionsError> {
        Ok(self
            .find_link(token)
            .await?
            .filter(|(link, _)| self.is_open(link)))
    }

    async fn find_link(self, token: &str) -> Result<Option<(Link, User)>, ConnectionsError> {
        let Some(link) = self
            .0
            .unverified_read(self.0.storage.links().find(token))
            .await?
        else {
            return Ok(None);
        };
        let user = self.0.storage.users().find(link.user_id).await?;
        Ok(user.map(|user| (link, user)))
    }

    fn is_open(self, link: &Link) -> bool {
        self.0.clock.now() < link.expires_at
    }
}

/// Whether a session has probably created or repaired this connection. Ids of later rows are
/// greater.
pub(crate) fn is_result(connection: &Connection, session: &ConsentSession) -> bool {
    match session.connection_id {
        Some(repaired) => {
            connection.id == repaired && connection.status == ConnectionStatus::Active
        }
        None => connection.provider == session.provider && connection.id.uuid() > session.id(),
    }
}

pub(crate) fn is_used_up(link: &Link) -> bool {
    link.has_connected || link.open_count >= i64::from(SESSIONS_PER_LINK_MAX)
}
