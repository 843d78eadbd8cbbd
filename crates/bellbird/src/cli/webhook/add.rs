//! `bellbird webhook add`.

use std::time::Duration;

use anyhow::bail;
use bellbird_domain::{ApiVersion, EndpointId, EndpointStatus, EventType};
use bellbird_storage::{NewEndpoint, Storage, StorageError};
use bellbird_webhooks::resolver::{Refusal, Resolver};
use bellbird_webhooks::sign::new_secret;
use bellbird_webhooks::target::check_url;
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use jiff::Timestamp;
use secrecy::ExposeSecret as _;
use serde::Serialize;

use super::super::output::{self, JsonFlag};
use super::super::user::find_user;
use super::names;
use crate::config::Settings;
use crate::wiring;

/// Endpoints that a user can have: docs/contract.md#webhook-endpoints.
const ENDPOINTS_MAX: u32 = 20;
/// How long a new endpoint's name is looked up.
const LOOKUP_MAX: Duration = Duration::from_secs(3);

/// Add an endpoint: an address that the user's events are sent to.
///
/// The address must begin with https, have a public name, and port 443 or one from 1024 up. Events are signed by the
/// Standard Webhooks rules with a secret of the endpoint's own, which is shown now and never again. A user can have 20
/// endpoints.
#[derive(Debug, Args)]
#[command(after_long_help = "Example:
  bellbird webhook add --user me@example.com --url https://hooks.example.com/bellbird")]
pub(in super::super) struct AddArgs {
    /// Whose events it gets: e-mail address or id
    #[arg(long)]
    user: String,

    /// Where events are sent
    #[arg(long)]
    url: String,

    /// Which ones, separated by commas
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = event_parser())]
    #[arg(default_value = "transactions.synced,trades.synced")]
    events: Vec<EventType>,

    #[command(flatten)]
    format: JsonFlag,
}

fn event_parser() -> impl clap::builder::TypedValueParser<Value = EventType> {
    PossibleValuesParser::new(EventType::SUBSCRIBABLE.iter().map(|event| event.as_str()))
        .try_map(|text| text.parse::<EventType>())
}

/// What `--json` prints: the only time that the secret is shown.
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
            "{secret}\n\nKeep it: it is not shown again. The receiver verifies with it that an event is genuine: \
             docs/webhooks.md\nshows how. The endpoint's id is {id}, and it gets {}.\n\nNext: bellbird webhook ping {id}",
            names(self.events)
        )
    }
}

pub(super) async fn add(settings: &Settings, storage: &Storage, args: &AddArgs) -> anyhow::Result<()> {
    let user = find_user(storage, &args.user).await?;
    let rules = wiring::endpoint_rules(settings);
    let url = check_url(&args.url, rules)?;
    // An address of this machine, where that is allowed, may be written without a name.
    let refusal = match url.domain() {
        Some(name) => look_up(&Resolver::from_system(rules).map_err(anyhow::Error::msg)?, name).await?,
        None => None,
    };
    let events: Vec<_> = EventType::SUBSCRIBABLE.iter().copied().filter(|event| args.events.contains(event)).collect();
    let secret = new_secret()?;
    let new = NewEndpoint { user_id: user.id, url: url.as_str(), events: &events, secret: &secret };
    let endpoint = match storage.insert_endpoint(&new, ENDPOINTS_MAX, Timestamp::now()).await {
        Err(StorageError::Conflict(_)) => bail!(
            "{0} has {ENDPOINTS_MAX} endpoints, and can have no more: `bellbird webhook list --user {0}` shows them, and \
             `bellbird webhook remove ID` removes one",
            user.email
        ),
        other => other?,
    };
    let view = NewEndpointView {
        id: endpoint.id,
        url: &endpoint.url,
        events: &endpoint.events,
        secret: secret.expose_secret(),
        api_version: endpoint.api_version,
        status: endpoint.status,
    };
    output::print(args.format, &view, NewEndpointView::text)?;
    if let Some(refusal) = refusal {
        output::note(&format!("{refusal}. The endpoint was added all the same: each event looks the name up again"));
    }
    Ok(())
}

/// Refuses a name that leads where nothing is sent. One that leads nowhere may do so later: says why it does not now.
async fn look_up(resolver: &Resolver, name: &str) -> anyhow::Result<Option<Refusal>> {
    match tokio::time::timeout(LOOKUP_MAX, resolver.vet(name)).await {
        Ok(Ok(_)) => Ok(None),
        Ok(Err(Refusal::NotAllowed)) => {
            bail!(
                "the name leads to an address that events are not sent to: use one that leads to public addresses only"
            )
        }
        Ok(Err(refusal)) => Ok(Some(refusal)),
        Err(_) => Ok(Some(Refusal::Unanswered)),
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use bellbird_webhooks::target::Rules;

    use super::*;

    #[tokio::test]
    async fn a_name_may_lead_nowhere_but_not_to_this_machine() {
        let resolver = |allow_loopback| Resolver::from_system(Rules { allow_loopback }).unwrap();
        assert!(look_up(&resolver(false), "localhost").await.is_err());
        assert_eq!(look_up(&resolver(true), "localhost").await.unwrap(), None);
        // Nobody answers where something has just let go.
        let nobody = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let resolver = Resolver::asking(&[nobody], Rules::default()).unwrap();
        assert_eq!(look_up(&resolver, "hooks.example.com").await.unwrap(), Some(Refusal::Unanswered));
    }
}
