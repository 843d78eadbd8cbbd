//! `bellbird connection link` and `link-status`: link URLs, and link sessions of apps.

use std::fmt::Display;

use anyhow::Context as _;
use bellbird_connections::{Connections, LinkTarget, NewLinkSession};
use bellbird_domain::ConnectionId;
use bellbird_storage::Storage;
use clap::{ArgGroup, Args};
use secrecy::ExposeSecret as _;
use serde_json::json;
use uuid::Uuid;

use super::super::user::find_user;
use super::super::{actor, arguments, output};
use super::find;
use crate::failure::Failure;

/// Print a link URL, at which a user links an institution in the browser.
///
/// The provider's consent page asks for the user's consent and redirects to the console of the
/// running service. Keep the URL secret: anyone who opens it can link institutions for this user,
/// and remove connections. It works for 30 minutes, for up to 20 starts. Without --provider, the
/// page offers all providers, and every connection to renew or remove.
///
/// With --return-url, it is a link session, as an app creates it: it connects once, then the
/// browser goes to this URL with the session's id and the state. `bellbird connection link-status
/// ID` shows its result.
#[derive(Args)]
#[command(
    override_usage = "bellbird connection link --user <USER> [--provider <PROVIDER>]
       bellbird connection link --reconnect <ID>
       bellbird connection link ... --return-url <URL> [--state <TEXT>]"
)]
#[command(group(ArgGroup::new("target").args(["user", "reconnect"]).required(true)))]
#[command(after_long_help = "Examples:
  bellbird connection link --user me@example.com --provider fiskil
  bellbird connection link --reconnect 0198c7e2-7b1c-7d53-a1b2-0f4f4c1d2e3f
  bellbird connection link --user me@example.com --return-url https://app.example.com/linked \\
    --state 42")]
pub(crate) struct LinkArgs {
    /// E-mail address or id of the user
    #[arg(long)]
    user: Option<String>,

    /// Provider to link; by default the user chooses on the page
    #[arg(long, value_parser = arguments::provider_name())]
    provider: Option<String>,

    /// Id of a connection to repair; it keeps its own id and the ids of its accounts
    #[arg(long, value_name = "ID", conflicts_with = "provider", value_parser = arguments::connection_id)]
    reconnect: Option<ConnectionId>,

    /// URL to return to, of an origin in admin.return_origins
    #[arg(long, value_name = "URL")]
    return_url: Option<String>,

    /// Text of up to 500 characters for the return; no secret, because it is in a URL
    #[arg(long, value_name = "TEXT", requires = "return_url")]
    state: Option<String>,
}

/// Show the result of a link session, until a day after it has expired.
#[derive(Args)]
#[command(after_long_help = "Example:
  bellbird connection link-status 0198c7e2-7b1c-7d53-a1b2-0f4f4c1d2e3f")]
pub(crate) struct LinkStatusArgs {
    /// Id of the link session, as `connection link --return-url` prints it
    #[arg(value_parser = arguments::link_session_id)]
    id: Uuid,
}

pub(super) async fn run(
    storage: &Storage,
    connections: &Connections,
    args: &LinkArgs,
) -> anyhow::Result<()> {
    let (user, to) = match args.reconnect {
        Some(id) => {
            let owner = find(storage, id).await?.user_id;
            let user = storage.users().find(owner).await?;
            let user = user.context("the connection's user was removed meanwhile")?;
            (user, LinkTarget::Connection(id))
        }
        None => {
            let user = find_user(storage, args.user.as_deref().unwrap_or_default()).await?;
            let provider = args.provider.as_deref();
            let to = provider.map_or(LinkTarget::UserChoice, LinkTarget::Provider);
            (user, to)
        }
    };
    let links = connections.links();
    let prepared = match args.return_url.as_deref() {
        None => links.prepare_link(user.id, to, None).await?,
        return_url => {
            let session = NewLinkSession {
                return_url,
                state: args.state.as_deref(),
            };
            links.prepare_link_session(user.id, to, session).await?
        }
    };
    let mut change = actor::begin_change(storage).await?;
    let new_link = bellbird_management::links::create(&mut change, prepared).await?;
    change.commit().await?;
    let url = new_link.url.expose_secret();
    let mut printed = json!({"url": url, "expiresAt": new_link.expires_at});
    let mut advice = format!(
        "Open this URL in a browser within 30 minutes, while the service is running. It is for {}.",
        user.email
    );
    if args.return_url.is_some() {
        printed["id"] = json!(new_link.id);
        advice.push_str(&format!(
            "\nIts result: `bellbird connection link-status {}`",
            new_link.id
        ));
    }
    output::print_with_note(&printed, url, &advice)
}

pub(super) async fn status(connections: &Connections, args: &LinkStatusArgs) -> anyhow::Result<()> {
    let found = connections.links().find_link_session(args.id).await?;
    let session = found.ok_or_else(|| {
        Failure::not_found(format!(
            "there is no link session {}, or it expired more than a day ago",
            args.id
        ))
    })?;
    output::print(&session, |session| {
        let reason = session.reason.as_ref();
        let reason = reason.map(|reason| format!("{}: {}", reason.code, reason.message));
        let expires = output::format_instant(session.expires_at);
        let mut pairs = vec![("status", &session.status as &dyn Display)];
        for connection in &session.connections {
            pairs.push(("connection", &connection.id));
        }
        if let Some(reason) = &reason {
            pairs.push(("reason", reason));
        }
        pairs.push(("expires", &expires));
        output::details(&pairs)
    })
}
