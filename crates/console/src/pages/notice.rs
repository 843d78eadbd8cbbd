//! The pages with a message: the outcome of a consent session, removals, and errors.

use askama::Template;
use bellbird_connections::{
    AppReturn, CallbackOutcome, HandledCallback, LinkResult, LinkedConnection, RemovalPage,
    ReturnLink,
};
use bellbird_domain::LinkOutcome;

use super::frame::Frame;
use super::institution::{AccountRow, ImageOrigins, Institution, account_rows};
use super::names::{institution_name, sanitized};

const OPEN_LINK_AGAIN: &str =
    "To try again, open your link again. It works for half an hour after it was created.";
/// For a user who is signed in, and came by a button of the console.
const TRY_IN_CONSOLE: &str = "To try again, go to your connections, and press the button there.";
const YOU_CAN_CLOSE: &str = "You can close this page.";

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

pub(crate) struct Notice {
    tone: Tone,
    title: String,
    /// The user whose accounts they become.
    email: Option<String>,
    /// Whether the user who gave the consent can deny it.
    can_deny: bool,
    connected: Vec<Connected>,
    paragraphs: Vec<String>,
    /// Submit a form to the page's own URL.
    buttons: Vec<Button>,
    /// The label of a link that opens the page's own URL.
    retry_link: Option<&'static str>,
    /// Where a link session leads back.
    app_return: Option<AppReturn>,
    /// Whether the user needs a new link URL, which the demo offers.
    needs_new_link: bool,
    /// Whether the user is signed in, so that the page leads to the connections.
    is_signed_in: bool,
    /// Whether the page leads to the one to sign in.
    needs_sign_in: bool,
    /// A page of the console that follows, and what its link says.
    page_link: Option<(&'static str, &'static str)>,
}

/// A submit button.
struct Button {
    class: &'static str,
    name: &'static str,
    value: String,
    label: &'static str,
}

impl Button {
    fn answer(class: &'static str, value: &str, label: &'static str) -> Self {
        Self {
            class,
            name: "answer",
            value: value.to_owned(),
            label,
        }
    }
}

/// A connection with its accounts.
struct Connected {
    institution: Institution,
    /// The provider's title.
    provider: String,
    accounts: Vec<AccountRow>,
    more_accounts: usize,
}

impl Connected {
    /// With all accounts.
    fn of(linked: &LinkedConnection, frame: &Frame, title_of: impl Fn(&str) -> String) -> Self {
        let (accounts, more_accounts) = account_rows(linked, usize::MAX);
        Self {
            institution: Institution::of(&linked.connection, frame),
            provider: title_of(&linked.connection.provider),
            accounts,
            more_accounts,
        }
    }
}

#[derive(Template)]
#[template(path = "notice.html")]
pub(crate) struct NoticePage<'a> {
    frame: &'a Frame,
    notice: &'a Notice,
}

impl Notice {
    pub(crate) fn new(tone: Tone, title: impl Into<String>) -> Self {
        Self {
            tone,
            title: title.into(),
            email: None,
            can_deny: false,
            connected: Vec::new(),
            paragraphs: Vec::new(),
            buttons: Vec::new(),
            retry_link: None,
            app_return: None,
            needs_new_link: false,
            is_signed_in: false,
            needs_sign_in: false,
            page_link: None,
        }
    }

    fn has_actions(&self) -> bool {
        let has_link =
            self.retry_link.is_some() || self.app_return.is_some() || self.page_link.is_some();
        !self.buttons.is_empty() || has_link || self.is_signed_in || self.needs_sign_in
    }

    pub(crate) fn with(mut self, paragraph: &str) -> Self {
        self.paragraphs.push(paragraph.to_owned());
        self
    }

    /// Adds a link that opens the page's URL.
    pub(crate) fn with_retry_link(self) -> Self {
        Self {
            retry_link: Some("Try again"),
            ..self
        }
    }

    /// Adds the demo's button for a new link URL.
    pub(crate) fn with_new_link(self) -> Self {
        Self {
            needs_new_link: true,
            ..self
        }
    }

    /// Adds a link to the page to sign in.
    pub(crate) fn with_sign_in_link(self) -> Self {
        Self {
            needs_sign_in: true,
            ..self
        }
    }

    /// Adds a link to a page of the console.
    pub(crate) fn with_page_link(self, path: &'static str, label: &'static str) -> Self {
        Self {
            page_link: Some((path, label)),
            ..self
        }
    }

    /// Whether accounts are connected that this browser may see.
    fn offers_accounts(&self) -> bool {
        self.is_signed_in && self.tone == Tone::Good && !self.connected.is_empty()
    }

    /// Leads to the page of connections, for a user who is signed in and so needs no link.
    pub(crate) fn with_connections_link(mut self, is_signed_in: bool) -> Self {
        for paragraph in self
            .paragraphs
            .iter_mut()
            .filter(|paragraph| is_signed_in && *paragraph == OPEN_LINK_AGAIN)
        {
            TRY_IN_CONSOLE.clone_into(paragraph);
        }
        Self {
            is_signed_in,
            ..self
        }
    }

    /// Adds a link to the app.
    pub(crate) fn with_app_return(self, app_return: Option<AppReturn>) -> Self {
        Self { app_return, ..self }
    }

    /// The page of a link session that has connected.
    pub(crate) fn for_connected_link(app_return: Option<AppReturn>) -> Self {
        Self::new(Tone::Good, "Your accounts are connected")
            .with(
                "This link has done its work, and connects nothing else. You can close this page.",
            )
            .with_app_return(app_return)
    }

    pub(crate) fn page<'a>(&'a self, frame: &'a Frame) -> NoticePage<'a> {
        NoticePage {
            frame,
            notice: self,
        }
    }

    pub(crate) fn image_origins(&self) -> ImageOrigins {
        ImageOrigins::of(
            self.connected
                .iter()
                .map(|connected| &connected.institution),
        )
    }

    /// Asks before a connection is removed.
    pub(crate) fn for_removal(
        page: &RemovalPage,
        frame: &Frame,
        title_of: impl Fn(&str) -> String,
    ) -> Self {
        let provider = title_of(&page.linked.connection.provider);
        let name = institution_name(&page.linked.connection);
        let confirm = Button {
            class: "danger",
            name: "confirm-removal",
            value: page.linked.connection.id.to_string(),
            label: "Remove",
        };
        Self {
            email: Some(sanitized(&page.email)),
            connected: vec![Connected::of(&page.linked, frame, title_of)],
            buttons: vec![confirm],
            retry_link: Some("Keep it"),
            ..Self::new(Tone::Attention, format!("Remove {name}?"))
        }
        .with(&format!(
            "Your consent is then withdrawn at {provider}. The accounts disappear from this service at once, and \
             everything stored about them is deleted."
        ))
        .with("You can connect it again later, as a new connection.")
    }

    /// After a removal has begun. `page` is what was removed.
    pub(crate) fn for_removed(page: &RemovalPage, title_of: impl Fn(&str) -> String) -> Self {
        let provider = title_of(&page.linked.connection.provider);
        let name = institution_name(&page.linked.connection);
        Self {
            email: Some(sanitized(&page.email)),
            retry_link: Some("Back to your link"),
            ..Self::new(Tone::Good, format!("{name} is removed"))
        }
        .with("No program can read its accounts through Bellbird any more.")
        .with(&format!(
            "Your consent is being withdrawn at {provider}, which can take a few minutes."
        ))
        .with_app_return(page.app_return.clone())
    }

    /// The page after consent. `consents` is where the person can end a consent without this
    /// service, and `title_of` maps the name of a provider to its title.
    pub(crate) fn for_callback(
        callback: &HandledCallback,
        consents: &str,
        return_link: Option<ReturnLink>,
        frame: &Frame,
        title_of: impl Fn(&str) -> String,
    ) -> Self {
        let HandledCallback {
            email,
            provider,
            can_deny,
            outcome,
            app_return,
        } = callback;
        let notice = match outcome {
            CallbackOutcome::NeedsAnswer { is_urgent } => Self::for_question(&title_of(provider), consents, *is_urgent),
            CallbackOutcome::UnknownState => Self::new(Tone::Attention, "This link does not work")
                .with("It is forged, too old, or incomplete. Nothing was changed.")
                .with("If you came from a provider's page, start again with the link that you were given."),
            CallbackOutcome::Pending => Self::new(Tone::Waiting, "Not confirmed yet")
                .with("The provider has not confirmed your consent yet. This can take a few minutes.")
                .with("This page checks again every few seconds. You can close it. Linking continues by itself."),
            CallbackOutcome::RemovedSince => Self::new(Tone::Neutral, "Nothing is connected any more")
                .with("What you connected here has been removed since."),
            CallbackOutcome::Finished(result) => {
                Self::for_result(result, (&title_of(provider), consents), return_link, frame, title_of)
            }
        };
        // A question is answered first.
        let is_question = matches!(outcome, CallbackOutcome::NeedsAnswer { .. });
        let app_return = app_return.clone().filter(|_| !is_question);
        let email = (!email.is_empty()).then(|| sanitized(email));
        Self {
            email,
            can_deny: *can_deny,
            app_return,
            ..notice
        }
    }

    fn for_question(provider: &str, consents: &str, is_urgent: bool) -> Self {
        let question = Self::new(Tone::Waiting, "Is that you?").with(&format!(
            "You gave this user access to your accounts, through {provider}. Linking started in another \
                            browser, so please confirm that it was you. This page connects nothing before you answer."
        ));
        let question = if is_urgent {
            question
                .with(
                    "Please answer within a minute. After that, the consent cannot be used: start again with your \
                     link.",
                )
                .with(&format!(
                    "If you do not know this user, answer no within this minute, so that we can withdraw your consent. \
                     Later, only you can end it, {consents}."
                ))
        } else {
            question.with("If you do not know this user, answer no. We then withdraw your consent.")
        };
        let yes = Button::answer("strong", "yes", "Yes, that is me");
        let no = Button::answer("quiet", "no", "No, withdraw the consent");
        Self {
            buttons: vec![yes, no],
            ..question
        }
    }

    fn for_result(
        result: &LinkResult,
        (provider, consents): (&str, &str),
        return_link: Option<ReturnLink>,
        frame: &Frame,
        title_of: impl Fn(&str) -> String,
    ) -> Self {
        let names: Vec<String> = result
            .connections
            .iter()
            .map(|linked| institution_name(&linked.connection))
            .collect();
        let connected = result
            .connections
            .iter()
            .map(|linked| Connected::of(linked, frame, &title_of));
        let notice = match result.outcome {
            LinkOutcome::Linked => {
                let notice = Self::new(Tone::Good, format!("{} connected", subject(&names)));
                notice.with_accounts_hint(result).with_way_on(return_link)
            }
            LinkOutcome::Reconnected => {
                let notice = Self::new(Tone::Good, format!("{} connected again", subject(&names)));
                notice.with("Your programs work as before.").with_accounts_hint(result).with_way_on(return_link)
            }
            LinkOutcome::LinkedOther => Self::new(Tone::Attention, format!("{} connected separately", subject(&names)))
                .with(
                    "You shared none of the accounts of the connection that you wanted to reconnect, so that \
                         connection has not changed. To reconnect it, sign in with the same login and choose the same \
                         accounts.",
                )
                .with(match return_link {
                    Some(ReturnLink::Link) => "If you do not want the separate connection, remove it on your link.",
                    _ => {
                        "If you do not want the separate connection, ask for a new link, and remove the connection \
                             there."
                    }
                })
                .with_retry(return_link),
            LinkOutcome::Unchanged => Self::new(Tone::Neutral, "Nothing has changed")
                .with("Everything that you consented to was already connected. You can close this page.")
                .with_way_on(return_link),
            LinkOutcome::Declined => Self::new(Tone::Neutral, "You did not give your consent")
                .with("Nothing was changed.")
                .with_retry(return_link),
            LinkOutcome::Failed => {
                let why = result.reason.as_deref().map(sentence);
                Self::new(Tone::Attention, "That did not work")
                    .with(why.as_deref().unwrap_or("The provider could not complete it."))
                    .with("Nothing was connected.")
                    .with_retry(return_link)
            }
            LinkOutcome::OwnedByOtherUser => Self::new(Tone::Attention, "Already connected by another user")
                .with("Another user of this service has connected these accounts. Nothing was changed.")
                .with("You can connect them after that user removes the connection."),
            LinkOutcome::Withdrawn => Self::new(Tone::Neutral, "Nothing is connected")
                .with("You said that it was not you, or the consent was not confirmed in time.")
                .with(&format!(
                    "This user has no access to your accounts. What you consented to is being withdrawn at {provider}, \
                     which can take a few minutes. You can check that {consents}."
                )),
            LinkOutcome::NotWithdrawn => Self::new(Tone::Attention, "Nothing is connected, but your consent remains")
                .with("This user has no access to your accounts.")
                .with(&format!(
                    "{provider} did not let us withdraw your consent, so please end it yourself {consents}."
                )),
            LinkOutcome::Expired => Self::new(Tone::Attention, "That took too long")
                .with("The provider did not report your consent in time. Nothing was changed.")
                .with("Ask for a new link, and start again.")
                .with_new_link(),
        };
        Self {
            connected: connected.collect(),
            ..notice
        }
    }

    /// Says whether accounts are still to come. The page of a browser without the cookie names no
    /// connection.
    fn with_accounts_hint(self, result: &LinkResult) -> Self {
        if result.awaits_accounts {
            return self.with(
                "The institution has not listed the accounts yet. They can take some minutes. This page checks again \
                 every few seconds, and you can close it.",
            );
        }
        let is_empty = result
            .connections
            .iter()
            .any(|linked| linked.accounts.is_empty());
        self.with(if is_empty {
            "The institution has listed no accounts yet. You can close this page."
        } else {
            YOU_CAN_CLOSE
        })
    }

    /// Leads back after a failure.
    fn with_retry(mut self, return_link: Option<ReturnLink>) -> Self {
        if return_link.is_none() {
            return self.with(OPEN_LINK_AGAIN);
        }
        self.buttons
            .push(Button::answer("strong", "again", "Try again"));
        self
    }

    /// Leads on after a success to all connections and providers, unless the link is for one
    /// connection.
    fn with_way_on(mut self, return_link: Option<ReturnLink>) -> Self {
        if return_link == Some(ReturnLink::Link) {
            self.buttons
                .push(Button::answer("strong", "again", "Back to your banks"));
        }
        self
    }
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
pub(crate) fn sentence(text: &str) -> String {
    let mut characters = text.chars();
    let first: String = characters
        .next()
        .into_iter()
        .flat_map(char::to_uppercase)
        .collect();
    let stop = if text.ends_with(['.', '!', '?']) {
        ""
    } else {
        "."
    };
    format!("{first}{}{stop}", characters.as_str())
}

#[cfg(test)]
mod tests {
    use bellbird_domain::ConnectionStatus;

    use super::super::fixtures::{HOSTILE, account, assert_harmless, connection};
    use super::*;

    fn notice_with(outcome: CallbackOutcome, return_link: Option<ReturnLink>) -> Notice {
        let (email, provider) = (HOSTILE.to_owned(), "somebank".to_owned());
        let callback = HandledCallback {
            email,
            provider,
            can_deny: true,
            outcome,
            app_return: None,
        };
        Notice::for_callback(
            &callback,
            "at your bank",
            return_link,
            &Frame::default(),
            str::to_uppercase,
        )
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
            None,
        )
    }

    fn html(notice: &Notice) -> String {
        notice.page(&Frame::default()).render().unwrap()
    }

    #[test]
    fn every_outcome_has_its_title() {
        let titles = [
            (LinkOutcome::Linked, &["A"][..], "A is connected"),
            (
                LinkOutcome::Linked,
                &["A", "B"],
                "2 institutions are connected",
            ),
            (LinkOutcome::Linked, &[], "Your accounts are connected"),
            (LinkOutcome::Reconnected, &["A"], "A is connected again"),
            (
                LinkOutcome::LinkedOther,
                &["A"],
                "A is connected separately",
            ),
            (LinkOutcome::Unchanged, &[], "Nothing has changed"),
            (LinkOutcome::Declined, &[], "You did not give your consent"),
            (LinkOutcome::Failed, &[], "That did not work"),
            (
                LinkOutcome::OwnedByOtherUser,
                &[],
                "Already connected by another user",
            ),
            (LinkOutcome::Expired, &[], "That took too long"),
            (LinkOutcome::Withdrawn, &[], "Nothing is connected"),
            (
                LinkOutcome::NotWithdrawn,
                &[],
                "Nothing is connected, but your consent remains",
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
        assert_eq!(
            notice_with(CallbackOutcome::RemovedSince, None).title,
            "Nothing is connected any more"
        );
    }

    #[test]
    fn result_leads_back_to_an_open_link() {
        use LinkOutcome::{
            Declined, Expired, Failed, Linked, LinkedOther, OwnedByOtherUser, Reconnected,
            Unchanged,
        };
        let label = |outcome, return_link| {
            let outcome = CallbackOutcome::Finished(result_of(outcome, &[], None));
            let notice = notice_with(outcome, return_link);
            notice
                .buttons
                .first()
                .map(|button| (button.value.clone(), button.label))
        };
        let again = |label| Some(("again".to_owned(), label));
        for outcome in [Declined, Failed, LinkedOther] {
            assert_eq!(
                label(outcome, Some(ReturnLink::Link)),
                again("Try again"),
                "{outcome}"
            );
            assert_eq!(
                label(outcome, Some(ReturnLink::Repair)),
                again("Try again"),
                "{outcome}"
            );
            assert_eq!(label(outcome, None), None, "{outcome}");
            let notice = notice_of(outcome, &[], None);
            assert!(
                notice.paragraphs.iter().any(|text| text == OPEN_LINK_AGAIN),
                "{outcome}"
            );
            let html = html(&notice.with_connections_link(true));
            assert!(
                html.contains(TRY_IN_CONSOLE) && !html.contains(OPEN_LINK_AGAIN),
                "{outcome}: {html}"
            );
        }
        for outcome in [Linked, Reconnected, Unchanged] {
            assert_eq!(
                label(outcome, Some(ReturnLink::Link)),
                again("Back to your banks"),
                "{outcome}"
            );
            assert_eq!(label(outcome, Some(ReturnLink::Repair)), None, "{outcome}");
            assert_eq!(label(outcome, None), None, "{outcome}");
        }
        for outcome in [OwnedByOtherUser, Expired] {
            assert_eq!(label(outcome, Some(ReturnLink::Link)), None, "{outcome}");
        }
    }

    #[test]
    fn late_accounts_are_announced() {
        let mut result = result_of(LinkOutcome::Linked, &["A"], None);
        result.connections[0].accounts.clear();
        result.awaits_accounts = true;
        let waiting = notice_with(CallbackOutcome::Finished(result.clone()), None);
        assert!(
            waiting.paragraphs[0].contains("checks again"),
            "{:?}",
            waiting.paragraphs
        );
        result.awaits_accounts = false;
        let over = notice_with(CallbackOutcome::Finished(result), None);
        assert!(
            over.paragraphs[0].contains("no accounts yet"),
            "{:?}",
            over.paragraphs
        );
        let listed = notice_of(LinkOutcome::Linked, &["A"], None);
        assert_eq!(listed.paragraphs, [YOU_CAN_CLOSE]);
    }

    #[test]
    fn signed_in_browser_is_led_to_its_accounts() {
        let shows = |outcome, is_signed_in| {
            let notice = notice_of(outcome, &["A"], None).with_connections_link(is_signed_in);
            html(&notice).contains("/overview\">Your accounts</a>")
        };
        assert!(shows(LinkOutcome::Linked, true));
        assert!(!shows(LinkOutcome::Linked, false));
        assert!(!shows(LinkOutcome::LinkedOther, true));
    }

    #[test]
    fn question_names_the_user_and_has_two_answers() {
        let question = |is_urgent| notice_with(CallbackOutcome::NeedsAnswer { is_urgent }, None);
        let urgent = html(&question(true));
        for words in [
            "Is that you?",
            "For <strong><bdi>",
            "through SOMEBANK.",
            "value=\"yes\"",
            "value=\"no\"",
            "a minute",
        ] {
            assert!(urgent.contains(words), "no {words:?} in {urgent}");
        }
        assert!(
            urgent.contains("Later, only you can end it, at your bank."),
            "{urgent}"
        );
        let html = html(&question(false));
        assert!(
            !html.contains("a minute") && html.contains("We then withdraw your consent."),
            "{html}"
        );
    }

    #[test]
    fn removal_names_the_consequences() {
        let linked = result_of(LinkOutcome::Linked, &[HOSTILE], None)
            .connections
            .remove(0);
        let id = linked.connection.id;
        let page = RemovalPage {
            email: HOSTILE.to_owned(),
            linked,
            app_return: None,
        };
        let frame = Frame::default();
        let asked = html(&Notice::for_removal(&page, &frame, str::to_uppercase));
        assert_harmless(&asked);
        let confirm = format!("name=\"confirm-removal\" value=\"{id}\"");
        for words in [
            confirm.as_str(),
            "withdrawn at SOMEBANK",
            "disappear",
            "Keep it",
            "xxxx5678",
        ] {
            assert!(asked.contains(words), "no {words:?} in {asked}");
        }
        let removed = html(&Notice::for_removed(&page, str::to_uppercase));
        assert_harmless(&removed);
        assert!(
            removed.contains("is removed") && !removed.contains("<button"),
            "{removed}"
        );
    }

    #[test]
    fn new_link_button_is_the_demos() {
        let notice = Notice::new(Tone::Attention, "Expired").with_new_link();
        assert!(!html(&notice).contains("/demo/link"));
        let frame = Frame {
            is_demo: true,
            ..Frame::default()
        };
        assert!(
            notice
                .page(&frame)
                .render()
                .unwrap()
                .contains("action=\"/demo/link\"")
        );
    }

    #[test]
    fn reasons_become_sentences() {
        assert_eq!(
            sentence("the bank is down: try later"),
            "The bank is down: try later."
        );
        assert_eq!(sentence("The bank is down."), "The bank is down.");
        assert_eq!(sentence(""), ".");
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
