-- Removing a connection is due work of its own row. What is NULL or in the past is due; whoever works on it holds the
-- lease until its time, and every later write of theirs names the fencing number that they got with it.
-- See ../postgres for the other database.

ALTER TABLE connections ADD COLUMN removal_at INTEGER;
ALTER TABLE connections ADD COLUMN removal_attempts INTEGER NOT NULL DEFAULT 0;
ALTER TABLE connections ADD COLUMN removal_lease_until INTEGER;
ALTER TABLE connections ADD COLUMN removal_fence INTEGER NOT NULL DEFAULT 0;
-- Why the last attempt failed, in words for the person who hosts; never what a provider said.
ALTER TABLE connections ADD COLUMN removal_problem TEXT;

CREATE INDEX connections_removal ON connections (removal_at) WHERE status = 'deleting';

-- Every copy of the service looks what went since it last looked.
CREATE INDEX connection_audit_at ON connection_audit (at);
