//! What e-mails say.

use askama::Template;
use bellbird_domain::EmailKind;
use bellbird_storage::DueEmail;

use crate::pages::{LocalTime, why_disabled};

/// An e-mail without its addresses.
pub(crate) struct Text {
    pub(crate) subject: String,
    pub(crate) body: String,
}

/// With a link to sign in.
#[derive(Template)]
#[template(path = "emails/sign_in.txt")]
pub(crate) struct SignInEmail<'a> {
    pub(crate) url: &'a str,
    /// The browser that asked for it.
    pub(crate) browser: &'a str,
}

/// With a link to sign in that an operator sends.
#[derive(Template)]
#[template(path = "emails/invitation.txt")]
pub(crate) struct InvitationEmail<'a> {
    pub(crate) url: &'a str,
}

/// Of each kind, and of each action of the kind `security`, there is a file with its text.
#[derive(Template)]
#[template(path = "emails/due.txt")]
struct DueText<'a> {
    email: &'a DueEmail,
    console_url: &'a str,
    /// Of the institution, browser or program, or the host of the endpoint.
    name: String,
    at: String,
    /// The day on which a consent ends. None: it has ended already.
    ends_on: Option<String>,
    /// What can read accounts, and the page that lists it.
    program: (&'static str, &'static str),
    /// Why an endpoint is disabled.
    reason: &'static str,
}

impl Text {
    /// The first line of a template is the subject, which a line without text follows.
    pub(crate) fn of(template: &impl Template) -> Result<Self, askama::Error> {
        let text = template.render()?;
        let (subject, body) = text.split_once("\n\n").unwrap_or((&text, ""));
        Ok(Self {
            subject: subject.to_owned(),
            body: body.to_owned(),
        })
    }

    pub(super) fn of_due(email: &DueEmail, console_url: &str) -> Result<Self, askama::Error> {
        let time = email.at.unwrap_or_default();
        let zone = LocalTime::of(email.timezone.as_deref(), time);
        let action = email.detail.as_str();
        let is_endpoint =
            email.key.kind == EmailKind::Endpoint || action.starts_with("webhook_endpoint.");
        let mut name = match is_endpoint {
            true => host_of(&email.name),
            false => one_line(&email.name),
        };
        if email.is_sandbox {
            name.push_str(" (sandbox)");
        }
        Self::of(&DueText {
            email,
            console_url,
            name,
            at: format!("{}, at {}", zone.day(time), zone.time(time)),
            ends_on: email.at.map(|at| zone.day(at)),
            program: match action {
                "setup_token.create" => ("setup token", "programs"),
                "webhook_endpoint.create" | "webhook_endpoint.update" => {
                    ("webhook endpoint", "webhooks")
                }
                _ => ("API key", "keys"),
            },
            reason: why_disabled(Some(action)),
        })
    }
}

/// The rest of a URL may hold a secret of the endpoint.
fn host_of(url: &str) -> String {
    let url: http::Uri = url.parse().unwrap_or_default();
    url.host().unwrap_or("an unknown host").to_owned()
}

/// Providers name institutions, so a name could have line breaks.
fn one_line(text: &str) -> String {
    text.split(char::is_control).collect::<Vec<_>>().join(" ")
}
