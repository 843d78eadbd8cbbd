//! The page of a link URL: providers to choose from, banks to renew, reconnect or remove, and
//! sessions to confirm. A link for one provider or one connection offers nothing else.

use askama::Template;
use bellbird_connections::{LinkPage, LinkableProvider};
use bellbird_domain::Connection;
use jiff::Timestamp;

use super::bank::{BankRow, BankRows};
use super::bank_names::BankNames;
use super::bank_trouble::is_linkable;
use super::frame::Frame;
use super::institution::ImageOrigins;
use super::local_time::LocalTime;

#[derive(Template)]
#[template(path = "choice.html")]
pub(crate) struct Choice<'a> {
    frame: &'a Frame,
    page: &'a LinkPage,
    zone: LocalTime,
    providers: Vec<&'a LinkableProvider>,
    /// What could be linked here with another plan.
    not_in_plan: Vec<&'a LinkableProvider>,
    /// Those that have to be reconnected.
    broken: Vec<BankRow>,
    working: Vec<BankRow>,
}

impl<'a> Choice<'a> {
    pub(crate) fn new(frame: &'a Frame, page: &'a LinkPage, now: Timestamp) -> Self {
        let is_allowed = |provider: &&LinkableProvider| {
            page.provider
                .as_deref()
                .is_none_or(|allowed| allowed == provider.name)
        };
        let is_in_plan = |connection: &Connection| !is_linkable(connection, &page.not_in_plan);
        let rows = BankRows {
            frame,
            zone: LocalTime::of(page.timezone.as_deref(), now),
            linkable: &page.providers,
            is_in_plan: &is_in_plan,
        };
        let shown = page
            .repair_target
            .iter()
            .chain(&page.connections)
            .filter(|_| !page.is_used_up);
        let (broken, working) = BankRow::list(shown, &rows)
            .into_iter()
            .partition(|row| row.is_broken);
        Self {
            frame,
            page,
            providers: page.providers.iter().filter(is_allowed).collect(),
            not_in_plan: page.not_in_plan.iter().filter(is_allowed).collect(),
            broken,
            working,
            zone: rows.zone,
        }
    }

    /// Whether the page changes by itself soon.
    pub(crate) fn awaits_provider(&self) -> bool {
        let mut unfinished = self.page.unfinished.iter();
        unfinished.any(|session| session.is_confirmed)
    }

    pub(crate) fn image_origins(&self) -> ImageOrigins {
        let rows = self.broken.iter().chain(&self.working);
        ImageOrigins::of(rows.map(|row| &row.institution))
    }
}

#[cfg(test)]
mod tests {
    use bellbird_connections::{LinkedConnection, UnfinishedSession};
    use bellbird_domain::{ConnectionCategory, ConnectionStatus};
    use bellbird_providers::registry::PROVIDERS;
    use uuid::Uuid;

    use super::*;
    use crate::pages::fixtures::{HOSTILE, account, assert_harmless, connection};

    const PROVIDER: LinkableProvider = LinkableProvider {
        is_sandbox: false,
        name: "somebank",
        title: "SomeBank",
        reaches: "Some banks",
        category: ConnectionCategory::Banking,
    };

    fn page(providers: Vec<LinkableProvider>, connections: Vec<Connection>) -> LinkPage {
        let linked = |connection| LinkedConnection {
            connection,
            accounts: Vec::new(),
        };
        LinkPage {
            email: HOSTILE
                .trim_start_matches('\u{202e}')
                .trim_end_matches(['\0', '\n'])
                .to_owned(),
            timezone: None,
            provider: None,
            repair_target: None,
            providers,
            not_in_plan: vec![],
            connections: connections.into_iter().map(linked).collect(),
            unfinished: vec![],
            is_used_up: false,
            app_return: None,
            expires_at: "2026-11-20T09:54:00Z".parse().unwrap(),
        }
    }

    fn shown(page: &LinkPage) -> String {
        choice(&Frame::default(), page).render().unwrap()
    }

    fn choice<'a>(frame: &'a Frame, page: &'a LinkPage) -> Choice<'a> {
        let now = "2026-11-20T09:24:00Z".parse().unwrap();
        Choice::new(frame, page, now)
    }

    /// Name and label of each button.
    fn buttons(html: &str) -> Vec<(&str, &str)> {
        html.split("<button")
            .skip(1)
            .map(|button| {
                let name = button
                    .split_once("name=\"")
                    .unwrap()
                    .1
                    .split_once('"')
                    .unwrap()
                    .0;
                (
                    name,
                    button
                        .split_once('>')
                        .unwrap()
                        .1
                        .split_once('<')
                        .unwrap()
                        .0
                        .trim(),
                )
            })
            .collect()
    }

    #[test]
    fn restricted_link_offers_nothing_else() {
        let other = LinkableProvider {
            name: "other",
            ..PROVIDER
        };
        let mut page = page(vec![PROVIDER, other], Vec::new());
        page.provider = Some("somebank".to_owned());
        let html = shown(&page);
        assert_eq!(buttons(&html).len(), 1, "{html}");
        assert!(
            html.contains(r#"name="provider" value="somebank""#),
            "{html}"
        );
        let repaired = LinkedConnection {
            connection: connection("B", ConnectionStatus::Revoked),
            accounts: vec![],
        };
        page.repair_target = Some(repaired);
        let html = shown(&page);
        assert_eq!(
            buttons(&html),
            [("remove", "Remove"), ("connection", "Reconnect")]
        );
        assert!(html.contains("<bdi>B</bdi></strong>"), "{html}");
        let started_at = "2026-11-20T09:24:00Z".parse().unwrap();
        page.unfinished = vec![UnfinishedSession {
            id: Uuid::nil(),
            provider: PROVIDERS[0].name.as_str().to_owned(),
            started_at,
            is_confirmed: false,
            repaired: None,
        }];
        let html = shown(&page);
        assert!(
            html.contains("name=\"session\"") && html.contains("20:24 Sydney time"),
            "{html}"
        );
        page.is_used_up = true;
        let html = shown(&page);
        assert_eq!(buttons(&html), [("session", "I gave my consent")], "{html}");
        assert!(html.contains("used up"), "{html}");
        page.unfinished[0].is_confirmed = true;
        let html = shown(&page);
        let waiting = format!("Waiting for {}", PROVIDERS[0].title);
        assert!(
            buttons(&html).is_empty() && html.contains(&waiting),
            "{html}"
        );
        page.unfinished[0].repaired = Some(connection("B", ConnectionStatus::Revoked));
        let html = shown(&page);
        let waiting = format!("Waiting for <bdi>B</bdi>, through {}", PROVIDERS[0].title);
        assert!(html.contains(&waiting), "{html}");
    }

    #[test]
    fn plan_that_reads_nothing_is_named_once() {
        let mut page = page(vec![PROVIDER], Vec::new());
        page.not_in_plan = vec![PROVIDER; 2];
        assert_eq!(shown(&page).matches("for another plan").count(), 2);
        page.providers.clear();
        let html = shown(&page);
        assert_eq!(html.matches("for another plan").count(), 1, "{html}");
        assert!(html.contains("Your plan reads nothing that can be linked here."));
    }

    #[test]
    fn broken_connections_come_first_and_are_prominent() {
        let shown_with = |status| {
            let html = shown(&page(vec![PROVIDER], vec![connection(HOSTILE, status)]));
            assert_harmless(&html);
            html
        };
        let html = shown_with(ConnectionStatus::Active);
        assert_eq!(
            buttons(&html)[1..],
            [("connection", "Renew"), ("remove", "Remove")]
        );
        assert!(
            html.contains("<h2>Linked</h2>")
                && html.contains("class=\"quiet\" name=\"connection\""),
            "{html}"
        );
        for status in [
            ConnectionStatus::Invalidated,
            ConnectionStatus::PendingMfa,
            ConnectionStatus::Revoked,
        ] {
            let html = shown_with(status);
            assert_eq!(
                buttons(&html)[..2],
                [("remove", "Remove"), ("connection", "Reconnect")]
            );
            assert!(
                !html.contains("<h2>Linked</h2>")
                    && html.contains("class=\"strong\" name=\"connection\"")
            );
        }
        let html = shown(&page(
            Vec::new(),
            vec![connection("A", ConnectionStatus::Revoked)],
        ));
        assert!(
            !html.contains("name=\"connection\"") && html.contains("Ask the operator"),
            "{html}"
        );
        assert!(!html.contains("bellbird connection"), "{html}");
    }

    #[test]
    fn end_of_a_consent_is_shown_while_it_works() {
        let mut page = page(
            vec![PROVIDER],
            vec![connection("A", ConnectionStatus::Active)],
        );
        assert!(!shown(&page).contains("Your consent ends"), "unknown");
        page.connections[0].connection.consent_expires_at =
            Some("2027-02-01T13:40:00Z".parse().unwrap());
        let html = shown(&page);
        assert!(
            html.contains(
                "<time datetime=\"2027-02-01T13:40:00Z\">2 Feb 2027, 00:40 Sydney time</time>"
            ),
            "{html}"
        );
        page.timezone = Some("Pacific/Auckland".to_owned());
        assert!(shown(&page).contains(">2 Feb 2027, 02:40 Auckland time<"));
        for status in [ConnectionStatus::Invalidated, ConnectionStatus::Revoked] {
            page.connections[0].connection.status = status;
            assert!(!shown(&page).contains("Your consent ends"), "{status}");
        }
        page.connections[0].connection.status = ConnectionStatus::Active;
        page.repair_target = page.connections.pop();
        let html = shown(&page);
        assert!(
            html.contains(">2 Feb 2027, 02:40 Auckland time<") && html.contains("<details open>"),
            "the link is for this bank: {html}"
        );
    }

    #[test]
    fn consent_that_ends_soon_is_renewed_with_one_press() {
        let mut page = page(
            vec![PROVIDER],
            vec![
                connection("Fine", ConnectionStatus::Active),
                connection("Ending", ConnectionStatus::Active),
            ],
        );
        page.connections[1].connection.consent_expires_at =
            Some("2026-11-25T10:00:00Z".parse().unwrap());
        let html = shown(&page);
        let (ending, fine) = (html.find(">Ending<"), html.find(">Fine<"));
        assert!(ending < fine, "{html}");
        let row = html.split("</details>").nth(1).unwrap();
        assert!(
            html.contains("Consent ends in 5 days") && row.contains(">Renew<"),
            "{html}"
        );
    }

    #[test]
    fn accounts_distinguish_banks_of_one_name() {
        let linked = |name: &str, accounts: &[&str]| {
            let connection = connection(name, ConnectionStatus::Active);
            let accounts = accounts.iter().map(|name| account(&connection, name));
            LinkedConnection {
                accounts: accounts.collect(),
                connection,
            }
        };
        let mut page = page(vec![PROVIDER], vec![]);
        page.connections = vec![
            linked("A", &["One", "Two", "Three"]),
            linked("B", &["Five", "Six"]),
            linked("A", &["Four"]),
        ];
        let html = shown(&page);
        let lines: Vec<_> = html
            .split("<span class=\"holds\"><bdi>")
            .skip(1)
            .map(|line| line.split('<').next().unwrap())
            .collect();
        assert_eq!(
            lines,
            ["One xxxx5678 and 2 more", "Four xxxx5678", "2 accounts"]
        );
        for words in [
            "<bdi>Two</bdi>",
            "<bdi>Six</bdi>",
            " A, One xxxx5678</span>",
        ] {
            assert!(html.contains(words), "no {words:?} in {html}");
        }
    }

    #[test]
    fn logo_needs_its_origin_in_the_policy() {
        let frame = Frame::default();
        let mut hostile = connection("B", ConnectionStatus::Revoked);
        hostile.institution_logo = Some("javascript:alert(1)".to_owned());
        let page = page(
            vec![PROVIDER],
            vec![connection("ā bank", ConnectionStatus::Active), hostile],
        );
        let choice = choice(&frame, &page);
        assert_eq!(
            choice.image_origins().0.into_iter().collect::<Vec<_>>(),
            ["https://logos.example"]
        );
        let html = choice.render().unwrap();
        assert_eq!(
            html.matches("referrerpolicy=\"no-referrer\"").count(),
            1,
            "{html}"
        );
        assert!(
            html.contains("<span>Ā</span>") && html.contains("<span>B</span>"),
            "{html}"
        );
        assert!(!html.contains("javascript:"), "{html}");
    }
}
