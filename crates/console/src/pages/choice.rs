//! The page of a link URL: providers to choose from, connections to renew or reconnect, and sessions to confirm. A link
//! for one provider or one connection offers nothing else.

use askama::Template;
use bellbird_connections::{LinkPage, LinkableProvider};
use bellbird_domain::{Connection, ConnectionStatus};

use super::names::institution_name;
use crate::assets::Assets;

#[derive(Template)]
#[template(path = "choice.html")]
pub(crate) struct Choice<'a> {
    assets: &'a Assets,
    email: &'a str,
    /// Whether the link is for one connection.
    is_repair: bool,
    providers: Vec<&'a LinkableProvider>,
    connections: Vec<ConnectionRow>,
    unconfirmed: Vec<UnconfirmedRow>,
    /// As the page shows it, and in RFC 3339 for the `datetime` attribute.
    expires: (String, String),
}

struct ConnectionRow {
    id: String,
    name: String,
    provider: String,
    /// The day on which the user linked it.
    since: String,
    is_active: bool,
    status_text: &'static str,
    /// Whether its provider has a consent page and is configured.
    can_reconnect: bool,
}

struct UnconfirmedRow {
    id: String,
    provider: String,
    started: String,
}

impl<'a> Choice<'a> {
    /// `title_of` maps the name of a provider to its title.
    pub(crate) fn new(assets: &'a Assets, page: &'a LinkPage, title_of: impl Fn(&str) -> String) -> Self {
        let is_repair = page.repair_target.is_some();
        let is_offered = |provider: &&LinkableProvider| {
            !is_repair && page.provider.as_deref().is_none_or(|allowed| allowed == provider.name)
        };
        let shown: &[Connection] = match (&page.repair_target, &page.provider) {
            (Some(target), _) => std::slice::from_ref(target),
            (None, Some(_)) => &[],
            (None, None) => &page.connections,
        };
        let connections = shown.iter().map(|connection| ConnectionRow {
            id: connection.id.to_string(),
            name: institution_name(connection),
            provider: title_of(&connection.provider),
            since: connection.created_at.strftime("%-d %B %Y").to_string(),
            is_active: connection.status == ConnectionStatus::Active,
            status_text: status_text(connection.status),
            can_reconnect: page.providers.iter().any(|provider| provider.name == connection.provider),
        });
        let unconfirmed = page.unconfirmed.iter().map(|session| UnconfirmedRow {
            id: session.id.to_string(),
            provider: title_of(&session.provider),
            started: session.started_at.strftime("%H:%M UTC").to_string(),
        });
        let expires = (page.expires_at.strftime("%H:%M UTC").to_string(), page.expires_at.to_string());
        Self {
            assets,
            email: &page.email,
            is_repair,
            providers: page.providers.iter().filter(is_offered).collect(),
            connections: connections.collect(),
            unconfirmed: unconfirmed.collect(),
            expires,
        }
    }
}

fn status_text(status: ConnectionStatus) -> &'static str {
    match status {
        ConnectionStatus::Active => "Connected",
        ConnectionStatus::Invalidated => "Your consent has expired",
        ConnectionStatus::PendingMfa => "Your institution asks you to confirm your sign-in",
        ConnectionStatus::Revoked => "Your consent was withdrawn",
        ConnectionStatus::Deleting => "Being removed",
    }
}

#[cfg(test)]
mod tests {
    use bellbird_connections::UnconfirmedSession;

    use super::*;
    use crate::pages::fixtures::{HOSTILE, assert_harmless, connection};

    fn choice(providers: Vec<LinkableProvider>, connections: Vec<Connection>) -> String {
        let expires_at = "2026-11-20T09:54:00Z".parse().unwrap();
        let email = HOSTILE.trim_start_matches('\u{202e}').trim_end_matches(['\0', '\n']).to_owned();
        let unconfirmed = vec![];
        let page =
            LinkPage { email, provider: None, repair_target: None, providers, connections, unconfirmed, expires_at };
        Choice::new(&Assets::new(""), &page, |name| name.to_uppercase()).render().unwrap()
    }

    #[test]
    fn restricted_link_offers_one_button() {
        let provider = |name| LinkableProvider { name, title: "SomeBank", reaches: "Some banks" };
        let mut page = LinkPage {
            email: "emma@example.com".to_owned(),
            provider: Some("somebank".to_owned()),
            repair_target: None,
            providers: vec![provider("somebank"), provider("other")],
            connections: vec![connection("A", ConnectionStatus::Active)],
            unconfirmed: vec![],
            expires_at: "2026-11-20T09:54:00Z".parse().unwrap(),
        };
        let shown = |page: &LinkPage| Choice::new(&Assets::new(""), page, str::to_uppercase).render().unwrap();
        let html = shown(&page);
        assert_eq!(html.matches("<button").count(), 1, "{html}");
        assert!(html.contains(r#"name="provider" value="somebank""#), "{html}");
        page.provider = Some("somebank".to_owned());
        page.repair_target = Some(connection("B", ConnectionStatus::Revoked));
        let html = shown(&page);
        assert_eq!(html.matches("<button").count(), 1, "{html}");
        assert!(html.contains("name=\"connection\"") && html.contains("<strong><bdi>B</bdi></strong>"), "{html}");
        let started_at = "2026-11-20T09:24:00Z".parse().unwrap();
        page.unconfirmed =
            vec![UnconfirmedSession { id: uuid::Uuid::nil(), provider: "somebank".to_owned(), started_at }];
        let html = shown(&page);
        assert!(html.contains("name=\"session\"") && html.contains("09:24 UTC"), "{html}");
    }

    #[test]
    fn broken_connections_reconnect_and_active_ones_renew() {
        let provider = LinkableProvider { name: "somebank", title: "SomeBank", reaches: "Some banks" };
        let button = |status| {
            let html = choice(vec![provider], vec![connection(HOSTILE, status)]);
            assert_harmless(&html);
            let rest = html.split_once("name=\"connection\"").expect("a button").1;
            let label = rest.split_once('>').unwrap().1;
            label.split_once('<').unwrap().0.to_owned()
        };
        assert_eq!(button(ConnectionStatus::Active), "Renew");
        for status in [ConnectionStatus::Invalidated, ConnectionStatus::PendingMfa, ConnectionStatus::Revoked] {
            assert_eq!(button(status), "Reconnect");
        }
        let html = choice(Vec::new(), vec![connection("A", ConnectionStatus::Revoked)]);
        assert!(!html.contains("<button") && html.contains("bellbird connection import"), "{html}");
    }
}
