-- Syncs, and what endpoints are told after them. See ../sqlite for the other database.
-- A lease and a fencing number mean what they mean in 0002_removal. New purposes in secrets: 'marks', the key of a
-- connection's marks, whose subject is the connection; 'webhook' and 'old-webhook', what an endpoint's messages are signed
-- with, whose subject is the endpoint.

-- When the next sync is due; NULL: none is. While somebody is at one, a time from sync_began_at on was asked for since.
ALTER TABLE connections ADD COLUMN sync_at BIGINT;
-- When the last sync that ended well began: the end of its window.
ALTER TABLE connections ADD COLUMN synced_at BIGINT;
-- Where the window of that one began.
ALTER TABLE connections ADD COLUMN covered_from BIGINT;
-- When somebody last began one, however it ended.
ALTER TABLE connections ADD COLUMN sync_began_at BIGINT;
-- Syncs that failed since the last that did not.
ALTER TABLE connections ADD COLUMN sync_attempts BIGINT NOT NULL DEFAULT 0;
-- Why the last of them failed, in words for the person who hosts; never what a provider said.
ALTER TABLE connections ADD COLUMN sync_problem TEXT COLLATE "C";
ALTER TABLE connections ADD COLUMN sync_lease_until BIGINT;
ALTER TABLE connections ADD COLUMN sync_fence BIGINT NOT NULL DEFAULT 0;

-- What was adopted before there were syncs is due.
UPDATE connections SET sync_at = created_at WHERE status <> 'deleting';

CREATE INDEX connections_sync ON connections (sync_at) WHERE sync_at IS NOT NULL;
CREATE INDEX connections_sync_lease ON connections (sync_lease_until) WHERE sync_lease_until IS NOT NULL;

-- What is remembered of a row that was seen: digests with a key of the connection's own, and when it was seen.
CREATE TABLE row_marks (
    user_id TEXT COLLATE "C" NOT NULL,
    connection_id TEXT COLLATE "C" NOT NULL,
    -- Of the account and the id of the row.
    row_digest BYTEA NOT NULL,
    -- 0, or the number of the row among those of one id.
    occurrence BIGINT NOT NULL,
    -- Of all else that the provider says of it.
    content BYTEA NOT NULL,
    seen_at BIGINT NOT NULL,
    PRIMARY KEY (user_id, connection_id, row_digest, occurrence),
    FOREIGN KEY (user_id, connection_id) REFERENCES connections (user_id, id) ON DELETE CASCADE
);

-- Where a user wants to be told.
CREATE TABLE webhook_endpoints (
    user_id TEXT COLLATE "C" NOT NULL REFERENCES users (id),
    id TEXT COLLATE "C" NOT NULL,
    url TEXT COLLATE "C" NOT NULL,
    -- The types of events, separated by commas.
    events TEXT COLLATE "C" NOT NULL,
    api_version TEXT COLLATE "C" NOT NULL,
    status TEXT COLLATE "C" NOT NULL,
    -- In a short word; NULL: it is enabled.
    disabled_because TEXT COLLATE "C",
    created_at BIGINT NOT NULL,
    -- Since when it has done nothing but fail; NULL: it has not.
    failing_since BIGINT,
    -- When it last took an event.
    delivered_at BIGINT,
    -- Until when messages are signed with the secret of before too.
    old_secret_until BIGINT,
    -- When somebody last began to serve it.
    served_at BIGINT,
    lease_until BIGINT,
    fence BIGINT NOT NULL DEFAULT 0,
    PRIMARY KEY (user_id, id)
);

CREATE UNIQUE INDEX webhook_endpoints_id ON webhook_endpoints (id);

-- What is told: an envelope, and which rows.
CREATE TABLE webhook_events (
    user_id TEXT COLLATE "C" NOT NULL REFERENCES users (id),
    id TEXT COLLATE "C" NOT NULL,
    -- NULL: it is about no connection, as a ping.
    connection_id TEXT COLLATE "C",
    sync_run_id TEXT COLLATE "C" NOT NULL,
    event_type TEXT COLLATE "C" NOT NULL,
    created_at BIGINT NOT NULL,
    window_from BIGINT NOT NULL,
    window_to BIGINT NOT NULL,
    -- The row_digest of each row, 16 bytes long, one after the other, new rows first.
    row_digests BYTEA NOT NULL,
    new_count BIGINT NOT NULL,
    updated_count BIGINT NOT NULL,
    chunk BIGINT NOT NULL,
    total_chunks BIGINT NOT NULL,
    PRIMARY KEY (user_id, id),
    FOREIGN KEY (user_id, connection_id) REFERENCES connections (user_id, id) ON DELETE CASCADE
);

CREATE UNIQUE INDEX webhook_events_id ON webhook_events (id);
CREATE INDEX webhook_events_connection ON webhook_events (connection_id);
-- The later chunks of a run, when their rows are read together.
CREATE INDEX webhook_events_run ON webhook_events (sync_run_id, chunk);
CREATE INDEX webhook_events_created ON webhook_events (created_at);

-- How the delivery of one event to one endpoint stands.
CREATE TABLE webhook_deliveries (
    user_id TEXT COLLATE "C" NOT NULL,
    endpoint_id TEXT COLLATE "C" NOT NULL,
    event_id TEXT COLLATE "C" NOT NULL,
    -- Those of the event, to find the next chunk by, and the order.
    sync_run_id TEXT COLLATE "C" NOT NULL,
    chunk BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    state TEXT COLLATE "C" NOT NULL,
    attempts BIGINT NOT NULL DEFAULT 0,
    -- NULL unless it is pending.
    next_attempt_at BIGINT,
    -- NULL while it is pending or waiting.
    ended_at BIGINT,
    last_status BIGINT,
    last_problem TEXT COLLATE "C",
    last_duration_ms BIGINT,
    last_attempt_at BIGINT,
    PRIMARY KEY (user_id, endpoint_id, event_id),
    FOREIGN KEY (user_id, endpoint_id) REFERENCES webhook_endpoints (user_id, id) ON DELETE CASCADE,
    FOREIGN KEY (user_id, event_id) REFERENCES webhook_events (user_id, id) ON DELETE CASCADE
);

CREATE INDEX webhook_deliveries_due ON webhook_deliveries (user_id, endpoint_id, next_attempt_at)
    WHERE next_attempt_at IS NOT NULL;
CREATE INDEX webhook_deliveries_open ON webhook_deliveries (user_id, endpoint_id, sync_run_id, chunk)
    WHERE ended_at IS NULL;
CREATE INDEX webhook_deliveries_event ON webhook_deliveries (user_id, event_id);

-- What became of each attempt. No body, neither way.
CREATE TABLE webhook_attempts (
    user_id TEXT COLLATE "C" NOT NULL,
    endpoint_id TEXT COLLATE "C" NOT NULL,
    id TEXT COLLATE "C" NOT NULL,
    event_id TEXT COLLATE "C" NOT NULL,
    attempt BIGINT NOT NULL,
    at BIGINT NOT NULL,
    duration_ms BIGINT NOT NULL,
    -- What the endpoint answered; NULL: it did not.
    status BIGINT,
    problem TEXT COLLATE "C",
    PRIMARY KEY (user_id, endpoint_id, id),
    FOREIGN KEY (user_id, endpoint_id, event_id)
        REFERENCES webhook_deliveries (user_id, endpoint_id, event_id) ON DELETE CASCADE
);

CREATE INDEX webhook_attempts_event ON webhook_attempts (user_id, endpoint_id, event_id);
