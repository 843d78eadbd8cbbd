//! `bellbird webhook set`: changes the URL or the event types of an endpoint.

use bellbird_domain::EventType;
use bellbird_storage::Storage;
use bellbird_webhooks::endpoint::in_order;
use clap::{ArgGroup, Args};

use super::super::{arguments, output};
use super::add::checked_url;
use super::{EndpointArgs, details, endpoint_not_found, find, warn_of_rejections};
use crate::config::Settings;

/// Change the URL or the event types of an endpoint. It keeps its id, its secret and its log.
///
/// Pending deliveries go to the new URL.
#[derive(Debug, Args)]
#[command(override_usage = "bellbird webhook set <ID> [--url <URL>] [--events <LIST>]")]
#[command(group(ArgGroup::new("change").args(["url", "events"]).required(true).multiple(true)))]
#[command(after_long_help = "Example:
  bellbird webhook set 0198c7e2-7b1c-7d53-a1b2-0f4f4c1d2e3f --url https://hooks.example.com/new")]
pub(in super::super) struct SetArgs {
    /// New URL; the rules of `webhook add` apply
    #[arg(long)]
    url: Option<String>,

    /// New event types, separated by commas
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    #[arg(value_parser = arguments::one_of(EventType::SUBSCRIBABLE, EventType::as_str))]
    events: Option<Vec<EventType>>,

    #[command(flatten)]
    endpoint: EndpointArgs,
}

pub(super) async fn set(settings: &Settings, storage: &Storage, args: &SetArgs) -> anyhow::Result<()> {
    let before = find(storage, args.endpoint.id).await?;
    let (url, unresolved) = match &args.url {
        Some(url) => {
            let checked = checked_url(settings, url).await?;
            (Some(checked.url), checked.unresolved)
        }
        None => (None, None),
    };
    let events = args.events.as_deref().map(in_order);
    if !storage.endpoints().update(before.user_id, before.id, url.as_deref(), events.as_deref()).await? {
        return Err(endpoint_not_found(args.endpoint.id));
    }
    let user = storage.users().find(before.user_id).await?.map(|user| user.email);
    let endpoint = find(storage, args.endpoint.id).await?;
    output::print(args.endpoint.format, &endpoint, |endpoint| {
        format!("Changed.\n\n{}", details(endpoint, user.as_deref()))
    })?;
    if let Some(unresolved) = unresolved {
        output::note(&format!("{unresolved}. The endpoint was changed; each delivery resolves the name again"));
    }
    warn_of_rejections(storage, endpoint.id, &endpoint.url).await
}
