//! The page of a user's own webhook endpoints, and the log of each.

use bellbird_domain::{
    DeliveryState, EndpointId, EndpointStatus, EventId, EventType, Plan, UserId,
};
use bellbird_storage::{Endpoint, in_tx};
use secrecy::ExposeSecret as _;

use super::SignedIn;
use crate::support::harness::{App, Setup};
use crate::support::receiver::{Receiver, Reply};
use crate::support::words::assert_has;

fn form_of(url: &str, events: &[EventType]) -> String {
    let events: String = events
        .iter()
        .map(|event| format!("&event={event}"))
        .collect();
    format!(
        "url={}{events}",
        url.replace(':', "%3A").replace('/', "%2F")
    )
}

/// Makes an endpoint, and returns its secret.
async fn make(browser: &SignedIn<'_>, url: &str) -> String {
    let page = browser
        .post("/webhooks", &form_of(url, &[EventType::TransactionsSynced]))
        .await;
    page.assert_status(200);
    let secret = page
        .text
        .split("<code>whsec_")
        .nth(1)
        .unwrap_or_else(|| panic!("no secret: {}", page.text));
    format!("whsec_{}", secret.split('<').next().unwrap())
}

async fn endpoint(app: &App, user: UserId) -> Endpoint {
    app.storage.endpoints().list(user).await.unwrap().remove(0)
}

#[tokio::test]
async fn what_failed_is_sent_again_by_its_owner_only() {
    let app = App::start(Setup::default()).await;
    let hook = app.hook(&app.ben.user).await;
    hook.receiver.reply_with(Reply::Status(503));
    app.sync(&app.ben.connections[0]).await;
    app.webhooks.run_due_deliveries().await;
    while app.advance_to_next_attempt(&hook).await {
        app.webhooks.run_due_deliveries().await;
    }
    let states = app.states_at(&hook).await;
    assert!(states.contains(&DeliveryState::Failed), "{states:?}");
    let browser = app.sign_in(app.ben.user.id).await;
    let path = format!("/webhooks/endpoints/{}", hook.endpoint.id);
    let failed = app
        .deliveries_to(&hook)
        .await
        .into_iter()
        .find(|one| one.state == DeliveryState::Failed)
        .unwrap();
    let log = browser.get(&format!("{path}?state=failed")).await;
    log.assert_has(&format!("tried {} times", failed.attempts));
    log.assert_has("503 · ");
    let marked = format!(
        "<bdi>{}</bdi> <span class=\"badge\">Sandbox</span>",
        app.ben.connections[0].institution_name
    );
    log.assert_has(&marked);
    browser
        .get(&format!("{path}?state=delivered"))
        .await
        .assert_has("No event is in this state");

    hook.receiver.reply_with(Reply::Status(200));
    hook.drain();
    let again = browser
        .post(&path, &format!("redeliver={}", failed.event_id))
        .await;
    let event = failed.event_id;
    let shown = format!("{path}?event={event}&done=event-requested&at={event}#done");
    again.assert_leads_to(&shown);
    let page = browser.get(shown.trim_end_matches("#done")).await;
    page.assert_has("The event is sent again now");
    let received = app.delivered_to(&hook).await;
    assert!(
        received
            .iter()
            .any(|event| event.id == failed.event_id.to_string()),
        "{received:?}"
    );

    // The audit says so, unless nothing has failed.
    let hook = app.hook(&app.ben.user).await;
    hook.receiver.reply_with(Reply::Status(503));
    app.add_recent_row(&app.ben.connections[0], "LATER").await;
    app.sync(&app.ben.connections[0]).await;
    let browser = app.sign_in(app.ben.user.id).await;
    let path = format!("/webhooks/endpoints/{}", hook.endpoint.id);
    let recoveries = async || {
        let audit = app.storage.audit();
        let rows = audit.list_before(None, Some(app.ben.user.id), 9).await;
        let rows = rows.unwrap().into_iter();
        rows.filter(|row| row.action == "delivery.recover").count()
    };
    let nothing = "no-failed-events&at=recover";
    browser.submit(&path, "recover=day", nothing).await;
    assert_eq!(recoveries().await, 0, "nothing has failed yet");
    app.webhooks.run_due_deliveries().await;
    while app.advance_to_next_attempt(&hook).await {
        app.webhooks.run_due_deliveries().await;
    }
    let done = "events-requested&at=recover";
    browser.submit(&path, "recover=3-days", done).await;
    assert_eq!(recoveries().await, 1);

    // Endpoints of others look missing.
    let browser = app.sign_in(app.ben.user.id).await;
    let theirs = app.hook(&app.olivia.user).await.endpoint.id;
    let of_all = app
        .hook_for_all(&[EventType::TransactionsSynced])
        .await
        .endpoint
        .id;
    let missing = EndpointId::new();
    let expected = browser.get(&format!("/webhooks/endpoints/{missing}")).await;
    expected.assert_status(404);
    for id in [theirs, of_all] {
        let page = browser.get(&format!("/webhooks/endpoints/{id}")).await;
        assert_eq!((page.status, &page.text), (404, &expected.text));
        for action in ["ping", "rotate", "enable", "disable", "delete"] {
            let done = browser.post("/webhooks", &format!("{action}={id}")).await;
            assert_eq!((done.status, &done.text), (404, &expected.text), "{action}");
        }
        for form in [
            "recover=day",
            &format!("redeliver={}", uuid::Uuid::now_v7()),
        ] {
            let done = browser
                .post(&format!("/webhooks/endpoints/{id}"), form)
                .await;
            assert_ne!(done.status, 200, "{form}: {}", done.text);
            assert_ne!(done.status, 303, "{form}");
        }
        let edited = format!(
            "{}&edit={id}",
            form_of("https://a.example", &[EventType::TradesSynced])
        );
        let done = browser.post("/webhooks", &edited).await;
        assert_eq!((done.status, &done.text), (404, &expected.text));
    }
    browser
        .get("/webhooks")
        .await
        .assert_lacks(&theirs.to_string());
    let kept = app
        .storage
        .endpoints()
        .list(app.olivia.user.id)
        .await
        .unwrap();
    assert_eq!(kept[0].status, EndpointStatus::Enabled);
}

#[tokio::test]
async fn endpoint_is_made_tried_repaired_and_deleted() {
    let app = App::start(Setup::default()).await;
    let browser = app.sign_in(app.ben.user.id).await;
    for (url, events) in [
        (
            "http://example.com/hook",
            &[EventType::TransactionsSynced][..],
        ),
        ("https://10.0.0.1/hook", &[EventType::TransactionsSynced]),
        ("nothing", &[EventType::TransactionsSynced]),
        ("https://example.com/hook", &[]),
    ] {
        let page = browser.post("/webhooks", &form_of(url, events)).await;
        page.assert_status(400);
        page.assert_has(&format!("value=\"{url}\""));
    }
    let form = form_of("ftp://example.com/hook", &[EventType::TransactionsSynced]);
    let page = browser.post("/webhooks", &form).await;
    page.assert_shows(
        400,
        "use https, or http to the computer that runs Bellbird.",
    );
    assert_eq!(
        app.storage.endpoints().list(app.ben.user.id).await.unwrap(),
        []
    );
    for wrong in ["", "ping=1", "ping=", "x=1"] {
        browser.try_submit("/webhooks", wrong, 400).await;
    }

    // One that is right.
    let operator = app.sign_in_operator().await;
    let (browser, user) = (app.sign_in(app.ben.user.id).await, app.ben.user.id);
    let receiver = Receiver::start().await;
    let secret = make(&browser, &receiver.url).await;
    let made = endpoint(&app, user).await;
    let page = browser.get("/webhooks").await;
    page.assert_has(&receiver.url);
    page.assert_has("Gets events");
    // A secret is shown once.
    page.assert_lacks(&secret);

    let act = async |action: &str| {
        browser
            .post("/webhooks", &format!("{action}={}", made.id))
            .await
    };
    let pinged = act("ping").await;
    pinged.assert_status(200);
    pinged.assert_has("The test event was delivered. Your program responded with 204");
    let event = receiver.drain().remove(0);
    let first = format!("ping={}&tested=", made.id);
    let reloaded = browser.post("/webhooks", &first).await;
    let place = format!("at={}#done", made.id);
    reloaded.assert_leads_to(&format!("/webhooks?done=test-shown-before&{place}"));
    assert_eq!(receiver.drain().len(), 0, "a reload sends nothing");
    let card = browser.get("/webhooks").await;
    card.assert_has("<dt>Last test</dt>");
    card.assert_has("204 · ");
    let log_path = format!("/webhooks/endpoints/{}", made.id);
    let log = browser.get(&log_path).await;
    log.assert_has(&format!("webhook-id: {}", event.id));
    log.assert_has(&format!("webhook-timestamp: {}", event.timestamp));
    log.assert_has("tried once");
    let found = browser.get(&format!("{log_path}?event={}", event.id)).await;
    found.assert_has(&event.id);
    for unknown in ["x", &EventId::new().to_string()] {
        let none = browser.get(&format!("{log_path}?event={unknown}")).await;
        none.assert_shows(200, "No event at this endpoint has this id");
    }
    log.assert_lacks(&secret);

    receiver.reply_with(Reply::Status(500));
    let failed = act("ping").await;
    failed.assert_has("was not delivered");
    failed.assert_has("responded with 500");
    receiver.reply_with(Reply::Status(200));
    receiver.drain();
    let redeliver = format!("redeliver={}", event.id);
    let again = browser.post(&log_path, &redeliver).await;
    again.assert_shows(409, "A test event is not sent again");
    let path = format!("/operator/deliveries/{}", made.id);
    let listed = operator.get(&path).await;
    listed.assert_has("endpoint.<wbr>ping");
    listed.assert_lacks("name=\"redeliver\"");
    let form = format!("{redeliver}&user={user}");
    let again = operator.post(&path, &form).await;
    again.assert_shows(409, "A test event is not sent again");

    let rotation = format!("rotate={}&rotated=", made.id);
    let rotated = browser.post("/webhooks", &rotation).await;
    rotated.assert_has("whsec_");
    rotated.assert_lacks(&secret);
    let current_secret = async || {
        let endpoints = app.storage.endpoints();
        let secrets = endpoints.secrets(user, made.id, app.clock.now()).await;
        let current = secrets.unwrap().unwrap().current;
        current.expose_secret().to_owned()
    };
    let current = current_secret().await;
    let reloaded = browser.post("/webhooks", &rotation).await;
    reloaded.assert_leads_to(&format!("/webhooks?done=secret-shown-before&{place}"));
    assert_eq!(current_secret().await, current);
    let edited = form_of(&receiver.url, &[EventType::ConnectionUpdated]);
    let edited = format!("{edited}&edit={}", made.id);
    let saved = browser.post("/webhooks", &edited).await;
    saved.assert_leads_to(&format!("/webhooks?done=saved&{place}"));
    let types = endpoint(&app, user).await.event_types;
    assert_eq!(types, [EventType::ConnectionUpdated]);
    let wrong = format!("edit={}&url=nothing&event=trades.synced", made.id);
    let wrong = browser.post("/webhooks", &wrong).await;
    wrong.assert_shows(400, "aria-invalid");
    let disabled = act("disable").await;
    disabled.assert_leads_to(&format!("/webhooks?done=disabled&{place}"));
    assert_eq!(endpoint(&app, user).await.status, EndpointStatus::Disabled);
    let page = browser.get("/webhooks").await;
    page.assert_has("Disabled, so it gets no events");
    let needs_user = async || {
        let overview = browser.get("/overview").await.text;
        overview.contains("gets no events")
    };
    assert!(!needs_user().await, "who disabled it needs no reminder");
    let enabled = act("enable").await;
    enabled.assert_leads_to(&format!("/webhooks?done=enabled&{place}"));
    assert_eq!(endpoint(&app, user).await.status, EndpointStatus::Enabled);
    let (endpoint, now) = ((user, made.id), app.clock.now());
    in_tx!(app.storage, endpoints::disable(endpoint, "failing", now))
        .await
        .unwrap();
    assert!(needs_user().await);

    let deleted = act("delete").await;
    deleted.assert_leads_to("/webhooks?done=deleted&at=endpoints#done");
    assert_eq!(app.storage.endpoints().list(user).await.unwrap(), []);
    browser.get(&log_path).await.assert_status(404);

    // It is missing for whoever deletes it at the same time.
    let browser = app.sign_in(app.ben.user.id).await;
    let form = format!("delete={}", app.hook(&app.ben.user).await.endpoint.id);
    let (first, second) = tokio::join!(
        browser.post("/webhooks", &form),
        browser.post("/webhooks", &form)
    );
    let mut statuses = [first.status, second.status];
    statuses.sort_unstable();
    assert_eq!(statuses, [303, 404]);

    // What a reload or a second press sends makes nothing.
    let (browser, user) = (app.sign_in(app.ben.user.id).await, app.ben.user.id);
    let receiver = Receiver::start().await;
    let form = form_of(&receiver.url, &[EventType::TransactionsSynced]) + "&newest=";
    let (first, second) = tokio::join!(
        browser.post("/webhooks", &form),
        browser.post("/webhooks", &form)
    );
    let mut statuses = [first.status, second.status];
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 303]);
    browser
        .submit("/webhooks", &form, "secret-shown-before&at=endpoints")
        .await;
    assert_eq!(app.storage.endpoints().list(user).await.unwrap().len(), 1);

    // Two with one URL are told apart.
    make(&browser, &receiver.url).await;
    let page = browser.get("/webhooks").await;
    for number in 1..=2 {
        page.assert_has(&format!("{number}.&nbsp;<bdi>{}</bdi></h2>", receiver.url));
        page.assert_has(&format!(">{number}. {}</option>", receiver.url));
    }
    let endpoints = app.storage.endpoints().list(user).await.unwrap();
    for (number, endpoint) in (1..).zip(endpoints) {
        let said = format!("<p>{number}.&nbsp;<bdi>{}</bdi></p>", receiver.url);
        let path = format!("/webhooks/endpoints/{}", endpoint.id);
        browser.get(&path).await.assert_has(&said);
        let rotation = format!("rotate={}&rotated=", endpoint.id);
        browser.post("/webhooks", &rotation).await.assert_has(&said);
    }
}

/// The form has no boxes for what a plan does not include, and an edit keeps it for a higher one.
#[tokio::test]
async fn event_types_follow_the_plan_and_have_examples() {
    let app = App::start(Setup::default()).await;
    let (browser, user) = (app.sign_in(app.olivia.user.id).await, app.olivia.user.id);
    let receiver = Receiver::start().await;
    make(&browser, &receiver.url).await;
    let id = endpoint(&app, user).await.id;
    let edit = async |events: &[EventType]| {
        let form = format!("{}&edit={id}", form_of(&receiver.url, events));
        browser.post("/webhooks", &form).await.assert_status(303);
        endpoint(&app, user).await.event_types
    };
    let (transactions, trades) = (EventType::TransactionsSynced, EventType::TradesSynced);
    assert_eq!(edit(&[trades]).await, [trades]);
    app.set_plan(user, Plan::Developer).await;
    assert_eq!(edit(&[]).await, [trades]);
    assert_eq!(edit(&[transactions]).await, [transactions, trades]);
    app.set_plan(user, Plan::Professional).await;
    assert_eq!(edit(&[transactions]).await, [transactions]);

    // The page shows an example of each type that an endpoint can get, and sends it.
    let deleted = browser.post("/webhooks", &format!("delete={id}")).await;
    deleted.assert_status(303);
    let page = browser.get("/webhooks").await;
    for event in EventType::SUBSCRIBABLE_BY_USERS
        .iter()
        .chain(&[EventType::Ping])
    {
        page.assert_has(&format!("&#34;type&#34;: &#34;{event}&#34;"));
        let anchor = format!("/docs#receive_{}", event.as_str().replace('.', "_"));
        page.assert_has(&anchor);
    }

    let receiver = Receiver::start().await;
    make(&browser, &receiver.url).await;
    let id = endpoint(&app, user).await.id;
    for event in EventType::SUBSCRIBABLE_BY_USERS {
        let sent = browser
            .post("/webhooks", &format!("example={id}&type={event}"))
            .await;
        let shown = format!("/webhooks?done=example-delivered&at={id}#done");
        sent.assert_leads_to(&shown);
        let received = receiver.drain().remove(0);
        assert_eq!(received.body["type"], event.as_str());
        assert_eq!(received.body["id"], received.id);
        assert_eq!(received.body["metadata"]["test"], true);
    }
    receiver.reply_with(Reply::Status(500));
    // Of several endpoints, the one that it was sent to says what came of it.
    let other = Receiver::start().await;
    make(&browser, &other.url).await;
    let form = format!("example={id}&type=trades.synced");
    let rejected = browser.post("/webhooks", &form).await;
    let shown = format!("/webhooks?done=example-not-delivered&at={id}");
    rejected.assert_leads_to(&format!("{shown}#done"));
    let page = browser.get(&shown).await;
    let mut cards = page.text.split("<section class=\"card endpoint\"").skip(1);
    let of_id = cards.find(|card| card.contains(&format!("name=\"ping\" value=\"{id}\"")));
    assert_has(of_id.unwrap(), "<p class=\"done wrong\"");
    page.assert_has("2.&nbsp;<bdi>");
    let log = browser.get(&format!("/webhooks/endpoints/{id}")).await;
    log.assert_has("Nothing was sent to this endpoint");
}
