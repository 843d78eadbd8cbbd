//! Measures webhook delivery from sync to receiver against sending the same bodies alone, and good
//! receivers beside bad ones.

mod fairness;
mod fan_out;
mod feed;
mod neighbours;
pub(crate) mod receiver;
mod rows;
mod send_only;
pub(crate) mod setup;
mod syncs;

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::ensure;
use bellbird_domain::Clock;
use bellbird_providers::Registry;
use bellbird_storage::Storage;
use bellbird_webhooks::event::buffer::WebhookEventBuffer;
use bellbird_webhooks::target::Rules;
use bellbird_webhooks::{Settings, Webhooks};

use crate::WebhooksArgs;
use crate::client::{self, Connection};
use crate::figures::Report;
use crate::process::Server;
use receiver::Counts;

/// The receivers run on loopback.
const RULES: Rules = Rules {
    allow_loopback: true,
};
/// The default of `webhooks.timeout_seconds`.
const TIMEOUT: Duration = Duration::from_secs(15);
/// How often the receiver's counts are read.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

pub(crate) async fn run(args: &WebhooksArgs) -> anyhow::Result<Report> {
    let mut report = Report::new(args.rounds, 0);
    fan_out::run(args, &mut report).await?;
    syncs::run(args, &mut report).await?;
    fairness::run(args, &mut report).await?;
    neighbours::run(args, &mut report).await?;
    Ok(report)
}

/// The delivery worker, set up as in the service but without providers, because no event is rebuilt
/// here.
fn webhooks(storage: &Storage, event_buffer: &WebhookEventBuffer) -> anyhow::Result<Webhooks> {
    let settings = Settings {
        rules: RULES,
        timeout: TIMEOUT,
        ..Settings::default()
    };
    let providers = Registry::of(Vec::new());
    Webhooks::new(
        storage.clone(),
        providers,
        Clock::system(),
        event_buffer.clone(),
        settings,
    )
    .map_err(anyhow::Error::msg)
}

/// The receiver process, and a connection for its counts.
struct Receiver {
    server: Server,
    control: Connection,
}

impl Receiver {
    async fn start() -> anyhow::Result<Self> {
        let server = Server::start_subcommand("receiver", None)?;
        let control = Connection::open(server.address).await?;
        Ok(Self { server, control })
    }

    fn address(&self) -> SocketAddr {
        self.server.address
    }

    async fn counts(&mut self) -> anyhow::Result<Counts> {
        let response = self
            .control
            .ask(&client::get(receiver::COUNTS, None))
            .await?;
        Ok(serde_json::from_slice(response.body)?)
    }

    /// Checks that exactly this many events were received, each once.
    async fn expect(&mut self, events: usize) -> anyhow::Result<()> {
        let Counts {
            answered, distinct, ..
        } = self.counts().await?;
        ensure!(
            answered == events && distinct == events,
            "received {answered} events, {distinct} of them different; expected {events}"
        );
        Ok(())
    }

    async fn reset(&mut self) -> anyhow::Result<()> {
        self.control
            .ask(&client::get(receiver::RESET, None))
            .await
            .map(drop)
    }
}
