-- oldest-compatible: 1

-- One row, if a service made this database on its first start: see src/management/first_start.rs. Without a row, or
-- once there is an operator, nobody is let in by a code.
CREATE TABLE first_start (
    -- Always 1.
    id INTEGER NOT NULL,
    -- SHA-256 of the code that the log shows. NULL: it was used, or none was made yet.
    code_hash BLOB,
    -- When the code ends, and what the browser may do that used it.
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
    provider TEXT NOT NULL,
    -- 1: the provider is simulated by the service itself, and has no credentials.
    is_sandbox INTEGER NOT NULL,
    changed_at INTEGER NOT NULL,
    -- Grows with each change. Instances read the sum over all rows every few seconds.
    revision INTEGER NOT NULL,
    PRIMARY KEY (provider)
) STRICT, WITHOUT ROWID;
