-- Users, keys, connections, grants, accounts, and the audit of connections. See ../postgres for the other database.
-- Rules: ids are TEXT UUIDs in lower case; times are microseconds since 1970 UTC; every key leads with the user.

CREATE TABLE users (
    id TEXT NOT NULL,
    email TEXT NOT NULL,
    -- The address in lower case by Unicode, made by the program: SQLite's own lower() knows ASCII only.
    email_folded TEXT NOT NULL,
    plan TEXT NOT NULL,
    timezone TEXT,
    -- Grows with each change of what may be learned about the user: plan, timezone, connections, grants, accounts.
    revision INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (id)
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX users_email ON users (email_folded);

CREATE TABLE api_keys (
    user_id TEXT NOT NULL REFERENCES users (id),
    id TEXT NOT NULL,
    -- SHA-256 of the key's text; the text itself is nowhere.
    key_hash BLOB NOT NULL,
    name TEXT NOT NULL,
    prefix TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    last_used_at INTEGER,
    expires_at INTEGER,
    revoked_at INTEGER,
    PRIMARY KEY (user_id, id)
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX api_keys_hash ON api_keys (key_hash);
CREATE UNIQUE INDEX api_keys_id ON api_keys (id);

CREATE TABLE connections (
    user_id TEXT NOT NULL REFERENCES users (id),
    id TEXT NOT NULL,
    provider TEXT NOT NULL,
    category TEXT NOT NULL,
    provider_connection_id TEXT NOT NULL,
    institution_id TEXT NOT NULL,
    institution_name TEXT NOT NULL,
    institution_logo TEXT,
    status TEXT NOT NULL,
    last_refreshed_at INTEGER,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (user_id, id)
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX connections_grant ON connections (provider, provider_connection_id);
CREATE UNIQUE INDEX connections_id ON connections (id);

-- Apart from connections, so that reading a connection never touches a secret.
CREATE TABLE connection_grants (
    user_id TEXT NOT NULL,
    connection_id TEXT NOT NULL,
    sealed BLOB NOT NULL,
    PRIMARY KEY (user_id, connection_id),
    FOREIGN KEY (user_id, connection_id) REFERENCES connections (user_id, id) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;

CREATE TABLE accounts (
    user_id TEXT NOT NULL,
    id TEXT NOT NULL,
    connection_id TEXT NOT NULL,
    provider_account_id TEXT NOT NULL,
    name TEXT NOT NULL,
    account_type TEXT NOT NULL,
    masked_number TEXT,
    currency TEXT NOT NULL,
    PRIMARY KEY (user_id, id),
    FOREIGN KEY (user_id, connection_id) REFERENCES connections (user_id, id) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX accounts_provider ON accounts (user_id, connection_id, provider_account_id);
CREATE INDEX accounts_name ON accounts (user_id, name, id);

-- Outlives its connection and its user, so it refers to neither.
CREATE TABLE connection_audit (
    user_id TEXT NOT NULL,
    id TEXT NOT NULL,
    connection_id TEXT NOT NULL,
    at INTEGER NOT NULL,
    from_status TEXT,
    to_status TEXT,
    cause TEXT NOT NULL,
    PRIMARY KEY (user_id, id)
) STRICT, WITHOUT ROWID;

CREATE INDEX connection_audit_connection ON connection_audit (connection_id, at, id);
