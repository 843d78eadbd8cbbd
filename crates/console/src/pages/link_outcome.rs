//! What came of a consent or of a removal, in words for the user, and where it leads.

use bellbird_connections::{AppReturn, CallbackOutcome, HandledCallback, LinkResult, RemovalPage};
use bellbird_domain::{Connection, ConnectionId, LinkOutcome};
use bellbird_providers::registry::{consents_place, provider_title};

use super::frame::Frame;
use super::names::{institution_name, sanitized};
use super::notice::{Connected, Notice, Tone};
use super::words::sentence;

const OPEN_LINK_AGAIN: &str =
    "To try again, open your link again. It works for half an hour after it was created.";
const BANKS: &str = "/connections";
const BACK_TO_BANKS: &str = "Back to your banks";
const YOU_CAN_CLOSE: &str = "You can close this page.";

/// How the person came to the provider, and so where a result leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WayBack {
    /// By a button of the console.
    Console(Option<Retry>),
    /// By a link that still works. `is_repair`: it is for one connection.
    Link { is_repair: bool },
    /// By a link that has ended, or in another browser.
    Unknown,
}

impl WayBack {
    fn is_console(self) -> bool {
        matches!(self, Self::Console(_))
    }
}

/// What the button of the console began: to reconnect this connection, or to link a new one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Retry(pub(crate) Option<ConnectionId>);

/// What the user may want to do next.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    /// To answer the question of the page.
    Answer,
    /// To see what is new, or to go to the other banks, by a link with this label.
    Balances(&'static str),
    /// To go to the other banks.
    Banks,
    /// To try again, after a failure.
    Retry,
    /// Nothing that a link could do.
    Nothing,
}

impl Notice {
    /// Adds a link to the page of banks.
    pub(crate) fn with_banks_link(self) -> Self {
        self.with_page_link(BANKS, BACK_TO_BANKS)
    }

    /// The page of a link session that has connected.
    pub(crate) fn for_connected_link(app_return: Option<AppReturn>) -> Self {
        Self::new(Tone::Good, "Your accounts are linked")
            .with("This link has done its work, and links nothing else. You can close this page.")
            .with_app_return(app_return)
    }

    /// Asks before a connection is removed.
    pub(crate) fn for_removal(page: &RemovalPage, frame: &Frame) -> Self {
        let connection = &page.linked.connection;
        let provider = provider_title(&connection.provider);
        let name = institution_name(connection);
        let id = connection.id.to_string();
        Self {
            email: Some(sanitized(&page.email)),
            connected: vec![Connected::of(&page.linked, frame)],
            ..Self::new(Tone::Attention, format!("Remove {name}?"))
        }
        .with_button("danger", ("confirm-removal", id.as_str()), "Remove")
        .with_link("button quiet", None, "Keep it")
        .with(&format!(
            "Its accounts disappear from this service and from all your programs at once, and everything stored about \
             them is deleted. Your consent is withdrawn at {provider}."
        ))
        .with("You can link the bank again later, as a new one.")
    }

    /// After a removal has begun. `page` is what was removed.
    pub(crate) fn for_removed(page: &RemovalPage, frame: &Frame) -> Self {
        let connection = &page.linked.connection;
        let provider = provider_title(&connection.provider);
        let name = institution_name(connection);
        let notice = Self {
            email: Some(sanitized(&page.email)),
            is_sandbox: frame.providers.is_sandbox(&connection.provider),
            ..Self::new(Tone::Good, format!("{name} is removed"))
        };
        let notice = match page.is_only {
            true => notice.with("This link has done its work. You can close this page."),
            false => notice.with_return_link("Back to your link"),
        };
        notice
            .with("No program can read its accounts through Bellbird any more.")
            .with(&format!(
                "Your consent is being withdrawn at {provider}, which can take a few minutes."
            ))
            .with_app_return(page.app_return.clone())
    }

    /// The page after consent, which was to renew that of `repaired`.
    pub(crate) fn for_callback(
        callback: &HandledCallback,
        way: WayBack,
        repaired: Option<&Connection>,
        frame: &Frame,
    ) -> Self {
        let provider = &callback.provider;
        let (notice, next) = match &callback.outcome {
            CallbackOutcome::NeedsAnswer { is_urgent } => {
                (question(provider, *is_urgent), Next::Answer)
            }
            CallbackOutcome::UnknownState => (
                Self::new(Tone::Attention, "This link does not work")
                    .with("It is forged, too old, or incomplete. Nothing was changed.")
                    .with(match way {
                        WayBack::Console(_) => "If you came from a provider's page, start again.",
                        _ => "If you came from a provider's page, start again with the link that you were given.",
                    }),
                Next::Banks,
            ),
            CallbackOutcome::Pending => (
                Self::new(Tone::Waiting, "Not confirmed yet")
                    .with("The provider has not confirmed your consent yet. This can take a few minutes.")
                    .with("This page checks again every few seconds. You can close it. Linking continues by itself."),
                Next::Banks,
            ),
            CallbackOutcome::RemovedSince => (
                Self::new(Tone::Neutral, "This is not linked any more")
                    .with("What you linked here has been removed since."),
                Next::Banks,
            ),
            CallbackOutcome::Finished(result) => {
                let (notice, next) = result_notice(result, provider, way, repaired);
                let connected = result.connections.iter().map(|one| Connected::of(one, frame));
                (Self { connected: connected.collect(), ..notice }, next)
            }
        };
        let email = (!callback.email.is_empty()).then(|| sanitized(&callback.email));
        Self {
            email,
            can_deny: callback.can_deny,
            is_sandbox: frame.providers.is_sandbox(provider),
            app_return: callback.app_return.clone().filter(|_| next != Next::Answer),
            ..notice
        }
        .leading(next, way, provider)
    }

    /// Adds the buttons and links for what the user may want next.
    fn leading(self, next: Next, way: WayBack, provider: &str) -> Self {
        let again = ("answer", "again");
        match (way, next) {
            (_, Next::Answer) => self,
            (WayBack::Console(Some(Retry(repaired))), Next::Retry) => {
                let id = repaired.map(|id| id.to_string());
                let field = match &id {
                    Some(id) => ("connection", id.as_str()),
                    None => ("provider", provider),
                };
                Self {
                    form_path: Some(BANKS),
                    ..self
                }
                .with_button("strong", field, "Try again")
                .with_link("button quiet", Some(BANKS), BACK_TO_BANKS)
            }
            (WayBack::Console(_), Next::Balances(others)) => self
                .with_page_link("/overview", "See your balances")
                .with_link("button quiet", Some(BANKS), others),
            (WayBack::Console(_), _) => self.with_banks_link(),
            (WayBack::Link { .. }, Next::Retry) => self.with_button("strong", again, "Try again"),
            // A link for one connection leads to no other bank.
            (WayBack::Link { is_repair: false }, Next::Balances(_) | Next::Banks) => {
                self.with_button("strong", again, BACK_TO_BANKS)
            }
            (WayBack::Unknown, Next::Retry) => self.with(OPEN_LINK_AGAIN),
            _ => self,
        }
    }

    /// Says that nothing is left to do, unless the console goes on.
    fn with_end(self, way: WayBack) -> Self {
        match way.is_console() {
            true => self,
            false => self.with(YOU_CAN_CLOSE),
        }
    }

    /// Says whether accounts are still to come. The page of a browser without the cookie names no
    /// connection.
    fn with_accounts_hint(self, result: &LinkResult, way: WayBack) -> Self {
        if result.awaits_accounts {
            return self.with(
                "Your bank has not listed the accounts yet. They can take some minutes. This page checks again every \
                 few seconds, and you can close it.",
            );
        }
        let mut linked = result.connections.iter();
        match linked.any(|linked| linked.accounts.is_empty()) {
            true => self.with("Your bank has listed no accounts yet."),
            false => self,
        }
        .with_end(way)
    }
}

fn question(provider: &str, is_urgent: bool) -> Notice {
    let (provider, consents) = (provider_title(provider), consents_place(provider));
    let question = Notice::new(Tone::Waiting, "Is that you?").with(&format!(
        "You gave this user access to your accounts, through {provider}. Linking started in another browser, so please \
         confirm that it was you. This page links nothing before you answer."
    ));
    let question = if is_urgent {
        question
            .with("Please answer within a minute. After that, the consent cannot be used: start again with your link.")
            .with(&format!(
                "If you do not know this user, answer no within this minute, so that we can withdraw your consent. \
                 Later, only you can end it, {consents}."
            ))
    } else {
        question.with("If you do not know this user, answer no. We then withdraw your consent.")
    };
    question
        .with_button("strong", ("answer", "yes"), "Yes, that is me")
        .with_button("quiet", ("answer", "no"), "No, withdraw the consent")
}

fn result_notice(
    result: &LinkResult,
    provider: &str,
    way: WayBack,
    repaired: Option<&Connection>,
) -> (Notice, Next) {
    let (provider, consents) = (provider_title(provider), consents_place(provider));
    let connections = &result.connections;
    let subject = match &connections[..] {
        [] => "Your accounts are".to_owned(),
        [one] => format!("{} is", institution_name(&one.connection)),
        several => format!("{} banks are", several.len()),
    };
    match result.outcome {
        LinkOutcome::Linked => (
            Notice::new(Tone::Good, format!("{subject} linked")).with_accounts_hint(result, way),
            Next::Balances("Link another"),
        ),
        LinkOutcome::Reconnected => (
            Notice::new(Tone::Good, format!("{subject} reconnected"))
                .with(match connections.len() {
                    1 => "Programs that read it work as before.",
                    _ => "Programs that read them work as before.",
                })
                .with_accounts_hint(result, way),
            Next::Balances(BACK_TO_BANKS),
        ),
        LinkOutcome::LinkedOther => (
            Notice::new(Tone::Attention, format!("{subject} linked separately"))
                .with(
                    "You shared none of the accounts of the bank that you wanted to reconnect, so that one has not \
                     changed. To reconnect it, sign in with the same login and choose the same accounts.",
                )
                .with(match way {
                    WayBack::Console(_) => "If you do not want the new one, remove it on the page of your banks.",
                    WayBack::Link { is_repair: false } => "If you do not want the new one, remove it on your link.",
                    _ => "If you do not want the new one, ask for a new link, and remove it there.",
                }),
            Next::Retry,
        ),
        LinkOutcome::Unchanged => (
            Notice::new(Tone::Neutral, "Nothing has changed")
                .with("Everything that you consented to was linked already.")
                .with_end(way),
            Next::Banks,
        ),
        LinkOutcome::Declined => {
            let (title, text) = match repaired.map(institution_name) {
                Some(bank) => (
                    format!("{bank} was not reconnected"),
                    "You did not give your consent. Nothing has changed.",
                ),
                None => ("You did not give your consent".to_owned(), "Nothing was changed."),
            };
            (Notice::new(Tone::Neutral, title).with(text), Next::Retry)
        }
        LinkOutcome::Failed => {
            let why = result.reason.as_deref().map(sentence);
            let (what, end) = match repaired.map(institution_name) {
                Some(bank) => (format!("Reconnecting {bank}"), "Nothing has changed."),
                None => (format!("Linking through {provider}"), "Nothing was linked."),
            };
            let title = format!("{what} did not work");
            let notice = Notice::new(Tone::Attention, title)
                .with(why.as_deref().unwrap_or("The provider could not complete it."))
                .with(end);
            (notice, Next::Retry)
        }
        LinkOutcome::OwnedByOtherUser => (
            Notice::new(Tone::Attention, "Linked already, for somebody else")
                .with(
                    "Accounts can be linked once on this service, and these are linked for another user. Nothing was \
                     changed.",
                )
                .with("If you share them, as in a household, the other one can remove the bank. Then you can link it.")
                .with(&format!("If you share them with nobody, look {consents} at who has your consent.")),
            Next::Nothing,
        ),
        LinkOutcome::Withdrawn => (
            Notice::new(Tone::Neutral, "Nothing is linked")
                .with("You said that it was not you, or the consent was not confirmed in time.")
                .with(&format!(
                    "This user has no access to your accounts. What you consented to is being withdrawn at {provider}, \
                     which can take a few minutes. You can check that {consents}."
                )),
            Next::Nothing,
        ),
        LinkOutcome::NotWithdrawn => (
            Notice::new(Tone::Attention, "Nothing is linked, but your consent remains")
                .with("This user has no access to your accounts.")
                .with(&format!(
                    "{provider} did not let us withdraw your consent, so please end it yourself {consents}."
                )),
            Next::Nothing,
        ),
        LinkOutcome::Expired => {
            let notice = Notice::new(Tone::Attention, "That took too long")
                .with("The provider did not report your consent in time. Nothing was changed.");
            match way.is_console() {
                true => (notice, Next::Retry),
                false => {
                    let notice = notice.with("Ask for a new link, and start again.").with_new_link();
                    (notice, Next::Nothing)
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use askama::Template as _;
    use bellbird_connections::LinkedConnection;
    use bellbird_domain::ConnectionStatus;
    use bellbird_providers::registry::PROVIDERS;
    use uuid::Uuid;

    use super::super::fixtures::{HOSTILE, account, assert_harmless, connection};
    use super::*;

    fn notice_with(outcome: CallbackOutcome, way: WayBack) -> Notice {
        let provider = PROVIDERS[0].name.as_str().to_owned();
        let callback = HandledCallback {
            email: HOSTILE.to_owned(),
            provider,
            can_deny: true,
            outcome,
            app_return: None,
        };
        let repaired = connection("Repaired Bank", ConnectionStatus::Revoked);
        let is_repair = matches!(
            way,
            WayBack::Console(Some(Retry(Some(_)))) | WayBack::Link { is_repair: true }
        );
        let repaired = is_repair.then_some(&repaired);
        Notice::for_callback(&callback, way, repaired, &Frame::default())
    }

    fn result_of(outcome: LinkOutcome, names: &[&str], reason: Option<&str>) -> LinkResult {
        let connections = names.iter().map(|name| {
            let connection = connection(name, ConnectionStatus::Active);
            let accounts = vec![account(&connection, HOSTILE)];
            LinkedConnection {
                connection,
                accounts,
            }
        });
        let reason = reason.map(str::to_owned);
        LinkResult {
            outcome,
            connections: connections.collect(),
            reason,
            awaits_accounts: false,
        }
    }

    fn notice_of(outcome: LinkOutcome, names: &[&str], reason: Option<&str>) -> Notice {
        notice_with(
            CallbackOutcome::Finished(result_of(outcome, names, reason)),
            WayBack::Unknown,
        )
    }

    fn html(notice: &Notice) -> String {
        notice.page(&Frame::default()).render().unwrap()
    }

    #[test]
    fn every_outcome_has_its_title() {
        let failed = format!("Linking through {} did not work", PROVIDERS[0].title);
        let titles = [
            (LinkOutcome::Linked, &["A"][..], "A is linked"),
            (LinkOutcome::Linked, &["A", "B"], "2 banks are linked"),
            (LinkOutcome::Linked, &[], "Your accounts are linked"),
            (LinkOutcome::Reconnected, &["A"], "A is reconnected"),
            (LinkOutcome::LinkedOther, &["A"], "A is linked separately"),
            (LinkOutcome::Unchanged, &[], "Nothing has changed"),
            (LinkOutcome::Declined, &[], "You did not give your consent"),
            (LinkOutcome::Failed, &[], &failed),
            (
                LinkOutcome::OwnedByOtherUser,
                &[],
                "Linked already, for somebody else",
            ),
            (LinkOutcome::Expired, &[], "That took too long"),
            (LinkOutcome::Withdrawn, &[], "Nothing is linked"),
            (
                LinkOutcome::NotWithdrawn,
                &[],
                "Nothing is linked, but your consent remains",
            ),
        ];
        for (outcome, names, title) in titles {
            let notice = notice_of(outcome, names, None);
            assert_eq!(notice.title, title);
            let html = html(&notice);
            assert!(
                !html.contains("/v1/") && !html.contains("bellbird connection"),
                "{html}"
            );
        }
        let kept = notice_with(
            CallbackOutcome::Finished(result_of(LinkOutcome::Declined, &[], None)),
            WayBack::Link { is_repair: true },
        );
        assert_eq!(kept.title, "Repaired Bank was not reconnected");
        let said = "You did not give your consent. Nothing has changed.";
        assert_eq!(kept.paragraphs, [said]);
        let failed = notice_with(
            CallbackOutcome::Finished(result_of(LinkOutcome::Failed, &[], None)),
            WayBack::Link { is_repair: true },
        );
        assert_eq!(failed.title, "Reconnecting Repaired Bank did not work");
        assert_eq!(
            notice_with(CallbackOutcome::RemovedSince, WayBack::Unknown).title,
            "This is not linked any more"
        );
    }

    #[test]
    fn result_leads_back_to_an_open_link() {
        use LinkOutcome::{
            Declined, Expired, Failed, Linked, LinkedOther, OwnedByOtherUser, Reconnected,
            Unchanged,
        };
        const LINK: WayBack = WayBack::Link { is_repair: false };
        const REPAIR: WayBack = WayBack::Link { is_repair: true };
        let label = |outcome, way| {
            let outcome = CallbackOutcome::Finished(result_of(outcome, &[], None));
            let notice = notice_with(outcome, way);
            assert!(notice.links.is_empty(), "nobody is signed in");
            notice
                .buttons
                .first()
                .map(|button| (button.value.clone(), button.label))
        };
        let again = |label| Some(("again".to_owned(), label));
        for outcome in [Declined, Failed, LinkedOther] {
            assert_eq!(label(outcome, LINK), again("Try again"), "{outcome}");
            assert_eq!(label(outcome, REPAIR), again("Try again"), "{outcome}");
            assert_eq!(label(outcome, WayBack::Unknown), None, "{outcome}");
            let notice = notice_of(outcome, &[], None);
            assert!(
                notice.paragraphs.iter().any(|text| text == OPEN_LINK_AGAIN),
                "{outcome}"
            );
        }
        for outcome in [Linked, Reconnected, Unchanged] {
            assert_eq!(
                label(outcome, LINK),
                again("Back to your banks"),
                "{outcome}"
            );
            assert_eq!(label(outcome, REPAIR), None, "{outcome}");
            assert_eq!(label(outcome, WayBack::Unknown), None, "{outcome}");
        }
        for outcome in [OwnedByOtherUser, Expired] {
            assert_eq!(label(outcome, LINK), None, "{outcome}");
        }
    }

    /// Whoever came by a button of the console goes on there, and sees no link.
    #[test]
    fn result_in_the_console_goes_on_there() {
        let shown = |outcome, retry| {
            let result = CallbackOutcome::Finished(result_of(outcome, &["A"], None));
            html(&notice_with(result, WayBack::Console(retry)))
        };
        let id = ConnectionId::new();
        for outcome in LinkOutcome::ALL.iter().copied() {
            for retry in [None, Some(Retry(None)), Some(Retry(Some(id)))] {
                let html = shown(outcome, retry);
                assert_eq!(html.matches("href=\"/connections\"").count(), 1, "{html}");
                assert!(
                    !html.contains("your link") && !html.contains("new link"),
                    "{outcome}: {html}"
                );
                assert!(!html.contains("value=\"again\""), "{outcome}: {html}");
                let is_repeated = html.contains("action=\"/connections\"");
                assert_eq!(is_repeated, html.contains(">Try again<"), "{outcome}");
            }
        }
        for outcome in [
            LinkOutcome::Declined,
            LinkOutcome::Failed,
            LinkOutcome::Expired,
        ] {
            let provider = PROVIDERS[0].name.as_str();
            let field = format!("class=\"strong\" name=\"provider\" value=\"{provider}\"");
            assert!(shown(outcome, Some(Retry(None))).contains(&field));
            let field = format!("class=\"strong\" name=\"connection\" value=\"{id}\"");
            assert!(shown(outcome, Some(Retry(Some(id)))).contains(&field));
            assert!(!shown(outcome, None).contains("Try again"));
        }
        for (outcome, others) in [
            (LinkOutcome::Linked, "Link another"),
            (LinkOutcome::Reconnected, "Back to your banks"),
        ] {
            let html = shown(outcome, Some(Retry(None)));
            for link in [
                "class=\"button\" href=\"/overview\">See your balances</a>".to_owned(),
                format!("class=\"button quiet\" href=\"/connections\">{others}</a>"),
            ] {
                assert!(html.contains(&link), "no {link:?} in {html}");
            }
            assert!(!html.contains(YOU_CAN_CLOSE), "{html}");
        }
    }

    #[test]
    fn result_is_the_end_of_a_way() {
        let linked = html(&notice_of(LinkOutcome::Linked, &["A"], None));
        assert!(!linked.contains("Go to the start page"), "{linked}");
    }

    #[test]
    fn late_accounts_are_announced() {
        let mut result = result_of(LinkOutcome::Linked, &["A"], None);
        result.connections[0].accounts.clear();
        result.awaits_accounts = true;
        let waiting = notice_with(CallbackOutcome::Finished(result.clone()), WayBack::Unknown);
        assert!(
            waiting.paragraphs[0].contains("checks again"),
            "{:?}",
            waiting.paragraphs
        );
        result.awaits_accounts = false;
        let over = notice_with(CallbackOutcome::Finished(result), WayBack::Unknown);
        assert!(
            over.paragraphs[0].contains("no accounts yet"),
            "{:?}",
            over.paragraphs
        );
        let listed = notice_of(LinkOutcome::Linked, &["A"], None);
        assert_eq!(listed.paragraphs, [YOU_CAN_CLOSE]);
    }

    #[test]
    fn question_names_the_user_and_has_two_answers() {
        let question =
            |is_urgent| notice_with(CallbackOutcome::NeedsAnswer { is_urgent }, WayBack::Unknown);
        let urgent = html(&question(true));
        let through = format!("through {}.", PROVIDERS[0].title);
        for words in [
            "Is that you?",
            "For <strong><bdi>",
            through.as_str(),
            "value=\"yes\"",
            "value=\"no\"",
            "a minute",
        ] {
            assert!(urgent.contains(words), "no {words:?} in {urgent}");
        }
        let later = format!("Later, only you can end it, {}.", PROVIDERS[0].consents);
        assert!(urgent.contains(&later), "{urgent}");
        let html = html(&question(false));
        assert!(
            !html.contains("a minute") && html.contains("We then withdraw your consent."),
            "{html}"
        );
    }

    #[test]
    fn removal_names_the_consequences() {
        let mut linked = result_of(LinkOutcome::Linked, &[HOSTILE], None)
            .connections
            .remove(0);
        linked.connection.provider = PROVIDERS[0].name.as_str().to_owned();
        let id = linked.connection.id;
        let mut page = RemovalPage {
            link_id: Uuid::nil(),
            is_only: false,
            email: HOSTILE.to_owned(),
            linked,
            app_return: None,
        };
        let frame = Frame::default();
        let asked = html(&Notice::for_removal(&page, &frame));
        assert_harmless(&asked);
        let confirm = format!("name=\"confirm-removal\" value=\"{id}\"");
        let withdrawn = format!("withdrawn at {}", PROVIDERS[0].title);
        for words in [
            confirm.as_str(),
            withdrawn.as_str(),
            "disappear",
            "Keep it",
            "xxxx5678",
        ] {
            assert!(asked.contains(words), "no {words:?} in {asked}");
        }
        let removed = html(&Notice::for_removed(&page, &frame));
        assert_harmless(&removed);
        assert!(
            removed.contains("is removed") && !removed.contains("<button"),
            "{removed}"
        );
        assert!(removed.contains("Back to your link"), "{removed}");
        page.is_only = true;
        let removed = html(&Notice::for_removed(&page, &frame));
        assert!(!removed.contains("Back to your link"), "{removed}");
    }

    #[test]
    fn reason_of_a_failure_is_a_sentence() {
        assert_eq!(
            notice_of(LinkOutcome::Failed, &[], Some("no luck")).paragraphs[0],
            "No luck."
        );
    }

    #[test]
    fn external_text_is_escaped() {
        for notice in [
            notice_of(LinkOutcome::Linked, &[HOSTILE], None),
            notice_of(LinkOutcome::Reconnected, &[HOSTILE, HOSTILE], None),
            notice_of(LinkOutcome::Failed, &[], Some("<script>alert(1)</script>")),
        ] {
            let html = html(&notice);
            assert_harmless(&html);
            assert!(html.contains("alert(1)"), "{html}");
        }
    }
}
