//! `/operator/audit`: what operators changed, by API, by command and on these pages. With `user`,
//! all that happened to one user. `/operator/audit.csv` is the same as a file.

use std::collections::HashMap;

use askama::Template;
use axum::response::IntoResponse as _;
use bellbird_api::serve::ResponseTimeout;
use bellbird_domain::{Actor, ActorKind};
use bellbird_interop::export::NameParts;
use bellbird_interop::export::formats::CsvLines;
use bellbird_storage::{AuditFilter, AuditRow, Storage, StorageError, UserFilter};
use futures_util::stream;
use http::{StatusCode, Uri};
use jiff::SignedDuration;

use super::{Emails, Operator, PAGE_ROWS};
use crate::error_page::PageResult;
use crate::list_query::{Chip, ListQuery, Pages};
use crate::own_data;
use crate::pages::names::sanitized;
use crate::pages::{LocalTime, SignedInFrame, page_response};
use crate::rows::file::{FOR_SPREADSHEETS, csv_response};

/// What a query chooses. `by` is a kind of actor, or one with its id, such as `command:root`.
const FILTERS: [&str; 4] = ["what", "by", "user", "days"];
/// The subjects of actions, and their words.
const SUBJECTS: [(&str, &str); 16] = [
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
    ("database", "Backups and restores"),
    ("first_start", "First start"),
    ("master_key", "Master key"),
];
/// How it can have been done, and the words for it.
const ACTORS: [(ActorKind, &str); 4] = [
    (ActorKind::Operator, "On these pages"),
    (ActorKind::OperatorKey, "By the API"),
    (ActorKind::Command, "By a command"),
    (ActorKind::User, "By the user"),
];
/// A filter has no more operators than these, the oldest users.
const OPERATORS_OFFERED_MAX: u32 = 20;
/// A day, or how many days back the list goes.
const PERIODS: [(&str, &str); 6] = [
    ("today", "Today"),
    ("yesterday", "Yesterday"),
    ("1", "Last 24 hours"),
    ("7", "Last 7 days"),
    ("30", "Last 30 days"),
    ("365", "Last year"),
];
const FILE_ROWS_MAX: u32 = 10_000;
const FILE_COLUMNS: [&str; 9] = [
    "at",
    "action",
    "userId",
    "userEmail",
    "subject",
    "detail",
    "actorKind",
    "actorId",
    "actorName",
];

#[derive(Template)]
#[template(path = "operator_audit.html")]
struct AuditPage<'a> {
    frame: &'a SignedInFrame<'a>,
    zone: LocalTime,
    query: &'a ListQuery,
    /// Whether only rows of one user are listed.
    is_of_user: bool,
    chips: Vec<Chip>,
    rows: Vec<ShownRow>,
    pages: Pages,
}

struct ShownRow {
    change: AuditRow,
    /// None: the user is removed, or it was about the installation.
    email: Option<String>,
    by: String,
}

/// What cannot be parsed chooses nothing.
fn filter<'a>(query: &'a ListQuery, zone: &LocalTime) -> AuditFilter<'a> {
    let known = |known: &[(&str, &str)], name: &str| {
        let value = query.get(name);
        known.iter().any(|(of, _)| *of == value).then_some(value)
    };
    let (since, until) = match known(&PERIODS, "days") {
        Some("today") => (Some(zone.day_start(0)), None),
        Some("yesterday") => (Some(zone.day_start(1)), Some(zone.day_start(0))),
        days => {
            let days = days.and_then(|days| days.parse::<i64>().ok());
            let since = days.map(|days| zone.now - SignedDuration::from_hours(days * 24));
            (since, None)
        }
    };
    let (kind, id) = match query.get("by").split_once(':') {
        Some((kind, id)) => (kind, Some(id)),
        None => (query.get("by"), None),
    };
    let actor_kind: Option<ActorKind> = kind.parse().ok();
    AuditFilter {
        user: query.parsed("user"),
        subject: known(&SUBJECTS, "what").unwrap_or_default(),
        actor_kind,
        actor_id: id.filter(|id| actor_kind.is_some() && !id.contains(char::is_control)),
        since,
        until,
    }
}

/// The value of the filter `by` for one actor.
fn by_value(actor: &Actor) -> String {
    format!("{}:{}", actor.kind, actor.id)
}

/// `GET /operator/audit`
pub(super) async fn show(Operator(session): Operator, uri: Uri) -> PageResult {
    let query = &ListQuery::parse(uri.query(), &FILTERS);
    let (storage, zone) = (session.storage(), session.zone());
    let filter = filter(query, &zone);
    let mut found = storage
        .audit()
        .list_matching(&filter, query.start(), PAGE_ROWS + 1)
        .await?;
    let pages = query.cut(&mut found, PAGE_ROWS, |row| row.id);
    let mut names = Names::new(storage).await?;
    let mut rows = Vec::with_capacity(found.len());
    for row in found {
        rows.push(ShownRow {
            email: names.emails.find(storage, row.user_id).await?,
            by: names.actor(storage, &row.actor).await?,
            change: row,
        });
    }
    let page = AuditPage {
        frame: &session.frame("/operator/audit"),
        chips: chips(storage, query, &filter, &mut names).await?,
        zone,
        query,
        is_of_user: filter.user.is_some(),
        rows,
        pages,
    };
    Ok(page_response(StatusCode::OK, &page))
}

/// The menu of who did it also has the operators, and the actor whose rows are listed.
async fn chips(
    storage: &Storage,
    query: &ListQuery,
    filter: &AuditFilter<'_>,
    names: &mut Names,
) -> Result<Vec<Chip>, StorageError> {
    // What users did themselves is only in the list of one user.
    let is_listed = |kind: ActorKind| kind != ActorKind::User || filter.user.is_some();
    let kinds = ACTORS.iter().filter(|(kind, _)| is_listed(*kind));
    let mut by: Vec<_> = kinds
        .map(|(kind, text)| (kind.to_string(), (*text).to_owned()))
        .collect();
    let operators = UserFilter {
        operators_only: true,
        ..UserFilter::default()
    };
    let operators = storage
        .users()
        .list_matching(&operators, None, OPERATORS_OFFERED_MAX)
        .await?;
    let operators = operators.iter().map(|user| Actor::operator(user.id));
    let chosen = filter.actor_kind.zip(filter.actor_id.map(str::to_owned));
    let chosen = chosen.map(|(kind, id)| Actor { kind, id });
    let actors: Vec<_> = operators.chain(chosen).collect();
    for actor in actors {
        let value = by_value(&actor);
        if by.iter().all(|(known, _)| *known != value) {
            let text = match actor.kind {
                ActorKind::User => "In one session, or by one link, of the user".to_owned(),
                _ => format!("By {}", names.actor(storage, &actor).await?),
            };
            by.push((value, text));
        }
    }
    let mut chips = vec![
        query.menu("what", "All changes", SUBJECTS),
        query.menu("by", "By anybody", by),
        query.menu("days", "Any time", PERIODS),
    ];
    if let Some(id) = filter.user {
        let email = names.emails.find(storage, filter.user).await?;
        let name = email.unwrap_or_else(|| format!("the removed user {id}"));
        chips.push(query.toggle("user", query.get("user"), name));
    }
    Ok(chips)
}

/// The names of who is in a list.
struct Names {
    emails: Emails,
    operator_keys: HashMap<String, String>,
}

impl Names {
    async fn new(storage: &Storage) -> Result<Self, StorageError> {
        let keys = storage.operator_keys().list().await?;
        let names = keys
            .iter()
            .map(|key| (key.id.to_string(), sanitized(&key.name)));
        Ok(Self {
            emails: Emails::default(),
            operator_keys: names.collect(),
        })
    }

    async fn actor(&mut self, storage: &Storage, actor: &Actor) -> Result<String, StorageError> {
        let id = &actor.id;
        Ok(match actor.kind {
            ActorKind::Operator => {
                let email = self.emails.find(storage, id.parse().ok()).await?;
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

/// `GET /operator/audit.csv`: the newest 10,000 rows of what the page lists.
pub(super) async fn download(Operator(session): Operator, uri: Uri) -> PageResult {
    let Some(permit) = session.own_data_permits.try_acquire(session.user()) else {
        return Ok(own_data::is_being_downloaded().into_response());
    };
    let query = ListQuery::parse(uri.query(), &FILTERS);
    let storage = session.storage();
    let filter = filter(&query, &session.zone());
    let rows = storage.audit().list_matching(&filter, None, FILE_ROWS_MAX);
    let rows = rows.await?;
    let mut names = Names::new(storage).await?;
    let (mut lines, mut file) = (CsvLines::new(FOR_SPREADSHEETS), Vec::new());
    lines.header(&FILE_COLUMNS, &mut file);
    for row in rows {
        let email = names.emails.find(storage, row.user_id).await?;
        let by = names.actor(storage, &row.actor).await?;
        let fields = [
            row.at.to_string(),
            row.action,
            row.user_id.map(|id| id.to_string()).unwrap_or_default(),
            email.unwrap_or_default(),
            row.subject.unwrap_or_default(),
            row.detail.unwrap_or_default(),
            row.actor.kind.to_string(),
            row.actor.id,
            by,
        ];
        for field in &fields {
            lines.text(&field.replace(char::is_control, " "), &mut file);
        }
        lines.end_line(&mut file);
    }
    // A stream, because only streams have a timeout, and so that the permit is held to its end.
    let pieces = stream::unfold((Some(file), permit), |(file, permit)| async move {
        Some((Ok(file?), (None, permit)))
    });
    let name = NameParts {
        institution: None,
        account: None,
        resource: Some("bellbird-audit"),
        days: (None, None),
        extension: "csv",
    };
    let mut response = csv_response(&name.name(), pieces);
    // Shorter than for files that are read meanwhile, because one at a time may be sent.
    let timeout = ResponseTimeout(own_data::TIMEOUT);
    response.extensions_mut().insert(timeout);
    Ok(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn query_has_only_known_filters() {
        let now = "2026-11-20T13:40:00Z".parse().unwrap();
        let zone = LocalTime::of(Some("Australia/Sydney"), now);
        let at = |query: &str| ListQuery::parse(Some(query), &FILTERS);
        let query = at("what=key&by=operator:1&days=7&pages=2&other=3");
        let known = filter(&query, &zone);
        assert_eq!((known.subject, known.actor_id), ("key", Some("1")));
        assert_eq!(known.actor_kind, Some(ActorKind::Operator));
        assert_eq!(known.since, Some("2026-11-13T13:40:00Z".parse().unwrap()));
        assert_eq!(query.first(), "what=key&by=operator%3A1&days=7");
        let query = at("what=%25&by=x:1&days=8");
        let unknown = filter(&query, &zone);
        assert_eq!((unknown.subject, unknown.since), ("", None));
        assert_eq!((unknown.actor_kind, unknown.actor_id), (None, None));
        let midnight = Some("2026-11-20T13:00:00Z".parse().unwrap());
        let query = at("days=today");
        let today = filter(&query, &zone);
        assert_eq!((today.since, today.until), (midnight, None));
        let query = at("days=yesterday");
        let yesterday = filter(&query, &zone);
        let before = Some("2026-11-19T13:00:00Z".parse().unwrap());
        assert_eq!((yesterday.since, yesterday.until), (before, midnight));
    }
}
