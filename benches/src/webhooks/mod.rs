//! Signed events from a sync's end to their receiver, beside sending the same alone; and good receivers beside bad ones.

mod send_only;
mod fairness;
mod fan_out;
mod feed;
pub(crate) mod receiver;
mod rows;
mod setup;

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::ensure;
use bellbird_providers::Registry;
use bellbird_shared_state::Clock;
use bellbird_storage::Storage;
use bellbird_webhooks::webhook_events::WebhookEventBuffer;
use bellbird_webhooks::schedule::Schedule;
use bellbird_webhooks::target::Rules;
use bellbird_webhooks::{Settings, Webhooks};

use crate::WebhooksArgs;
use crate::client::{self, Connection};
use crate::figures::Report;
use crate::process::Server;
use receiver::Counts;

/// Receivers are on this machine.
const RULES: Rules = Rules { allow_loopback: true };
/// As the service has it.
const TIMEOUT: Duration = Duration::from_secs(15);
/// How often it is asked how many events came in.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Everything of `bellbird-benches webhooks`.
pub(crate) async fn run(args: &WebhooksArgs) -> anyhow::Result<Report> {
    let mut report = Report::new(args.rounds, 0);
    fan_out::run(args, &mut report).await?;
    fairness::run(args, &mut report).await?;
    Ok(report)
}

/// What delivers, set up as the service does it, but for providers: nothing is read again here.
fn webhooks(storage: &Storage, event_buffer: &WebhookEventBuffer) -> anyhow::Result<Webhooks> {
    let settings = Settings { rules: RULES, timeout: TIMEOUT, schedule: Schedule::default() };
    let providers = Registry::of(Vec::new());
    Webhooks::new(storage.clone(), providers, Clock::system(), event_buffer.clone(), settings).map_err(anyhow::Error::msg)
}

/// A receiver of our own.
struct Receiver {
    server: Server,
    asking: Connection,
}

impl Receiver {
    async fn start() -> anyhow::Result<Self> {
        let server = Server::start_subcommand("receiver", None)?;
        let asking = Connection::open(server.address).await?;
        Ok(Self { server, asking })
    }

    fn address(&self) -> SocketAddr {
        self.server.address
    }

    /// What came in since the last reset.
    async fn counts(&mut self) -> anyhow::Result<Counts> {
        let answer = self.asking.ask(&client::get(receiver::COUNTS, None)).await?;
        Ok(serde_json::from_slice(answer.body)?)
    }

    /// So many came in, each once.
    async fn expect(&mut self, events: usize) -> anyhow::Result<()> {
        let Counts { answered, distinct, .. } = self.counts().await?;
        ensure!(answered == events && distinct == events, "{answered} events came in, {distinct} different ones");
        Ok(())
    }

    /// Counts from 0 again.
    async fn reset(&mut self) -> anyhow::Result<()> {
        self.asking.ask(&client::get(receiver::RESET, None)).await.map(drop)
    }
}
