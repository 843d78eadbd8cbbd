//! Link sessions by API.

use serde_json::{Value, json};
use uuid::Uuid;

use super::{Admin, data, error, id};
use crate::support::browser::open;
use crate::support::fields::assert_fields;
use crate::support::harness::Setup;
use crate::support::process::{names, text};
use crate::support::words::{assert_has, assert_lacks};

const SESSIONS: &str = "/admin/v1/link-sessions";

#[tokio::test]
async fn app_links_by_api() {
    let setup = Setup::with(|settings| {
        settings.return_origins =
            vec![bellbird_connections::ReturnOrigin::parse("https://app.example").unwrap()];
    });
    let admin = Admin::start_with(setup).await;
    let app = &admin.app;
    let user = app.ben.user.id.to_string();
    let body = json!({
        "userId": user, "provider": "fiskil", "returnUrl": "https://app.example/linked", "state": "42",
    });
    let post = async |body: &Value| admin.post_once("a", SESSIONS, body).await;
    let created = data(&post(&body).await, 201);
    assert_eq!(data(&post(&body).await, 201), created, "with the same URL");
    let other = post(&json!({"userId": user})).await;
    error(&other, 409, "idempotency_conflict");
    assert_eq!(names(&created), ["expiresAt", "id", "url"]);

    let path = format!("{SESSIONS}/{}", id(&created));
    let shown = admin.read(&path).await;
    let links = app.connections.links();
    let found = links.find_link_session(id(&created).parse().unwrap());
    let printed = serde_json::to_value(found.await.unwrap().unwrap()).unwrap();
    assert_eq!(shown, printed, "as the command prints it");
    assert_fields(&shown, &json!({"status": "open", "userId": user}));
    let documented = &bellbird_api::admin::document().value()["components"]["schemas"]["LinkSession"]
        ["properties"];
    for name in names(&shown) {
        assert!(documented[name].is_object(), "{name}");
    }

    let callback = app.answer_consent_page(text(&created, "url"), "accept");
    let back = open(&callback.await).await.location();
    let return_url = format!(
        "https://app.example/linked?session={}&state=42",
        id(&created)
    );
    assert_eq!(back.as_str(), return_url);
    let result = admin.read(&path).await;
    assert_eq!(result["status"], "connected");
    let connected = text(&result["connections"][0], "id");
    let connections = app.connections_of(app.ben.user.id).await;
    let mut ids = connections
        .iter()
        .map(|connection| connection.id.to_string());
    assert!(ids.any(|id| id == connected));
    // To renew it.
    let body = json!({"userId": user, "connectionId": connected});
    let renew = admin.create(SESSIONS, &body).await;
    assert_ne!(renew["url"], created["url"]);
    assert_eq!(
        admin.actions(&user).await,
        ["link_session.create", "link_session.create"]
    );
    let audit = admin.get("/admin/v1/audit").await;
    assert_eq!(audit.data()[1]["subject"], created["id"]);
    assert_lacks(&audit.text, "/link/");
    wrong_link_sessions_are_named(&admin).await;
}

async fn wrong_link_sessions_are_named(admin: &Admin) {
    let app = &admin.app;
    let (user, unknown) = (app.ben.user.id.to_string(), Uuid::now_v7().to_string());
    let of_other = app.olivia.connections[0].id.to_string();
    for (body, expected) in [
        (json!({}), "userId: Must be given"),
        (json!({"userId": "x"}), "userId: Must be an id"),
        (
            json!({"userId": user, "provider": "bank"}),
            "provider: Must be a provider that can be linked here: ",
        ),
        (
            json!({"userId": user, "provider": "fiskil", "connectionId": of_other}),
            "provider: Must be absent",
        ),
        (
            json!({"userId": user, "returnUrl": "https://evil.example/"}),
            "returnUrl: The return URL is not of an origin",
        ),
        (
            json!({"userId": user, "returnUrl": ""}),
            "returnUrl: The return URL",
        ),
        (
            json!({"userId": user, "returnUrl": "https://app.example/", "state": "a\nb"}),
            "state: Must be at most 500",
        ),
        (
            json!({"userId": user, "state": "42"}),
            "state: Must be absent without returnUrl",
        ),
        (
            json!({"userId": user, "return": "x"}),
            "return: unknown; did you mean returnUrl?",
        ),
    ] {
        let message = admin.post(SESSIONS, &body).await.invalid();
        assert_has(&message, expected);
    }
    for (body, noun) in [
        (json!({"userId": unknown}), "User"),
        (
            json!({"userId": user, "connectionId": unknown}),
            "Connection",
        ),
        (
            json!({"userId": user, "connectionId": of_other}),
            "Connection",
        ),
    ] {
        let message = admin.post(SESSIONS, &body).await.missing();
        assert_eq!(message, format!("{noun} not found "));
    }
    // A link that is no link session has no result.
    let target = bellbird_connections::LinkTarget::UserChoice;
    let link = app.create_link(app.ben.user.id, target).await.unwrap();
    for id in [unknown.as_str(), "x", &link.id.to_string()] {
        let message = admin.get(&format!("{SESSIONS}/{id}")).await.missing();
        assert_eq!(message, "Link session not found ");
    }
}
