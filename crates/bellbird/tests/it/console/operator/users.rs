//! The list of users, and the page of each.

use bellbird_domain::{ActorKind, Plan};
use bellbird_storage::in_tx;

use super::HOUR;
use crate::console::get;
use crate::support::harness::{App, Setup};
use crate::support::words::assert_has;

#[tokio::test]
async fn operator_sees_users_and_changes_them_with_an_audit() {
    let app = App::start(Setup::default()).await;
    let browser = app.sign_in_operator().await;
    let olivia = app.olivia.user.id;
    let users = browser.get("/operator/users").await;
    users.assert_status(200);
    for user in [&app.ben.user, &app.olivia.user] {
        let link = format!("/operator/users/{}\"><bdi>{}", user.id, user.email);
        users.assert_has(&link);
    }
    for search in [
        "OLIVIA@example.com".to_owned(),
        "livia".to_owned(),
        olivia.to_string(),
    ] {
        let path = format!("/operator/users?search={search}");
        browser.get(&path).await.assert_lists([true, false]);
    }
    let none = browser.get("/operator/users?search=nobody%00").await;
    none.assert_has("No user matches.");

    let page = format!("/operator/users/{olivia}");
    // A key that is being replaced has its hour left.
    let key = &app.keys_of(olivia).await[0];
    let (new, now) = (bellbird_storage::new_key(), app.clock.now());
    let rotated = in_tx!(app.storage, keys::rotate(key, &new, now + HOUR, now)).await;
    rotated.unwrap();
    browser.get(&page).await.assert_has("works until 21:30 ");
    let saved = browser.post(&page, "plan=developer").await;
    let saved = saved.location.expect("a redirect");
    assert_eq!(saved, format!("{page}?done=plan-saved&at=plan#done"));
    browser.get(&saved).await.assert_has("The plan is saved.");
    assert_eq!(app.user(olivia).await.plan, Plan::Developer);
    let link = browser.post(&page, "sign-in-link=yes").await;
    let url = link
        .text
        .split("<code>")
        .find(|part| part.contains("/sign-in/"))
        .expect("a link");
    let url = url.split('<').next().unwrap();
    assert_has(&get(url, None).await.text, "olivia@example.com");
    let reloaded = browser.post(&page, "sign-in-link=yes&newest=").await;
    let reloaded = reloaded.location.expect("a redirect");
    let again = browser.get(&reloaded).await;
    again.assert_has("The link was made and shown before, and no second one is made.");
    // Shown once.
    browser.get(&page).await.assert_lacks("/sign-in/");
    let other = app.sign_in(olivia).await;
    browser.try_submit(&page, "end-sessions=yes", 303).await;
    other.get("/keys").await.assert_needs_sign_in("ended");
    // The link that was made before begins no other session.
    get(url, None).await.assert_signs_nobody_in(410);
    for wrong in [
        "",
        "plan=",
        "plan=free",
        "plan=saver&plan=saver",
        "email=a%40b",
    ] {
        browser.try_submit(&page, wrong, 400).await;
    }

    let rows = app.operator_audit().await;
    let actions: Vec<_> = rows.iter().rev().map(|row| &*row.action).collect();
    assert_eq!(
        actions,
        ["user.update", "sign_in_link.create", "session.revoke_all"]
    );
    let audit = browser.get("/operator/audit").await;
    let ben = app.ben.user.id.to_string();
    for row in &rows {
        let actor = (row.actor.kind, &row.actor.id);
        assert_eq!(actor, (ActorKind::Operator, &ben));
        assert_eq!(row.user_id, Some(olivia));
        audit.assert_has(&row.action);
    }
    audit.assert_has("<bdi>ben@example.com</bdi>");
    audit.assert_has("plan: professional → developer");

    // Each filter finds its user, and leaves out the other.
    app.set_plan(olivia, Plan::Professional).await;
    app.disabled_endpoint().await;
    for (query, has_olivia, has_ben) in [
        ("", true, true),
        ("plan=professional", true, false),
        ("plan=saver", false, false),
        ("only=operators", false, true),
        ("only=attention", true, false),
        ("only=attention&search=ben", false, false),
        ("only=bank", false, false),
        ("status=active", true, true),
        ("status=revoked", false, false),
        ("status=active&provider=nobody", false, false),
        ("plan=gold&only=x&status=y&pages=z", true, true),
    ] {
        let page = browser.get(&format!("/operator/users?{query}")).await;
        page.assert_status(200);
        page.assert_lists([has_olivia, has_ben]);
    }
    let unknown = browser.get("/operator/users?plan=gold").await;
    unknown.assert_has("All plans (unknown choice)");
    let page = browser.get("/operator/users").await;
    page.assert_has("1 webhook endpoint disabled");
    let found = browser.get("/operator/users?search=example").await;
    found.assert_has("<p class=\"small\">2 users</p>");
    let revoked = browser.get("/operator/users?status=revoked").await;
    revoked.assert_has("consent withdrawn");
    revoked.assert_has("Show all users");

    // The page of a user says something of a bank that was only read, of an endpoint, and of a plan
    // without accounts.
    let olivia = &app.olivia;
    let path = format!("/operator/users/{}", olivia.user.id);
    app.refresh(olivia.user.id, olivia.connections[0].id).await;
    browser.get(&path).await.assert_has(", never synced.");
    for connection in &olivia.connections {
        app.sync(connection).await;
    }
    let page = browser.get(&path).await;
    page.assert_has(". Synced <time");
    page.assert_lacks(", never synced.");

    app.disabled_endpoint().await;
    let of_olivia = "<bdi>olivia@example.com</bdi></a>";
    let list = browser.get("/operator/deliveries").await;
    list.assert_has(of_olivia);
    let page = browser.get(&path).await;
    page.assert_has("No success yet.");
    // Whose endpoint it is need not be said there.
    page.assert_lacks(of_olivia);

    let nothing = "reads nothing with this plan";
    page.assert_lacks(nothing);
    app.set_plan(olivia.user.id, Plan::Saver).await;
    let page = browser.get(&path).await;
    page.assert_has(nothing);
    page.assert_has("No program reads for this user.");

    // The operator allows a user to sign in, as after a restore, which forbids it to everybody.
    let olivia = app.olivia.user.id;
    app.set_console_sign_in(olivia, false).await;
    app.set_reference(olivia, "customer-17").await;
    let list = browser.get("/operator/users").await;
    // The states are on lines of their own, behind it.
    list.assert_has(" · <span class=\"item\"><bdi>customer-17</bdi></span><span class=\"status");
    list.assert_has("<span class=\"status\">may not sign in</span>");
    let path = format!("/operator/users/{olivia}");
    let page = browser.get(&path).await;
    page.assert_has("because a restore forbade it to everybody");
    page.assert_has("The user is no operator.");
    page.assert_lacks("name=\"sign-in-link\"");
    page.assert_lacks("name=\"send-link\"");
    let refused = browser.post(&path, "sign-in-link=yes").await;
    refused.assert_shows(400, "This user may not sign in. Allow it first.");
    browser.try_submit(&path, "allow-sign-in=yes", 303).await;
    assert!(app.user(olivia).await.console_sign_in);
    let page = browser.get(&path).await;
    page.assert_lacks("name=\"allow-sign-in\"");
    page.assert_has("name=\"sign-in-link\"");
    let rows = app.operator_audit().await;
    assert_eq!(rows[0].detail.as_deref(), Some("may sign in: no → yes"));
}
