-- oldest-compatible: 1
-- The line above names the oldest version whose programs work with this schema: see src/migrate.rs.
--
-- The schema of both databases, written for SQLite, whose word for the type UUID is TEXT. For PostgreSQL,
-- src/migrate.rs replaces the other type words and drops the table options. A comment that starts with "PostgreSQL:"
-- is a statement for PostgreSQL alone. Text then gets the collation "C", so that PostgreSQL sorts by bytes, as SQLite
-- does.
--
-- Ids are UUIDs, as text in lower case. Times are microseconds since 1970-01-01 UTC.
-- A table of a user's data has a primary key that starts with the user.
--
-- A claim takes a lease and changes the fence. Each later write of the claim holder checks the fence, so a holder whose
-- lease expired and was claimed again changes nothing. A lease that is NULL or in the past is free.

CREATE TABLE users (
    id UUID NOT NULL,
    email TEXT NOT NULL,
    -- Lower case by Unicode, computed in Rust: lower() of SQLite changes ASCII letters only.
    email_folded TEXT NOT NULL,
    plan TEXT NOT NULL,
    -- IANA name. NULL: the default zone.
    timezone TEXT,
    -- The operator's own name of the user.
    reference TEXT,
    -- 1: the console shows the user the pages for operators.
    is_operator INTEGER NOT NULL DEFAULT 0,
    -- 1: somebody proved that the address is the user's, so it signs in to the console and gets e-mails.
    console_sign_in INTEGER NOT NULL,
    -- The kinds of e-mails that the user has switched off, separated by commas.
    emails_off TEXT NOT NULL DEFAULT '',
    -- Each change of plan, timezone, connections, credentials or accounts raises it, which invalidates cached
    -- responses.
    revision INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (id)
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX users_email ON users (email_folded);
CREATE UNIQUE INDEX users_reference ON users (reference);

CREATE TABLE api_keys (
    user_id UUID NOT NULL REFERENCES users (id),
    id UUID NOT NULL,
    -- SHA-256 of the key. The key itself is not stored.
    key_hash BLOB NOT NULL,
    name TEXT NOT NULL,
    -- The first characters of the key, to recognise it in a list.
    prefix TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    last_used_at INTEGER,
    expires_at INTEGER,
    revoked_at INTEGER,
    -- The key of a rotation that takes its place.
    replaced_by UUID,
    PRIMARY KEY (user_id, id)
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX api_keys_hash ON api_keys (key_hash);
CREATE UNIQUE INDEX api_keys_id ON api_keys (id);
-- Finds those that have ended long ago.
CREATE INDEX api_keys_ended ON api_keys (COALESCE(revoked_at, expires_at))
    WHERE revoked_at IS NOT NULL OR expires_at IS NOT NULL;

-- How often keys were used, by day and route, for their users.
CREATE TABLE key_reads (
    user_id UUID NOT NULL,
    key_id UUID NOT NULL,
    -- Days since 1970, in UTC.
    day INTEGER NOT NULL,
    -- As the API names its path, without values.
    route TEXT NOT NULL,
    requests INTEGER NOT NULL,
    PRIMARY KEY (user_id, key_id, day, route)
) STRICT, WITHOUT ROWID;

CREATE INDEX key_reads_day ON key_reads (day);

-- A browser in which a user is signed in to the console.
CREATE TABLE sessions (
    user_id UUID NOT NULL REFERENCES users (id),
    id UUID NOT NULL,
    -- SHA-256 of the cookie. The cookie itself is not stored.
    token_hash BLOB NOT NULL,
    -- Browser and system, for the user to recognise it.
    browser TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    last_used_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    PRIMARY KEY (user_id, id)
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX sessions_token ON sessions (token_hash);
CREATE INDEX sessions_expiry ON sessions (expires_at);

-- Browsers in which a user has signed in.
CREATE TABLE known_browsers (
    user_id UUID NOT NULL REFERENCES users (id),
    -- SHA-256 of a cookie that outlives the session. It signs nobody in.
    cookie_hash BLOB NOT NULL,
    signed_in_at INTEGER NOT NULL,
    PRIMARY KEY (user_id, cookie_hash)
) STRICT, WITHOUT ROWID;

CREATE INDEX known_browsers_age ON known_browsers (signed_in_at);

-- What e-mails have said, for as long as it is true.
CREATE TABLE sent_emails (
    user_id UUID NOT NULL REFERENCES users (id),
    kind TEXT NOT NULL,
    -- The id of what it is about, and for a connection its state.
    subject TEXT NOT NULL,
    -- NULL: it was sent.
    retry_at INTEGER,
    PRIMARY KEY (user_id, kind, subject)
) STRICT, WITHOUT ROWID;

-- A link with which a user signs in to the console, once. Signing in deletes it.
CREATE TABLE sign_in_links (
    user_id UUID NOT NULL REFERENCES users (id),
    id UUID NOT NULL,
    -- SHA-256 of the token. The token itself is not stored.
    token_hash BLOB NOT NULL,
    -- SHA-256 of the cookie of the browser that asked for it. NULL: an operator made it.
    browser_hash BLOB,
    created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    PRIMARY KEY (user_id, id)
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX sign_in_links_token ON sign_in_links (token_hash);
CREATE INDEX sign_in_links_expiry ON sign_in_links (expires_at);

-- Whom the identity provider signs in to the console. The first sign-in by a verified e-mail address adds it.
CREATE TABLE identities (
    user_id UUID NOT NULL REFERENCES users (id),
    -- The identity provider.
    issuer TEXT NOT NULL,
    -- Its id of the user.
    subject TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (user_id, issuer)
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX identities_subject ON identities (issuer, subject);

-- A token that an operator gives to a user, who pastes it into a program. Claiming it creates an API key, once.
CREATE TABLE setup_tokens (
    user_id UUID NOT NULL REFERENCES users (id),
    id UUID NOT NULL,
    -- SHA-256 of the token. The token itself is not stored.
    token_hash BLOB NOT NULL,
    -- The name of the key to create.
    name TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    -- The key that the claim created. NULL: not claimed.
    key_id UUID,
    PRIMARY KEY (user_id, id)
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX setup_tokens_token ON setup_tokens (token_hash);
CREATE INDEX setup_tokens_expiry ON setup_tokens (expires_at);

-- How a key was created with a setup token, and who else tried the token.
CREATE TABLE key_audit (
    user_id UUID NOT NULL REFERENCES users (id),
    id UUID NOT NULL,
    key_id UUID NOT NULL,
    recorded_at INTEGER NOT NULL,
    -- claimed or claim_rejected.
    event TEXT NOT NULL,
    PRIMARY KEY (user_id, id)
) STRICT, WITHOUT ROWID;

CREATE INDEX key_audit_key ON key_audit (user_id, key_id, recorded_at, id);

-- A key of an operator, for the API below /admin. It is no user's and reads no financial data.
CREATE TABLE operator_keys (
    id UUID NOT NULL,
    -- SHA-256 of the key. The key itself is not stored.
    key_hash BLOB NOT NULL,
    name TEXT NOT NULL,
    -- The first characters of the key, to recognise it in a list.
    prefix TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    last_used_at INTEGER,
    expires_at INTEGER,
    revoked_at INTEGER,
    PRIMARY KEY (id)
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX operator_keys_hash ON operator_keys (key_hash);

-- Requests with an Idempotency-Key that succeeded, for 24 hours. The response is in secrets.
CREATE TABLE operator_requests (
    operator_key_id UUID NOT NULL,
    -- SHA-256 of the Idempotency-Key.
    idempotency_hash BLOB NOT NULL,
    id UUID NOT NULL,
    -- SHA-256 of method, path and body.
    request_digest BLOB NOT NULL,
    -- The user it is about, whose deletion deletes it too. NULL within its transaction only.
    user_id UUID,
    -- HTTP status of the response. NULL within its transaction only.
    status INTEGER,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (operator_key_id, idempotency_hash)
) STRICT, WITHOUT ROWID;

CREATE INDEX operator_requests_user ON operator_requests (user_id);
CREATE INDEX operator_requests_created ON operator_requests (created_at);

-- What operators and commands changed, and what users did in the console. Outlives what it was about, so it has no
-- foreign key. What a user did is deleted with the user.
CREATE TABLE audit (
    id UUID NOT NULL,
    -- command, operator_key, operator or user.
    actor_kind TEXT NOT NULL,
    -- The name of the Unix user, or the id of the operator's key, of the operator who was signed in to the console, or
    -- of the user's session there.
    actor_id TEXT NOT NULL,
    -- Such as user.create.
    action TEXT NOT NULL,
    user_id UUID NOT NULL,
    -- The id of what the action was about, if that is not the user.
    subject TEXT,
    -- What the user calls it: the browser, the name of the key, the URL of the endpoint. Of an operator's action what
    -- changed, such as plan: saver → developer. NULL: nothing of that.
    detail TEXT,
    -- 1: an e-mail tells the user of it, whatever the user has switched off.
    is_reported INTEGER NOT NULL,
    recorded_at INTEGER NOT NULL,
    PRIMARY KEY (id)
) STRICT, WITHOUT ROWID;

CREATE INDEX audit_user ON audit (user_id, id);
CREATE INDEX audit_recorded ON audit (recorded_at);
CREATE INDEX audit_operators ON audit (id) WHERE actor_kind <> 'user';
-- Finds the last backup.
CREATE INDEX audit_backups ON audit (recorded_at) WHERE action = 'database.backup';
CREATE INDEX audit_reported ON audit (recorded_at) WHERE is_reported = 1;

CREATE TABLE connections (
    user_id UUID NOT NULL REFERENCES users (id),
    id UUID NOT NULL,
    provider TEXT NOT NULL,
    category TEXT NOT NULL,
    -- The provider's id of the consent.
    provider_connection_id TEXT NOT NULL,
    -- SHA-256 in hex of the provider's id of the user who consented. Provider events name users by that id.
    provider_user_digest TEXT,
    institution_id TEXT NOT NULL,
    institution_name TEXT NOT NULL,
    institution_logo TEXT,
    status TEXT NOT NULL,
    -- When the provider last answered with data.
    last_refreshed_at INTEGER,
    created_at INTEGER NOT NULL,
    -- When the consent ends, as the provider says. NULL: it has not said.
    consent_expires_at INTEGER,
    -- How many days before that its last event was due. NULL: none has been.
    consent_notice_days INTEGER,

    -- Providers list accounts late. Until then, a refresh deletes no account.
    backfill_ends_at INTEGER,
    PRIMARY KEY (user_id, id)
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX connections_id ON connections (id);
CREATE UNIQUE INDEX connections_provider_connection ON connections (provider, provider_connection_id);
CREATE INDEX connections_provider_user ON connections (provider, provider_user_digest);
-- Counts them, and finds the few that must be reconnected.
CREATE INDEX connections_status ON connections (status, provider);
-- Finds the few whose consent ends soon. SQLite prefers an index on the status alone to one on the time alone.
CREATE INDEX connections_consent_expiry ON connections (status, consent_expires_at);

-- What is known of the syncs of a connection. It has a row from its import on.
CREATE TABLE syncs (
    user_id UUID NOT NULL,
    connection_id UUID NOT NULL,
    -- Counts the finished syncs.
    sequence INTEGER NOT NULL DEFAULT 0,
    -- When the last successful sync started, which is the end of its date range, and the start of that range.
    synced_at INTEGER,
    covered_from INTEGER,
    -- The newest row that a sync has read. The provider may have no later rows yet.
    newest_row_at INTEGER,
    -- Since when the provider may be loading older rows: when the connection was linked or last renewed, or when the
    -- first rows came after a gap.
    rows_backfill_began_at INTEGER NOT NULL,
    -- An account that is listed again was missing since then (accounts.missing_since), so the next sync reads from
    -- there. NULL: none has returned since the last one.
    reread_from INTEGER,
    -- A sync too large for one run has not read the part of its date range up to this time. NULL: it has read all.
    unread_to INTEGER,
    -- If set: it has not read the accounts after this one, by id.
    unread_after_account UUID,
    -- Rows that the last sync could not read: how many, why the oldest of them, as one word, and when that one was.
    unreadable_rows INTEGER NOT NULL DEFAULT 0,
    unreadable_reason TEXT,
    unreadable_since INTEGER,
    -- Names the last run that found changes: its time in seconds, or one more than the version before it. 0: none.
    change_version INTEGER NOT NULL DEFAULT 0,
    -- Digests of rows of which the provider said that they are gone, 16 bytes each. The next sync that reads their days
    -- checks it.
    removal_hints BLOB NOT NULL,
    -- When a client last asked for its changes, or a person for a sync, within a day. NULL: never.
    last_changes_poll_at INTEGER,
    PRIMARY KEY (user_id, connection_id),
    FOREIGN KEY (user_id, connection_id) REFERENCES connections (user_id, id) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;

CREATE TABLE accounts (
    user_id UUID NOT NULL,
    id UUID NOT NULL,
    connection_id UUID NOT NULL,
    provider_account_id TEXT NOT NULL,
    name TEXT NOT NULL,
    account_type TEXT NOT NULL,
    -- The last four digits at most.
    masked_number TEXT,
    -- ISO 4217. XXX: unknown.
    currency TEXT NOT NULL,
    -- The first of the refreshes whose lists lack the account. NULL: the last list has it.
    missing_since INTEGER,
    -- When it was hidden from the user, because it stayed missing. NULL: visible.
    hidden_at INTEGER,
    PRIMARY KEY (user_id, id),
    FOREIGN KEY (user_id, connection_id) REFERENCES connections (user_id, id) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX accounts_connection_provider_account ON accounts (user_id, connection_id, provider_account_id);
CREATE INDEX accounts_name ON accounts (user_id, name, id);
-- Provider events name accounts without the user.
CREATE INDEX accounts_provider_account ON accounts (provider_account_id);

-- Work that outlives a request. The transaction that adds or deletes a subject adds or deletes its jobs. Kinds and
-- subjects: `job_kinds` in src/jobs/mod.rs.
CREATE TABLE jobs (
    -- The nil UUID: a job of no user. So there is no foreign key.
    user_id UUID NOT NULL,
    kind TEXT NOT NULL,
    subject TEXT NOT NULL,
    -- Each provider has its own limit of running jobs. Empty: no provider.
    provider TEXT NOT NULL,
    -- The next run. NULL: none is planned. While a job runs, run_at >= started_at means that another run was requested
    -- meanwhile.
    run_at INTEGER,
    -- When the last run started, whatever its outcome.
    started_at INTEGER,
    -- 0: free, because its holder is gone.
    lease_until INTEGER,
    -- The instance that took the lease. NULL: a command.
    holder UUID,
    -- A random number for each claim. A counter could repeat a number: after a lost commit, or in a row that was
    -- deleted and inserted again. NULL: not running.
    fence INTEGER,
    -- 1: a person or a program asked for the next run, so its provider calls are charged to the user.
    is_requested INTEGER NOT NULL DEFAULT 0,
    -- Runs since the last success.
    attempts INTEGER NOT NULL DEFAULT 0,
    -- Our message for the operator, never the provider's text. NULL: the last run did not fail.
    last_error TEXT,
    PRIMARY KEY (user_id, kind, subject)
) STRICT, WITHOUT ROWID;

-- The only index besides the key. An index on leases draws PostgreSQL's planner away from the key.
CREATE INDEX jobs_due ON jobs (kind, provider, COALESCE(lease_until, run_at));

-- Outlives the connection and the user for two years, so it has no foreign key.
CREATE TABLE connection_audit (
    user_id UUID NOT NULL,
    id UUID NOT NULL,
    connection_id UUID NOT NULL,
    changed_at INTEGER NOT NULL,
    -- NULL: the connection is new.
    from_status TEXT,
    -- NULL: the connection is deleted.
    to_status TEXT,
    cause TEXT NOT NULL,
    PRIMARY KEY (user_id, id)
) STRICT, WITHOUT ROWID;

CREATE INDEX connection_audit_connection ON connection_audit (connection_id, changed_at, id);
-- Each instance reads what ended since its last read.
CREATE INDEX connection_audit_changed_at ON connection_audit (changed_at);

-- What syncs have seen of transactions and trades. With a rowid, because SQLite handles long rows badly in a table
-- without one.
CREATE TABLE fingerprints (
    user_id UUID NOT NULL,
    connection_id UUID NOT NULL,
    -- A version byte, then 64 bytes for each row: see src/connections/fingerprints.rs. The digests have a key for each
    -- connection (purpose 'fingerprints' in secrets).
    entries BLOB NOT NULL,
    -- Marks of the runs that found changes, 4 bytes each. Clients that have followed up to an earlier one than
    -- `forgotten_version` may have missed a change.
    change_versions BLOB NOT NULL,
    forgotten_version INTEGER NOT NULL,
    PRIMARY KEY (user_id, connection_id),
    FOREIGN KEY (user_id, connection_id) REFERENCES connections (user_id, id) ON DELETE CASCADE
) STRICT;

-- Digests do not compress. A value of up to 120 rows stays in its row, which is written faster.
-- PostgreSQL: ALTER TABLE fingerprints ALTER COLUMN entries SET STORAGE EXTERNAL;
-- PostgreSQL: ALTER TABLE fingerprints SET (toast_tuple_target = 8160);

-- All sealed values, so that other reads touch no secret and key rotation reads one table. User, purpose and subject
-- are authenticated with the value. The transaction that deletes a subject deletes its secret.
--
-- purpose          subject           value
-- credentials      connection id     what the adapter reads the connection with
-- provider_user    provider          credentials of a user whom we registered at the provider
-- consent_session     consent session id   the callback parameters, then the credentials obtained for them
-- fingerprints     connection id     the key of the digests in fingerprints
-- webhook          endpoint id       the signing secret
-- old_webhook      endpoint id       the previous signing secret
-- operator_request its id            the response, which may hold a new key
-- Those of the installation have the user 0.
CREATE TABLE secrets (
    user_id UUID NOT NULL,
    purpose TEXT NOT NULL,
    subject TEXT NOT NULL,
    sealed BLOB NOT NULL,
    PRIMARY KEY (user_id, purpose, subject)
) STRICT, WITHOUT ROWID;

-- A link URL that an operator gives to a user, or that the console makes for itself. The holder of its token may link
-- institutions for that user.
CREATE TABLE links (
    user_id UUID NOT NULL REFERENCES users (id),
    id UUID NOT NULL,
    -- SHA-256 of the token. The token itself is not stored.
    token_hash BLOB NOT NULL,
    -- NULL: the user chooses.
    provider TEXT,
    -- The connection to repair. NULL: a new connection.
    connection_id UUID,
    -- The session of the user's who made it in the console. The link ends with it. NULL: an operator made it.
    session_id UUID,
    open_count INTEGER NOT NULL DEFAULT 0,
    -- 1: a link session of an app, which connects once and has a result. 0: a link.
    is_session INTEGER NOT NULL DEFAULT 0,
    -- 1: the link session has connected, and starts no further consent session. Always 0 of a link.
    has_connected INTEGER NOT NULL DEFAULT 0,
    -- Where the browser returns from a link session. NULL: nowhere.
    return_url TEXT,
    -- The app's own text, which the return has as `state`. NULL: none.
    app_state TEXT,
    created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    PRIMARY KEY (user_id, id)
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX links_id ON links (id);
CREATE UNIQUE INDEX links_token ON links (token_hash);
CREATE INDEX links_expiry ON links (expires_at);

-- From the redirect to a provider to the stored connection.
CREATE TABLE consent_sessions (
    user_id UUID NOT NULL REFERENCES users (id),
    id UUID NOT NULL,
    -- The link that started it, which is deleted earlier.
    link_id UUID NOT NULL,
    -- SHA-256 of the OAuth state. The state itself is not stored.
    state_hash BLOB NOT NULL,
    provider TEXT NOT NULL,
    -- The connection to repair. NULL: a new connection, or the one to repair was removed.
    connection_id UUID,
    -- 1: it was begun to repair a connection. 0: to link a new one.
    is_repair INTEGER NOT NULL DEFAULT 0,
    -- The consents that existed at the provider when the session started, separated by spaces. Each is the first half,
    -- in hex, of SHA-256 over state_hash and the consent's id. The salt makes equal ids differ between sessions.
    known_consents TEXT NOT NULL DEFAULT '',
    -- started, callback_received, credentials_obtained or ended.
    phase TEXT NOT NULL,
    -- When that phase began. Linking waits for the provider for limited times from there on.
    phase_since INTEGER NOT NULL,
    -- SHA-256 of the cookie of the browser that started the session, or of the one that confirmed it.
    browser_hash BLOB NOT NULL,
    -- open, confirmed or denied.
    confirmation TEXT NOT NULL DEFAULT 'open',
    -- The ids of the connections that the session created, repaired or renewed, separated by spaces.
    connections TEXT NOT NULL DEFAULT '',
    -- How the session ended, as one word.
    outcome TEXT,
    -- Why it failed: our sentence for the user. NULL: it did not fail.
    failure_reason TEXT,
    created_at INTEGER NOT NULL,
    -- A later callback is rejected.
    expires_at INTEGER NOT NULL,
    PRIMARY KEY (user_id, id)
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX consent_sessions_state ON consent_sessions (state_hash);
CREATE INDEX consent_sessions_expiry ON consent_sessions (expires_at);

-- A user whom we registered at a provider. The credentials are in secrets.
CREATE TABLE provider_users (
    user_id UUID NOT NULL REFERENCES users (id),
    provider TEXT NOT NULL,
    -- The name of the last registration attempt, stored before the attempt, so that an interrupted one can be undone.
    reference TEXT,
    -- SHA-256 in hex of the provider's id of the user. NULL: not registered yet, or the provider gives no id.
    provider_user_digest TEXT,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (user_id, provider)
) STRICT, WITHOUT ROWID;

CREATE INDEX provider_users_digest ON provider_users (provider, provider_user_digest);

-- Provider events that were processed, to skip redeliveries. An event may affect several users, so no user leads the
-- key.
CREATE TABLE provider_events (
    provider TEXT NOT NULL,
    -- SHA-256 of the event's id.
    event_hash BLOB NOT NULL,
    received_at INTEGER NOT NULL,
    PRIMARY KEY (provider, event_hash)
) STRICT, WITHOUT ROWID;

CREATE INDEX provider_events_received ON provider_events (received_at);

-- A URL that gets webhook events: of a user, or with the user 0, the installation, of all users.
CREATE TABLE webhook_endpoints (
    user_id UUID NOT NULL,
    id UUID NOT NULL,
    url TEXT NOT NULL,
    -- Separated by commas.
    event_types TEXT NOT NULL,
    api_version TEXT NOT NULL,
    status TEXT NOT NULL,
    -- One or a few words. NULL: enabled.
    disabled_reason TEXT,
    created_at INTEGER NOT NULL,
    -- When it was last enabled. Failures of a queue before that time no longer count.
    enabled_at INTEGER NOT NULL,
    -- The last success, to the minute, so that many queues do not write it all the time.
    delivered_at INTEGER,
    -- Until then, messages carry signatures of the current and of the previous secret.
    old_secret_expires_at INTEGER,
    -- Each change of the above columns but the last two raises it. A claim that has read another revision sends nothing
    -- more.
    revision INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (user_id, id)
) STRICT, WITHOUT ROWID;

CREATE INDEX webhook_endpoints_id ON webhook_endpoints (id);
-- Finds the few.
CREATE INDEX webhook_endpoints_disabled ON webhook_endpoints (user_id, id) WHERE status = 'disabled';

-- The deliveries of one user's events to one endpoint, which are claimed together. An endpoint of the installation has
-- a queue for each user who had an event for it, so that no user's events delay another's. What a change of the
-- endpoint would have to repeat in each queue is only in the endpoint's row.
CREATE TABLE webhook_queues (
    user_id UUID NOT NULL,
    endpoint_id UUID NOT NULL,
    -- The user of the endpoint's row.
    owner_id UUID NOT NULL,
    -- The first failure since the last success.
    failing_since INTEGER,
    -- The first failed exchange since the last success, at fault or not: our own name servers count here too.
    unhealthy_since INTEGER,
    -- 1: exchanges have failed for a minute, for another user too if all users share the endpoint. Such queues are
    -- claimed separately.
    is_failing INTEGER NOT NULL DEFAULT 0,
    -- The least next_attempt_at of its deliveries, or a time before. After a claim it is not before the release, so
    -- that the queue that waits longest is claimed first. NULL: no delivery is pending.
    due_at INTEGER,
    -- As in jobs.
    lease_until INTEGER,
    holder UUID,
    fence INTEGER NOT NULL DEFAULT 0,
    -- 1: the user was removed, and the queue waits for the events that are not delivered yet.
    user_removed INTEGER NOT NULL DEFAULT 0,
    -- The reference that a removed user had.
    user_reference TEXT,
    PRIMARY KEY (user_id, endpoint_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX webhook_queues_endpoint ON webhook_queues (owner_id, endpoint_id, user_id);
-- Finds the few.
CREATE INDEX webhook_queues_failing ON webhook_queues (endpoint_id, failing_since) WHERE failing_since IS NOT NULL;
CREATE INDEX webhook_queues_user_removed ON webhook_queues (user_id, endpoint_id) WHERE user_removed = 1;
-- The order of claims. A queue whose lease expired was not released, so it is claimed too.
CREATE INDEX webhook_queues_due ON webhook_queues (is_failing, COALESCE(lease_until, due_at));

-- Envelopes without rows: a redelivery reads the rows from the provider again and finds them by fingerprint.
-- With a rowid, because SQLite handles long rows badly in a table without one.
--
-- Events, deliveries and attempts have no foreign keys, which would double the work of writing them. Each statement
-- that deletes one of them, a queue or a connection also deletes what belongs to it.
CREATE TABLE webhook_events (
    user_id UUID NOT NULL,
    id UUID NOT NULL,
    -- NULL: a ping or user.removed.
    connection_id UUID,
    -- Without a sync, an id that no other event has.
    sync_run_id UUID NOT NULL,
    event_type TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    -- The date range that the sync read.
    date_range_from INTEGER NOT NULL,
    date_range_to INTEGER NOT NULL,
    -- The key of each row, as its fingerprint has it, 8 bytes each, new rows first.
    row_keys BLOB NOT NULL,
    new_count INTEGER NOT NULL,
    updated_count INTEGER NOT NULL,
    -- From 1 to total_chunks.
    chunk INTEGER NOT NULL,
    total_chunks INTEGER NOT NULL,
    -- The dates and accounts of its rows, sealed with the key of the connection's fingerprints. Empty: unknown.
    row_locator BLOB NOT NULL,
    -- What an event about a connection says: the connection at that time, which may have changed since. NULL: another
    -- type of event, or connection.removed.
    connection_status TEXT,
    -- NULL: the status has not changed.
    previous_status TEXT,
    provider TEXT,
    category TEXT,
    institution_id TEXT,
    institution_name TEXT,
    last_refreshed_at INTEGER,
    consent_expires_at INTEGER,
    -- Rows that are gone: the key and the account of each, 24 bytes.
    removed BLOB NOT NULL,
    PRIMARY KEY (user_id, id)
) STRICT;

CREATE INDEX webhook_events_connection ON webhook_events (connection_id);
CREATE INDEX webhook_events_created ON webhook_events (created_at, id);

-- One event to one endpoint.
CREATE TABLE webhook_deliveries (
    user_id UUID NOT NULL,
    endpoint_id UUID NOT NULL,
    event_id UUID NOT NULL,
    -- Copies of the event's columns: the claim of the next chunk needs no join.
    sync_run_id UUID NOT NULL,
    chunk INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    -- pending, waiting (for the chunk before), delivered or failed.
    state TEXT NOT NULL,
    -- Starts again from 0 with a redelivery.
    attempts INTEGER NOT NULL DEFAULT 0,
    -- 1: somebody wanted it again, so that the provider calls of all its attempts are charged to the user.
    is_requested INTEGER NOT NULL DEFAULT 0,
    -- NULL unless pending.
    next_attempt_at INTEGER,
    -- NULL while pending or waiting.
    ended_at INTEGER,
    -- HTTP status of the last attempt. NULL: no response.
    last_status INTEGER,
    last_error TEXT,
    last_duration_ms INTEGER,
    last_attempt_at INTEGER,
    PRIMARY KEY (user_id, endpoint_id, event_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX webhook_deliveries_due ON webhook_deliveries (user_id, endpoint_id, next_attempt_at)
    WHERE next_attempt_at IS NOT NULL;
CREATE INDEX webhook_deliveries_open ON webhook_deliveries (user_id, endpoint_id, sync_run_id, chunk)
    WHERE ended_at IS NULL;
-- Finds the few among the events of all users.
CREATE INDEX webhook_deliveries_failed ON webhook_deliveries (endpoint_id, created_at, event_id)
    WHERE state = 'failed';

-- Never holds a body, neither of a request nor of a response. A delivery that succeeded at its first attempt has no row
-- here: its own columns hold that attempt.
CREATE TABLE webhook_attempts (
    user_id UUID NOT NULL,
    endpoint_id UUID NOT NULL,
    id UUID NOT NULL,
    event_id UUID NOT NULL,
    -- From 1.
    attempt INTEGER NOT NULL,
    attempted_at INTEGER NOT NULL,
    duration_ms INTEGER NOT NULL,
    -- HTTP status. NULL: no response.
    status INTEGER,
    error TEXT,
    PRIMARY KEY (user_id, endpoint_id, id)
) STRICT, WITHOUT ROWID;

CREATE INDEX webhook_attempts_event ON webhook_attempts (user_id, endpoint_id, event_id);

-- The running instances of the service. Each one renews its row every few seconds, and deletes it when it stops. A row
-- that is not renewed belongs to an instance that was killed. All times are of one clock: see src/instances.rs.
CREATE TABLE instances (
    id UUID NOT NULL,
    version TEXT NOT NULL,
    -- The name of its machine, and the URL of its API there; without an API, of its ops listener.
    host TEXT NOT NULL,
    api_url TEXT NOT NULL,
    -- What it does, separated by commas.
    roles TEXT NOT NULL,
    -- Tells machines of one name apart. Empty: unknown.
    boot_id TEXT NOT NULL,
    -- The URL at which browsers reach its console.
    console_url TEXT NOT NULL,
    -- The ids of its master keys, separated by commas. The first one seals.
    key_ids TEXT NOT NULL,
    -- Keyed digests of its settings, one for each section: limits=d41d8cd9,redis=8f00b204.
    settings TEXT NOT NULL,
    -- Whether it delivers to endpoints on its own machine.
    allow_loopback INTEGER NOT NULL,
    started_at INTEGER NOT NULL,
    last_seen_at INTEGER NOT NULL,
    -- By how much its clock is ahead of the database's.
    clock_ahead_ms INTEGER NOT NULL,
    -- How its calls to each provider went, as JSON: counts, times, and the last error.
    provider_calls TEXT NOT NULL,
    PRIMARY KEY (id)
) STRICT, WITHOUT ROWID;

-- Half of the rows are dead soon: each delivery is updated once or more.
-- PostgreSQL: ALTER TABLE webhook_deliveries SET (autovacuum_vacuum_scale_factor = 0.02);
-- PostgreSQL: ALTER TABLE webhook_queues SET (fillfactor = 80);

-- One row, which says whether the database was restored from a backup: see src/backups/origin.rs. Without a primary
-- key, so that a row restored beside it is noticed too.
CREATE TABLE database_origin (
    -- SQLite: original or copy. PostgreSQL: the xmin and tableoid that the row was written with.
    origin TEXT NOT NULL,
    -- Names the restore, at random. 0: none.
    restore_id INTEGER NOT NULL DEFAULT 0
) STRICT;

INSERT INTO database_origin (origin) VALUES ('original');
-- PostgreSQL: UPDATE database_origin SET origin = format('%s %s', txid_current() % 4294967296, tableoid);

-- One row, if a service made this database on its first start: see src/management/first_start.rs. Without a row, or
-- once there is an operator, nobody is let in by a code.
CREATE TABLE first_start (
    -- Always 1.
    id INTEGER NOT NULL,
    -- SHA-256 of the code that the log shows. NULL: it was used, or none was made yet.
    code_hash BLOB,
    -- When the code ends, and what the browser may do that used it. With an operator: until when the console gives out
    -- the master key.
    ends_at INTEGER,
    -- SHA-256 of the cookie of the browser that used the code. The cookie itself is not stored.
    browser_hash BLOB,
    -- When an operator said that the master key is kept.
    key_kept_at INTEGER,
    -- When an operator had taken all steps.
    done_at INTEGER,
    PRIMARY KEY (id)
) STRICT, WITHOUT ROWID;

-- What operators have entered for a provider in the console. Its credentials are in the table secrets. A row stays when
-- they are removed, so that the sum of the revisions only grows.
CREATE TABLE provider_settings (
    -- Or 'console': its name and its URL, which are in the table secrets too.
    provider TEXT NOT NULL,
    -- 1: the provider is simulated by the service itself, and has no credentials.
    is_sandbox INTEGER NOT NULL,
    changed_at INTEGER NOT NULL,
    -- Grows with each change. Instances read the sum over all rows every few seconds.
    revision INTEGER NOT NULL,
    PRIMARY KEY (provider)
) STRICT, WITHOUT ROWID;
