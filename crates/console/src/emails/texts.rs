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

#[derive(Template)]
#[template(path = "emails/connection.txt")]
struct ConnectionEmail<'a> {
    console_url: &'a str,
    institution: &'a str,
    /// The day. None: the consent has ended already.
    ends_on: Option<String>,
}

#[derive(Template)]
#[template(path = "emails/endpoint.txt")]
struct EndpointEmail<'a> {
    console_url: &'a str,
    host: &'a str,
    reason: &'static str,
}

#[derive(Template)]
#[template(path = "emails/sign_in_link.txt")]
struct SignInLinkEmail {
    at: String,
}

#[derive(Template)]
#[template(path = "emails/new_program.txt")]
struct NewProgramEmail<'a> {
    console_url: &'a str,
    what: &'static str,
    name: &'a str,
    /// The page that lists it.
    page: &'static str,
    at: String,
}

#[derive(Template)]
#[template(path = "emails/new_browser.txt")]
struct NewBrowserEmail<'a> {
    console_url: &'a str,
    browser: &'a str,
    at: String,
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
        let at = format!("{}, at {}", zone.day(time), zone.time(time));
        let (name, host) = (one_line(&email.name), host_of(&email.name));
        match (email.key.kind, email.detail.as_str()) {
            (EmailKind::Connection, _) => Self::of(&ConnectionEmail {
                console_url,
                institution: &name,
                ends_on: email.at.map(|at| zone.day(at)),
            }),
            (EmailKind::Endpoint, reason) => Self::of(&EndpointEmail {
                console_url,
                host: &host,
                reason: why_disabled(Some(reason)),
            }),
            (EmailKind::Security, "session.create") => Self::of(&NewBrowserEmail {
                console_url,
                browser: &name,
                at,
            }),
            (EmailKind::Security, "sign_in_link.create") => Self::of(&SignInLinkEmail { at }),
            (EmailKind::Security, action) => {
                let (what, name, page) = match action {
                    "setup_token.create" => ("setup token", &name, "programs"),
                    "webhook_endpoint.create" | "webhook_endpoint.update" => {
                        ("webhook endpoint", &host, "webhooks")
                    }
                    _ => ("API key", &name, "keys"),
                };
                Self::of(&NewProgramEmail {
                    console_url,
                    what,
                    name,
                    page,
                    at,
                })
            }
        }
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
