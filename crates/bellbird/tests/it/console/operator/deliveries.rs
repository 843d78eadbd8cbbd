//! Webhook endpoints of users and of the installation, and what they get.

use bellbird_domain::EventType;

use crate::support::harness::{App, Setup};

#[tokio::test]
async fn endpoint_is_enabled_and_its_events_are_sent_again() {
    let app = App::start(Setup::default()).await;
    let browser = app.sign_in_operator().await;
    let hook = app.disabled_endpoint().await;
    let list = browser.get("/operator/deliveries").await;
    list.assert_has("disabled: too many failures");
    list.assert_has(&hook.endpoint.id.to_string());
    let page = format!("/operator/deliveries/{}", hook.endpoint.id);
    let event = app.deliveries_to(&hook).await[0].event_id;
    let send_again = format!("redeliver={event}&user={}", app.olivia.user.id);
    let rejected = browser.post(&page, &send_again).await;
    rejected.assert_shows(409, "The endpoint is disabled. Enable it first.");
    browser.try_submit(&page, "enable=yes", 303).await;
    app.assert_enabled(&hook).await;
    browser.try_submit(&page, &send_again, 303).await;
    browser
        .get(&format!("{page}?state=pending"))
        .await
        .assert_has("Next attempt");
    let rows = app.operator_audit().await;
    let actions: Vec<_> = rows
        .iter()
        .rev()
        .map(|row| (&*row.action, row.user_id))
        .collect();
    let owner = Some(app.olivia.user.id);
    assert_eq!(
        actions,
        [
            ("webhook_endpoint.enable", owner),
            ("delivery.redeliver", owner)
        ]
    );
    for wrong in [
        "",
        "redeliver=1",
        &format!("redeliver={event}"),
        "enable=a&enable=b",
    ] {
        browser.try_submit(&page, wrong, 400).await;
    }

    // An endpoint for all users has events of several, so a form says whose event it means.
    let hook = app.hook_for_all(&[EventType::TransactionsSynced]).await;
    app.sync(&app.olivia.connections[1]).await;
    app.disable_hook(&hook, "too many failures").await;
    let list = browser.get("/operator/deliveries").await;
    list.assert_has("of all users");
    list.assert_has("Endpoints for all users");
    let page = format!("/operator/deliveries/{}", hook.endpoint.id);
    browser.try_submit(&page, "enable=yes", 303).await;
    let event = app.deliveries_to(&hook).await[0].event_id;
    for (user, status) in [(&app.ben.user, 409), (&app.olivia.user, 303)] {
        let form = format!("redeliver={event}&user={}", user.id);
        browser.try_submit(&page, &form, status).await;
    }
    let enabled = &app.operator_audit().await[1];
    assert_eq!(&*enabled.action, "webhook_endpoint.enable");
    let audit = browser.get("/operator/audit").await;
    audit.assert_has("the installation");
}

/// What its owner disabled is listed for the operator, and is no alarm.
#[tokio::test]
async fn endpoint_that_its_user_disabled_is_no_alarm() {
    let app = App::start(Setup::default()).await;
    let browser = app.sign_in_operator().await;
    let olivia = &app.olivia.user;
    let hook = app.hook(olivia).await;
    let own = app.sign_in(olivia.id).await;
    let form = format!("disable={}", hook.endpoint.id);
    own.post("/webhooks", &form).await.assert_status(303);
    let health = browser.get("/operator/health").await;
    health.assert_has("every enabled endpoint works");
    let list = browser.get("/operator/deliveries").await;
    list.assert_has("<span class=\"status \">paused by user</span>");
    let which = "/operator/deliveries?only=attention";
    browser.get(which).await.assert_has("none fails");
    let users = browser.get("/operator/users?only=attention").await;
    users.assert_lacks("<bdi>olivia@example.com</bdi></a>");
    app.disable_hook(&hook, "gone").await;
    let health = browser.get("/operator/health").await;
    health.assert_has("1 endpoint disabled");
    health.assert_has(which);
    browser.get(which).await.assert_has("disabled: gone");
    let list = browser.get("/operator/deliveries").await;
    list.assert_has("<span class=\"status attention\">disabled: gone</span>");
}
