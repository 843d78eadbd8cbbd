//! `bellbird webhook set`: changes the URL, the event types or the version of an endpoint.

use bellbird_domain::{ApiVersion, EventType};
use bellbird_management::endpoints::{self, EndpointChange};
use bellbird_storage::Storage;
use bellbird_webhooks::endpoint::in_order;
use clap::{ArgGroup, Args};

use super::super::{actor, arguments, output};
use super::add::checked_url;
use super::{EndpointArgs, check_events, details, endpoint_error, user_of, warn_of_rejections};
use crate::config::Settings;

/// Change the URL, the event types or the version of an endpoint. It keeps its id, its secret and
/// its log.
///
/// Pending deliveries go to the new URL.
#[derive(Args)]
#[command(
    override_usage = "bellbird webhook set <ID> [--url <URL>] [--events <LIST>] [--api-version <VERSION>]"
)]
#[command(group(ArgGroup::new("change").args(["url", "events", "api_version"]).required(true).multiple(true)))]
#[command(after_long_help = "Example:
  bellbird webhook set 0198c7e2-7b1c-7d53-a1b2-0f4f4c1d2e3f --url https://hooks.example.com/new")]
pub(crate) struct SetArgs {
    /// New URL; the rules of `webhook add` apply
    #[arg(long)]
    url: Option<String>,

    /// New event types, separated by commas
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    #[arg(value_parser = arguments::one_of(EventType::SUBSCRIBABLE, EventType::as_str))]
    events: Option<Vec<EventType>>,

    /// New version of the events' body
    #[arg(long, value_name = "VERSION")]
    #[arg(value_parser = arguments::one_of(ApiVersion::ALL, ApiVersion::as_str))]
    api_version: Option<ApiVersion>,

    #[command(flatten)]
    endpoint: EndpointArgs,
}

pub(super) async fn set(
    settings: &Settings,
    storage: &Storage,
    args: &SetArgs,
) -> anyhow::Result<()> {
    let before = args.endpoint.find(storage).await?;
    let url = match &args.url {
        Some(url) => Some(checked_url(settings, url).await?),
        None => None,
    };
    let events = args.events.as_deref().map(in_order);
    check_events(before.user_id, events.as_deref())?;
    let to = EndpointChange {
        url: url.as_ref(),
        events: events.as_deref(),
        api_version: args.api_version,
        enabled: None,
    };
    let mut change = actor::begin_change(storage).await?;
    let endpoint = endpoints::update(&mut change, before.id, to).await;
    let endpoint = endpoint.map_err(|refusal| endpoint_error(before.id, refusal))?;
    change.commit().await?;
    let user = user_of(storage, &before).await?;
    output::print_with_note(&endpoint, &details(&endpoint, user.as_deref()), "Changed.")?;
    if let Some(unresolved) = url.and_then(|url| url.unresolved) {
        output::note(&format!(
            "{unresolved}. The endpoint was changed; each delivery resolves the name again"
        ));
    }
    warn_of_rejections(storage, &endpoint).await
}
