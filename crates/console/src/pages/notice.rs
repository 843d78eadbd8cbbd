//! The pages without a choice: what came of a trip to a provider, and what is in the way.

use askama::Template;
use bellbird_connections::{Arrival, Outcome};
use bellbird_domain::{Account, Connection};

use super::{institution, readable};
use crate::assets::Assets;

const OPEN_AGAIN: &str = "To try again, open the address from which you left; it works for half an hour.";

/// How a page is coloured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tone {
    /// It worked.
    Good,
    /// It goes on by itself.
    Waiting,
    /// It did not work.
    Attention,
    /// Neither.
    Neutral,
}

impl Tone {
    fn class(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Waiting => "waiting",
            Self::Attention => "attention",
            Self::Neutral => "neutral",
        }
    }
}

/// What a page says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Notice {
    tone: Tone,
    title: String,
    /// Said before everything else.
    remark: Option<&'static str>,
    connected: Vec<Connected>,
    paragraphs: Vec<String>,
    command: Option<String>,
    has_way_back: bool,
}

/// A connection that is there now.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Connected {
    institution: String,
    /// The title of the provider that reaches it.
    provider: String,
    /// Each with the end of its number, if it has one.
    accounts: Vec<(String, Option<String>)>,
}

#[derive(Template)]
#[template(path = "notice.html")]
pub(crate) struct NoticePage<'a> {
    assets: &'a Assets,
    notice: &'a Notice,
}

impl Notice {
    /// One that says nothing but its title yet.
    pub(crate) fn new(tone: Tone, title: impl Into<String>) -> Self {
        Self {
            tone,
            title: title.into(),
            remark: None,
            connected: Vec::new(),
            paragraphs: Vec::new(),
            command: None,
            has_way_back: false,
        }
    }

    /// With one more paragraph.
    pub(crate) fn with(mut self, paragraph: &str) -> Self {
        self.paragraphs.push(paragraph.to_owned());
        self
    }

    /// With something to copy below the paragraphs.
    pub(crate) fn with_command(self, command: &str) -> Self {
        Self { command: Some(command.to_owned()), ..self }
    }

    /// With a link that opens the same address again.
    pub(crate) fn with_way_back(self) -> Self {
        Self { has_way_back: true, ..self }
    }

    /// As a page.
    pub(crate) fn page<'a>(&'a self, assets: &'a Assets) -> NoticePage<'a> {
        NoticePage { assets, notice: self }
    }

    /// What a browser is told that came back. `title_of` makes a provider's title of its name.
    pub(crate) fn of_arrival(arrival: &Arrival, api_url: &str, title_of: impl Fn(&str) -> String) -> Self {
        match arrival {
            Arrival::Unknown => Self::new(Tone::Attention, "This address does not work")
                .with("It is forged, too old, or not complete. Nothing was changed.")
                .with("If you came from a provider's page, begin again from the address that you were given."),
            Arrival::Pending | Arrival::Used(None) => Self::new(Tone::Waiting, "Not confirmed yet")
                .with("The provider has not confirmed your consent yet. That may take a few minutes.")
                .with("This page looks again every few seconds. You may close it: the work goes on without it."),
            Arrival::Used(Some(outcome)) => Self {
                remark: Some("This address has been used already: nothing was done again. This is what came of it:"),
                ..Self::of_outcome(outcome, (&[], &[]), None, api_url, title_of)
            },
            Arrival::Ended { outcome, connections, accounts, reason } => {
                Self::of_outcome(outcome, (connections, accounts), reason.as_deref(), api_url, title_of)
            }
        }
    }

    fn of_outcome(
        outcome: &Outcome,
        (connections, accounts): (&[Connection], &[Account]),
        reason: Option<&str>,
        api_url: &str,
        title_of: impl Fn(&str) -> String,
    ) -> Self {
        let names: Vec<String> = connections.iter().map(institution).collect();
        let connected = connections.iter().map(|connection| Connected {
            institution: institution(connection),
            provider: title_of(&connection.provider),
            accounts: accounts.iter().filter(|account| account.connection_id == connection.id).map(shown).collect(),
        });
        let notice = match outcome {
            Outcome::Linked => Self::new(Tone::Good, format!("{} connected", are(&names)))
                .with(if accounts.is_empty() && !connections.is_empty() {
                    "You may close this page. The accounts may take a minute to appear; then they are listed by:"
                } else {
                    "You may close this page. Your accounts are listed by:"
                })
                .with_command(&listing(api_url)),
            Outcome::Reconnected => Self::new(Tone::Good, format!("{} connected again", are(&names))).with(
                "You may close this page. Connections and accounts have kept their ids, so whatever uses them goes on.",
            ),
            Outcome::LinkedBeside => Self::new(Tone::Attention, format!("{} connected as something new", are(&names)))
                .with(
                    "You shared none of the accounts of the connection that was to be repaired, so it was left as it was. \
                     To repair it, sign in there as you did at first, and choose the same accounts.",
                )
                .with(OPEN_AGAIN),
            Outcome::Unchanged => Self::new(Tone::Neutral, "Nothing has changed")
                .with("You gave your consent, to nothing that was not connected already. You may close this page."),
            Outcome::Declined => {
                Self::new(Tone::Neutral, "You did not give your consent").with("Nothing was changed.").with(OPEN_AGAIN)
            }
            Outcome::Failed => {
                let why = reason.map(sentence).unwrap_or_else(|| "The provider could not complete it.".to_owned());
                Self::new(Tone::Attention, "That did not work")
                    .with(&why)
                    .with("Nothing was connected.")
                    .with(OPEN_AGAIN)
            }
            Outcome::Taken => Self::new(Tone::Attention, "Connected for somebody else already")
                .with("What you consented to is connected for another user of this service. Nothing was changed.")
                .with("It can be connected for you once it is removed there."),
            Outcome::Expired => Self::new(Tone::Attention, "That took too long")
                .with("The provider knows of no consent of yours, and the time for it is over. Nothing was changed.")
                .with("Ask for a new address, and begin again."),
        };
        Self { connected: connected.collect(), ..notice }
    }
}

fn listing(api_url: &str) -> String {
    format!("GET {}/v1/accounts", api_url.trim_end_matches('/'))
}

fn shown(account: &Account) -> (String, Option<String>) {
    (readable(&account.name), account.number.as_ref().map(|number| number.as_str().to_owned()))
}

/// Who is connected, as the beginning of a sentence.
fn are(names: &[String]) -> String {
    match names {
        [] => "Your accounts are".to_owned(),
        [name] => format!("{name} is"),
        names => format!("{} institutions are", names.len()),
    }
}

/// A text of ours as a sentence: with a capital letter, and a full stop.
fn sentence(text: &str) -> String {
    let mut characters = text.chars();
    let first: String = characters.next().into_iter().flat_map(char::to_uppercase).collect();
    let stop = if text.ends_with(['.', '!', '?']) { "" } else { "." };
    format!("{first}{}{stop}", characters.as_str())
}

#[cfg(test)]
mod tests {
    use bellbird_domain::ConnectionStatus;

    use super::super::tests::{HOSTILE, account, assert_harmless, connection};
    use super::*;

    fn notice(arrival: &Arrival) -> Notice {
        Notice::of_arrival(arrival, "http://127.0.0.1:8080/", str::to_uppercase)
    }

    fn ended(outcome: Outcome, names: &[&str], reason: Option<&str>) -> Notice {
        let connections: Vec<Connection> =
            names.iter().map(|name| connection(name, ConnectionStatus::Active)).collect();
        let accounts = connections.iter().map(|connection| account(connection, HOSTILE)).collect();
        notice(&Arrival::Ended { outcome, connections, accounts, reason: reason.map(str::to_owned) })
    }

    #[test]
    fn every_outcome_has_its_title() {
        let titles = [
            (Outcome::Linked, &["A"][..], "A is connected"),
            (Outcome::Linked, &["A", "B"], "2 institutions are connected"),
            (Outcome::Reconnected, &["A"], "A is connected again"),
            (Outcome::LinkedBeside, &["A"], "A is connected as something new"),
            (Outcome::Unchanged, &[], "Nothing has changed"),
            (Outcome::Declined, &[], "You did not give your consent"),
            (Outcome::Failed, &[], "That did not work"),
            (Outcome::Taken, &[], "Connected for somebody else already"),
            (Outcome::Expired, &[], "That took too long"),
        ];
        for (outcome, names, title) in titles {
            assert_eq!(ended(outcome, names, None).title, title);
        }
        assert_eq!(notice(&Arrival::Used(None)), notice(&Arrival::Pending));
        assert_eq!(
            ended(Outcome::Linked, &["A"], None).command.as_deref(),
            Some("GET http://127.0.0.1:8080/v1/accounts")
        );
    }

    #[test]
    fn what_was_used_says_so_and_what_came_of_it() {
        let used = notice(&Arrival::Used(Some(Outcome::Reconnected)));
        assert_eq!(used.title, "Your accounts are connected again");
        assert!(used.remark.is_some_and(|remark| remark.contains("nothing was done again")));
    }

    #[test]
    fn a_reason_is_a_sentence() {
        assert_eq!(sentence("the bank is away: try later"), "The bank is away: try later.");
        assert_eq!(sentence("The bank is away."), "The bank is away.");
        assert_eq!(sentence(""), ".");
        assert_eq!(ended(Outcome::Failed, &[], Some("no luck")).paragraphs[0], "No luck.");
    }

    #[test]
    fn nothing_from_elsewhere_becomes_html() {
        let assets = Assets::new("");
        for notice in [
            ended(Outcome::Linked, &[HOSTILE], None),
            ended(Outcome::Reconnected, &[HOSTILE, HOSTILE], None),
            ended(Outcome::Failed, &[], Some("<script>alert(1)</script>")),
        ] {
            let html = notice.page(&assets).render().unwrap();
            assert_harmless(&html);
            assert!(html.contains("alert(1)"), "{html}");
        }
    }
}
