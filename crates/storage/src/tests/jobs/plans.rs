//! How PostgreSQL runs the statements of the queue with 300,000 connections.

use tokio_postgres::Client;

use crate::db::Sql;
use crate::tests::support::{TestDb, at, connect, on_postgres};

/// A refresh and a sync job for each connection of 100,000 users: 100,000 syncs due, 10,000
/// running, the rest planned.
const FILL: &str = "INSERT INTO jobs (user_id, kind, subject, provider, run_at, started_at, lease_until, fence)
    SELECT CAST(to_char(n % 100000, 'FM00000000-0000-0000-0000-000000000000') AS UUID), kind,
        to_char(n, 'FM00000000-0000-0000-0000-000000000000'), (ARRAY['akahu', 'fiskil', 'snaptrade'])[1 + n % 3],
        CASE WHEN kind = 'refresh' THEN NULL WHEN n % 3 = 0 THEN n ELSE 9000000 + n END, 0,
        CASE WHEN kind = 'sync' AND n % 30 = 1 THEN 8000000 END, CASE WHEN kind = 'sync' AND n % 30 = 1 THEN n END
    FROM generate_series(1, 300000) n, (VALUES ('refresh'), ('sync')) kinds (kind)";

/// The statements with their arguments, without the one that only SQLite runs.
fn calls() -> impl Iterator<Item = (&'static Sql, &'static str)> {
    let key =
        "'00000000-0000-0000-0000-000000000007', 'sync', '00000000-0000-0000-0000-000000000007'";
    crate::jobs::STATEMENTS
        .iter()
        .filter(|sql| sql.name != "IS_DUE")
        .map(move |sql| {
            let arguments = match sql.name {
                "CLAIM_DUE" => "'sync', 'akahu', 1000000, 2000000, 5, NULL".to_owned(),
                "IS_RUNNING" | "HELD" | "DELETE" | "DELETE_FREE" => format!("{key}, 5"),
                "CLAIM" => format!("{key}, 5, 6, 7, NULL"),
                "FAIL" => format!("{key}, 5, 6, '7'"),
                "RENEW" | "FINISH" | "DEFER" | "REQUEST" | "REQUEST_FOR_USER" => {
                    format!("{key}, 5, 6")
                }
                "RESTART" => format!("{key}, 5"),
                "INSERT" => format!("{key}, 'akahu', 5"),
                "DELETE_OF_USER" => "'00000000-0000-0000-0000-000000000007'".to_owned(),
                "DELETE_OF_SUBJECT" => "'00000000-0000-0000-0000-000000000007', 'x'".to_owned(),
                name => panic!("{name} has no arguments here"),
            };
            (sql, &*arguments.leak())
        })
}

/// How a statement runs with these arguments.
pub(crate) async fn plan(client: &Client, sql: &Sql, arguments: &str) -> String {
    client
        .batch_execute(&format!(
            "DEALLOCATE ALL; PREPARE statement AS {}",
            sql.postgres
        ))
        .await
        .expect(sql.name);
    let rows = client
        .query(&format!("EXPLAIN EXECUTE statement ({arguments})"), &[])
        .await
        .expect(sql.name);
    rows.iter()
        .map(|row| row.get::<_, String>(0))
        .collect::<Vec<_>>()
        .join("\n")
}

async fn fill(db: &TestDb) {
    db.raw("ALTER TABLE jobs SET (autovacuum_enabled = off)")
        .await;
    db.raw(&FILL.replace("(1, 300000)", "(1, 300)")).await;
    db.raw("ANALYZE jobs").await;
    print_claim_time(db, 300).await;
    db.raw("TRUNCATE jobs").await;
    db.raw("ANALYZE jobs").await;
    db.raw(FILL).await;
}

#[test]
fn postgres_claims_neither_sort_nor_scan() {
    on_postgres(async |db| {
        fill(db).await;
        let client = connect(&db.url).await;
        for statistics in ["of an empty table", "of a busy table"] {
            if statistics == "of a busy table" {
                db.raw("ANALYZE jobs").await;
            }
            for mode in ["force_custom_plan", "force_generic_plan"] {
                client
                    .batch_execute(&format!("SET plan_cache_mode = {mode}"))
                    .await
                    .unwrap();
                for (sql, arguments) in calls() {
                    let plan = plan(&client, sql, arguments).await;
                    let context =
                        format!("{} with statistics {statistics}, {mode}:\n{plan}", sql.name);
                    for word in ["Sort", "Seq Scan"] {
                        assert!(!plan.contains(word), "{context}");
                    }
                    let index = if sql.name == "CLAIM_DUE" {
                        "jobs_due"
                    } else {
                        "jobs_pkey"
                    };
                    assert!(plan.contains(index) || sql.name == "INSERT", "{context}");
                    assert!(
                        index == "jobs_due" || !plan.contains("jobs_due"),
                        "{context}"
                    );
                }
            }
        }
        print_claim_time(db, 300_000).await;
    });
}

/// Prints what a claim takes (docs/adr/0011-jobs.md).
async fn print_claim_time(db: &TestDb, connections: u32) {
    let mut times = Vec::new();
    for _ in 0..30 {
        let start = std::time::Instant::now();
        assert!(
            db.jobs()
                .claim_due("sync", "akahu", at(0), at(99))
                .await
                .unwrap()
                .is_some()
        );
        times.push(start.elapsed());
    }
    times.sort_unstable();
    eprintln!(
        "{connections} connections: {:?} a claim (median of 30), at most {:?}",
        times[15], times[29]
    );
}
