//! Creates link URLs, and starts the consent sessions that lead a browser from a link URL to the
//! provider's consent page.
//!
//! A link URL contains a secret token. Until it expires, everyone who has it can link accounts for
//! its user, several times. Each consent session sends a random `state` to the provider, which
//! works once. The session's user, purpose and expiry are stored under the hash of the `state`,
//! with the hash of a cookie of the browser. A bank's app may return the user in another browser,
//! which has no such cookie. `callback.rs` then asks before anything is stored.

use std::time::Duration;

use bellbird_domain::{Connection, ConnectionId, TimestampExt as _, User, UserId};
use bellbird_providers::linking::{AuthorizationRequest, CallbackParams, Purpose, Url};
use bellbird_providers::registry::{PROVIDERS, provider_title};
use bellbird_providers::{Cause, ConsentStatus, Linking};
use bellbird_storage::{NewConsentSession, NewLink, NewLinkSession};
use jiff::Timestamp;
use secrecy::{ExposeSecret as _, SecretString};
use uuid::Uuid;

use super::link_page::{LinkableProvider, OPEN_SESSIONS_MAX, SESSIONS_PER_LINK_MAX};
use crate::ConnectionsError;
use crate::linking::Links;
use crate::state::linking_of;

/// How long a link URL works.
const LINK_TTL: Duration = Duration::from_secs(30 * 60);
/// How long a user may stay at the provider.
pub(crate) const CONSENT_SESSION_TTL: Duration = Duration::from_secs(30 * 60);
/// When a session without a callback is polled for the first time. Most users have returned by
/// then.
pub(crate) const FIRST_POLL_AFTER: Duration = Duration::from_secs(5 * 60);
/// For the provider calls that start a session.
const START_DEADLINE: Duration = Duration::from_secs(25);

/// What a link URL is restricted to, or what a user chooses on its page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkTarget<'a> {
    /// No restriction: the user chooses on the page.
    UserChoice,
    Provider(&'a str),
    /// Repair of this connection of the user.
    Connection(ConnectionId),
}

pub struct CreatedLink {
    /// No secret: the id of a link session in its result.
    pub id: Uuid,
    /// Secret, because it contains the token.
    pub url: SecretString,
    pub expires_at: Timestamp,
}

/// A link that was checked, and is not stored yet.
pub struct PreparedLink<'a> {
    user_id: UserId,
    token: SecretString,
    url: SecretString,
    provider: Option<String>,
    connection_id: Option<ConnectionId>,
    expires_at: Timestamp,
    session: Option<NewLinkSession<'a>>,
    console_session: Option<Uuid>,
}

impl PreparedLink<'_> {
    /// What to store.
    pub fn new_link(&self) -> NewLink<'_> {
        let Self {
            user_id,
            connection_id,
            expires_at,
            session,
            console_session,
            ..
        } = *self;
        let (token, provider) = (self.token.expose_secret(), self.provider.as_deref());
        NewLink {
            user_id,
            token,
            provider,
            connection_id,
            expires_at,
            session,
            console_session,
        }
    }

    /// The link, stored with this id.
    pub fn into_created(self, id: Uuid) -> CreatedLink {
        CreatedLink {
            id,
            url: self.url,
            expires_at: self.expires_at,
        }
    }
}

struct StartRequest<'a> {
    user: &'a User,
    link_id: Uuid,
    provider: &'a str,
    linking: &'a dyn Linking,
    repair_target: Option<&'a Connection>,
    browser: &'a str,
}

impl<'c> Links<'c> {
    /// Checks a link that a user makes in a session of the console, for a caller who stores it in a
    /// transaction of its own. It ends with the session.
    pub async fn prepare_own_link(
        self,
        user: UserId,
        session: Uuid,
        to: LinkTarget<'_>,
    ) -> Result<PreparedLink<'static>, ConnectionsError> {
        let link = self.prepare_link(user, to, None).await?;
        Ok(PreparedLink {
            console_session: Some(session),
            ..link
        })
    }

    /// Checks a link for a user, for a caller who stores it in a transaction of its own. Provider
    /// and connection are checked now, so that the caller gets the error and not the user in the
    /// browser.
    pub async fn prepare_link<'a>(
        self,
        user_id: UserId,
        to: LinkTarget<'_>,
        session: Option<NewLinkSession<'a>>,
    ) -> Result<PreparedLink<'a>, ConnectionsError> {
        let mut url = self.console_page_url("link")?;
        let (provider, connection_id) = match to {
            LinkTarget::UserChoice if self.providers().is_empty() => {
                return Err(ConnectionsError::NoLinkableProvider);
            }
            LinkTarget::UserChoice => (None, None),
            LinkTarget::Provider(name) => (Some(name.to_owned()), None),
            LinkTarget::Connection(id) => {
                let found = self.0.connection(user_id, id).await?;
                (Some(found.provider), Some(id))
            }
        };
        if let Some(name) = &provider {
            linking_of(self.0.provider(name)?.as_ref())?;
            if let Some(user) = self.0.storage.users().find(user_id).await? {
                self.check_plan(&user, name)?;
            }
            self.check_open_sessions(user_id, name).await?;
        }
        let token = bellbird_storage::new_token();
        let expires_at = self.0.clock.now().plus(LINK_TTL);
        // Whole seconds, for people to read.
        let expires_at = Timestamp::from_second(expires_at.as_second()).unwrap_or(expires_at);
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.push(token.expose_secret());
        }
        let url = String::from(url).into();
        Ok(PreparedLink {
            user_id,
            token,
            url,
            provider,
            connection_id,
            expires_at,
            session,
            console_session: None,
        })
    }

    /// Starts a consent session for the browser with this cookie, and returns the provider's
    /// consent page.
    ///
    /// Fails with [`ConnectionsError::LinkExpired`] if the link is unknown, has expired, was used
    /// too often, or is restricted to something other than `to`, and with
    /// [`ConnectionsError::TooManySessions`] if the user has as many open sessions at the provider
    /// as can be.
    pub async fn start_consent_session(
        self,
        token: &str,
        to: LinkTarget<'_>,
        browser: &str,
    ) -> Result<Url, ConnectionsError> {
        let (link, user) = self
            .find_open_link(token)
            .await?
            .ok_or(ConnectionsError::LinkExpired)?;
        let connection_id = match (to, link.connection_id) {
            (LinkTarget::UserChoice, allowed) => allowed,
            (LinkTarget::Connection(chosen), Some(allowed)) if chosen != allowed => {
                return Err(ConnectionsError::LinkExpired);
            }
            (LinkTarget::Connection(chosen), _) => Some(chosen),
            (LinkTarget::Provider(_), Some(_)) => return Err(ConnectionsError::LinkExpired),
            (LinkTarget::Provider(_), None) => None,
        };
        let repair_target = match connection_id {
            Some(id) => Some(
                self.0
                    .storage
                    .connections()
                    .find(user.id, id)
                    .await?
                    .ok_or(ConnectionsError::LinkExpired)?,
            ),
            None => None,
        };
        let chosen = match (&repair_target, to) {
            (Some(connection), _) => Some(connection.provider.as_str()),
            (None, LinkTarget::Provider(name)) => Some(name),
            (None, _) => link.provider.as_deref(),
        };
        let provider = chosen.filter(|name| {
            link.provider
                .as_deref()
                .is_none_or(|allowed| allowed == *name)
        });
        let provider = provider.ok_or(ConnectionsError::LinkExpired)?;
        let adapter = self.0.provider(provider)?;
        let linking = linking_of(adapter.as_ref())?;
        self.check_plan(&user, provider)?;
        self.check_open_sessions(user.id, provider).await?;
        if !self
            .0
            .storage
            .links()
            .open(token, SESSIONS_PER_LINK_MAX, self.0.clock.now())
            .await?
        {
            return Err(ConnectionsError::LinkExpired);
        }
        let (link_id, repair_target) = (link.id, repair_target.as_ref());
        let request = StartRequest {
            user: &user,
            link_id,
            provider,
            linking,
            repair_target,
            browser,
        };
        if let Some(connection) = request.repair_target {
            let credentials = self
                .0
                .storage
                .secrets()
                .find_credentials(user.id, connection.id)
                .await?
                .ok_or(ConnectionsError::LinkExpired)?;
            let purpose = Purpose::Repair {
                credentials: &credentials,
                institution_id: &connection.institution_id,
            };
            match self.create_session(&request, purpose).await {
                // The provider user behind this connection is gone. Continue with the user's
                // present provider user, whose new consent repairs the connection.
                Err(ConnectionsError::ConsentInactive(_)) if linking.registers_users() => {}
                result => return result,
            }
        }
        let link = |provider_user| self.create_session(&request, Purpose::Link { provider_user });
        if !linking.registers_users() {
            return link(None).await;
        }
        let provider_user = self.ensure_provider_user(&user, provider, linking).await?;
        match link(Some(&provider_user)).await {
            Err(ConnectionsError::ConsentInactive(_)) => {}
            result => return result,
        }
        // The provider reports that the provider user is gone: register another one.
        if let Some(provider_user_id) = linking.provider_user_id(&provider_user) {
            self.0
                .storage
                .provider_users()
                .delete_of(user.id, provider, &provider_user_id)
                .await?;
        }
        let provider_user = self.ensure_provider_user(&user, provider, linking).await?;
        link(Some(&provider_user)).await
    }

    /// Before the provider is called. `create_session` checks it again, in its transaction.
    async fn check_open_sessions(
        self,
        user: UserId,
        provider: &str,
    ) -> Result<(), ConnectionsError> {
        let open = self
            .0
            .storage
            .consent_sessions()
            .count_open(user, provider, self.0.clock.now())
            .await?;
        if open < OPEN_SESSIONS_MAX {
            Ok(())
        } else {
            Err(ConnectionsError::TooManySessions)
        }
    }

    /// Stores the consent session, then requests the provider's page. So every consent given there
    /// has a session here.
    async fn create_session(
        self,
        request: &StartRequest<'_>,
        purpose: Purpose<'_>,
    ) -> Result<Url, ConnectionsError> {
        let StartRequest {
            user,
            link_id,
            provider,
            linking,
            repair_target,
            browser,
        } = request;
        let redirect_uri = self.console_page_url("link/callback")?;
        let context = self
            .0
            .call_context_within(START_DEADLINE, Cause::Request(user.id));
        // Consents that exist already do not result from this session, whether or not they are
        // connected here.
        let mut known: Vec<String> = Vec::new();
        if linking.registers_users() {
            let empty_callback = CallbackParams {
                purpose,
                redirect_uri: &redirect_uri,
                params: &[],
            };
            let credentials = linking.finish(&context, &empty_callback).await?;
            let mut found = self
                .0
                .provider(provider)?
                .discover(&context, &credentials)
                .await?;
            if let (Some(_), Some(provider_user)) = (
                repair_target,
                self.0
                    .storage
                    .provider_users()
                    .find_credentials(user.id, provider)
                    .await?,
            ) {
                found.extend(
                    self.discover(
                        self.0.provider(provider)?.as_ref(),
                        &context,
                        &provider_user,
                    )
                    .await?,
                );
            }
            found.retain(|consent| consent.consent_status == ConsentStatus::Active);
            known.extend(
                found
                    .into_iter()
                    .map(|consent| consent.provider_connection_id),
            );
        }
        let known: Vec<&str> = known.iter().map(String::as_str).collect();
        let state = bellbird_storage::new_token();
        let now = self.0.clock.now();
        let session = NewConsentSession {
            user_id: user.id,
            link_id: *link_id,
            provider,
            connection_id: repair_target.map(|connection| connection.id),
            browser,
            state: state.expose_secret(),
            known_consents: &known,
            expires_at: now.plus(CONSENT_SESSION_TTL),
            open_max: OPEN_SESSIONS_MAX,
            next_attempt_at: now.plus(if linking.can_finish(&[]) {
                FIRST_POLL_AFTER
            } else {
                CONSENT_SESSION_TTL
            }),
        };
        if !self
            .0
            .storage
            .consent_sessions()
            .insert(&session, now)
            .await?
        {
            return Err(ConnectionsError::TooManySessions);
        }
        let authorization_request = AuthorizationRequest {
            purpose,
            email: &user.email,
            redirect_uri: &redirect_uri,
            state: session.state,
        };
        Ok(linking.authorize(&context, &authorization_request).await?)
    }

    /// Lists the configured providers that have a consent page.
    pub fn providers(self) -> Vec<LinkableProvider> {
        let linkable = PROVIDERS.iter().filter_map(|declared| {
            let provider = self.0.providers.find(declared.name.as_str())?;
            provider.linking()?;
            let category = provider.kind().category();
            Some(LinkableProvider {
                is_sandbox: self.0.providers.is_sandbox(declared.name.as_str()),
                name: declared.name.as_str(),
                title: declared.title,
                reaches: declared.reaches,
                category,
            })
        });
        linkable.collect()
    }

    /// A consent that the user's plan cannot use is not asked for.
    fn check_plan(self, user: &User, provider: &str) -> Result<(), ConnectionsError> {
        let category = self.0.provider(provider)?.kind().category();
        if user.plan.reads(category) {
            return Ok(());
        }
        Err(ConnectionsError::NotInPlan {
            plan: user.plan,
            provider: provider_title(provider).to_owned(),
        })
    }

    /// Returns the URL of a page of the console, as browsers reach it.
    pub(crate) fn console_page_url(self, path: &str) -> Result<Url, ConnectionsError> {
        let url = self.0.console_url.as_ref();
        let mut url: Url = url
            .and_then(|url| url.get().parse().ok())
            .ok_or(ConnectionsError::NoConsoleUrl)?;
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(path.split('/'));
        }
        Ok(url)
    }
}
