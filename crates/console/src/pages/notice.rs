//! The pages with a message: the outcome of a consent session, removals, and errors.

use std::sync::Arc;

use askama::Template;
use axum::Extension;
use axum::response::{IntoResponse, Response};
use bellbird_connections::{
    AppReturn, CallbackOutcome, HandledCallback, LinkResult, LinkedConnection, RemovalPage,
};
use bellbird_domain::{ConnectionId, LinkOutcome};
use bellbird_providers::registry::{consents_place, provider_title};
use http::header::RETRY_AFTER;
use http::{HeaderValue, StatusCode};

use super::frame::Frame;
use super::institution::{AccountRow, ImageOrigins, Institution, account_rows};
use super::names::{institution_name, sanitized};
use super::response::page_with_images;
use super::signed_in::SignedInFrame;
use super::words::sentence;

const OPEN_LINK_AGAIN: &str =
    "To try again, open your link again. It works for half an hour after it was created.";
const BANKS: &str = "/connections";
const BACK_TO_BANKS: &str = "Back to your banks";
const YOU_CAN_CLOSE: &str = "You can close this page.";

/// The colour of the page.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tone {
    /// Success.
    Good,
    /// In progress, or worth trying again.
    Waiting,
    /// Failure.
    Attention,
    /// Nothing happened.
    #[default]
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

/// As a response it has nothing to show, until a layer of the router makes its page.
#[derive(Default)]
pub(crate) struct Notice {
    status: StatusCode,
    /// In seconds, for programs.
    retry_after: Option<u64>,
    tone: Tone,
    title: String,
    /// The user whose accounts they become.
    email: Option<String>,
    /// Whether the user who gave the consent can deny it.
    can_deny: bool,
    connected: Vec<Connected>,
    paragraphs: Vec<String>,
    /// Submit a form to the page's own URL, or to [`Self::form_path`].
    buttons: Vec<Button>,
    form_path: Option<&'static str>,
    /// The class and label of a link that opens the page's own URL.
    retry_link: Option<(&'static str, &'static str)>,
    /// Where a link session leads back.
    app_return: Option<AppReturn>,
    /// Whether the user needs a new link URL, which the demo offers.
    needs_new_link: bool,
    /// To other pages of the console.
    links: Vec<PageLink>,
}

struct PageLink {
    class: &'static str,
    path: &'static str,
    label: &'static str,
}

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
    /// Whether it was to renew the consent of a connection.
    fn is_repair(self) -> bool {
        matches!(
            self,
            Self::Console(Some(Retry(Some(_)))) | Self::Link { is_repair: true }
        )
    }
}

/// What the button of the console began: to reconnect this connection, or to link a new one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Retry(pub(crate) Option<ConnectionId>);

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
}

impl Connected {
    /// With all accounts.
    fn of(linked: &LinkedConnection, frame: &Frame) -> Self {
        Self {
            institution: Institution::of(&linked.connection, frame),
            provider: provider_title(&linked.connection.provider).to_owned(),
            accounts: account_rows(linked),
        }
    }
}

#[derive(Template)]
#[template(path = "notice.html")]
struct NoticePage<'a> {
    frame: &'a Frame,
    notice: &'a Notice,
}

#[derive(Template)]
#[template(path = "notice_signed_in.html")]
struct SignedInNoticePage<'a> {
    frame: &'a SignedInFrame<'a>,
    notice: &'a Notice,
}

impl Notice {
    pub(crate) fn new(tone: Tone, title: impl Into<String>) -> Self {
        Self {
            tone,
            title: title.into(),
            ..Self::default()
        }
    }

    /// Unless it is 200.
    pub(crate) fn with_status(self, status: StatusCode) -> Self {
        Self { status, ..self }
    }

    pub(crate) fn with_retry_after(self, seconds: u64) -> Self {
        Self {
            retry_after: Some(seconds),
            ..self
        }
    }

    fn has_actions(&self) -> bool {
        let has_own = !self.buttons.is_empty() || !self.links.is_empty();
        has_own || self.retry_link.is_some() || self.app_return.is_some()
    }

    /// Whether nothing else leads on. A result of linking is the end of a way.
    fn leads_home(&self) -> bool {
        !self.has_actions() && self.email.is_none()
    }

    pub(crate) fn with(mut self, paragraph: &str) -> Self {
        self.paragraphs.push(paragraph.to_owned());
        self
    }

    /// Adds a link that opens the page's URL.
    pub(crate) fn with_retry_link(self) -> Self {
        self.with_return_link("Try again")
    }

    /// As [`Self::with_retry_link`], with another label.
    pub(crate) fn with_return_link(self, label: &'static str) -> Self {
        Self {
            retry_link: Some(("button", label)),
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

    /// Adds a link to the page of banks.
    pub(crate) fn with_banks_link(self) -> Self {
        self.with_page_link(BANKS, BACK_TO_BANKS)
    }

    /// Adds a link to a page of the console.
    pub(crate) fn with_page_link(self, path: &'static str, label: &'static str) -> Self {
        self.with_link("button", path, label)
    }

    /// As [`Self::with_page_link`], for what is less likely wanted.
    fn with_quiet_link(self, path: &'static str, label: &'static str) -> Self {
        self.with_link("button quiet", path, label)
    }

    fn with_link(mut self, class: &'static str, path: &'static str, label: &'static str) -> Self {
        self.links.push(PageLink { class, path, label });
        self
    }

    /// Adds a link to the app.
    pub(crate) fn with_app_return(self, app_return: Option<AppReturn>) -> Self {
        Self { app_return, ..self }
    }

    /// The page of a link session that has connected.
    pub(crate) fn for_connected_link(app_return: Option<AppReturn>) -> Self {
        Self::new(Tone::Good, "Your accounts are linked")
            .with("This link has done its work, and links nothing else. You can close this page.")
            .with_app_return(app_return)
    }

    fn page<'a>(&'a self, frame: &'a Frame) -> NoticePage<'a> {
        NoticePage {
            frame,
            notice: self,
        }
    }

    pub(crate) fn response(&self, frame: &Frame) -> Response {
        self.response_with(&self.page(frame))
    }

    /// With the menus of the user who is signed in.
    pub(crate) fn response_with_menus(&self, frame: &SignedInFrame<'_>) -> Response {
        self.response_with(&SignedInNoticePage {
            frame,
            notice: self,
        })
    }

    fn response_with(&self, page: &impl Template) -> Response {
        let institutions = self
            .connected
            .iter()
            .map(|connected| &connected.institution);
        let origins = ImageOrigins::of(institutions);
        let mut response = page_with_images(self.status, page, origins);
        let seconds = self.retry_after.map(HeaderValue::from);
        let retry_after = seconds.map(|seconds| (RETRY_AFTER, seconds));
        response.headers_mut().extend(retry_after);
        response
    }

    /// Asks before a connection is removed.
    pub(crate) fn for_removal(page: &RemovalPage, frame: &Frame) -> Self {
        let provider = provider_title(&page.linked.connection.provider);
        let name = institution_name(&page.linked.connection);
        let confirm = Button {
            class: "danger",
            name: "confirm-removal",
            value: page.linked.connection.id.to_string(),
            label: "Remove",
        };
        Self {
            email: Some(sanitized(&page.email)),
            connected: vec![Connected::of(&page.linked, frame)],
            buttons: vec![confirm],
            retry_link: Some(("button quiet", "Keep it")),
            ..Self::new(Tone::Attention, format!("Remove {name}?"))
        }
        .with(&format!(
            "Its accounts disappear from this service and from all your programs at once, and everything stored about \
             them is deleted. Your consent is withdrawn at {provider}."
        ))
        .with("You can link the bank again later, as a new one.")
    }

    /// After a removal has begun. `page` is what was removed.
    pub(crate) fn for_removed(page: &RemovalPage) -> Self {
        let provider = provider_title(&page.linked.connection.provider);
        let name = institution_name(&page.linked.connection);
        Self {
            email: Some(sanitized(&page.email)),
            ..Self::new(Tone::Good, format!("{name} is removed"))
        }
        .with_return_link("Back to your link")
        .with("No program can read its accounts through Bellbird any more.")
        .with(&format!(
            "Your consent is being withdrawn at {provider}, which can take a few minutes."
        ))
        .with_app_return(page.app_return.clone())
    }

    /// The page after consent.
    pub(crate) fn for_callback(callback: &HandledCallback, way: WayBack, frame: &Frame) -> Self {
        let HandledCallback {
            email,
            provider,
            can_deny,
            outcome,
            app_return,
        } = callback;
        let notice = match outcome {
            CallbackOutcome::NeedsAnswer { is_urgent } => {
                Self::for_question(provider, *is_urgent)
            }
            CallbackOutcome::UnknownState => Self::new(Tone::Attention, "This link does not work")
                .with("It is forged, too old, or incomplete. Nothing was changed.")
                .with(match way {
                    WayBack::Console(_) => "If you came from a provider's page, start again.",
                    _ => "If you came from a provider's page, start again with the link that you were given.",
                })
                .with_way_to_banks(way),
            CallbackOutcome::Pending => Self::new(Tone::Waiting, "Not confirmed yet")
                .with("The provider has not confirmed your consent yet. This can take a few minutes.")
                .with("This page checks again every few seconds. You can close it. Linking continues by itself.")
                .with_way_to_banks(way),
            CallbackOutcome::RemovedSince => Self::new(Tone::Neutral, "This is not linked any more")
                .with("What you linked here has been removed since.")
                .with_way_to_banks(way),
            CallbackOutcome::Finished(result) => {
                Self::for_result(result, provider, way, frame)
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

    fn for_question(provider: &str, is_urgent: bool) -> Self {
        let (provider, consents) = (provider_title(provider), consents_place(provider));
        let question = Self::new(Tone::Waiting, "Is that you?").with(&format!(
            "You gave this user access to your accounts, through {provider}. Linking started in another \
                            browser, so please confirm that it was you. This page links nothing before you answer."
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

    fn for_result(result: &LinkResult, provider_name: &str, way: WayBack, frame: &Frame) -> Self {
        let (provider, consents) = (provider_title(provider_name), consents_place(provider_name));
        let names: Vec<String> = result
            .connections
            .iter()
            .map(|linked| institution_name(&linked.connection))
            .collect();
        let connected = result
            .connections
            .iter()
            .map(|linked| Connected::of(linked, frame));
        let notice = match result.outcome {
            LinkOutcome::Linked => Self::new(Tone::Good, format!("{} linked", subject(&names)))
                .with_accounts_hint(result, way)
                .with_way_on(way, "Link another"),
            LinkOutcome::Reconnected => Self::new(Tone::Good, format!("{} reconnected", subject(&names)))
                .with(match names.len() {
                    1 => "Programs that read it work as before.",
                    _ => "Programs that read them work as before.",
                })
                .with_accounts_hint(result, way)
                .with_way_on(way, BACK_TO_BANKS),
            LinkOutcome::LinkedOther => Self::new(Tone::Attention, format!("{} linked separately", subject(&names)))
                .with(
                    "You shared none of the accounts of the bank that you wanted to reconnect, so that one has not \
                         changed. To reconnect it, sign in with the same login and choose the same accounts.",
                )
                .with(match way {
                    WayBack::Console(_) => "If you do not want the new one, remove it on the page of your banks.",
                    WayBack::Link { is_repair: false } => "If you do not want the new one, remove it on your link.",
                    _ => "If you do not want the new one, ask for a new link, and remove it there.",
                })
                .with_retry(way, provider_name),
            LinkOutcome::Unchanged => Self::new(Tone::Neutral, "Nothing has changed")
                .with("Everything that you consented to was linked already.")
                .with_end(way)
                .with_way_to_banks(way),
            LinkOutcome::Declined if way.is_repair() => Self::new(Tone::Neutral, "Nothing has changed")
                .with("You did not renew your consent.")
                .with_retry(way, provider_name),
            LinkOutcome::Declined => Self::new(Tone::Neutral, "You did not give your consent")
                .with("Nothing was changed.")
                .with_retry(way, provider_name),
            LinkOutcome::Failed => {
                let why = result.reason.as_deref().map(sentence);
                let what = if way.is_repair() { "Reconnecting" } else { "Linking" };
                Self::new(Tone::Attention, format!("{what} through {provider} did not work"))
                    .with(why.as_deref().unwrap_or("The provider could not complete it."))
                    .with("Nothing was linked.")
                    .with_retry(way, provider_name)
            }
            LinkOutcome::OwnedByOtherUser => Self::new(Tone::Attention, "Linked already, for somebody else")
                .with("Accounts can be linked once on this service, and these are linked for another user. Nothing was \
                       changed.")
                .with("If you share them, as in a household, the other one can remove the bank. Then you can link it.")
                .with(&format!("If you share them with nobody, look {consents} at who has your consent."))
                .with_banks_in_console(way),
            LinkOutcome::Withdrawn => Self::new(Tone::Neutral, "Nothing is linked")
                .with("You said that it was not you, or the consent was not confirmed in time.")
                .with(&format!(
                    "This user has no access to your accounts. What you consented to is being withdrawn at {provider}, \
                     which can take a few minutes. You can check that {consents}."
                ))
                .with_banks_in_console(way),
            LinkOutcome::NotWithdrawn => Self::new(Tone::Attention, "Nothing is linked, but your consent remains")
                .with("This user has no access to your accounts.")
                .with(&format!(
                    "{provider} did not let us withdraw your consent, so please end it yourself {consents}."
                ))
                .with_banks_in_console(way),
            LinkOutcome::Expired => {
                let notice = Self::new(Tone::Attention, "That took too long")
                    .with("The provider did not report your consent in time. Nothing was changed.");
                match way {
                    WayBack::Console(_) => notice.with_retry(way, provider_name),
                    _ => notice.with("Ask for a new link, and start again.").with_new_link(),
                }
            }
        };
        Self {
            connected: connected.collect(),
            ..notice
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

    /// Says that nothing is left to do, unless the console goes on.
    fn with_end(self, way: WayBack) -> Self {
        match way {
            WayBack::Console(_) => self,
            _ => self.with(YOU_CAN_CLOSE),
        }
    }

    /// Leads back after a failure.
    fn with_retry(mut self, way: WayBack, provider: &str) -> Self {
        let button = match way {
            WayBack::Unknown => return self.with(OPEN_LINK_AGAIN),
            WayBack::Console(None) => return self.with_banks_link(),
            WayBack::Link { .. } => Button::answer("strong", "again", "Try again"),
            WayBack::Console(Some(Retry(repaired))) => {
                self.form_path = Some(BANKS);
                let (name, value) = match repaired {
                    Some(id) => ("connection", id.to_string()),
                    None => ("provider", provider.to_owned()),
                };
                Button {
                    class: "strong",
                    name,
                    value,
                    label: "Try again",
                }
            }
        };
        self.buttons.push(button);
        match way {
            WayBack::Console(_) => self.with_quiet_link(BANKS, BACK_TO_BANKS),
            _ => self,
        }
    }

    /// Leads on after a success: in the console to what is new there and to `others`, and on a link
    /// to all banks and providers, unless it is for one connection.
    fn with_way_on(self, way: WayBack, others: &'static str) -> Self {
        match way {
            WayBack::Console(_) => self
                .with_page_link("/overview", "See your balances")
                .with_quiet_link(BANKS, others),
            _ => self.with_way_to_banks(way),
        }
    }

    /// Leads to all banks and providers, unless the link is for one connection.
    fn with_way_to_banks(mut self, way: WayBack) -> Self {
        if way == (WayBack::Link { is_repair: false }) {
            self.buttons
                .push(Button::answer("strong", "again", BACK_TO_BANKS));
        }
        self.with_banks_in_console(way)
    }

    /// Leads to the banks of a user of the console. A link is of no use after this.
    fn with_banks_in_console(self, way: WayBack) -> Self {
        match way {
            WayBack::Console(_) => self.with_banks_link(),
            _ => self,
        }
    }
}

impl IntoResponse for Notice {
    fn into_response(self) -> Response {
        (self.status, Extension(Arc::new(self))).into_response()
    }
}

/// The subject and verb of the title.
fn subject(names: &[String]) -> String {
    match names {
        [] => "Your accounts are".to_owned(),
        [name] => format!("{name} is"),
        names => format!("{} banks are", names.len()),
    }
}

#[cfg(test)]
mod tests {
    use bellbird_domain::ConnectionStatus;
    use bellbird_providers::registry::PROVIDERS;

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
        Notice::for_callback(&callback, way, &Frame::default())
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
        assert_eq!(kept.title, "Nothing has changed");
        assert_eq!(kept.paragraphs, ["You did not renew your consent."]);
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
    fn error_without_another_way_leads_to_the_start() {
        let home = "href=\"/\">Go to the start page</a>";
        let notice = Notice::new(Tone::Neutral, "Page not found");
        assert!(html(&notice).contains(home));
        assert!(!html(&notice.with_retry_link()).contains(home));
        assert!(!html(&notice_of(LinkOutcome::Linked, &["A"], None)).contains(home));
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
        let page = RemovalPage {
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
        let removed = html(&Notice::for_removed(&page));
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
