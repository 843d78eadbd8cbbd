//! The service crashes at every step of linking and reconnecting, starts again, and completes the
//! consent session. The link session of an app has its one result.

use bellbird_connections::{CallbackAnswer, Connections, LinkStatus, LinkTarget, NewLinkSession};
use bellbird_domain::{Confirmation, Connection, ConnectionStatus, Plan, UserId};
use bellbird_sandbox::{ConsentState, WebhookSettings};
use bellbird_storage::UserChange;
use jiff::SignedDuration;
use reqwest::Url;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value, json};
use uuid::Uuid;

use super::kill_factor;
use crate::support::browser::{open, start};
use crate::support::crash::{CrashPoint, PAST_EVERY_LEASE, RunOutcome};
use crate::support::harness::{AccountLabel, App, Person, Setup, also_on_postgres};
use crate::support::provider_spec::spec;

/// How many parts the time of a step is cut into. The service crashes at the end of each.
const PARTS: u32 = 4;

/// A step of linking.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// The user opens the link URL.
    Start,
    /// The browser opens the callback URL.
    Callback,
    /// A job resumes the consent session after a stored callback.
    ResumeCallback,
    /// A job refreshes the new connection for the first time.
    Refresh,
}

impl App {
    /// Advances the clock past every lease of the crashed instance and runs due jobs.
    async fn expire_leases(&self) {
        self.advance_clock(PAST_EVERY_LEASE);
        self.run_due_jobs().await;
    }

    /// How many users with this email address are registered at the provider now.
    async fn registered(&self, provider: &str, email: &str) -> usize {
        match &spec(provider).registration {
            Some(registration) => (registration.count)(self, email).await,
            None => 0,
        }
    }
}

/// The cookie of the browser that starts the sessions which no page starts.
const BROWSER: &str = "another browser";

/// Work that is not finished yet, by kind.
const PENDING_WORK: &str =
    "SELECT kind FROM jobs WHERE kind <> 'sync' AND (run_at IS NOT NULL OR lease_until IS NOT NULL)
    UNION ALL SELECT 'consent session' FROM consent_sessions WHERE phase <> 'ended'
    UNION ALL SELECT 'answer' FROM secrets WHERE purpose = 'consent_session'";

/// Linking by one user, during which the service crashes once.
struct LinkFlow<'a> {
    app: &'a App,
    provider: &'a str,
    /// How the provider responds to a reconnect. `None` links a new connection.
    repair: Option<&'a Value>,
    step: Step,
}

impl LinkFlow<'_> {
    /// Runs the flow with one crash. At the end, everything has to be as it is without a crash.
    async fn run_once(&self, crash_point: CrashPoint) -> RunOutcome {
        let (app, provider) = (self.app, self.provider);
        let person = app
            .add_person(spec(provider).email, Plan::Professional, &[])
            .await;
        let user = person.user.id;
        let broken = match self.repair {
            Some(setting) => Some(self.broken_connection(user, setting).await),
            None => None,
        };
        let repaired = broken.as_ref().map(|(connection, _)| connection.id);
        let to = repaired.map_or(LinkTarget::Provider(provider), LinkTarget::Connection);
        let link = app
            .create_link_session(user, to, NewLinkSession::default())
            .await
            .unwrap();
        let link_url = link.url.expose_secret().to_owned();
        let mut outcome = None;
        if self.step == Step::Start {
            let token = link_url.rsplit('/').next().unwrap().to_owned();
            let start_session = async move |connections: Connections| {
                let (links, to) = (connections.links(), LinkTarget::UserChoice);
                let _ = links.start_consent_session(&token, to, BROWSER).await;
            };
            let crashed = app.run_until_crash(provider, crash_point, start_session);
            outcome = Some(crashed.await);
            app.expire_leases().await;
        }
        let callback_url = app.answer_consent_page(&link_url, "accept").await;
        if self.step != Step::Start {
            let crashed = self.return_from_provider(user, &callback_url, crash_point);
            outcome = Some(crashed.await);
        }
        self.reload(user, &link_url, &callback_url).await;
        self.assert_consistent(&person, broken).await;
        self.assert_result(link.id, &link_url).await;
        self.remove_everything(&person).await;
        outcome.unwrap()
    }

    /// A connection whose consent is revoked, and its accounts.
    async fn broken_connection(
        &self,
        user: UserId,
        setting: &Value,
    ) -> (Connection, Vec<AccountLabel>) {
        let (app, provider) = (self.app, self.provider);
        let (mut linked, shown) = app.link_at(user, provider).await;
        assert_eq!(linked.len(), 1, "{}", shown.text);
        let connection = linked.remove(0);
        let accounts = app.accounts_of(&connection).await;
        if !setting.is_null() {
            app.set_options(provider, setting);
        }
        let status = app.change_consent(&connection, ConsentState::Revoked).await;
        assert_eq!(status, ConnectionStatus::Revoked);
        (connection, accounts)
    }

    async fn return_from_provider(
        &self,
        user: UserId,
        callback_url: &Url,
        crash_point: CrashPoint,
    ) -> RunOutcome {
        let (app, provider) = (self.app, self.provider);
        let mut answer: Vec<(String, String)> = callback_url.query_pairs().into_owned().collect();
        let run_due = |kind: &'static str| {
            let run = async move |connections: Connections| {
                let _ = connections.jobs().run_due(kind).await;
            };
            app.run_until_crash(provider, crash_point, run)
        };
        match self.step {
            Step::Start | Step::Callback => {
                let run = async move |connections: Connections| {
                    answer_callback(&connections, &answer).await;
                };
                app.run_until_crash(provider, crash_point, run).await
            }
            Step::ResumeCallback => {
                let (_, state) = answer.iter().find(|(name, _)| name == "state").unwrap();
                let state = state.clone();
                answer.retain(|(name, _)| name != "state");
                let mut params = callback_url.clone();
                params.query_pairs_mut().clear().extend_pairs(answer);
                let sealed = SecretString::from(params.query().unwrap_or_default());
                let (sessions, now) = (app.storage.consent_sessions(), app.clock.now());
                let confirmed = (Confirmation::Confirmed, None);
                let received = sessions.receive_callback(&state, &sealed, confirmed, now, now);
                let received = received.await.unwrap();
                received.expect("the session waits for its callback");
                run_due("consent_session").await
            }
            Step::Refresh => {
                open(&callback_url).await;
                assert!(!app.connections_of(user).await.is_empty());
                app.advance_clock(SignedDuration::from_secs(10));
                run_due("refresh").await
            }
        }
    }

    /// What a user does after an error page: reloads the callback, again later, and starts again if
    /// that does not help.
    async fn reload(&self, user: UserId, link_url: &str, callback_url: &Url) {
        let app = self.app;
        // A commit that was sent may still be running. This write waits for it, so that the reads
        // below see it.
        app.change_user(user, &UserChange::default()).await;
        for _ in 0..2 {
            let shown = open(&callback_url).await;
            assert_eq!(shown.status, 200, "{}", shown.text);
            app.expire_leases().await;
        }
        if !self.works(user).await {
            // A code works once, so it is lost when its exchange is interrupted or late.
            assert_eq!(self.provider, "akahu", "the consent was lost");
            assert_ne!(self.step, Step::Start, "the consent was lost");
            let callback_url = app.answer_consent_page(link_url, "accept").await;
            let shown = open(&callback_url).await;
            assert_eq!(shown.status, 200, "{}", shown.text);
        }
    }

    async fn works(&self, user: UserId) -> bool {
        let connections = self.app.connections_of(user).await;
        let mut statuses = connections.iter().map(|connection| connection.status);
        statuses.any(|status| status == ConnectionStatus::Active)
    }

    async fn assert_consistent(
        &self,
        person: &Person,
        broken: Option<(Connection, Vec<AccountLabel>)>,
    ) {
        let (app, provider, user) = (self.app, self.provider, person.user.id);
        // Long enough for the last refresh after a link, and for the end of every consent session,
        // also of those that keep their credentials longer.
        for hours in [1, 1, 12, 24, 24, 24] {
            app.run_jobs_after(SignedDuration::from_hours(hours)).await;
            if app.query(PENDING_WORK).await.is_empty() {
                break;
            }
        }
        assert_eq!(app.query(PENDING_WORK).await, Vec::<Vec<String>>::new());
        let connections = app.connections_of(user).await;
        assert_eq!(connections.len(), 1, "{connections:?}");
        let connection = &connections[0];
        assert_eq!(connection.status, ConnectionStatus::Active);
        let accounts = app.accounts_of(connection).await;
        assert!(!accounts.is_empty());
        let audit = app.audit_of(connection.id).await.into_iter();
        let steps: Vec<String> = audit.map(|step| step.cause).collect();
        match broken {
            None => assert_eq!(steps, ["linked"]),
            Some((before, accounts_before)) => {
                assert_eq!(connection.id, before.id);
                assert_eq!(accounts, accounts_before, "all ids are kept");
                // A refresh may have found the new consent before the callback.
                assert_eq!(steps[..2], ["linked", "refreshed"]);
                assert_eq!(steps.len(), 3, "{steps:?}");
                assert!(
                    matches!(&*steps[2], "reconnected" | "refreshed"),
                    "{steps:?}"
                );
            }
        }
        let read = app.rows_of(connection).by(person).send().await;
        assert_eq!(read.status, 200, "{}", read.text);
        let expected = usize::from(spec(provider).registration.is_some());
        let registered = app.registered(provider, &person.user.email).await;
        assert_eq!(registered, expected, "users at the provider");
    }

    /// Asserts that the app receives the connection.
    async fn assert_result(&self, session: Uuid, link_url: &str) {
        let app = self.app;
        let result = app.connections.links().find_link_session(session).await;
        let result = result.unwrap().expect("a link session");
        let connections = app.connections_of(result.user_id).await.into_iter();
        let ids: Vec<_> = connections.map(|connection| connection.id).collect();
        if result.status == LinkStatus::Failed {
            // The code was lost, but the former login works again, as a refresh has found.
            let audit = app.audit_of(ids[0]).await;
            let last = audit.last().unwrap().cause.as_str();
            assert_eq!((self.provider, last), ("akahu", "refreshed"), "{result:?}");
            return;
        }
        assert_eq!(result.status, LinkStatus::Connected, "{result:?}");
        let told: Vec<_> = result.connections.iter().map(|linked| linked.id).collect();
        assert_eq!(told, ids, "{result:?}");
        assert_eq!(start(link_url).await.status, 200, "it has done its work");
    }

    /// Removes the user here and at the provider.
    async fn remove_everything(&self, person: &Person) {
        let (app, user) = (self.app, person.user.id);
        for connection in app.connections_of(user).await {
            app.remove(connection.id).await;
        }
        let links = app.connections.links();
        links.unregister_provider_users(user, false).await.unwrap();
        app.advance_clock(SignedDuration::from_secs(2));
        assert_eq!(app.registered(self.provider, &person.user.email).await, 0);
        app.delete_user(user).await;
    }

    /// Crashes at every call, before and after the provider has carried it out, and at points in
    /// between.
    async fn crash_everywhere(&self) {
        let baseline = self.run_once(CrashPoint::Never).await;
        assert!(baseline.finished);
        let mut crashed = baseline.calls == 0;
        for after in 0..baseline.calls {
            for applied in [false, true] {
                // A call that is made once for all users is not made again, so its crash point is
                // not reached.
                let crash_point = CrashPoint::AtCall { after, applied };
                crashed |= !self.run_once(crash_point).await.finished;
            }
        }
        assert!(crashed, "no call was interrupted");
        if matches!(self.step, Step::Callback | Step::ResumeCallback) {
            self.run_once(CrashPoint::BeforeSessionEnds).await;
        }
        let parts = PARTS * kill_factor();
        let count = usize::try_from(parts).unwrap();
        for crash_point in baseline.parts(parts).take(count) {
            self.run_once(crash_point).await;
        }
    }
}

async fn answer_callback(connections: &Connections, answer: &[(String, String)]) {
    let yes = CallbackAnswer::Yes("another browser");
    let _ = connections.links().handle_callback(answer, yes).await;
}

async fn crash_everywhere(provider: &str, repair: Option<Value>) {
    let app = App::start(Setup::default()).await;
    // Nothing listens at this URL. The sandbox counts the events that it would deliver.
    let nowhere = WebhookSettings::to("http://127.0.0.1:9/");
    app.bank("snaptrade").set_webhooks(nowhere).unwrap();
    for step in ALL_STEPS {
        let flow = LinkFlow {
            app: &app,
            provider,
            repair: repair.as_ref(),
            step,
        };
        flow.crash_everywhere().await;
    }
}

#[tokio::test]
async fn unsent_code_exchange_is_resumed_in_time() {
    let app = App::start(Setup::default()).await;
    let (email, plan) = (spec("akahu").email, Plan::Professional);
    let user = app.add_person(email, plan, &[]).await.user.id;
    let callback_url = app.callback_url(user, "akahu", "accept").await;
    let answer: Vec<(String, String)> = callback_url.query_pairs().into_owned().collect();
    let run = async move |connections: Connections| {
        answer_callback(&connections, &answer).await;
    };
    let unsent = CrashPoint::AtCall {
        after: 0,
        applied: false,
    };
    let outcome = app.run_until_crash("akahu", unsent, run);
    assert!(!outcome.await.finished);
    // A code is valid for one minute.
    app.advance_clock(SignedDuration::from_secs(30));
    let jobs = app.connections.jobs();
    jobs.run_due("consent_session").await.unwrap();
    assert_eq!(app.connections_of(user).await.len(), 1);
}

const ALL_STEPS: [Step; 4] = [
    Step::Start,
    Step::Callback,
    Step::ResumeCallback,
    Step::Refresh,
];

#[tokio::test]
async fn fiskil_linking_survives_any_crash() {
    crash_everywhere("fiskil", None).await;
}

#[tokio::test]
async fn akahu_linking_survives_any_crash() {
    crash_everywhere("akahu", None).await;
}

#[tokio::test]
async fn snaptrade_linking_survives_any_crash() {
    crash_everywhere("snaptrade", None).await;
}

#[tokio::test]
async fn fiskil_reconnecting_survives_any_crash() {
    crash_everywhere("fiskil", Some(json!({"sameIds": false}))).await;
}

#[tokio::test]
async fn akahu_reconnecting_survives_any_crash() {
    let anew = json!({"newToken": true, "newAuthorisation": true});
    crash_everywhere("akahu", Some(anew)).await;
}

#[tokio::test]
async fn snaptrade_reconnecting_survives_any_crash() {
    crash_everywhere("snaptrade", Some(Value::Null)).await;
}

also_on_postgres! { unsent_code_exchange_is_resumed_in_time fiskil_linking_survives_any_crash akahu_linking_survives_any_crash snaptrade_linking_survives_any_crash fiskil_reconnecting_survives_any_crash akahu_reconnecting_survives_any_crash snaptrade_reconnecting_survives_any_crash }
