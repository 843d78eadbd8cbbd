//! What scheduled syncs read of a connection, by who follows it.

use std::time::Duration;

use bellbird_connections::ProviderSyncs;
use bellbird_domain::Connection;
use jiff::SignedDuration;

use crate::support::follower::Follower;
use crate::support::harness::{App, Setup, simulated_providers};

/// What scheduled syncs read of a connection in six days.
#[derive(Debug, PartialEq, Eq)]
struct Reads {
    rows: u32,
    refreshes: u32,
}

impl App {
    async fn scheduled_reads(&self, connection: &Connection) -> Reads {
        let state = async || {
            let (user, id) = (connection.user_id, connection.id);
            let refreshed = self.connection(user, id).await.last_refreshed_at;
            let sequence = self.sync_state(user, id).await.sequence;
            (sequence, refreshed.expect("refreshed"))
        };
        let (before, mut refreshes) = (state().await, 0);
        let mut last = before;
        for _ in 0..6 * 4 {
            self.advance_clock(SignedDuration::from_hours(6));
            self.connections.jobs().run_due("sync").await.unwrap();
            let now = state().await;
            refreshes += u32::from(now.1 != last.1);
            last = now;
        }
        Reads {
            rows: last.0 - before.0,
            refreshes,
        }
    }
}

#[tokio::test]
async fn provider_may_have_its_own_interval() {
    let mut setup = Setup::default();
    setup.settings.sync.enabled = true;
    let daily = ProviderSyncs {
        interval: Some(Duration::from_secs(86_400)),
        ..ProviderSyncs::default()
    };
    setup.settings.syncs_by_provider.insert("akahu", daily);
    let app = App::start(setup).await;
    for (provider, rows) in [("akahu", 5..=7), ("fiskil", 12..=24)] {
        let person = app.person_at(provider).await;
        app.hook(&person.user).await;
        app.sync(&person.connections[0]).await;
        let reads = app.scheduled_reads(&person.connections[0]).await;
        assert!(rows.contains(&reads.rows), "{provider}: {reads:?}");
    }
}

#[tokio::test]
async fn rows_are_read_rarely_for_nobody() {
    let mut setup = Setup::default();
    setup.settings.sync.enabled = true;
    let app = App::start(setup).await;
    for provider in simulated_providers() {
        let person = app.person_at(provider).await;
        let connection = &person.connections[0];
        app.sync(connection).await;
        let reads = async || app.scheduled_reads(connection).await;
        let assert_often = |reads: Reads, follower: &str| {
            let is_often = reads.rows >= 12 && reads.refreshes == reads.rows;
            assert!(is_often, "{provider}: {follower}: {reads:?}");
        };
        reads().await;

        let rare = Reads {
            rows: 2,
            refreshes: 6,
        };
        assert_eq!(reads().await, rare, "{provider}: nobody");
        let hook = app.hook(&person.user).await;
        assert_often(reads().await, "an endpoint");
        app.delete_hook(&hook).await;
        assert_eq!(reads().await, rare, "{provider}: nobody again");

        app.advance_clock(SignedDuration::from_hours(1));
        let client = Follower::new(&app, &person, connection).with("&limit=1");
        assert_eq!(client.ask(&app).await.status, 200);
        assert_often(reads().await, "a client");
    }
}
