//! The page of a user's own webhook endpoints, and the log of each.

use bellbird_domain::{DeliveryState, EndpointId, EndpointStatus, EventType, UserId};
use bellbird_storage::{Endpoint, in_tx};

use super::SignedIn;
use crate::support::harness::{App, Setup};
use crate::support::receiver::{Receiver, Reply};

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
async fn endpoint_is_made_tried_repaired_and_deleted() {
    let app = App::start(Setup::default()).await;
    let (browser, user) = (app.sign_in(app.ben.user.id).await, app.ben.user.id);
    let receiver = Receiver::start().await;
    let secret = make(&browser, &receiver.url).await;
    let made = endpoint(&app, user).await;
    let page = browser.get("/webhooks").await;
    assert!(
        page.text.contains(&receiver.url) && page.text.contains("Gets events"),
        "{}",
        page.text
    );
    assert!(!page.text.contains(&secret), "a secret is shown once");

    let pinged = browser
        .post("/webhooks", &format!("ping={}", made.id))
        .await;
    pinged.assert_shows(200, "was delivered");
    let event = receiver.drain().remove(0);
    let log_path = format!("/webhooks/endpoints/{}", made.id);
    let log = browser.get(&log_path).await;
    log.assert_has("<strong id=\"d1\">");
    assert!(!log.text.contains(&secret), "{}", log.text);

    receiver.reply_with(Reply::Status(500));
    let failed = browser
        .post("/webhooks", &format!("ping={}", made.id))
        .await;
    assert!(
        failed.text.contains("was not delivered") && failed.text.contains("500"),
        "{}",
        failed.text
    );
    receiver.reply_with(Reply::Status(200));
    receiver.drain();
    let again = browser
        .post(&log_path, &format!("redeliver={}", event.id))
        .await;
    assert!([200, 303, 409].contains(&again.status), "{}", again.text);

    let rotated = browser
        .post("/webhooks", &format!("rotate={}", made.id))
        .await;
    assert!(
        rotated.text.contains("whsec_") && !rotated.text.contains(&secret),
        "{}",
        rotated.text
    );
    browser
        .post("/webhooks", &format!("disable={}", made.id))
        .await
        .assert_status(303);
    assert_eq!(endpoint(&app, user).await.status, EndpointStatus::Disabled);
    browser
        .get("/webhooks")
        .await
        .assert_has("Disabled, so it gets no events");
    let needs_user = async || {
        let overview = browser.get("/overview").await.text;
        overview.contains("gets no events")
    };
    assert!(!needs_user().await, "who disabled it needs no reminder");
    browser
        .post("/webhooks", &format!("enable={}", made.id))
        .await
        .assert_status(303);
    assert_eq!(endpoint(&app, user).await.status, EndpointStatus::Enabled);
    let (endpoint, now) = ((user, made.id), app.clock.now());
    in_tx!(app.storage, endpoints::disable(endpoint, "failing", now))
        .await
        .unwrap();
    assert!(needs_user().await);

    browser
        .post("/webhooks", &format!("delete={}", made.id))
        .await
        .assert_status(303);
    assert_eq!(app.storage.endpoints().list(user).await.unwrap(), []);
    browser.get(&log_path).await.assert_status(404);
}

#[tokio::test]
async fn what_failed_is_in_the_log_and_is_sent_again() {
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
    let log = browser.get(&format!("{path}?state=failed")).await;
    assert!(
        log.text.contains("attempts</summary>") && log.text.contains("503"),
        "{}",
        log.text
    );
    assert!(
        !browser
            .get(&format!("{path}?state=delivered"))
            .await
            .text
            .contains("attempts</summary>")
    );

    hook.receiver.reply_with(Reply::Status(200));
    let failed = app
        .deliveries_to(&hook)
        .await
        .into_iter()
        .find(|one| one.state == DeliveryState::Failed)
        .unwrap();
    hook.drain();
    let again = browser
        .post(&path, &format!("redeliver={}", failed.event_id))
        .await;
    assert!([200, 303].contains(&again.status), "{}", again.text);
    let received = app.delivered_to(&hook).await;
    assert!(
        received
            .iter()
            .any(|event| event.id == failed.event_id.to_string()),
        "{received:?}"
    );
}

#[tokio::test]
async fn endpoints_of_others_look_missing() {
    let app = App::start(Setup::default()).await;
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
            "url=https%3A%2F%2Fa.example",
        ] {
            let done = browser
                .post(&format!("/webhooks/endpoints/{id}"), form)
                .await;
            assert_ne!(done.status, 200, "{form}: {}", done.text);
            assert_ne!(done.status, 303, "{form}");
        }
    }
    assert!(
        !browser
            .get("/webhooks")
            .await
            .text
            .contains(&theirs.to_string())
    );
    let kept = app
        .storage
        .endpoints()
        .list(app.olivia.user.id)
        .await
        .unwrap();
    assert_eq!(kept[0].status, EndpointStatus::Enabled);
}

#[tokio::test]
async fn wrong_endpoints_are_said() {
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
    assert_eq!(
        app.storage.endpoints().list(app.ben.user.id).await.unwrap(),
        []
    );
    for wrong in ["", "ping=1", "ping=", "x=1"] {
        browser.post("/webhooks", wrong).await.assert_status(400);
    }
}
