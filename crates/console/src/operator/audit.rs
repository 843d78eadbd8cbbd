//! `/operator/audit`: what operators changed, by API, by command and on these pages. With `user`,
//! all that happened to one user. `/operator/audit.csv` is the same as a file.

use std::collections::HashMap;

use askama::Template;
use axum::body::Body;
use axum::extract::{Query, State};
use axum::response::{IntoResponse as _, Response};
use bellbird_api::serve::ResponseTimeout;
use bellbird_domain::{Actor, ActorKind, UserId};
use bellbird_interop::export::formats::CsvLines;
use bellbird_limits::Permit;
use bellbird_storage::{AuditFilter, AuditRow, Storage, StorageError};
use bytes::Bytes;
use futures_util::stream::{self, StreamExt as _};
use http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use http::{HeaderName, StatusCode, Uri};
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use uuid::Uuid;

use super::{Operator, PAGE_ROWS, cut};
use crate::error_page;
use crate::own_data;
use crate::pages::names::sanitized;
use crate::pages::{SignedInFrame, When, page_response};
use crate::rows::file::FOR_SPREADSHEETS;
use crate::session::Session;
use crate::settings_page::action_text;
use crate::state::Console;

/// The subjects of actions, and their words.
const SUBJECTS: [(&str, &str); 14] = [
    ("user", "Users"),
    ("operator", "Operators"),
    ("sign_in_link", "Links to sign in"),
    ("session", "Sign-ins"),
    ("identity", "Accounts at the identity provider"),
    ("connection", "Banks"),
    ("link", "Links to link a bank"),
    ("key", "API keys"),
    ("setup_token", "Setup tokens"),
    ("webhook_endpoint", "Webhook endpoints"),
    ("delivery", "Deliveries"),
    ("operator_key", "Keys of operators"),
    ("provider_settings", "Providers"),
    ("database", "Backups"),
];
/// Who can have done it, by the word for its filter.
const ACTORS: [(ActorKind, &str); 4] = [
    (ActorKind::Operator, "On these pages"),
    (ActorKind::OperatorKey, "By the API"),
    (ActorKind::Command, "By a command"),
    (ActorKind::User, "By the user"),
];
/// How many days back the list goes.
const PERIODS: [(&str, &str); 4] = [
    ("1", "Last 24 hours"),
    ("7", "Last 7 days"),
    ("30", "Last 30 days"),
    ("365", "Last year"),
];
const FILE_ROWS_MAX: usize = 10_000;
/// Rows that are read at a time for a file.
const FILE_PART_ROWS: u32 = 500;
const FILE_HEADERS: [(HeaderName, &str); 2] = [
    (CONTENT_TYPE, "text/csv; charset=utf-8"),
    (
        CONTENT_DISPOSITION,
        "attachment; filename=\"bellbird-audit.csv\"",
    ),
];
/// A person opens it in a spreadsheet, which without the byte order mark may misread it.
const FILE_BEGIN: &str =
    "\u{feff}at,action,userId,userEmail,subject,detail,actorKind,actorId,actorName\r\n";

#[derive(Template)]
#[template(path = "operator_audit.html")]
struct AuditPage<'a> {
    frame: &'a SignedInFrame<'a>,
    query: &'a AuditQuery,
    rows: Vec<ShownRow>,
    /// The query of the next page, if there are older rows.
    older: Option<String>,
    chips: Vec<Chip>,
    /// The only user or actor whose rows are shown, and the query without that.
    only: Vec<(String, String)>,
}

/// A filter with a few values.
struct Chip {
    /// The one that is chosen.
    text: &'static str,
    is_set: bool,
    /// Text, query, and whether it is chosen.
    values: Vec<(&'static str, String, bool)>,
}

struct ShownRow {
    at: When,
    text: String,
    action: String,
    /// None: it was about the installation.
    user: Option<Whom>,
    subject: Option<String>,
    detail: Option<String>,
    by: String,
    /// The query of the rows of the same actor.
    of_actor: String,
}

struct Whom {
    id: UserId,
    /// None: the user is removed.
    email: Option<String>,
}

/// Which rows the page has. What cannot be parsed chooses nothing.
#[derive(Deserialize, Clone, Default)]
#[serde(default)]
struct AuditQuery {
    what: String,
    by: String,
    actor: String,
    user: String,
    days: String,
    before: String,
}

impl AuditQuery {
    fn of(uri: &Uri) -> Self {
        Query::<Self>::try_from_uri(uri)
            .map(|Query(query)| query)
            .unwrap_or_default()
    }

    fn filter(&self, now: Timestamp) -> AuditFilter<'_> {
        let subject = SUBJECTS.iter().find(|(name, _)| *name == self.what);
        let days = PERIODS.iter().find(|(days, _)| *days == self.days);
        let days = days.and_then(|(days, _)| days.parse::<i64>().ok());
        AuditFilter {
            user: self.user.parse().ok(),
            subject: subject.map_or("", |(name, _)| name),
            actor_kind: self.by.parse().ok(),
            actor_id: Some(&*self.actor)
                .filter(|actor| !actor.is_empty() && !actor.contains(char::is_control)),
            since: days.map(|days| now - SignedDuration::from_hours(days * 24)),
        }
    }

    /// The query of the first page with something changed.
    fn with(&self, change: impl FnOnce(&mut Self)) -> String {
        let mut changed = Self {
            before: String::new(),
            ..self.clone()
        };
        change(&mut changed);
        changed.to_text()
    }

    fn to_text(&self) -> String {
        let mut text = form_urlencoded::Serializer::new(String::new());
        for (name, value) in [
            ("what", &self.what),
            ("by", &self.by),
            ("actor", &self.actor),
            ("user", &self.user),
            ("days", &self.days),
            ("before", &self.before),
        ] {
            if !value.is_empty() {
                text.append_pair(name, value);
            }
        }
        text.finish()
    }

    /// The query of the file, which has all pages.
    fn of_file(&self) -> String {
        self.with(|_| ())
    }

    fn has_filter(&self) -> bool {
        !self.of_file().is_empty()
    }

    fn chips(&self) -> Vec<Chip> {
        let chip = |any, values: &[(&'static str, &'static str)], chosen: &str, set: Set| {
            let value = |&(value, text): &(&str, &'static str)| {
                let query = self.with(|query| value.clone_into(set(query)));
                (text, query, value == chosen)
            };
            let found = values.iter().find(|(value, _)| *value == chosen);
            let any_value = ("", any);
            Chip {
                text: found.map_or(any, |(_, text)| text),
                is_set: found.is_some(),
                values: [&any_value].into_iter().chain(values).map(value).collect(),
            }
        };
        let actors = ACTORS.map(|(kind, text)| (kind.as_str(), text));
        vec![
            chip("All changes", &SUBJECTS, &self.what, |query| {
                &mut query.what
            }),
            chip("By anybody", &actors, &self.by, |query| &mut query.by),
            chip("Any time", &PERIODS, &self.days, |query| &mut query.days),
        ]
    }
}

/// The field of a query that a chip sets.
type Set = fn(&mut AuditQuery) -> &mut String;

/// `GET /operator/audit`
pub(super) async fn show(State(console): State<Console>, operator: Operator, uri: Uri) -> Response {
    let Operator(session) = operator;
    let query = AuditQuery::of(&uri);
    match load(&console, &session, &query).await {
        Ok((rows, next, only)) => {
            let frame = session.frame(&console, "/operator/audit");
            let older = next.map(|id| {
                AuditQuery {
                    before: id.to_string(),
                    ..query.clone()
                }
                .to_text()
            });
            page_response(
                StatusCode::OK,
                &AuditPage {
                    frame: &frame,
                    query: &query,
                    rows,
                    older,
                    chips: query.chips(),
                    only,
                },
            )
        }
        Err(error) => error_page::storage_error(&console, &error),
    }
}

type Loaded = (Vec<ShownRow>, Option<Uuid>, Vec<(String, String)>);

async fn load(
    console: &Console,
    session: &Session,
    query: &AuditQuery,
) -> Result<Loaded, StorageError> {
    let (storage, zone) = (console.storage(), session.zone());
    let filter = query.filter(session.now);
    let before = query.before.parse().ok();
    let mut found = storage
        .audit()
        .list_matching(&filter, before, PAGE_ROWS + 1)
        .await?;
    let next = if cut(&mut found) {
        found.last().map(|row| row.id)
    } else {
        None
    };
    let mut names = Names::new(storage).await?;
    let mut rows = Vec::with_capacity(found.len());
    for row in found {
        let user = match row.user_id {
            Some(id) => Some(Whom {
                id,
                email: names.email(storage, id).await?,
            }),
            None => None,
        };
        let of_actor = query.with(|query| {
            query.by = row.actor.kind.to_string();
            query.actor.clone_from(&row.actor.id);
        });
        rows.push(ShownRow {
            at: zone.when(row.at, session.now),
            text: action_words(&row.action),
            user,
            by: names.actor(storage, &row.actor).await?,
            of_actor,
            detail: row
                .detail
                .as_deref()
                .filter(|text| !text.is_empty())
                .map(sanitized),
            subject: row.subject,
            action: row.action,
        });
    }
    let mut only = Vec::new();
    if let Some(id) = filter.user {
        let email = names.email(storage, id).await?;
        let name = email.unwrap_or_else(|| format!("the removed user {id}"));
        only.push((name, query.with(|query| query.user.clear())));
    }
    if let (Some(kind), Some(id)) = (filter.actor_kind, filter.actor_id) {
        let actor = Actor {
            kind,
            id: id.to_owned(),
        };
        let name = names.actor(storage, &actor).await?;
        only.push((
            format!("by {name}"),
            query.with(|query| query.actor.clear()),
        ));
    }
    Ok((rows, next, only))
}

/// For people. Of an action without words, its name.
fn action_words(action: &str) -> String {
    let words = match action {
        "user.remove" => "User removed",
        "operator_key.create" => "Key of an operator made",
        "operator_key.revoke" => "Key of an operator revoked",
        "provider_settings.set" => "Credentials of a provider entered",
        "provider_settings.remove" => "Credentials of a provider removed",
        "provider_settings.use_sandbox" => "Provider simulated",
        "database.backup" => "Backup made",
        "master_key.download" => "Master key downloaded",
        "master_key.keep" => "Master key kept",
        "webhook_endpoint.ping" => "Test event sent",
        other => return action_text(other),
    };
    words.to_owned()
}

/// The names of who is in a list.
struct Names {
    /// None: the user is removed.
    emails: HashMap<UserId, Option<String>>,
    operator_keys: HashMap<String, String>,
}

impl Names {
    async fn new(storage: &Storage) -> Result<Self, StorageError> {
        let keys = storage.operator_keys().list().await?;
        let name =
            |key: &bellbird_storage::OperatorKeyRecord| (key.id.to_string(), sanitized(&key.name));
        Ok(Self {
            emails: HashMap::new(),
            operator_keys: keys.iter().map(name).collect(),
        })
    }

    async fn email(
        &mut self,
        storage: &Storage,
        id: UserId,
    ) -> Result<Option<String>, StorageError> {
        if let Some(known) = self.emails.get(&id) {
            return Ok(known.clone());
        }
        let user = storage.users().find(id).await?;
        let email = user.map(|user| user.email);
        self.emails.insert(id, email.clone());
        Ok(email)
    }

    async fn actor(&mut self, storage: &Storage, actor: &Actor) -> Result<String, StorageError> {
        let id = &actor.id;
        Ok(match actor.kind {
            ActorKind::Operator => {
                let email = match id.parse() {
                    Ok(user) => self.email(storage, user).await?,
                    Err(_) => None,
                };
                email.unwrap_or_else(|| format!("the removed user {}", sanitized(id)))
            }
            ActorKind::OperatorKey => {
                let name = self.operator_keys.get(id).cloned();
                format!("the key {}", name.unwrap_or_else(|| sanitized(id)))
            }
            ActorKind::Command => format!("{} on the server", sanitized(id)),
            ActorKind::User => "the user".to_owned(),
        })
    }
}

/// The rest of a file.
struct File {
    console: Console,
    query: AuditQuery,
    now: Timestamp,
    names: Names,
    lines: CsvLines,
    before: Option<Uuid>,
    rows_left: usize,
    /// A user reads one file at a time. None: all of it has been read.
    permit: Option<Permit<UserId>>,
}

/// `GET /operator/audit.csv`: the newest 10,000 rows of what the page lists.
pub(super) async fn download(
    State(console): State<Console>,
    Operator(session): Operator,
    uri: Uri,
) -> Response {
    let Some(permit) = console.inner.own_data_permits.try_acquire(session.user()) else {
        return own_data::is_being_downloaded(&console);
    };
    let names = match Names::new(console.storage()).await {
        Ok(names) => names,
        Err(error) => return error_page::storage_error(&console, &error),
    };
    let file = File {
        console: console.clone(),
        query: AuditQuery::of(&uri),
        now: session.now,
        names,
        lines: CsvLines::new(FOR_SPREADSHEETS),
        before: None,
        rows_left: FILE_ROWS_MAX,
        permit: Some(permit),
    };
    let rest = stream::try_unfold(file, |file| async {
        file.next_part()
            .await
            .inspect_err(|error| tracing::warn!(%error, "audit file cut off"))
    });
    let begin = stream::once(async { Ok(Bytes::from_static(FILE_BEGIN.as_bytes())) });
    let mut response = (FILE_HEADERS, Body::from_stream(begin.chain(rest))).into_response();
    response
        .extensions_mut()
        .insert(ResponseTimeout(own_data::TIMEOUT));
    response
}

impl File {
    /// Some rows, or None at the end of the file.
    async fn next_part(mut self) -> Result<Option<(Bytes, Self)>, StorageError> {
        if self.permit.is_none() {
            return Ok(None);
        }
        let storage = self.console.storage().clone();
        let filter = self.query.filter(self.now);
        let mut rows = storage
            .audit()
            .list_matching(&filter, self.before, FILE_PART_ROWS)
            .await?;
        let is_last = rows.len() < FILE_PART_ROWS as usize || rows.len() >= self.rows_left;
        rows.truncate(self.rows_left);
        self.rows_left -= rows.len();
        self.before = rows.last().map(|row| row.id);
        let mut text = Vec::new();
        for row in &rows {
            text.extend(self.line(&storage, row).await?);
        }
        if is_last {
            self.permit = None;
        }
        Ok(Some((text.into(), self)))
    }

    async fn line(&mut self, storage: &Storage, row: &AuditRow) -> Result<Vec<u8>, StorageError> {
        let email = match row.user_id {
            Some(id) => self.names.email(storage, id).await?,
            None => None,
        };
        let fields = [
            row.at.to_string(),
            row.action.clone(),
            row.user_id.map(|id| id.to_string()).unwrap_or_default(),
            email.unwrap_or_default(),
            row.subject.clone().unwrap_or_default(),
            row.detail.clone().unwrap_or_default(),
            row.actor.kind.to_string(),
            row.actor.id.clone(),
            self.names.actor(storage, &row.actor).await?,
        ];
        let mut line = Vec::new();
        for field in &fields {
            let field = field.replace(char::is_control, " ");
            self.lines.text(&field, &mut line);
        }
        self.lines.end_line(&mut line);
        Ok(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn query_has_only_known_filters() {
        let at = |query: &str| AuditQuery::of(&format!("/?{query}").parse().unwrap());
        let now = "2026-11-20T09:30:00Z".parse().unwrap();
        let query = at("what=key&by=operator&actor=1&days=7&before=2&other=3");
        let filter = query.filter(now);
        assert_eq!((filter.subject, filter.actor_id), ("key", Some("1")));
        assert_eq!(filter.actor_kind, Some(ActorKind::Operator));
        assert_eq!(filter.since, Some("2026-11-13T09:30:00Z".parse().unwrap()));
        assert_eq!(query.of_file(), "what=key&by=operator&actor=1&days=7");
        let unknown = at("what=%25&by=x&days=8");
        let filter = unknown.filter(now);
        assert_eq!((filter.subject, filter.since), ("", None));
        assert!(!at("before=2").has_filter());
        assert!(query.chips().iter().all(|chip| chip.is_set));
        assert!(unknown.chips().iter().all(|chip| !chip.is_set));
    }
}
