//! The page of a link URL: providers to choose from, connections to renew, reconnect or remove, and
//! sessions to confirm. A link for one provider or one connection offers nothing else.

use askama::Template;
use bellbird_connections::{AppReturn, LinkPage, LinkableProvider, LinkedConnection};
use bellbird_domain::ConnectionStatus;

use super::frame::Frame;
use super::institution::{AccountRow, ImageOrigins, Institution, UNFOLDED_MAX, account_rows};
use super::local_time::LocalTime;

#[derive(Template)]
#[template(path = "choice.html")]
pub(crate) struct Choice<'a> {
    frame: &'a Frame,
    email: &'a str,
    /// Whether the link is for one connection.
    is_repair: bool,
    offers_providers: bool,
    can_remove: bool,
    providers: Vec<&'a LinkableProvider>,
    /// What could be linked here with another plan.
    not_in_plan: Vec<&'a LinkableProvider>,
    /// Connections that have to be reconnected.
    broken: Vec<ConnectionRow>,
    working: Vec<ConnectionRow>,
    unfinished: Vec<UnfinishedRow>,
    is_used_up: bool,
    app_return: Option<&'a AppReturn>,
    /// As the page shows it, and in RFC 3339 for the `datetime` attribute.
    expires: (String, String),
}

struct ConnectionRow {
    id: String,
    institution: Institution,
    provider: String,
    /// The day on which the user linked it.
    since: String,
    is_active: bool,
    status_text: &'static str,
    /// When the consent ends, in the forms of [`Choice::expires`]. None if it is unknown, or the
    /// consent is broken.
    consent_end: Option<(String, String)>,
    /// The first account, if the others are folded behind it.
    folded_behind: Option<AccountRow>,
    accounts: Vec<AccountRow>,
    more_accounts: usize,
    /// What distinguishes its buttons for a screen reader: institution and first account.
    label: String,
    /// Whether its provider has a consent page and is configured.
    can_reconnect: bool,
    renew_class: &'static str,
}

struct UnfinishedRow {
    id: String,
    provider: String,
    started: String,
    /// Whether it waits for the provider, and not for the user.
    is_confirmed: bool,
}

impl<'a> Choice<'a> {
    /// `title_of` maps the name of a provider to its title.
    pub(crate) fn new(
        frame: &'a Frame,
        page: &'a LinkPage,
        title_of: impl Fn(&str) -> String,
    ) -> Self {
        let is_repair = page.repair_target.is_some();
        let is_allowed = |provider: &&LinkableProvider| {
            page.provider
                .as_deref()
                .is_none_or(|allowed| allowed == provider.name)
        };
        let local_time = LocalTime::of(page.timezone.as_deref());
        let row = |linked: &LinkedConnection| {
            let connection = &linked.connection;
            let is_active = connection.status == ConnectionStatus::Active;
            let institution = Institution::of(connection, frame);
            let is_folded = is_active && !is_repair && linked.accounts.len() > 1;
            let accounts_max = if is_folded { usize::MAX } else { UNFOLDED_MAX };
            let (mut accounts, more_accounts) = account_rows(linked, accounts_max);
            let label = label(&institution, accounts.first());
            ConnectionRow {
                id: connection.id.to_string(),
                provider: title_of(&connection.provider),
                since: local_time.day(connection.created_at),
                is_active,
                status_text: status_text(connection.status),
                consent_end: connection
                    .consent_expires_at
                    .filter(|_| is_active)
                    .map(|at| {
                        (
                            format!("{} at {}", local_time.day(at), local_time.time(at)),
                            at.to_string(),
                        )
                    }),
                label,
                folded_behind: is_folded.then(|| accounts.remove(0)),
                can_reconnect: page
                    .providers
                    .iter()
                    .any(|provider| provider.name == connection.provider),
                renew_class: if is_active && !is_repair {
                    "minor"
                } else {
                    "strong"
                },
                institution,
                accounts,
                more_accounts,
            }
        };
        let shown = page
            .repair_target
            .iter()
            .chain(&page.connections)
            .filter(|_| !page.is_used_up);
        let (working, broken) = shown
            .map(row)
            .partition(|row: &ConnectionRow| row.is_active);
        let unfinished = page.unfinished.iter().map(|session| UnfinishedRow {
            id: session.id.to_string(),
            provider: title_of(&session.provider),
            started: local_time.time(session.started_at),
            is_confirmed: session.is_confirmed,
        });
        Self {
            frame,
            email: &page.email,
            is_repair,
            offers_providers: !is_repair && !page.is_used_up,
            can_remove: is_repair || page.provider.is_none(),
            providers: page.providers.iter().filter(is_allowed).collect(),
            not_in_plan: page.not_in_plan.iter().filter(is_allowed).collect(),
            broken,
            working,
            unfinished: unfinished.collect(),
            is_used_up: page.is_used_up,
            app_return: page.app_return.as_ref(),
            expires: (
                local_time.time(page.expires_at),
                page.expires_at.to_string(),
            ),
        }
    }

    /// Whether the page changes by itself soon.
    pub(crate) fn awaits_provider(&self) -> bool {
        self.unfinished.iter().any(|session| session.is_confirmed)
    }

    pub(crate) fn image_origins(&self) -> ImageOrigins {
        ImageOrigins::of(
            self.broken
                .iter()
                .chain(&self.working)
                .map(|row| &row.institution),
        )
    }
}

fn label(institution: &Institution, account: Option<&AccountRow>) -> String {
    let account = account.map(|account| match &account.number {
        Some(number) => format!(", {} {number}", account.name),
        None => format!(", {}", account.name),
    });
    format!("{}{}", institution.name, account.unwrap_or_default())
}

pub(crate) fn status_text(status: ConnectionStatus) -> &'static str {
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
    use bellbird_connections::UnfinishedSession;
    use bellbird_domain::{Connection, ConnectionCategory};
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
        Choice::new(&Frame::default(), page, str::to_uppercase)
            .render()
            .unwrap()
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
            [("connection", "Reconnect"), ("remove", "Remove")]
        );
        assert!(html.contains("<strong><bdi>B</bdi></strong>"), "{html}");
        let started_at = "2026-11-20T09:24:00Z".parse().unwrap();
        page.unfinished = vec![UnfinishedSession {
            id: Uuid::nil(),
            provider: "somebank".to_owned(),
            started_at,
            is_confirmed: false,
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
        assert!(
            buttons(&html).is_empty() && html.contains("Waiting for SOMEBANK"),
            "{html}"
        );
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
            html.contains("<h2>Connected</h2>")
                && html.contains("class=\"minor\" name=\"connection\""),
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
                [("connection", "Reconnect"), ("remove", "Remove")]
            );
            assert!(
                !html.contains("<h2>Connected</h2>")
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
        let end =
            "<time datetime=\"2027-02-01T13:40:00Z\">2 February 2027 at 00:40 Sydney time</time>";
        assert!(
            html.contains(&format!("Your consent ends on {end}.")),
            "{html}"
        );
        page.timezone = Some("Pacific/Auckland".to_owned());
        assert!(shown(&page).contains(">2 February 2027 at 02:40 Auckland time<"));
        for status in [ConnectionStatus::Invalidated, ConnectionStatus::Revoked] {
            page.connections[0].connection.status = status;
            assert!(!shown(&page).contains("Your consent ends"), "{status}");
        }
        page.connections[0].connection.status = ConnectionStatus::Active;
        page.repair_target = page.connections.pop();
        assert!(
            shown(&page).contains(">2 February 2027 at 02:40 Auckland time<"),
            "the link is for this connection"
        );
    }

    #[test]
    fn accounts_distinguish_connections() {
        let mut page = page(
            vec![PROVIDER],
            vec![connection("A", ConnectionStatus::Active)],
        );
        let linked = &mut page.connections[0];
        linked.accounts = ["One", "Two", "Three", "Four", "Five"]
            .map(|name| account(&linked.connection, name))
            .into();
        let html = shown(&page);
        let (summary, folded) = html.split_once("</summary>").unwrap();
        let summary = summary.split_once("<summary>").unwrap().1;
        assert!(
            ["One", "xxxx5678", "and 4 more"]
                .iter()
                .all(|words| summary.contains(words)),
            "{summary}"
        );
        for words in ["Two", "Five", " A, One xxxx5678</span>"] {
            assert!(folded.contains(words), "no {words:?} in {html}");
        }
        // Those of a connection that needs attention are open.
        page.connections[0].connection.status = ConnectionStatus::Revoked;
        let html = shown(&page);
        for words in ["One", "Three", "and 2 more"] {
            assert!(html.contains(words), "no {words:?} in {html}");
        }
        assert!(
            !html.contains("<details>") && !html.contains("Four"),
            "{html}"
        );
        // One account has nothing to fold.
        page.connections[0].connection.status = ConnectionStatus::Active;
        page.connections[0].accounts.truncate(1);
        assert!(!shown(&page).contains("<details>"));
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
        let choice = Choice::new(&frame, &page, str::to_uppercase);
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
