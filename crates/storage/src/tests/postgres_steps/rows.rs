//! The rows of all tables: saved, restored, listed in a form that two runs share, and searched for
//! what must not be.

use std::collections::BTreeSet;

use tokio_postgres::{Client, Statement};
use uuid::Uuid;

/// The tables of the schema. A partition is a part of its table.
const TABLES: &str =
    "SELECT c.relname FROM pg_class c WHERE c.relnamespace = 'public'::regnamespace
        AND c.relkind IN ('r', 'p') AND NOT c.relispartition
        AND c.relname NOT IN ('database_origin', 'instances') AND c.relname NOT LIKE '%migrations'
    ORDER BY c.relname = 'users', c.relname = 'connections', c.relname";

/// What differs between two runs: random numbers, keys of seals.
const RANDOM: &str = "'{fence,sealed,key_hash,cookie_hash}'::text[]";

/// When a queue is due that has nothing to send. Whoever claims it next finds that out, so it may
/// differ too.
const IDLE: &str = "CASE WHEN EXISTS (SELECT 1 FROM webhook_deliveries d WHERE d.user_id = t.user_id
    AND d.endpoint_id = t.endpoint_id AND d.state = 'pending') THEN '{}' ELSE '{due_at}' END::text[]";

/// A queue of an endpoint that was removed goes within the hour, so it may be left if it has no
/// deliveries.
const USED: &str = "EXISTS (SELECT 1 FROM webhook_endpoints p WHERE p.user_id = t.owner_id AND p.id = t.endpoint_id)
    OR EXISTS (SELECT 1 FROM webhook_deliveries d WHERE d.user_id = t.user_id AND d.endpoint_id = t.endpoint_id)";

/// What must not be, whatever the order.
const BROKEN: &str = "
    SELECT 'delivery without event' FROM webhook_deliveries d WHERE NOT EXISTS (
        SELECT 1 FROM webhook_events e WHERE e.user_id::text = d.user_id::text AND e.id::text = d.event_id::text)
    UNION ALL SELECT 'delivery without queue' FROM webhook_deliveries d WHERE NOT EXISTS (
        SELECT 1 FROM webhook_queues q WHERE q.user_id::text = d.user_id::text
            AND q.endpoint_id::text = d.endpoint_id::text)
    UNION ALL SELECT 'attempt without delivery' FROM webhook_attempts a WHERE NOT EXISTS (
            SELECT 1 FROM webhook_deliveries d WHERE d.user_id::text = a.user_id::text
                AND d.endpoint_id::text = a.endpoint_id::text AND d.event_id::text = a.event_id::text)
        AND NOT EXISTS (SELECT 1 FROM webhook_events e JOIN connections c ON c.id::text = e.connection_id::text
            WHERE e.id::text = a.event_id::text AND c.status = 'deleting')
    UNION ALL SELECT 'endpoint without user' FROM webhook_endpoints e
        WHERE e.user_id::text <> '00000000-0000-0000-0000-000000000000'
        AND NOT EXISTS (SELECT 1 FROM users u WHERE u.id::text = e.user_id::text)
    UNION ALL SELECT 'queue without endpoint' FROM webhook_queues q
        WHERE q.owner_id::text <> '00000000-0000-0000-0000-000000000000' AND NOT EXISTS (SELECT 1
            FROM webhook_endpoints e WHERE e.user_id::text = q.owner_id::text AND e.id::text = q.endpoint_id::text)
    UNION ALL SELECT 'queue without user' FROM webhook_queues q WHERE q.user_removed = 0
        AND q.user_id::text <> '00000000-0000-0000-0000-000000000000'
        AND NOT EXISTS (SELECT 1 FROM users u WHERE u.id::text = q.user_id::text)
    UNION ALL SELECT 'delivery that no queue is due for' FROM webhook_deliveries d
        JOIN webhook_queues e ON e.user_id::text = d.user_id::text AND e.endpoint_id::text = d.endpoint_id::text
        WHERE d.state = 'pending' AND e.lease_until IS NULL
            AND COALESCE(e.due_at, d.next_attempt_at + 1) > GREATEST(d.next_attempt_at, 1800000500000000)
    UNION ALL SELECT 'chunk that waits for none' FROM webhook_deliveries d
        WHERE d.state = 'waiting' AND NOT EXISTS (SELECT 1 FROM webhook_deliveries o
            WHERE o.user_id::text = d.user_id::text AND o.endpoint_id::text = d.endpoint_id::text
                AND o.sync_run_id::text = d.sync_run_id::text AND o.chunk < d.chunk AND o.ended_at IS NULL)
    UNION ALL SELECT 'secret without subject: ' || s.purpose FROM secrets s WHERE NOT EXISTS (
            SELECT 1 FROM connections c WHERE c.user_id::text = s.user_id::text AND c.id::text = s.subject::text
                AND s.purpose IN ('credentials', 'fingerprints'))
        AND NOT EXISTS (SELECT 1 FROM webhook_endpoints e WHERE e.user_id::text = s.user_id::text
            AND e.id::text = s.subject::text AND s.purpose IN ('webhook', 'old_webhook'))
        AND NOT EXISTS (SELECT 1 FROM consent_sessions c WHERE c.user_id::text = s.user_id::text
            AND c.id::text = s.subject::text AND s.purpose = 'consent_session')
        AND NOT EXISTS (SELECT 1 FROM provider_users p WHERE p.user_id::text = s.user_id::text
            AND p.provider = s.subject::text AND p.provider_user_digest IS NOT NULL AND s.purpose = 'provider_user')
        AND NOT EXISTS (SELECT 1 FROM operator_requests r WHERE r.id::text = s.subject::text
            AND s.purpose = 'operator_request')
    UNION ALL SELECT 'job without subject: ' || j.kind FROM jobs j WHERE j.kind <> 'test' AND NOT EXISTS (
            SELECT 1 FROM connections c WHERE c.user_id::text = j.user_id::text AND c.id::text = j.subject
                AND (j.kind = 'removal') = (c.status = 'deleting') AND j.kind IN ('refresh', 'sync', 'removal'))
        AND NOT EXISTS (SELECT 1 FROM consent_sessions s WHERE s.user_id::text = j.user_id::text
            AND s.id::text = j.subject AND s.phase <> 'ended' AND j.kind = 'consent_session')
        AND NOT EXISTS (SELECT 1 FROM provider_users p WHERE p.user_id::text = j.user_id::text
            AND p.provider = j.subject AND p.provider_user_digest IS NULL AND j.kind = 'provider_user')
        AND NOT EXISTS (SELECT 1 FROM users u WHERE u.id::text = j.subject AND j.kind = 'user_removal')
    UNION ALL SELECT 'registration without secret or job' FROM provider_users p WHERE NOT EXISTS (
            SELECT 1 FROM secrets s WHERE s.user_id::text = p.user_id::text AND s.subject::text = p.provider)
        AND NOT EXISTS (SELECT 1 FROM jobs j WHERE j.user_id::text = p.user_id::text AND j.subject = p.provider)
    UNION ALL SELECT 'browser of nobody' FROM known_browsers b WHERE NOT EXISTS (
        SELECT 1 FROM users u WHERE u.id::text = b.user_id::text)
    UNION ALL SELECT 'connection without job' FROM connections c WHERE (
            SELECT COUNT(*) FROM jobs j WHERE j.user_id::text = c.user_id::text AND j.subject = c.id::text
        ) <> CASE WHEN c.status = 'deleting' THEN 1 ELSE 2 END
    UNION ALL SELECT 'token without its key' FROM setup_tokens t WHERE t.key_id IS NOT NULL AND NOT EXISTS (
        SELECT 1 FROM api_keys k WHERE k.user_id::text = t.user_id::text AND k.id::text = t.key_id::text)
    UNION ALL SELECT 'key without its token' FROM setup_tokens t JOIN api_keys k ON k.name = t.name
        WHERE k.id::text <> COALESCE(t.key_id::text, '')";

pub(super) struct Rows {
    client: Client,
    restore: Statement,
    list: Statement,
    list_broken: Statement,
    /// The ids of the starting state.
    ids: BTreeSet<Uuid>,
}

impl Rows {
    /// Saves the rows that there are.
    pub(super) async fn save(client: Client) -> Self {
        let tables: Vec<String> = client
            .query(TABLES, &[])
            .await
            .expect("tables")
            .iter()
            .map(|row| row.get(0))
            .collect();
        let save: String = tables
            .iter()
            .map(|name| format!("CREATE TABLE saved.{name} AS TABLE {name};"))
            .collect();
        let delete: String = tables
            .iter()
            .map(|name| format!("DELETE FROM {name};"))
            .collect();
        let insert: String = tables
            .iter()
            .rev()
            .map(|name| format!("INSERT INTO {name} SELECT * FROM saved.{name};"))
            .collect();
        // A function keeps the plans of its statements.
        let restore = format!(
            "CREATE SCHEMA saved; {save} CREATE FUNCTION saved.restore() RETURNS void LANGUAGE plpgsql
                AS $$ BEGIN {delete} {insert} END $$"
        );
        client
            .batch_execute(&restore)
            .await
            .expect("rows are saved");
        let list: Vec<_> = tables
            .iter()
            .map(|name| {
                let (idle, only) = if name == "webhook_queues" { (IDLE, USED) } else { ("'{}'::text[]", "true") };
                format!("SELECT '{name} ' || (to_jsonb(t) - {RANDOM} - {idle})::text AS row FROM {name} t WHERE {only}")
            })
            .collect();
        let list = format!("SELECT row FROM ({}) rows", list.join(" UNION ALL "));
        let restore = client
            .prepare("SELECT saved.restore()")
            .await
            .expect("a statement");
        let list = client.prepare(&list).await.expect("a statement");
        let list_broken = client.prepare(BROKEN).await.expect("a statement");
        let mut rows = Self {
            client,
            restore,
            list,
            list_broken,
            ids: BTreeSet::new(),
        };
        rows.ids = rows
            .list()
            .await
            .iter()
            .flat_map(|row| ids_of(row))
            .map(|(_, id)| id)
            .collect();
        rows
    }

    /// Brings the saved rows back.
    pub(super) async fn restore(&self) {
        self.client
            .query(&self.restore, &[])
            .await
            .expect("rows are restored");
    }

    /// All rows as JSON, in an order that does not depend on new ids.
    pub(super) async fn list(&self) -> Vec<String> {
        let rows = self.client.query(&self.list, &[]).await.expect("rows");
        let mut rows: Vec<String> = rows
            .iter()
            .map(|row| self.without_new_ids(row.get(0)))
            .collect();
        rows.sort_unstable();
        rows
    }

    /// What must not be.
    pub(super) async fn list_broken(&self) -> Vec<String> {
        let found = self
            .client
            .query(&self.list_broken, &[])
            .await
            .expect("the search");
        found.iter().map(|row| row.get(0)).collect()
    }

    /// The text with one word in place of each id that the starting state lacks.
    pub(super) fn without_new_ids(&self, text: &str) -> String {
        let mut replaced = text.to_owned();
        if !self.ids.is_empty() {
            for (part, _) in ids_of(text).filter(|(_, id)| !self.ids.contains(id)) {
                replaced = replaced.replace(part, "new");
            }
        }
        replaced
    }
}

/// The ids in a text.
fn ids_of(text: &str) -> impl Iterator<Item = (&str, Uuid)> {
    let words = text.split(|c: char| c != '-' && !c.is_ascii_hexdigit());
    words.filter_map(|word| {
        (word.len() == 36).then(|| Uuid::try_parse(word).ok().map(|id| (word, id)))?
    })
}
