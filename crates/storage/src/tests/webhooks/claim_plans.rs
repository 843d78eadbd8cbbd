//! How PostgreSQL claims queues when there are many.

use crate::tests::jobs::plans::plan;
use crate::tests::support::{connect, on_postgres};
use crate::webhooks::deliveries;

/// 30,000 endpoints of 10,000 users, with a queue each: a third due, a tenth leased, some failing,
/// some disabled.
const FILL: &str = "INSERT INTO users (id, email, email_folded, plan, console_sign_in, revision, created_at)
    SELECT CAST(to_char(n, 'FM00000000-0000-0000-0000-000000000000') AS UUID), n, n, 'professional', 1, 1, 0
    FROM generate_series(0, 9999) n;
    INSERT INTO webhook_endpoints (user_id, id, url, event_types, api_version, status, created_at, enabled_at)
    SELECT CAST(to_char(n % 10000, 'FM00000000-0000-0000-0000-000000000000') AS UUID),
        CAST(to_char(n, 'FM00000000-0000-0000-0000-000000000000') AS UUID), 'https://x', 'transactions.synced',
        '2026-11-01',
        CASE WHEN n % 50 = 0 THEN 'disabled' ELSE 'enabled' END, 0, 0
    FROM generate_series(1, 30000) n;
    INSERT INTO webhook_queues (user_id, endpoint_id, owner_id, failing_since, is_failing, due_at, lease_until)
    SELECT CAST(to_char(n % 10000, 'FM00000000-0000-0000-0000-000000000000') AS UUID),
        CAST(to_char(n, 'FM00000000-0000-0000-0000-000000000000') AS UUID),
        CAST(to_char(n % 10000, 'FM00000000-0000-0000-0000-000000000000') AS UUID),
        CASE WHEN n % 20 = 3 THEN n END, CASE WHEN n % 20 = 3 THEN 1 ELSE 0 END,
        CASE WHEN n % 3 = 0 THEN n WHEN n % 3 = 1 THEN 9000000 + n END, CASE WHEN n % 10 = 1 THEN 8000000 END
    FROM generate_series(1, 30000) n";

#[test]
fn postgres_claims_neither_sort_nor_scan() {
    on_postgres(async |db| {
        db.raw(
            "ALTER TABLE webhook_endpoints SET (autovacuum_enabled = off);
            ALTER TABLE webhook_queues SET (autovacuum_enabled = off); ANALYZE webhook_endpoints, webhook_queues",
        )
        .await;
        db.raw(FILL).await;
        let client = connect(&db.url).await;
        for statistics in ["of an empty table", "of a busy table"] {
            if statistics == "of a busy table" {
                db.raw("ANALYZE webhook_endpoints, webhook_queues").await;
            }
            let claim = deliveries::STATEMENTS
                .iter()
                .find(|sql| sql.name == "CLAIM")
                .unwrap();
            for is_failing in [0, 1] {
                let arguments = format!("1000000, 2000000, 8, NULL, {is_failing}, 7");
                let plan = plan(&client, claim, &arguments).await;
                let context = format!("{is_failing} with statistics {statistics}:\n{plan}");
                for word in ["Sort", "Seq Scan", "Bitmap", "webhook_deliveries"] {
                    assert!(!plan.contains(word), "{context}");
                }
                assert!(plan.contains("webhook_queues_due"), "{context}");
            }
        }
    });
}
