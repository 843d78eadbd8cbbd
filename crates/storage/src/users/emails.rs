//! Stores which e-mails were sent. Whether one is due follows from what it is about, so that a
//! restart forgets none. A connection or an endpoint that works again before an e-mail is sent is
//! not mentioned. What the audit reports is mentioned whatever happens afterwards, so a thief who
//! signs out suppresses nothing.

use bellbird_domain::{EmailKind, TimestampExt as _, UserId};
use jiff::{SignedDuration, Timestamp};

use crate::Emails;
use crate::db::{Row, Tx, params, statements};
use crate::error::Result;

/// An e-mail of the kind `security` is worth nothing later.
const REPORTED_FOR: SignedDuration = SignedDuration::from_hours(24);
/// Rows in one read.
const BATCH_SIZE: i64 = 100;

/// Everything that e-mails tell of: `$1` is now, and `$2` a day before. Endpoints that somebody
/// disabled on purpose are not among them.
macro_rules! reasons {
    () => {
        "(SELECT user_id, 'connection' AS kind, CAST(id AS TEXT) || '/reconnect' AS subject, institution_name AS name,
            '' AS detail, CAST(NULL AS BIGINT) AS at, provider
        FROM connections WHERE status IN ('invalidated', 'pending_mfa', 'revoked')
        UNION ALL
        SELECT user_id, 'connection', CAST(id AS TEXT) || '/' || CAST(consent_notice_days AS TEXT), institution_name,
            '', consent_expires_at, provider
        FROM connections
        WHERE status = 'active' AND consent_notice_days IS NOT NULL AND consent_expires_at > $1
        UNION ALL
        SELECT user_id, 'endpoint', CAST(id AS TEXT), url, disabled_reason, CAST(NULL AS BIGINT), ''
        FROM webhook_endpoints WHERE status = 'disabled'
            AND disabled_reason IN ('failing', 'gone', 'address not allowed', 'secret broken')
        UNION ALL
        SELECT user_id, 'security', CAST(id AS TEXT), COALESCE(detail, ''), action, recorded_at, '' FROM audit
        WHERE is_reported = 1 AND recorded_at > $2)"
    };
}

statements! {
    LIST_DUE = concat!(
        "SELECT r.user_id, r.kind, r.subject, r.name, r.detail, r.at, u.email, u.timezone,
            CAST(CASE WHEN EXISTS (SELECT 1 FROM provider_settings p
                WHERE p.provider = r.provider AND p.is_sandbox = 1) THEN 1 ELSE 0 END AS BIGINT)
        FROM ", reasons!(), " AS r JOIN users u ON u.id = r.user_id
        WHERE (r.user_id, r.kind, r.subject) > ($3, $4, $5) AND u.console_sign_in = 1
            AND (r.kind = 'security' OR ',' || u.emails_off || ',' NOT LIKE '%,' || r.kind || ',%')
            AND NOT EXISTS (SELECT 1 FROM sent_emails s
                WHERE s.user_id = r.user_id AND s.kind = r.kind AND s.subject = r.subject
                    AND (s.retry_at IS NULL OR s.retry_at > $1))
        ORDER BY r.user_id, r.kind, r.subject LIMIT $6"
    );

    RECORD = "INSERT INTO sent_emails (user_id, kind, subject, retry_at)
        SELECT id, $2, $3, CAST($4 AS BIGINT) FROM users WHERE id = $1
        ON CONFLICT (user_id, kind, subject) DO UPDATE SET retry_at = excluded.retry_at";

    FORGET = concat!(
        "DELETE FROM sent_emails WHERE NOT EXISTS (SELECT 1 FROM ", reasons!(), " AS r
            WHERE r.user_id = sent_emails.user_id AND r.kind = sent_emails.kind AND r.subject = sent_emails.subject)"
    );

    FIND_OFF = "SELECT emails_off FROM users WHERE id = $1";

    SET_OFF = "UPDATE users SET emails_off = $2 WHERE id = $1";
}

/// Names an e-mail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EmailKey {
    pub user_id: UserId,
    pub kind: EmailKind,
    pub subject: String,
}

/// An e-mail to send.
#[derive(Clone)]
pub struct DueEmail {
    pub key: EmailKey,
    pub address: String,
    /// IANA name. None: the default zone.
    pub timezone: Option<String>,
    /// The institution, the URL of the endpoint, the browser, or the name of the key.
    pub name: String,
    /// Why the endpoint was disabled, or the action of the audit. Empty for a connection.
    pub detail: String,
    /// When the consent ends, or when the action was recorded.
    pub at: Option<Timestamp>,
    /// Whether it is about a connection of a provider that operators have simulated.
    pub is_sandbox: bool,
}

impl Emails<'_> {
    /// Up to 100 e-mails that are due, in the order of their keys, after `last`.
    pub async fn list_due(self, last: Option<&EmailKey>, now: Timestamp) -> Result<Vec<DueEmail>> {
        let (user, kind, subject) = last.map_or((UserId::from(uuid::Uuid::nil()), "", ""), |key| {
            (key.user_id, key.kind.as_str(), &key.subject)
        });
        let values = params![
            now,
            now.minus(REPORTED_FOR),
            user,
            kind,
            subject,
            BATCH_SIZE
        ];
        let due = |row: &Row<'_>| {
            let key = EmailKey {
                user_id: row.get(0)?,
                kind: row.get(1)?,
                subject: row.get(2)?,
            };
            Ok(DueEmail {
                key,
                name: row.get(3)?,
                detail: row.get(4)?,
                at: row.get(5)?,
                address: row.get(6)?,
                timezone: row.get(7)?,
                is_sandbox: row.get(8)?,
            })
        };
        self.db.all(LIST_DUE, values, due).await
    }

    /// Records that an e-mail was sent, or that it is due again at `retry_at`.
    pub async fn record(self, key: &EmailKey, retry_at: Option<Timestamp>) -> Result<()> {
        self.db
            .execute(
                RECORD,
                params![key.user_id, key.kind, &key.subject, retry_at],
            )
            .await
    }

    /// Forgets what was said of anything that is over, so that an e-mail tells of it when it comes
    /// again.
    pub async fn forget_outdated(self, now: Timestamp) -> Result<()> {
        self.db
            .execute(FORGET, params![now, now.minus(REPORTED_FOR)])
            .await
    }

    /// The kinds that the user has switched off. None of a user who does not exist.
    pub async fn find_off(self, user: UserId) -> Result<Vec<EmailKind>> {
        let kinds = |row: &Row<'_>| {
            Ok(row
                .text(0)?
                .split(',')
                .filter_map(|kind| kind.parse().ok())
                .collect())
        };
        Ok(self
            .db
            .one(FIND_OFF, params![user], kinds)
            .await?
            .unwrap_or_default())
    }
}

/// Sets the kinds that the user has switched off.
pub async fn set_off(tx: &mut Tx, user: UserId, kinds: &[EmailKind]) -> Result<()> {
    let off = kinds
        .iter()
        .map(|kind| kind.as_str())
        .collect::<Vec<_>>()
        .join(",");
    tx.execute(SET_OFF, params![user, &off]).await
}
