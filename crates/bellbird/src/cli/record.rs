//! `bellbird record`: prints how a provider responds, with every value masked.

use std::time::Duration;

use anyhow::{Context as _, bail};
use bellbird_domain::{Bound, ConnectionId, DateFilter, DateRange};
use bellbird_providers::http::recording::RecordedCall;
use bellbird_providers::registry;
use bellbird_providers::{
    BalancesQuery, CallContext, Cause, Error, Kind, PageRequest, TradeQuery, TransactionQuery,
};
use bellbird_storage::Storage;
use clap::Args;
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use tokio::time::Instant;

use super::arguments::{self, SettingArgs};
use super::connection::find;
use super::output;
use crate::config::Settings;
use crate::instances::VERSION;
use crate::wiring::{self, Wiring};

const DEADLINE: Duration = Duration::from_secs(90);
/// A provider without a page size sends more rows.
const FIRST_PAGE: PageRequest<'_> = PageRequest {
    cursor: None,
    rows: 50,
};
const DAYS: i64 = 90;
/// Brokers have rows for one account at a time.
const BROKERAGE_ACCOUNTS: usize = 3;

/// Record how a provider responds, with every value masked.
///
/// It is for reports of what Bellbird does not expect. Reads the consent, the accounts, the
/// balances and the newest rows of a connection from its provider, and prints the responses as
/// JSON. Letters become x and X, digits become 9. Names of members stay if they consist of known
/// words, and so do status words that Bellbird knows. Ids in paths are masked too. Nothing is
/// stored or sent.
///
/// Read the recording before you send it to anyone. A name that is masked and is no data may be
/// what the provider has new, so write it in yourself.
#[derive(Args)]
#[command(after_long_help = "Example:
  bellbird record 0198c7e2-7b1c-7d53-a1b2-0f4f4c1d2e3f > recording.json")]
pub(super) struct RecordArgs {
    /// Id of the connection, as `connection list` shows it
    #[arg(value_parser = arguments::connection_id)]
    id: ConnectionId,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Recording {
    bellbird: &'static str,
    provider: &'static str,
    /// What Bellbird made of the responses.
    reads: Vec<ReadView>,
    unreadable_rows: usize,
    calls: Vec<RecordedCall>,
}

#[derive(Serialize)]
struct ReadView {
    read: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    found: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

impl ReadView {
    fn of(read: &'static str, result: Result<usize, Error>) -> Self {
        Self {
            read,
            found: result.as_ref().ok().copied(),
            error: result.err().map(|error| error.to_string()),
        }
    }
}

pub(super) async fn run(settings: &SettingArgs, args: &RecordArgs) -> anyhow::Result<()> {
    let settings = settings.load(None)?;
    let storage = wiring::open_sealed_storage(&settings).await?;
    let recording = record(&settings, &storage, args.id).await;
    storage.close().await;
    let recording = recording?;
    if let ([], Some(error)) = (
        &recording.calls[..],
        recording.reads.iter().find_map(|read| read.error.as_ref()),
    ) {
        bail!("{} sent no response: {error}", recording.provider);
    }
    let pretty = serde_json::to_string_pretty(&recording)?;
    output::print(&recording, |_| pretty)?;
    output::note("Every value is masked. Read the recording before you send it to anyone.");
    Ok(())
}

async fn record(
    settings: &Settings,
    storage: &Storage,
    id: ConnectionId,
) -> anyhow::Result<Recording> {
    const REMOVED: &str = "the connection was removed meanwhile";
    let connection = find(storage, id).await?;
    let user = connection.user_id;
    let zone = storage.users().find_zone(user).await?.context(REMOVED)?;
    let accounts = storage.accounts().list_of_connection(user, id).await?;
    let credentials = storage
        .secrets()
        .find_credentials(user, id)
        .await?
        .context(REMOVED)?;
    let providers = Wiring::new(settings, storage).await?.providers;
    let provider = providers
        .find(&connection.provider)
        .context("the settings have no credentials of its provider")?;
    let declared = registry::declaration(provider.name().as_str());
    let words = declared.map_or(&[][..], |found| found.words);
    let context = CallContext::new(Instant::now() + DEADLINE, Timestamp::now(), Cause::Schedule);
    let context = context.skip_unreadable_rows().recorded(words);

    let consent = provider.consent(&context, &credentials).await;
    let found = provider.accounts(&context, &credentials).await;
    let queries = [BalancesQuery {
        credentials: &credentials,
        accounts: &accounts,
    }];
    let balances = provider
        .balances(&context, &queries)
        .await
        .into_iter()
        .flatten()
        .collect::<Result<Vec<_>, _>>();
    let mut reads = vec![
        ReadView::of("consent", consent.map(|_| 1)),
        ReadView::of("accounts", found.map(|found| found.len())),
        ReadView::of("balances", balances.map(|found| found.len())),
    ];
    match provider.kind() {
        Kind::Banking(bank) => {
            let from = context
                .now
                .checked_sub(SignedDuration::from_hours(24 * DAYS))?;
            let dates = DateRange::resolve(Some(Bound::Instant(from)), None, context.now);
            let query = TransactionQuery {
                accounts: &accounts,
                one_account: false,
                dates: &dates,
                zone: &zone,
            };
            let mut rows = 0;
            let read = bank
                .transactions(&context, &credentials, &query, FIRST_PAGE, &mut |_| {
                    rows += 1;
                })
                .await;
            reads.push(ReadView::of("transactions", read.map(|_| rows)));
        }
        Kind::Brokerage(broker) => {
            for account in accounts.iter().take(BROKERAGE_ACCOUNTS) {
                let mut rows = 0;
                let read = broker
                    .holdings(&context, &credentials, account, &mut |_| rows += 1)
                    .await;
                reads.push(ReadView::of("holdings", read.map(|()| rows)));
                let query = TradeQuery {
                    account,
                    dates: &DateFilter {
                        from: None,
                        to: None,
                    },
                    zone: &zone,
                };
                let mut rows = 0;
                let read = broker
                    .trades(&context, &credentials, &query, FIRST_PAGE, &mut |_, _| {
                        rows += 1;
                    })
                    .await;
                reads.push(ReadView::of("trades", read.map(|_| rows)));
            }
        }
    }
    let unreadable_rows = context.take_unreadable().len();
    let provider = provider.name().as_str();
    Ok(Recording {
        bellbird: VERSION,
        provider,
        reads,
        unreadable_rows,
        calls: context.take_recorded(),
    })
}
