//! What the operator decides about a restored database. Since the backup, access may have been
//! withdrawn, and the backup does not know of it. So a restore cuts all of it, unless the operator
//! says that none was.

use bellbird_domain::Actor;
use jiff::Timestamp;
use serde::Serialize;

use crate::Backups;
use crate::backups::origin::set_decided;
use crate::db::{Tx, params, scalar, statements};
use crate::error::Result;
use crate::management::audit::{self, AuditAction};

statements! {
    REVOKE_KEYS = "UPDATE api_keys SET revoked_at = $1
        WHERE revoked_at IS NULL AND (expires_at IS NULL OR expires_at > $1)";

    REVOKE_OPERATOR_KEYS = "UPDATE operator_keys SET revoked_at = $1
        WHERE revoked_at IS NULL AND (expires_at IS NULL OR expires_at > $1)";

    REMOVE_OPERATORS = "UPDATE users SET is_operator = 0 WHERE is_operator = 1";

    /// The address may be somebody else's by now, who would get the links to sign in.
    FORBID_SIGN_IN = "UPDATE users SET console_sign_in = 0 WHERE console_sign_in = 1 RETURNING email";

    DELETE_IDENTITIES = "DELETE FROM identities";

    DELETE_SESSIONS = "DELETE FROM sessions";

    DELETE_SIGN_IN_LINKS = "DELETE FROM sign_in_links";

    DELETE_LINKS = "DELETE FROM links";

    /// A callback is rejected from then on.
    EXPIRE_CONSENT_SESSIONS = "UPDATE consent_sessions SET expires_at = $1 WHERE expires_at > $1";

    /// A claimed one creates no key again, and whoever tries it is recorded.
    DELETE_SETUP_TOKENS = "DELETE FROM setup_tokens WHERE key_id IS NULL";

    /// What is pending stays pending until it is due at a service. An endpoint that is enabled
    /// before gets it.
    PAUSE_ENDPOINTS = "UPDATE webhook_endpoints SET status = 'disabled', disabled_reason = 'database restored',
            revision = revision + 1
        WHERE status = 'enabled'";

    /// Its code and browser may be in the hands of others by now. The operator is made by command.
    DELETE_FIRST_START = "DELETE FROM first_start WHERE done_at IS NULL";

    COUNT_USERS = "SELECT COUNT(*) FROM users";

    COUNT_CONNECTIONS = "SELECT COUNT(*) FROM connections WHERE status <> 'deleting'";
}

/// What [`Backups::cut_access`] has cut, mostly counts. Serialized as `bellbird restore --json`
/// prints it.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AccessCut {
    /// Keys that worked.
    pub keys_revoked: u64,
    pub operator_keys_revoked: u64,
    /// Users who are no operators any more.
    pub operators_removed: u64,
    /// Users whose e-mail address does not sign in any more.
    pub sign_ins_forbidden: u64,
    /// Their addresses, because the database does not know afterwards who could sign in.
    pub emails_forbidden: Vec<String>,
    pub identities_forgotten: u64,
    pub sessions_ended: u64,
    /// Links, link sessions and links to sign in.
    pub links_deleted: u64,
    pub setup_tokens_deleted: u64,
    pub endpoints_paused: u64,
    /// What is left. The operator compares it with what there was.
    pub users: u64,
    pub connections: u64,
}

impl Backups<'_> {
    /// Decides that nothing was revoked, removed or changed since the backup: all access of the
    /// backup works.
    pub async fn keep_access(self, actor: &Actor, now: Timestamp) -> Result<()> {
        let mut tx = self.db.begin().await?;
        decide(&mut tx, actor, "database.keep_access", now).await?;
        tx.commit().await
    }

    /// Decides that access may have been withdrawn since the backup: nothing of the backup lets
    /// anybody in, and nothing is sent to an endpoint. A test fails for a table that is neither cut
    /// here nor known to let nobody in.
    pub async fn cut_access(self, actor: &Actor, now: Timestamp) -> Result<AccessCut> {
        let mut tx = self.db.begin().await?;
        tx.run(EXPIRE_CONSENT_SESSIONS, params![now]).await?;
        tx.run(DELETE_FIRST_START, params![]).await?;
        let (users, connections) = count_users_and_connections(&mut tx).await?;
        let mut emails: Vec<String> = tx.all(FORBID_SIGN_IN, params![], scalar).await?;
        emails.sort_unstable();
        let cut = AccessCut {
            keys_revoked: tx.run(REVOKE_KEYS, params![now]).await?,
            operator_keys_revoked: tx.run(REVOKE_OPERATOR_KEYS, params![now]).await?,
            operators_removed: tx.run(REMOVE_OPERATORS, params![]).await?,
            sign_ins_forbidden: emails.len() as u64,
            emails_forbidden: emails,
            identities_forgotten: tx.run(DELETE_IDENTITIES, params![]).await?,
            sessions_ended: tx.run(DELETE_SESSIONS, params![]).await?,
            links_deleted: tx.run(DELETE_LINKS, params![]).await?
                + tx.run(DELETE_SIGN_IN_LINKS, params![]).await?,
            setup_tokens_deleted: tx.run(DELETE_SETUP_TOKENS, params![]).await?,
            endpoints_paused: tx.run(PAUSE_ENDPOINTS, params![]).await?,
            users,
            connections,
        };
        decide(&mut tx, actor, "database.cut_access", now).await?;
        tx.commit().await?;
        Ok(cut)
    }
}

/// Ends the wait for a decision, and records which one it is.
async fn decide(tx: &mut Tx, actor: &Actor, action: &'static str, now: Timestamp) -> Result<()> {
    set_decided(tx).await?;
    audit::insert(tx, actor, &AuditAction::of_installation(action), now).await
}

/// The users, and the connections that are not being deleted.
pub(crate) async fn count_users_and_connections(tx: &mut Tx) -> Result<(u64, u64)> {
    let users = tx.count(COUNT_USERS, params![]).await?;
    Ok((users, tx.count(COUNT_CONNECTIONS, params![]).await?))
}
