-- Linking in a browser, looking at connections, inbound events. See ../postgres for the other database.
-- A lease and a fencing number mean what they mean in 0002_removal.

-- Everything sealed, whatever it is for, in one place: apart from the rows it belongs to, so that reading those never
-- touches a secret, and walked as one when the master key changes. Purpose and subject are authenticated with it.
-- 'grant': what the adapter reads a connection with; the subject is the connection.
-- 'owner': what a user registered by us at a provider is known by there; the subject is the provider.
-- 'link': what a trip of a browser brought back, then the grant got for it; the subject is the link session.
CREATE TABLE secrets (
    user_id TEXT NOT NULL REFERENCES users (id),
    purpose TEXT NOT NULL,
    subject TEXT NOT NULL,
    sealed BLOB NOT NULL,
    PRIMARY KEY (user_id, purpose, subject)
) STRICT, WITHOUT ROWID;

INSERT INTO secrets (user_id, purpose, subject, sealed)
    SELECT user_id, 'grant', connection_id, sealed FROM connection_grants;

DROP TABLE connection_grants;

-- SHA-256 in hex of the provider's id of whoever gave the consent: to be found by, not to be read.
ALTER TABLE connections ADD COLUMN owner_digest TEXT;
-- When to look at it next; NULL: when somebody asks, or when a look that is under way ends.
ALTER TABLE connections ADD COLUMN look_at INTEGER;
-- When somebody last began to look; NULL: nobody has.
ALTER TABLE connections ADD COLUMN looked_at INTEGER;
ALTER TABLE connections ADD COLUMN look_attempts INTEGER NOT NULL DEFAULT 0;
ALTER TABLE connections ADD COLUMN look_lease_until INTEGER;
ALTER TABLE connections ADD COLUMN look_fence INTEGER NOT NULL DEFAULT 0;
-- Until when accounts may still appear.
ALTER TABLE connections ADD COLUMN settles_at INTEGER;

-- What was adopted before anybody looked is due.
UPDATE connections SET look_at = created_at WHERE status <> 'deleting';

CREATE INDEX connections_look ON connections (look_at) WHERE look_at IS NOT NULL;
CREATE INDEX connections_look_lease ON connections (look_lease_until) WHERE look_lease_until IS NOT NULL;
CREATE INDEX connections_owner ON connections (provider, owner_digest);
CREATE INDEX accounts_of_provider ON accounts (provider_account_id);

-- An address that is given to somebody: whoever holds the token may link for that user.
CREATE TABLE links (
    user_id TEXT NOT NULL REFERENCES users (id),
    id TEXT NOT NULL,
    -- SHA-256 of the token; the token itself is nowhere.
    token_hash BLOB NOT NULL,
    -- NULL: whoever opens it picks one.
    provider TEXT,
    -- The connection to repair; NULL: a new one.
    connection_id TEXT,
    opened INTEGER NOT NULL DEFAULT 0,
    created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    PRIMARY KEY (user_id, id)
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX links_token ON links (token_hash);
CREATE INDEX links_expiry ON links (expires_at);

-- One trip of a browser to a provider and back.
CREATE TABLE link_sessions (
    user_id TEXT NOT NULL REFERENCES users (id),
    id TEXT NOT NULL,
    -- SHA-256 of the state; the state itself is nowhere.
    state_hash BLOB NOT NULL,
    provider TEXT NOT NULL,
    -- The connection to repair; NULL: a new one, or the one to repair is gone.
    connection_id TEXT,
    -- The provider's ids of the consents that the user had there when the trip began, separated by blanks: of each the
    -- first half of SHA-256 over state_hash and the id, in hex. Whoever has an id can ask for it; nothing is found by it.
    known TEXT NOT NULL DEFAULT '',
    -- begun, returned, granted or ended.
    phase TEXT NOT NULL,
    -- How it ended, in a short word.
    outcome TEXT,
    created_at INTEGER NOT NULL,
    -- Until when the browser may come back.
    expires_at INTEGER NOT NULL,
    due_at INTEGER NOT NULL,
    attempts INTEGER NOT NULL DEFAULT 0,
    lease_until INTEGER,
    fence INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (user_id, id)
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX link_sessions_state ON link_sessions (state_hash);
CREATE INDEX link_sessions_due ON link_sessions (due_at) WHERE phase <> 'ended';
CREATE INDEX link_sessions_expiry ON link_sessions (expires_at);

-- A user registered at a provider by us; what they are known by there is a secret.
CREATE TABLE provider_users (
    user_id TEXT NOT NULL REFERENCES users (id),
    provider TEXT NOT NULL,
    -- Under what the registration was last tried; NULL: never.
    reference TEXT,
    -- SHA-256 in hex of the provider's id of the user; NULL: not known.
    owner_digest TEXT,
    created_at INTEGER NOT NULL,
    lease_until INTEGER,
    fence INTEGER NOT NULL,
    PRIMARY KEY (user_id, provider)
) STRICT, WITHOUT ROWID;

CREATE INDEX provider_users_owner ON provider_users (provider, owner_digest);

-- Inbound events that were taken. They are about whomever the provider says, so no user leads the key.
CREATE TABLE provider_events (
    provider TEXT NOT NULL,
    -- SHA-256 of what tells the event from others.
    event_hash BLOB NOT NULL,
    received_at INTEGER NOT NULL,
    PRIMARY KEY (provider, event_hash)
) STRICT, WITHOUT ROWID;

CREATE INDEX provider_events_received ON provider_events (received_at);
