//! Reads everything that is stored about a user, row by row, for a file of the user's own. What is
//! left out, secrets and digests, has a reason here. A test compares both lists with the schema, so
//! a new column cannot be forgotten.

use bellbird_domain::UserId;
use jiff::Timestamp;
use jiff::civil::Date;
use serde::ser::{Serialize, SerializeMap as _, Serializer};
use uuid::Uuid;

use crate::Storage;
use crate::db::{Column, Param, ReadRow, Row, Sql, statements};
use crate::error::Result;

/// Rows of one read.
const PAGE_ROWS: i64 = 200;

/// Tables of rows about a user that are not in the file, and why.
pub const LEFT_OUT: [(&str, &str); 3] = [
    (
        "secrets",
        "Secrets of connections, registrations and endpoints, encrypted.",
    ),
    (
        "fingerprints",
        "Digests of rows, made with a key of their connection. They tell nothing without the rows.",
    ),
    (
        "operator_requests",
        "What an operator's request got as its response, encrypted, for 24 hours.",
    ),
];

/// How a column is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Id,
    Text,
    Number,
    /// 0 or 1.
    Flag,
    /// Microseconds since 1970.
    Time,
    /// Days since 1970.
    Day,
    /// Names the row, and is not shown.
    Hash,
}

/// A table with rows about users.
pub struct OwnTable {
    pub name: &'static str,
    select: Sql,
    /// The columns in the order of the statement. The first ones are the key of the row.
    columns: &'static [(&'static str, Kind)],
    keys: usize,
    read: ReadRow<OwnRow>,
}

/// The last row of a page, after which the next one begins.
pub struct OwnPosition(Vec<Cell>);

/// A row, serialized with its columns in camel case.
pub struct OwnRow {
    columns: &'static [(&'static str, Kind)],
    cells: Vec<Cell>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Cell {
    Null,
    Id(Uuid),
    Text(String),
    Number(i64),
    Bytes(Vec<u8>),
}

/// Declares the tables, each with the column that names the user, the rest of its key, and what
/// else is shown.
macro_rules! own_tables {
    ($($name:ident = $table:ident.$user:ident
        [$key:ident $key_kind:ident $(, $more:ident $more_kind:ident)*] $($column:ident $kind:ident),*;)*) => {
        statements! {
            $($name = concat!(
                "SELECT ", stringify!($key), $(", ", stringify!($more),)* $(", ", stringify!($column),)*
                " FROM ", stringify!($table), " WHERE ", stringify!($user), " = :user
                AND (", stringify!($key), $(", ", stringify!($more),)*
                ") > (:", stringify!($key), $(", :", stringify!($more),)*
                ") ORDER BY ", stringify!($key), $(", ", stringify!($more),)* " LIMIT :rows"
            );)*
        }

        pub const OWN_TABLES: &[OwnTable] = &[$({
            const KEYS: &[&str] = &[stringify!($key) $(, stringify!($more))*];
            const COLUMNS: &[(&str, Kind)] = &[
                (stringify!($key), Kind::$key_kind),
                $((stringify!($more), Kind::$more_kind),)*
                $((stringify!($column), Kind::$kind),)*
            ];
            OwnTable {
                name: stringify!($table),
                select: $name,
                columns: COLUMNS,
                keys: KEYS.len(),
                read: |row| read(row, COLUMNS),
            }
        }),*];
    };
}

own_tables! {
    USERS = users.id [id Id] email Text, plan Text, timezone Text, reference Text, is_operator Flag,
        console_sign_in Flag, emails_off Text, created_at Time;
    API_KEYS = api_keys.user_id [id Id] name Text, prefix Text, created_at Time, last_used_at Time, expires_at Time,
        revoked_at Time, replaced_by Id;
    KEY_READS = key_reads.user_id [key_id Id, day Day, route Text] requests Number;
    KEY_AUDIT = key_audit.user_id [id Id] key_id Id, recorded_at Time, event Text;
    SETUP_TOKENS = setup_tokens.user_id [id Id] name Text, created_at Time, expires_at Time, key_id Id;
    SESSIONS = sessions.user_id [id Id] browser Text, created_at Time, last_used_at Time,
        expires_at Time;
    KNOWN_BROWSERS = known_browsers.user_id [cookie_hash Hash] signed_in_at Time;
    SIGN_IN_LINKS = sign_in_links.user_id [id Id] created_at Time, expires_at Time;
    IDENTITIES = identities.user_id [issuer Text] subject Text, created_at Time;
    SENT_EMAILS = sent_emails.user_id [kind Text, subject Text] retry_at Time;
    AUDIT = audit.user_id [id Id] actor_kind Text, action Text, subject Text, detail Text, is_reported Flag,
        recorded_at Time;
    PROVIDER_USERS = provider_users.user_id [provider Text] reference Text, created_at Time;
    LINKS = links.user_id [id Id] provider Text, connection_id Id, open_count Number, is_session Flag,
        has_connected Flag, session_id Id, return_url Text, app_state Text, created_at Time, expires_at Time;
    CONSENT_SESSIONS = consent_sessions.user_id [id Id] link_id Id, provider Text, connection_id Id, is_repair Flag,
        phase Text, phase_since Time, confirmation Text, connections Text, outcome Text, failure_reason Text,
        created_at Time, expires_at Time;
    CONNECTIONS = connections.user_id [id Id] provider Text, category Text, provider_connection_id Text,
        institution_id Text, institution_name Text, institution_logo Text, status Text, last_refreshed_at Time,
        created_at Time, consent_expires_at Time, consent_notice_days Number, backfill_ends_at Time;
    CONNECTION_AUDIT = connection_audit.user_id [id Id] connection_id Id, changed_at Time, from_status Text,
        to_status Text, cause Text;
    ACCOUNTS = accounts.user_id [id Id] connection_id Id, provider_account_id Text, name Text, account_type Text,
        masked_number Text, currency Text, missing_since Time, hidden_at Time;
    SYNCS = syncs.user_id [connection_id Id] sequence Number, synced_at Time, covered_from Time, newest_row_at Time,
        rows_backfill_began_at Time, reread_from Time, unread_to Time, unread_after_account Id, unreadable_rows Number,
        unreadable_reason Text, unreadable_since Time, last_changes_poll_at Time;
    JOBS = jobs.user_id [kind Text, subject Text] provider Text, run_at Time, started_at Time, attempts Number,
        last_error Text;
    WEBHOOK_ENDPOINTS = webhook_endpoints.user_id [id Id] url Text, event_types Text, api_version Text, status Text,
        disabled_reason Text, created_at Time, enabled_at Time, delivered_at Time, old_secret_expires_at Time;
    WEBHOOK_QUEUES = webhook_queues.user_id [endpoint_id Id] failing_since Time, unhealthy_since Time, is_failing Flag,
        due_at Time, user_removed Flag, user_reference Text;
    WEBHOOK_EVENTS = webhook_events.user_id [id Id] connection_id Id, sync_run_id Id, event_type Text, created_at Time,
        date_range_from Time, date_range_to Time, new_count Number, updated_count Number, chunk Number,
        total_chunks Number, connection_status Text, previous_status Text, provider Text, category Text,
        institution_id Text, institution_name Text, last_refreshed_at Time, consent_expires_at Time;
    WEBHOOK_DELIVERIES = webhook_deliveries.user_id [endpoint_id Id, event_id Id] sync_run_id Id, chunk Number,
        created_at Time, state Text, attempts Number, is_requested Flag, next_attempt_at Time, ended_at Time,
        last_status Number, last_error Text, last_duration_ms Number, last_attempt_at Time;
    WEBHOOK_ATTEMPTS = webhook_attempts.user_id [endpoint_id Id, id Id] event_id Id, attempt Number, attempted_at Time,
        duration_ms Number, status Number, error Text;
}

impl Storage {
    /// Rows of a table about a user behind a position, and the position of the next ones, if there
    /// may be any.
    pub async fn own_rows(
        &self,
        table: &OwnTable,
        user: UserId,
        after: Option<&OwnPosition>,
    ) -> Result<(Vec<OwnRow>, Option<OwnPosition>)> {
        let mut values = vec![("user", Param::from(user)), ("rows", Param::Int(PAGE_ROWS))];
        for (at, (name, kind)) in table.columns.iter().take(table.keys).enumerate() {
            let cell = after.and_then(|OwnPosition(cells)| cells.get(at));
            values.push((name, cell.map_or_else(|| kind.before_all(), Cell::param)));
        }
        let (sql, params) = table.select.with(&values);
        let rows = self.db.all(sql, &params, table.read).await?;
        let is_full = i64::try_from(rows.len()).is_ok_and(|rows| rows == PAGE_ROWS);
        let last = rows.last().filter(|_| is_full);
        let next =
            last.map(|row| OwnPosition(row.cells.iter().take(table.keys).cloned().collect()));
        Ok((rows, next))
    }
}

fn read(row: &Row<'_>, columns: &'static [(&'static str, Kind)]) -> Result<OwnRow> {
    let cells = columns
        .iter()
        .enumerate()
        .map(|(at, (_, kind))| kind.read(row, at));
    Ok(OwnRow {
        columns,
        cells: cells.collect::<Result<_>>()?,
    })
}

impl Kind {
    fn read(self, row: &Row<'_>, at: usize) -> Result<Cell> {
        let cell = match self {
            Self::Id => Uuid::read(row, at)?.map(Cell::Id),
            Self::Text => String::read(row, at)?.map(Cell::Text),
            Self::Number | Self::Flag | Self::Time | Self::Day => {
                row.opt_int(at)?.map(Cell::Number)
            }
            Self::Hash => Some(Cell::Bytes(row.get(at)?)),
        };
        Ok(cell.unwrap_or(Cell::Null))
    }

    /// What sorts before each value of a key.
    fn before_all(self) -> Param<'static> {
        match self {
            Self::Id => Param::BEFORE_ALL_IDS,
            Self::Text => Param::Text(""),
            Self::Number | Self::Flag | Self::Time | Self::Day => Param::Int(i64::MIN),
            Self::Hash => Param::Blob(&[]),
        }
    }
}

impl Cell {
    fn param(&self) -> Param<'_> {
        match self {
            Self::Null => Param::Null,
            Self::Id(id) => Param::Id(*id),
            Self::Text(text) => Param::Text(text),
            Self::Number(number) => Param::Int(*number),
            Self::Bytes(bytes) => Param::Blob(bytes),
        }
    }
}

impl Serialize for OwnRow {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for ((name, kind), cell) in self.columns.iter().zip(&self.cells) {
            let name = camel_case(name);
            match (kind, cell) {
                (Kind::Hash, _) => {}
                (Kind::Flag, Cell::Number(number)) => {
                    map.serialize_entry(&name, &(*number != 0))?;
                }
                (Kind::Time, Cell::Number(number)) => map.serialize_entry(&name, &time(*number))?,
                (Kind::Day, Cell::Number(number)) => map.serialize_entry(&name, &day(*number))?,
                (_, Cell::Null) => map.serialize_entry(&name, &None::<()>)?,
                (_, Cell::Id(id)) => map.serialize_entry(&name, &id.to_string())?,
                (_, Cell::Text(text)) => map.serialize_entry(&name, text)?,
                (_, Cell::Number(number)) => map.serialize_entry(&name, number)?,
                (_, Cell::Bytes(_)) => {}
            }
        }
        map.end()
    }
}

/// None: it is out of range, which no column is.
fn time(microseconds: i64) -> Option<Timestamp> {
    Timestamp::from_microsecond(microseconds).ok()
}

fn day(days: i64) -> Option<Date> {
    Date::new(1970, 1, 1)
        .ok()?
        .checked_add(jiff::Span::new().try_days(days).ok()?)
        .ok()
}

/// A name of the schema, as the file has it.
#[must_use]
pub fn camel_case(name: &str) -> String {
    let mut words = name.split('_');
    let first = words.next().unwrap_or_default().to_owned();
    words.fold(first, |text, word| {
        let (head, rest) = word.split_at(word.len().min(1));
        text + &head.to_ascii_uppercase() + rest
    })
}

#[cfg(test)]
impl OwnTable {
    /// The columns that are read.
    pub(crate) fn columns(&self) -> impl Iterator<Item = &'static str> {
        self.columns.iter().map(|(name, _)| *name)
    }
}
