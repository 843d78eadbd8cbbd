-- Syncs, and what endpoints are told after them. See ../postgres for the other database.
-- A lease and a fencing number mean what they mean in 0002_removal. New purposes in secrets: 'marks', the key of a
-- connection's marks, whose subject is the connection; 'webhook' and 'old-webhook', what an endpoint's messages are signed
-- with, whose subject is the endpoint.

-- When the next sync is due; NULL: none is. While somebody is at one, a time from sync_began_at on was asked for since.
ALTER TABLE connections ADD COLUMN sync_at INTEGER;
-- When the last sync that ended well began: the end of its window.
ALTER TABLE connections ADD COLUMN synced_at INTEGER;
-- Where the window of that one began.
ALTER TABLE connections ADD COLUMN covered_from INTEGER;
-- When somebody last began one, however it ended.
ALTER TABLE connections ADD COLUMN sync_began_at INTEGER;
-- Syncs that failed since the last that did not.
ALTER TABLE connections ADD COLUMN sync_attempts INTEGER NOT NULL DEFAULT 0;
-- Why the last of them failed, in words for the person who hosts; never what a provider said.
ALTER TABLE connections ADD COLUMN sync_problem TEXT;
ALTER TABLE connections ADD COLUMN sync_lease_until INTEGER;
ALTER TABLE connections ADD COLUMN sync_fence INTEGER NOT NULL DEFAULT 0;

-- What was adopted before there were syncs is due.
UPDATE connections SET sync_at = created_at WHERE status <> 'deleting';

CREATE INDEX connections_sync ON connections (sync_at) WHERE sync_at IS NOT NULL;
CREATE INDEX connections_sync_lease ON connections (sync_lease_until) WHERE sync_lease_until IS NOT NULL;

-- What is remembered of a row that was seen: digests with a key of the connection's own, and when it was seen.
CREATE TABLE row_marks (
    user_id TEXT NOT NULL,
    connection_id TEXT NOT NULL,
    -- Of the account and the id of the row.
    row_digest BLOB NOT NULL,
    -- 0, or the number of the row among those of one id.
    occurrence INTEGER NOT NULL,
    -- Of all else that the provider says of it.
    content BLOB NOT NULL,
    seen_at INTEGER NOT NULL,
    PRIMARY KEY (user_id, connection_id, row_digest, occurrence),
    FOREIGN KEY (user_id, connection_id) REFERENCES connections (user_id, id) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;

-- Where a user wants to be told.
CREATE TABLE webhook_endpoints (
    user_id TEXT NOT NULL REFERENCES users (id),
    id TEXT NOT NULL,
    url TEXT NOT NULL,
    -- The types of events, separated by commas.
    events TEXT NOT NULL,
    api_version TEXT NOT NULL,
    status TEXT NOT NULL,
    -- In a short word; NULL: it is enabled.
    disabled_because TEXT,
    created_at INTEGER NOT NULL,
    -- Since when it has done nothing but fail; NULL: it has not.
    failing_since INTEGER,
    -- When it last took an event.
    delivered_at INTEGER,
    -- Until when messages are signed with the secret of before too.
    old_secret_until INTEGER,
    -- When somebody last began to serve it.
    served_at INTEGER,
    lease_until INTEGER,
    fence INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (user_id, id)
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX webhook_endpoints_id ON webhook_endpoints (id);

-- What is told: an envelope, and which rows. With a rowid, for the digests make rows long.
CREATE TABLE webhook_events (
    user_id TEXT NOT NULL REFERENCES users (id),
    id TEXT NOT NULL,
    -- NULL: it is about no connection, as a ping.
    connection_id TEXT,
    sync_run_id TEXT NOT NULL,
    event_type TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    window_from INTEGER NOT NULL,
    window_to INTEGER NOT NULL,
    -- The row_digest of each row, 16 bytes long, one after the other, new rows first.
    row_digests BLOB NOT NULL,
    new_count INTEGER NOT NULL,
    updated_count INTEGER NOT NULL,
    chunk INTEGER NOT NULL,
    total_chunks INTEGER NOT NULL,
    PRIMARY KEY (user_id, id),
    FOREIGN KEY (user_id, connection_id) REFERENCES connections (user_id, id) ON DELETE CASCADE
) STRICT;

CREATE UNIQUE INDEX webhook_events_id ON webhook_events (id);
CREATE INDEX webhook_events_connection ON webhook_events (connection_id);
-- The later chunks of a run, when their rows are read together.
CREATE INDEX webhook_events_run ON webhook_events (sync_run_id, chunk);
CREATE INDEX webhook_events_created ON webhook_events (created_at);

-- How the delivery of one event to one endpoint stands.
CREATE TABLE webhook_deliveries (
    user_id TEXT NOT NULL,
    endpoint_id TEXT NOT NULL,
    event_id TEXT NOT NULL,
    -- Those of the event, to find the next chunk by, and the order.
    sync_run_id TEXT NOT NULL,
    chunk INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    state TEXT NOT NULL,
    attempts INTEGER NOT NULL DEFAULT 0,
    -- NULL unless it is pending.
    next_attempt_at INTEGER,
    -- NULL while it is pending or waiting.
    ended_at INTEGER,
    last_status INTEGER,
    last_problem TEXT,
    last_duration_ms INTEGER,
    last_attempt_at INTEGER,
    PRIMARY KEY (user_id, endpoint_id, event_id),
    FOREIGN KEY (user_id, endpoint_id) REFERENCES webhook_endpoints (user_id, id) ON DELETE CASCADE,
    FOREIGN KEY (user_id, event_id) REFERENCES webhook_events (user_id, id) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;

CREATE INDEX webhook_deliveries_due ON webhook_deliveries (user_id, endpoint_id, next_attempt_at)
    WHERE next_attempt_at IS NOT NULL;
CREATE INDEX webhook_deliveries_open ON webhook_deliveries (user_id, endpoint_id, sync_run_id, chunk)
    WHERE ended_at IS NULL;
CREATE INDEX webhook_deliveries_event ON webhook_deliveries (user_id, event_id);

-- What became of each attempt. No body, neither way.
CREATE TABLE webhook_attempts (
    user_id TEXT NOT NULL,
    endpoint_id TEXT NOT NULL,
    id TEXT NOT NULL,
    event_id TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    at INTEGER NOT NULL,
    duration_ms INTEGER NOT NULL,
    -- What the endpoint answered; NULL: it did not.
    status INTEGER,
    problem TEXT,
    PRIMARY KEY (user_id, endpoint_id, id),
    FOREIGN KEY (user_id, endpoint_id, event_id)
        REFERENCES webhook_deliveries (user_id, endpoint_id, event_id) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;

CREATE INDEX webhook_attempts_event ON webhook_attempts (user_id, endpoint_id, event_id);
