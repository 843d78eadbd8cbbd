//! `/settings`: the user's timezone, and where the user is signed in.

use std::collections::HashMap;

use askama::Template;
use bellbird_domain::user::{find_timezone, timezone_names};
use bellbird_domain::{Actor, ActorKind, EmailKind};
use bellbird_management::{Refusal, sign_in, users};
use bellbird_storage::{AuditRow, SessionRecord, UserChange};
use http::StatusCode;
use uuid::Uuid;

use crate::error_page::{Failure, PageResult};
use crate::pages::names::sanitized;
use crate::pages::{Done, LocalTime, SignedInFrame, When, page_response};
use crate::session::{OwnForm, Session};
use crate::sign_in::{end_session, signed_out};

/// The e-mails that a user can switch off. A thief would switch off the others.
const OPTIONAL_EMAILS: [(EmailKind, &str); 2] = [
    (EmailKind::Connection, "A bank needs me, or will soon"),
    (EmailKind::Endpoint, "A webhook endpoint was disabled"),
];
/// Rows of the audit that are shown. The file with all data has the others.
const AUDIT_ROWS: u32 = 50;

#[derive(Template)]
#[template(path = "settings.html")]
struct SettingsPage<'a> {
    frame: &'a SignedInFrame<'a>,
    plan: &'static str,
    timezone: &'a str,
    zone: LocalTime,
    this_session: Uuid,
    sessions: &'a [SessionRecord],
    /// The e-mails that the user has switched off. None: this service sends none.
    emails_off: Option<Vec<EmailKind>>,
    audit: Vec<ActivityRow>,
    /// What is wrong with a timezone, and what was written.
    problem: Option<(String, &'a str)>,
}

/// What happened to the user's access.
struct ActivityRow {
    text: String,
    /// The name of a key, the URL of an endpoint.
    detail: Option<String>,
    /// The last digits of the id of a bank, which tell it from others, also once it is removed.
    bank: Option<String>,
    at: When,
    by: String,
}

/// `GET /settings`
pub(crate) async fn show(session: Session) -> PageResult {
    page(&session, None).await
}

async fn page(session: &Session, problem: Option<(String, &str)>) -> PageResult {
    let (storage, user) = (session.storage(), session.user());
    let sessions = storage.sessions().list(user, session.now).await?;
    let emails_off = match session.site.mailer {
        Some(_) => Some(storage.emails().find_off(user).await?),
        None => None,
    };
    let audit = storage.audit().list_before(None, Some(user), AUDIT_ROWS);
    let audit = audit.await?;
    let timezone = session.caller.timezone.iana_name().unwrap_or("UTC");
    let zone = session.zone();
    let status = match problem {
        Some(_) => StatusCode::BAD_REQUEST,
        None => StatusCode::OK,
    };
    let written = problem.as_ref().map(|(_, written)| *written);
    let page = SettingsPage {
        frame: &session.frame("/settings"),
        plan: session.caller.plan.as_str(),
        timezone: written.unwrap_or(timezone),
        this_session: session.id(),
        audit: audit_rows(&audit, &sessions, &zone),
        sessions: &sessions,
        zone,
        emails_off,
        problem,
    };
    Ok(page_response(status, &page))
}

fn audit_rows(rows: &[AuditRow], sessions: &[SessionRecord], zone: &LocalTime) -> Vec<ActivityRow> {
    let begun = rows.iter().filter(|row| row.action == "session.create");
    let begun = begun.filter_map(|row| Some((row.actor.id.clone(), row.detail.as_deref()?)));
    let open = sessions
        .iter()
        .map(|session| (session.id.to_string(), session.browser.as_str()));
    let browsers: HashMap<String, &str> = begun.chain(open).collect();
    let row = |row: &AuditRow| {
        let by = match (row.actor.kind, browsers.get(&row.actor.id)) {
            (ActorKind::User, Some(browser)) => format!("in {browser}"),
            (ActorKind::User, None) => "in a browser of before, or by a link".to_owned(),
            _ if row.actor == Actor::first_start() => "when Bellbird was set up".to_owned(),
            (ActorKind::Command, _) => "by a command on the server".to_owned(),
            (ActorKind::Operator | ActorKind::OperatorKey, _) => "by an operator".to_owned(),
        };
        let detail = row
            .detail
            .as_deref()
            .filter(|text| row.action != "session.create" && !text.is_empty());
        let mut text = action_text(&row.action);
        // Of others, and of the user, it is what changed, and no name.
        let is_name = row.actor.kind == ActorKind::User && row.action != "user.update";
        if detail.is_some() && !is_name {
            text.push(',');
        }
        let bank = row
            .subject
            .as_deref()
            .filter(|_| row.action.starts_with("connection."));
        ActivityRow {
            text,
            detail: detail.map(sanitized),
            bank: bank.and_then(|id| Some(id.rsplit_once('-')?.1.to_owned())),
            at: zone.when(row.at),
            by,
        }
    };
    rows.iter().map(row).collect()
}

/// Of an action without a text of its own, its name.
pub(crate) fn action_text(action: &str) -> String {
    let text = match action {
        "session.create" => "Signed in",
        "session.revoke" => "Signed out",
        "session.revoke_others" => "Signed out everywhere else",
        "session.revoke_all" => "Signed out everywhere",
        "sign_in_link.create" => "Sign-in link made",
        "sign_in_link.send" => "Sign-in link made for an e-mail",
        "link.create" | "link_session.create" => "Link to add or reconnect a bank made",
        "key.create" => "Key made",
        "key.rotate" => "Key replaced",
        "key.revoke" => "Key revoked",
        "setup_token.create" => "Setup token made",
        "setup_token.revoke" => "Unused setup tokens revoked",
        "webhook_endpoint.create" => "Endpoint made",
        "webhook_endpoint.update" => "Endpoint changed",
        "webhook_endpoint.rotate_secret" => "Secret of an endpoint replaced",
        "webhook_endpoint.enable" => "Endpoint enabled",
        "webhook_endpoint.disable" => "Endpoint disabled",
        "webhook_endpoint.remove" => "Endpoint deleted",
        "delivery.redeliver" => "Webhook event sent again",
        "delivery.recover" => "Failed webhook events sent again",
        "user.create" => "User added",
        "user.update" => "User changed",
        "operator.add" => "Made an operator",
        "operator.remove" => "No longer an operator",
        "identity.forget" => "Sign-in by the identity provider forgotten",
        "connection.import" => "Bank imported",
        "connection.sync" => "Reading of a bank requested",
        "connection.remove" => "Bank removed",
        "console_settings.set" => "Name or address of the console entered",
        "database.backup" => "Backup made",
        "database.cut_access" => "Backup restored, and all access ended",
        "database.keep_access" => "Backup restored, with all access kept",
        "first_start.begin" => "First start begun",
        "first_start.claim" => "First start opened in a browser",
        "first_start.code" => "Address of the first start printed",
        "first_start.finish" => "First start finished",
        "master_key.download" => "Master key downloaded",
        "master_key.keep" => "Copy of the master key confirmed",
        "operator_key.create" => "Key of an operator made",
        "operator_key.revoke" => "Key of an operator revoked",
        "provider_settings.remove" => "Credentials of a provider removed",
        "provider_settings.set" => "Credentials of a provider entered",
        "provider_settings.use_sandbox" => "Provider simulated",
        "secrets.rotate" => "Secrets sealed with another master key",
        "user.remove" => "User removed",
        "webhook_endpoint.ping" => "Test event sent",
        other => other,
    };
    text.to_owned()
}

/// `POST /settings`, with the field `timezone`, `end`, `end-others`, or `emails` with the kinds
/// that are wanted.
pub(crate) async fn change(form: OwnForm) -> PageResult {
    let session = &form.session;
    let (done, place) = if let Some(written) = form.field("timezone") {
        let name = match timezone_of(written) {
            Ok(name) => name,
            Err(problem) => return page(session, Some((problem, written))).await,
        };
        let zone = UserChange {
            timezone: Some(Some(name.as_str())),
            ..UserChange::default()
        };
        let mut change = session.begin().await?;
        users::update(&mut change, session.user(), &zone).await?;
        session.commit(change).await?;
        (Done::TimezoneSaved, "you")
    } else if form.field("emails").is_some() {
        let kinds = OPTIONAL_EMAILS.iter().map(|(kind, _)| *kind);
        let off: Vec<_> = kinds
            .filter(|kind| form.field(kind.as_str()).is_none())
            .collect();
        let stored = session.storage().emails().find_off(session.user()).await?;
        if off != stored {
            let mut change = session.begin().await?;
            users::set_emails_off(&mut change, session.user(), &off).await?;
            session.commit(change).await?;
        }
        (Done::Saved, "emails")
    } else if form.field("end-others").is_some() {
        let mut change = session.begin().await?;
        sign_in::end_other_sessions(&mut change, session.user(), session.id()).await?;
        session.commit(change).await?;
        (Done::OtherSessionsEnded, "sessions")
    } else {
        let id = form.parsed::<Uuid>("end").ok_or(Failure::InvalidForm)?;
        let done = match end_session(session, id).await {
            Ok(()) if id == session.id() => return Ok(signed_out(session)),
            Ok(()) => Done::SessionEnded,
            Err(Refusal::NotFound(_)) => Done::SessionHasEnded,
            Err(refusal) => return Err(refusal.into()),
        };
        (done, "sessions")
    };
    Ok(done.redirect(session, "/settings", place))
}

/// The IANA name of what a user writes: one, in any case, or only its city. Otherwise what is
/// wrong.
pub(crate) fn timezone_of(written: &str) -> Result<String, String> {
    let written = written.trim().replace(' ', "_");
    let zone = find_timezone(&written).ok();
    if let Some(name) = zone.as_ref().and_then(|zone| zone.iana_name()) {
        return Ok(name.to_owned());
    }
    let is_city = |name: &&&str| {
        let city = name.rsplit('/').next();
        city.is_some_and(|city| city.eq_ignore_ascii_case(&written))
    };
    let found: Vec<&str> = timezone_names().iter().filter(is_city).copied().collect();
    match found[..] {
        [name] => Ok(name.to_owned()),
        [] => Err(
            "There is no such timezone. Choose one of the list, such as Australia/Sydney."
                .to_owned(),
        ),
        _ => Err(format!(
            "There is more than one. Choose {}.",
            found.join(" or ")
        )),
    }
}

#[cfg(test)]
mod tests {
    use bellbird_domain::UserId;

    use super::*;

    #[test]
    fn timezone_is_found_by_its_city() {
        for (written, name) in [
            ("Australia/Sydney", "Australia/Sydney"),
            ("sydney", "Australia/Sydney"),
            (" Pacific/auckland ", "Pacific/Auckland"),
            ("New York", "America/New_York"),
            ("UTC", "UTC"),
        ] {
            assert_eq!(timezone_of(written).as_deref(), Ok(name), "{written}");
        }
        let ambiguous = timezone_of("Louisville").unwrap_err();
        assert!(
            ambiguous.contains("America/Kentucky/Louisville"),
            "{ambiguous}"
        );
        for written in ["", "Mars", "Australia", "Sydney/Australia"] {
            assert!(timezone_of(written).is_err(), "{written}");
        }
    }

    #[test]
    fn restores_have_words() {
        for action in ["database.cut_access", "database.keep_access"] {
            assert!(
                action_text(action).starts_with("Backup restored"),
                "{action}"
            );
        }
    }

    fn operator_added(actor: Actor) -> AuditRow {
        AuditRow {
            id: Uuid::nil(),
            at: "2026-11-20T13:40:00Z".parse().unwrap(),
            actor,
            action: "operator.add".to_owned(),
            user_id: None,
            subject: None,
            detail: Some("may sign in: no → yes".to_owned()),
        }
    }

    fn shown(rows: &[AuditRow]) -> Vec<ActivityRow> {
        audit_rows(rows, &[], &LocalTime::of(None, rows[0].at))
    }

    #[test]
    fn changes_by_others_say_who_and_how() {
        let shown = shown(&[
            operator_added(Actor::command("root")),
            operator_added(Actor::operator(UserId::new())),
        ]);
        let by: Vec<_> = shown.iter().map(|row| row.by.as_str()).collect();
        assert_eq!(by, ["by a command on the server", "by an operator"]);
        assert_eq!(shown[0].text, "Made an operator,");
        assert_eq!(shown[0].detail.as_deref(), Some("may sign in: no → yes"));
    }

    #[test]
    fn removed_banks_are_told_apart() {
        let removed = |id: &str, detail: Option<&str>| AuditRow {
            action: "connection.remove".to_owned(),
            subject: Some(id.to_owned()),
            detail: detail.map(str::to_owned),
            ..operator_added(Actor::command("root"))
        };
        let shown = shown(&[
            removed("0191e7a0-7c3b-7def-8000-00aabbccddee", None),
            removed("0191e7a0-7c3b-7def-8000-00aabbccddef", Some("Bank")),
        ]);
        let banks: Vec<_> = shown.iter().map(|row| row.bank.as_deref()).collect();
        assert_eq!(banks, [Some("00aabbccddee"), Some("00aabbccddef")]);
    }
}
