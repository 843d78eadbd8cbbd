//! The pages, as templates and what goes into them. Askama escapes whatever it is given; names of institutions come from
//! elsewhere, so they are shortened and set apart as well.

mod notice;

use askama::Template;
use axum::response::{Html, IntoResponse, Response};
use bellbird_connections::{LinkPage, Linkable};
use bellbird_domain::{Connection, ConnectionStatus};
use http::StatusCode;

use crate::ConsoleSettings;
use crate::assets::Assets;

pub(crate) use notice::{Notice, Tone};

/// Longest name of an institution that is shown, in characters.
const NAME_CHARS_MAX: usize = 80;

/// A page as an answer.
pub(crate) fn answer(status: StatusCode, page: &impl Template) -> Response {
    match page.render() {
        Ok(html) => (status, Html(html)).into_response(),
        Err(error) => {
            tracing::error!(%error, "a page could not be written");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

/// What the console is for.
#[derive(Template)]
#[template(path = "home.html")]
pub(crate) struct Home<'a> {
    pub(crate) assets: &'a Assets,
    pub(crate) settings: &'a ConsoleSettings,
}

impl Home<'_> {
    fn console_url(&self) -> &str {
        self.settings.console_url.trim_end_matches('/')
    }

    fn api_url(&self) -> &str {
        self.settings.api_url.trim_end_matches('/')
    }
}

/// The page of an address: providers to choose from, and connections to repair.
#[derive(Template)]
#[template(path = "choice.html")]
pub(crate) struct Choice<'a> {
    assets: &'a Assets,
    email: &'a str,
    providers: &'a [Linkable],
    connections: Vec<Shown>,
    /// For people, and for programs.
    expires: (String, String),
}

/// A connection as the page shows it.
struct Shown {
    id: String,
    name: String,
    provider: String,
    /// The day on which it was connected.
    since: String,
    works: bool,
    /// Its status in plain words.
    standing: &'static str,
    /// Whether its provider has a consent page here.
    repairable: bool,
}

impl<'a> Choice<'a> {
    /// `title_of` makes a provider's title of its name.
    pub(crate) fn new(assets: &'a Assets, page: &'a LinkPage, title_of: impl Fn(&str) -> String) -> Self {
        let connections = page.connections.iter().map(|connection| Shown {
            id: connection.id.to_string(),
            name: institution(connection),
            provider: title_of(&connection.provider),
            since: connection.created_at.strftime("%-d %B %Y").to_string(),
            works: connection.status == ConnectionStatus::Active,
            standing: standing(connection.status),
            repairable: page.providers.iter().any(|provider| provider.name == connection.provider),
        });
        let expires = (page.expires_at.strftime("%H:%M UTC").to_string(), page.expires_at.to_string());
        Self { assets, email: &page.email, providers: &page.providers, connections: connections.collect(), expires }
    }
}

fn standing(status: ConnectionStatus) -> &'static str {
    match status {
        ConnectionStatus::Active => "Connected",
        ConnectionStatus::Invalidated => "Your consent has expired",
        ConnectionStatus::PendingMfa => "Your institution is waiting for you",
        ConnectionStatus::Revoked => "Your consent was withdrawn",
        ConnectionStatus::Deleting => "Being removed",
    }
}

/// An institution's name as it can be shown: on one line, not too long, and without characters that turn the direction
/// of what stands around it.
fn institution(connection: &Connection) -> String {
    let name = readable(&connection.institution_name);
    if name.trim().is_empty() { "Unnamed institution".to_owned() } else { name }
}

/// A name from outside without what could turn a page around, and not too long.
fn readable(name: &str) -> String {
    let turns = |c: char| matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let shown = name.chars().filter(|c| !c.is_control() && !turns(*c));
    let mut name: String = shown.take(NAME_CHARS_MAX + 1).collect();
    if let Some((end, _)) = name.char_indices().nth(NAME_CHARS_MAX) {
        name.replace_range(end.., "…");
    }
    name
}

#[cfg(test)]
pub(crate) mod tests {
    use bellbird_domain::{
        Account, AccountId, AccountType, ConnectionCategory, ConnectionId, Currency, MaskedNumber, UserId,
    };

    use super::*;

    pub(crate) const HOSTILE: &str = "\u{202e}<script>alert(1)</script>\" onclick='x' &amp; \0\n";

    pub(crate) fn connection(institution_name: &str, status: ConnectionStatus) -> Connection {
        Connection {
            id: ConnectionId::new(),
            user_id: UserId::new(),
            provider: "somebank".to_owned(),
            category: ConnectionCategory::Banking,
            institution_id: HOSTILE.to_owned(),
            institution_name: institution_name.to_owned(),
            institution_logo: Some("https://elsewhere.example/logo.png".to_owned()),
            status,
            last_refreshed_at: None,
            created_at: "2026-11-20T00:00:00Z".parse().unwrap(),
        }
    }

    pub(crate) fn account(connection: &Connection, name: &str) -> Account {
        Account {
            id: AccountId::new(),
            user_id: connection.user_id,
            connection_id: connection.id,
            provider: connection.provider.clone(),
            provider_account_id: HOSTILE.to_owned(),
            name: name.to_owned(),
            account_type: AccountType::Savings,
            institution_name: Some(connection.institution_name.clone()),
            number: MaskedNumber::mask("12345678"),
            currency: Currency::UNKNOWN,
        }
    }

    pub(crate) fn assert_harmless(html: &str) {
        for harmful in ["<script", "onclick='", "elsewhere", "\u{202e}", "\0"] {
            assert!(!html.contains(harmful), "{harmful:?} in {html}");
        }
    }

    fn choice(providers: Vec<Linkable>, connections: Vec<Connection>) -> String {
        let expires_at = "2026-11-20T09:54:00Z".parse().unwrap();
        let email = HOSTILE.trim_start_matches('\u{202e}').trim_end_matches(['\0', '\n']).to_owned();
        let page = LinkPage { email, provider: None, repairs: None, providers, connections, expires_at };
        Choice::new(&Assets::new(""), &page, |name| name.to_uppercase()).render().unwrap()
    }

    #[test]
    fn names_can_be_shown() {
        let shown = |name: &str| institution(&connection(name, ConnectionStatus::Active));
        assert_eq!(shown("Bank of Māori Bay"), "Bank of Māori Bay");
        assert_eq!(shown("\u{202e}abc\n\0"), "abc");
        assert_eq!(shown(" \u{200f} "), "Unnamed institution");
        assert_eq!(shown(&"ā".repeat(81)), format!("{}…", "ā".repeat(80)));
        assert_eq!(shown(&"ā".repeat(80)), "ā".repeat(80));
    }

    #[test]
    fn what_is_broken_can_be_reconnected_and_the_rest_renewed() {
        let provider = Linkable { name: "somebank", title: "SomeBank", reaches: "Some banks" };
        let button = |status| {
            let html = choice(vec![provider], vec![connection(HOSTILE, status)]);
            assert_harmless(&html);
            let rest = html.split_once("name=\"connection\"").expect("a button").1;
            let words = rest.split_once('>').unwrap().1;
            words.split_once('<').unwrap().0.to_owned()
        };
        assert_eq!(button(ConnectionStatus::Active), "Renew");
        for status in [ConnectionStatus::Invalidated, ConnectionStatus::PendingMfa, ConnectionStatus::Revoked] {
            assert_eq!(button(status), "Reconnect");
        }
        let html = choice(Vec::new(), vec![connection("A", ConnectionStatus::Revoked)]);
        assert!(!html.contains("<button") && html.contains("bellbird connection adopt"), "{html}");
    }
}
