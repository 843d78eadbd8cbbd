-- Users, keys, connections, grants, accounts, and the audit of connections. See ../sqlite for the other database.
-- Rules: ids are TEXT UUIDs in lower case; times are microseconds since 1970 UTC; every key leads with the user.
-- Every text column compares by bytes ("C"), as SQLite does, so that both databases sort alike.

CREATE TABLE users (
    id TEXT COLLATE "C" NOT NULL,
    email TEXT COLLATE "C" NOT NULL,
    -- The address in lower case by Unicode, made by the program: SQLite's own lower() knows ASCII only.
    email_folded TEXT COLLATE "C" NOT NULL,
    plan TEXT COLLATE "C" NOT NULL,
    timezone TEXT COLLATE "C",
    -- Grows with each change of what may be learned about the user: plan, timezone, connections, grants, accounts.
    revision BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (id)
);

CREATE UNIQUE INDEX users_email ON users (email_folded);

CREATE TABLE api_keys (
    user_id TEXT COLLATE "C" NOT NULL REFERENCES users (id),
    id TEXT COLLATE "C" NOT NULL,
    -- SHA-256 of the key's text; the text itself is nowhere.
    key_hash BYTEA NOT NULL,
    name TEXT COLLATE "C" NOT NULL,
    prefix TEXT COLLATE "C" NOT NULL,
    created_at BIGINT NOT NULL,
    last_used_at BIGINT,
    expires_at BIGINT,
    revoked_at BIGINT,
    PRIMARY KEY (user_id, id)
);

CREATE UNIQUE INDEX api_keys_hash ON api_keys (key_hash);
CREATE UNIQUE INDEX api_keys_id ON api_keys (id);

CREATE TABLE connections (
    user_id TEXT COLLATE "C" NOT NULL REFERENCES users (id),
    id TEXT COLLATE "C" NOT NULL,
    provider TEXT COLLATE "C" NOT NULL,
    category TEXT COLLATE "C" NOT NULL,
    provider_connection_id TEXT COLLATE "C" NOT NULL,
    institution_id TEXT COLLATE "C" NOT NULL,
    institution_name TEXT COLLATE "C" NOT NULL,
    institution_logo TEXT COLLATE "C",
    status TEXT COLLATE "C" NOT NULL,
    last_refreshed_at BIGINT,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (user_id, id)
);

CREATE UNIQUE INDEX connections_grant ON connections (provider, provider_connection_id);
CREATE UNIQUE INDEX connections_id ON connections (id);

-- Apart from connections, so that reading a connection never touches a secret.
CREATE TABLE connection_grants (
    user_id TEXT COLLATE "C" NOT NULL,
    connection_id TEXT COLLATE "C" NOT NULL,
    sealed BYTEA NOT NULL,
    PRIMARY KEY (user_id, connection_id),
    FOREIGN KEY (user_id, connection_id) REFERENCES connections (user_id, id) ON DELETE CASCADE
);

CREATE TABLE accounts (
    user_id TEXT COLLATE "C" NOT NULL,
    id TEXT COLLATE "C" NOT NULL,
    connection_id TEXT COLLATE "C" NOT NULL,
    provider_account_id TEXT COLLATE "C" NOT NULL,
    name TEXT COLLATE "C" NOT NULL,
    account_type TEXT COLLATE "C" NOT NULL,
    masked_number TEXT COLLATE "C",
    currency TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (user_id, id),
    FOREIGN KEY (user_id, connection_id) REFERENCES connections (user_id, id) ON DELETE CASCADE
);

CREATE UNIQUE INDEX accounts_provider ON accounts (user_id, connection_id, provider_account_id);
CREATE INDEX accounts_name ON accounts (user_id, name, id);

-- Outlives its connection and its user, so it refers to neither.
CREATE TABLE connection_audit (
    user_id TEXT COLLATE "C" NOT NULL,
    id TEXT COLLATE "C" NOT NULL,
    connection_id TEXT COLLATE "C" NOT NULL,
    at BIGINT NOT NULL,
    from_status TEXT COLLATE "C",
    to_status TEXT COLLATE "C",
    cause TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (user_id, id)
);

CREATE INDEX connection_audit_connection ON connection_audit (connection_id, at, id);
