//! The pages with a message: the outcome of a link session, and errors.

use askama::Template;
use bellbird_connections::{CallbackOutcome, HandledCallback, LinkOutcome};
use bellbird_domain::{Account, Connection};

use super::names::{institution_name, sanitized};
use crate::assets::Assets;

const TRY_AGAIN: &str = "To try again, open your link again. It works for half an hour after it was created.";

/// The colour of the page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tone {
    /// Success.
    Good,
    /// In progress, or worth trying again.
    Waiting,
    /// Failure.
    Attention,
    /// Nothing happened.
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

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Notice {
    tone: Tone,
    title: String,
    /// The user whose accounts they become.
    email: Option<String>,
    /// Whether the page asks for an answer, yes or no.
    asks: bool,
    /// Whether the user who gave the consent can deny it.
    can_deny: bool,
    /// Shown above the title.
    remark: Option<&'static str>,
    connected: Vec<Connected>,
    paragraphs: Vec<String>,
    command: Option<String>,
    has_retry_link: bool,
}

/// A connection of the outcome, with its accounts.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Connected {
    institution: String,
    /// The provider's title.
    provider: String,
    /// Names and masked numbers.
    accounts: Vec<(String, Option<String>)>,
}

#[derive(Template)]
#[template(path = "notice.html")]
pub(crate) struct NoticePage<'a> {
    assets: &'a Assets,
    notice: &'a Notice,
}

impl Notice {
    pub(crate) fn new(tone: Tone, title: impl Into<String>) -> Self {
        Self {
            tone,
            title: title.into(),
            email: None,
            asks: false,
            can_deny: false,
            remark: None,
            connected: Vec::new(),
            paragraphs: Vec::new(),
            command: None,
            has_retry_link: false,
        }
    }

    pub(crate) fn with(mut self, paragraph: &str) -> Self {
        self.paragraphs.push(paragraph.to_owned());
        self
    }

    /// Adds text to copy below the paragraphs.
    pub(crate) fn with_command(self, command: &str) -> Self {
        Self { command: Some(command.to_owned()), ..self }
    }

    /// Adds a link that reloads the page.
    pub(crate) fn with_retry_link(self) -> Self {
        Self { has_retry_link: true, ..self }
    }

    pub(crate) fn page<'a>(&'a self, assets: &'a Assets) -> NoticePage<'a> {
        NoticePage { assets, notice: self }
    }

    /// The page after consent. `title_of` maps the name of a provider to its title.
    pub(crate) fn for_callback(callback: &HandledCallback, api_url: &str, title_of: impl Fn(&str) -> String) -> Self {
        let HandledCallback { email, can_deny, outcome } = callback;
        let notice = Self::for_callback_outcome(outcome, api_url, title_of);
        Self { email: (!email.is_empty()).then(|| sanitized(email)), can_deny: *can_deny, ..notice }
    }

    fn for_callback_outcome(callback: &CallbackOutcome, api_url: &str, title_of: impl Fn(&str) -> String) -> Self {
        match callback {
            CallbackOutcome::NeedsAnswer { provider, is_urgent } => Self::for_question(&title_of(provider), *is_urgent),
            CallbackOutcome::UnknownState => Self::new(Tone::Attention, "This link does not work")
                .with("It is forged, too old, or incomplete. Nothing was changed.")
                .with("If you came from a provider's page, start again with the link that you were given."),
            CallbackOutcome::Pending | CallbackOutcome::AlreadyUsed(None) => Self::new(
                Tone::Waiting,
                "Not confirmed yet",
            )
            .with("The provider has not confirmed your consent yet. This can take a few minutes.")
            .with("This page checks again every few seconds. You can close it. Linking continues in the background."),
            CallbackOutcome::AlreadyUsed(Some(outcome)) => Self {
                remark: Some("This link was used already, and nothing was done again. This was the result:"),
                ..Self::for_outcome(outcome, (&[], &[]), None, api_url, title_of)
            },
            CallbackOutcome::Finished { outcome, connections, accounts, reason } => {
                Self::for_outcome(outcome, (connections, accounts), *reason, api_url, title_of)
            }
        }
    }

    fn for_question(provider: &str, is_urgent: bool) -> Self {
        let question = Self::new(Tone::Waiting, "Is that you?").with(&format!(
            "You gave this user access to your accounts, through {provider}. Linking started in another \
                            browser, so please confirm that it was you. This page connects nothing before you answer."
        ));
        let question = if is_urgent {
            question.with(
                "Please answer within a minute. After that, the consent can no longer be used: start again with your \
                 link.",
            )
        } else {
            question
        };
        let question = question.with("If you do not know this user, answer no. Your consent is then withdrawn.");
        Self { asks: true, ..question }
    }

    fn for_outcome(
        outcome: &LinkOutcome,
        (connections, accounts): (&[Connection], &[Account]),
        reason: Option<&str>,
        api_url: &str,
        title_of: impl Fn(&str) -> String,
    ) -> Self {
        let names: Vec<String> = connections.iter().map(institution_name).collect();
        let connected = connections.iter().map(|connection| Connected {
            institution: institution_name(connection),
            provider: title_of(&connection.provider),
            accounts: accounts
                .iter()
                .filter(|account| account.connection_id == connection.id)
                .map(account_row)
                .collect(),
        });
        let notice = match outcome {
            LinkOutcome::Linked => Self::new(Tone::Good, format!("{} connected", subject(&names)))
                .with(if accounts.is_empty() && !connections.is_empty() {
                    "You can close this page. The accounts can take a minute to appear. Then this request lists them:"
                } else {
                    "You can close this page. This request lists your accounts:"
                })
                .with_command(&accounts_request(api_url)),
            LinkOutcome::Reconnected => Self::new(Tone::Good, format!("{} connected again", subject(&names))).with(
                "You can close this page. Connections and accounts keep their ids, so your applications still work.",
            ),
            LinkOutcome::LinkedOther => Self::new(
                Tone::Attention,
                format!("{} connected separately", subject(&names)),
            )
            .with(
                "You shared none of the accounts of the connection that you wanted to reconnect, so that connection \
                 has not changed. To reconnect it, sign in with the same login and choose the same accounts.",
            )
            .with(TRY_AGAIN),
            LinkOutcome::Unchanged => Self::new(Tone::Neutral, "Nothing has changed")
                .with("Everything that you consented to was already connected. You can close this page."),
            LinkOutcome::Declined => {
                Self::new(Tone::Neutral, "You did not give your consent").with("Nothing was changed.").with(TRY_AGAIN)
            }
            LinkOutcome::Failed => {
                let why = reason.map(sentence).unwrap_or_else(|| "The provider could not complete it.".to_owned());
                Self::new(Tone::Attention, "That did not work")
                    .with(&why)
                    .with("Nothing was connected.")
                    .with(TRY_AGAIN)
            }
            LinkOutcome::OwnedByOtherUser => Self::new(Tone::Attention, "Already connected by another user")
                .with("Another user of this service has connected these accounts. Nothing was changed.")
                .with("You can connect them after that user removes the connection."),
            LinkOutcome::Withdrawn => Self::new(Tone::Neutral, "Nothing is connected")
                .with("This user has no access to your accounts. Your consent is withdrawn at the provider.")
                .with("You said that it was not you, or the consent was not confirmed in time."),
            LinkOutcome::Expired => Self::new(Tone::Attention, "That took too long")
                .with("The provider did not report your consent in time. Nothing was changed.")
                .with("Ask for a new link, and start again."),
        };
        Self { connected: connected.collect(), ..notice }
    }
}

fn accounts_request(api_url: &str) -> String {
    format!("GET {}/v1/accounts", api_url.trim_end_matches('/'))
}

fn account_row(account: &Account) -> (String, Option<String>) {
    (sanitized(&account.name), account.number.as_ref().map(|number| number.as_str().to_owned()))
}

/// The subject and verb of the title.
fn subject(names: &[String]) -> String {
    match names {
        [] => "Your accounts are".to_owned(),
        [name] => format!("{name} is"),
        names => format!("{} institutions are", names.len()),
    }
}

/// Makes a sentence of an error text: adds a capital letter and a full stop.
fn sentence(text: &str) -> String {
    let mut characters = text.chars();
    let first: String = characters.next().into_iter().flat_map(char::to_uppercase).collect();
    let stop = if text.ends_with(['.', '!', '?']) { "" } else { "." };
    format!("{first}{}{stop}", characters.as_str())
}

#[cfg(test)]
mod tests {
    use bellbird_domain::ConnectionStatus;

    use super::super::fixtures::{HOSTILE, account, assert_harmless, connection};
    use super::*;

    fn notice(outcome: CallbackOutcome) -> Notice {
        let callback = HandledCallback { email: HOSTILE.to_owned(), can_deny: true, outcome };
        Notice::for_callback(&callback, "http://127.0.0.1:8080/", str::to_uppercase)
    }

    fn notice_of(outcome: LinkOutcome, names: &[&str], reason: Option<&'static str>) -> Notice {
        let connections: Vec<Connection> =
            names.iter().map(|name| connection(name, ConnectionStatus::Active)).collect();
        let accounts = connections.iter().map(|connection| account(connection, HOSTILE)).collect();
        notice(CallbackOutcome::Finished { outcome, connections, accounts, reason })
    }

    #[test]
    fn every_outcome_has_its_title() {
        let titles = [
            (LinkOutcome::Linked, &["A"][..], "A is connected"),
            (LinkOutcome::Linked, &["A", "B"], "2 institutions are connected"),
            (LinkOutcome::Reconnected, &["A"], "A is connected again"),
            (LinkOutcome::LinkedOther, &["A"], "A is connected separately"),
            (LinkOutcome::Unchanged, &[], "Nothing has changed"),
            (LinkOutcome::Declined, &[], "You did not give your consent"),
            (LinkOutcome::Failed, &[], "That did not work"),
            (LinkOutcome::OwnedByOtherUser, &[], "Already connected by another user"),
            (LinkOutcome::Expired, &[], "That took too long"),
            (LinkOutcome::Withdrawn, &[], "Nothing is connected"),
        ];
        for (outcome, names, title) in titles {
            assert_eq!(notice_of(outcome, names, None).title, title);
        }
        assert_eq!(notice(CallbackOutcome::AlreadyUsed(None)), notice(CallbackOutcome::Pending));
        assert_eq!(
            notice_of(LinkOutcome::Linked, &["A"], None).command.as_deref(),
            Some("GET http://127.0.0.1:8080/v1/accounts")
        );
    }

    #[test]
    fn question_names_the_user_and_has_two_answers() {
        let question = |is_urgent| notice(CallbackOutcome::NeedsAnswer { provider: "a".to_owned(), is_urgent });
        let html = question(true).page(&Assets::new("")).render().unwrap();
        for words in ["Is that you?", "For <strong><bdi>", "through A.", "value=\"yes\"", "value=\"no\"", "a minute"] {
            assert!(html.contains(words), "no {words:?} in {html}");
        }
        let html = question(false).page(&Assets::new("")).render().unwrap();
        assert!(!html.contains("a minute"), "{html}");
    }

    #[test]
    fn used_callback_says_so_and_shows_its_outcome() {
        let used = notice(CallbackOutcome::AlreadyUsed(Some(LinkOutcome::Reconnected)));
        assert_eq!(used.title, "Your accounts are connected again");
        assert!(used.remark.is_some_and(|remark| remark.contains("nothing was done again")));
    }

    #[test]
    fn reasons_become_sentences() {
        assert_eq!(sentence("the bank is down: try later"), "The bank is down: try later.");
        assert_eq!(sentence("The bank is down."), "The bank is down.");
        assert_eq!(sentence(""), ".");
        assert_eq!(notice_of(LinkOutcome::Failed, &[], Some("no luck")).paragraphs[0], "No luck.");
    }

    #[test]
    fn external_text_is_escaped() {
        let assets = Assets::new("");
        for notice in [
            notice_of(LinkOutcome::Linked, &[HOSTILE], None),
            notice_of(LinkOutcome::Reconnected, &[HOSTILE, HOSTILE], None),
            notice_of(LinkOutcome::Failed, &[], Some("<script>alert(1)</script>")),
        ] {
            let html = notice.page(&assets).render().unwrap();
            assert_harmless(&html);
            assert!(html.contains("alert(1)"), "{html}");
        }
    }
}
