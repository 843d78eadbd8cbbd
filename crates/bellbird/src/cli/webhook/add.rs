//! `bellbird webhook add`: adds an endpoint and prints its signing secret.

use std::time::Duration;

use anyhow::bail;
use bellbird_domain::{ApiVersion, EndpointId, EndpointStatus, EventType, User, UserId};
use bellbird_storage::{Endpoint, NewEndpoint, Storage, StorageError};
use bellbird_webhooks::delivery::sign::new_secret;
use bellbird_webhooks::target::check_url;
use bellbird_webhooks::target::resolver::{ResolveError, Resolver};
use clap::Args;
use jiff::Timestamp;
use secrecy::{ExposeSecret as _, SecretString};
use serde::Serialize;

use super::super::arguments;
use super::super::output::{self, JsonFlag};
use super::super::user::find_user;
use super::{advice, names, warn_of_rejections};
use crate::config::Settings;

/// Endpoints per user: docs/contract.md#webhook-endpoints.
const ENDPOINTS_MAX: u32 = 20;
/// Limit for the name resolution of a new endpoint.
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(3);

/// Add a webhook endpoint: a URL that receives the events of a user, or of all users.
///
/// With --all-users, the endpoint belongs to the installation. It gets the events of everyone, also of users who come
/// later, each with the user's id and reference in `metadata`.
///
/// The URL must use https, a public host name, and port 443 or a port from 1024 on. Events are signed as Standard
/// Webhooks specifies, with a secret of the endpoint that is shown only once. A user can have 20 endpoints, and so can the
/// installation.
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  bellbird webhook add --user me@example.com --url https://hooks.example.com/bellbird
  bellbird webhook add --user me@example.com --url https://hooks.example.com/bellbird \\
    --events transactions.synced,trades.synced,connection.updated
  bellbird webhook add --all-users --url https://hooks.example.com/bellbird")]
pub(in super::super) struct AddArgs {
    /// E-mail address or id of the user
    #[arg(long, required_unless_present = "all_users", conflicts_with = "all_users")]
    user: Option<String>,

    /// Send the events of all users
    #[arg(long)]
    all_users: bool,

    /// URL of the endpoint
    #[arg(long)]
    url: String,

    /// Event types to send, separated by commas; those of a connection report that it is new, changed, removed, or that
    /// its consent ends soon
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    #[arg(value_parser = arguments::one_of(EventType::SUBSCRIBABLE, EventType::as_str))]
    #[arg(default_value = "transactions.synced,trades.synced")]
    events: Vec<EventType>,

    /// Version of the events' body; from 2026-12-01 on, rows have their key and exact amount, and removed rows are
    /// reported
    #[arg(long, value_name = "VERSION")]
    #[arg(value_parser = arguments::one_of(ApiVersion::ALL, ApiVersion::as_str))]
    #[arg(default_value = ApiVersion::DEFAULT.as_str())]
    api_version: ApiVersion,

    #[command(flatten)]
    format: JsonFlag,
}

/// What `--json` prints. This is the only time that the secret is shown.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct NewEndpointView<'a> {
    id: EndpointId,
    url: &'a str,
    events: &'a [EventType],
    secret: &'a str,
    api_version: ApiVersion,
    status: EndpointStatus,
}

impl NewEndpointView<'_> {
    fn text(&self) -> String {
        let Self { id, secret, .. } = self;
        format!(
            "{secret}\n\nStore this secret: it is not shown again. The receiver verifies event signatures with it; \
             see docs/webhooks.md.\nThe endpoint {id} receives {}.\n\nNext: bellbird webhook ping {id}",
            names(self.events)
        )
    }
}

pub(super) async fn add(settings: &Settings, storage: &Storage, args: &AddArgs) -> anyhow::Result<()> {
    let user = match &args.user {
        Some(user) => Some(find_user(storage, user).await?),
        None => None,
    };
    let (url, resolve_error) = checked_url(settings, &args.url).await?;
    let (endpoint, secret) = insert(storage, user.as_ref(), &url, &in_order(&args.events), args.api_version).await?;
    let view = NewEndpointView {
        id: endpoint.id,
        url: &endpoint.url,
        events: &endpoint.event_types,
        secret: secret.expose_secret(),
        api_version: endpoint.api_version,
        status: endpoint.status,
    };
    output::print(args.format, &view, NewEndpointView::text)?;
    if let Some(resolve_error) = resolve_error {
        output::note(&format!("{resolve_error}. The endpoint was added; each delivery resolves the name again"));
    }
    warn_of_rejections(storage, endpoint.id, &endpoint.url).await
}

/// Adds an endpoint of a user or of the installation, and returns it with its secret. The URL is what [`checked_url`] returned.
pub(in super::super) async fn insert(
    storage: &Storage,
    user: Option<&User>,
    url: &str,
    events: &[EventType],
    api_version: ApiVersion,
) -> anyhow::Result<(Endpoint, SecretString)> {
    let secret = new_secret();
    let user_id = user.map_or(UserId::INSTALLATION, |user| user.id);
    let new = NewEndpoint { user_id, url, event_types: events, api_version, secret: &secret };
    match storage.endpoints().insert(&new, ENDPOINTS_MAX, Timestamp::now()).await {
        Err(StorageError::Conflict(_)) => bail!(
            "{} already has {ENDPOINTS_MAX} endpoints, which is the limit: `bellbird webhook list` shows them, and \
             `bellbird webhook remove ID` removes one",
            user.map_or("the installation", |user| &user.email)
        ),
        other => Ok((other?, secret)),
    }
}

/// Checks the URL of an endpoint, and returns its normal form. Also returns why its host name does not resolve now.
pub(in super::super) async fn checked_url(
    settings: &Settings,
    url: &str,
) -> anyhow::Result<(String, Option<ResolveError>)> {
    let rules = settings.webhooks.rules;
    let url = check_url(url, rules).map_err(|error| anyhow::Error::msg(advice::explain(error, url)))?;
    // Only a loopback address, where allowed, has no host name.
    let resolve_error = match url.domain() {
        Some(name) => resolve(&Resolver::from_system(rules).map_err(anyhow::Error::msg)?, name).await?,
        None => None,
    };
    Ok((url.into(), resolve_error))
}

/// The given event types, each once.
pub(super) fn in_order(events: &[EventType]) -> Vec<EventType> {
    EventType::SUBSCRIBABLE.iter().copied().filter(|event| events.contains(event)).collect()
}

/// Rejects a name that resolves to a forbidden address. A name that does not resolve may do so later: returns the
/// error.
async fn resolve(resolver: &Resolver, name: &str) -> anyhow::Result<Option<ResolveError>> {
    match tokio::time::timeout(RESOLVE_TIMEOUT, resolver.vet(name)).await {
        Ok(Ok(_)) => Ok(None),
        Ok(Err(ResolveError::NotAllowed)) => {
            bail!("the host name resolves to a private address: use one that resolves to public addresses only")
        }
        Ok(Err(resolve_error)) => Ok(Some(resolve_error)),
        Err(_) => Ok(Some(ResolveError::Unavailable)),
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use bellbird_webhooks::target::Rules;

    use super::*;

    #[tokio::test]
    async fn unresolvable_name_is_accepted_loopback_is_not() {
        let resolver = |allow_loopback| Resolver::from_system(Rules { allow_loopback }).unwrap();
        assert!(resolve(&resolver(false), "localhost").await.is_err());
        assert_eq!(resolve(&resolver(true), "localhost").await.unwrap(), None);
        // The socket is closed again, so nothing responds on its port.
        let no_server = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let resolver = Resolver::with_name_servers(&[no_server], Rules::default()).unwrap();
        assert_eq!(resolve(&resolver, "hooks.example.com").await.unwrap(), Some(ResolveError::Unavailable));
    }
}
