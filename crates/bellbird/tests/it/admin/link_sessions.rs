//! Link sessions by API.

use reqwest::Method;
use serde_json::{Value, json};
use uuid::Uuid;

use super::{Admin, data, error, id};
use crate::support::browser::open;
use crate::support::harness::Setup;
use crate::support::process::names;

const SESSIONS: &str = "/admin/v1/link-sessions";

async fn admin_with_origin() -> Admin {
    let setup = Setup::with(|settings| {
        settings.return_origins =
            vec![bellbird_connections::ReturnOrigin::parse("https://app.example").unwrap()];
    });
    Admin::start_with(setup).await
}

#[tokio::test]
async fn app_links_by_api() {
    let admin = admin_with_origin().await;
    let app = &admin.app;
    let user = app.ben.user.id.to_string();
    let body = json!({
        "userId": user, "provider": "fiskil", "returnUrl": "https://app.example/linked", "state": "42",
    });
    let post = async |body: &Value| admin.send(Method::POST, SESSIONS, body, Some("a")).await;
    let first = post(&body).await;
    let created = data(&first, 201);
    let again = post(&body).await;
    assert_eq!(
        (again.status, &again.text),
        (first.status, &first.text),
        "with the same URL"
    );
    error(
        &post(&json!({"userId": user})).await,
        409,
        "idempotency_conflict",
    );
    assert_eq!(names(&created), ["expiresAt", "id", "url"]);

    let path = format!("{SESSIONS}/{}", id(&created));
    let shown = async || data(&admin.get(&path).await, 200);
    let found = app
        .connections
        .links()
        .find_link_session(id(&created).parse().unwrap())
        .await
        .unwrap();
    assert_eq!(
        shown().await,
        serde_json::to_value(found.unwrap()).unwrap(),
        "as the command prints it"
    );
    assert_eq!(
        (&shown().await["status"], &shown().await["userId"]),
        (&json!("open"), &json!(user))
    );
    let documented = &bellbird_api::admin::document().value()["components"]["schemas"]["LinkSession"]
        ["properties"];
    for name in shown().await.as_object().unwrap().keys() {
        assert!(documented[name].is_object(), "{name}");
    }

    let callback = app
        .answer_consent_page(created["url"].as_str().unwrap(), "accept")
        .await;
    let back = open(&callback).await.location();
    assert_eq!(
        back.as_str(),
        format!(
            "https://app.example/linked?session={}&state=42",
            id(&created)
        )
    );
    let result = shown().await;
    assert_eq!(result["status"], "connected");
    let connections = app.connections_of(app.ben.user.id).await;
    let linked = &result["connections"][0];
    let connected = linked["id"].as_str().unwrap();
    assert!(
        connections
            .iter()
            .any(|connection| connection.id.to_string() == connected)
    );
    // To renew it.
    let renew = data(
        &admin
            .post(
                SESSIONS,
                &json!({"userId": user, "connectionId": connected}),
            )
            .await,
        201,
    );
    assert_ne!(renew["url"], created["url"]);
    let rows = admin.get("/admin/v1/audit").await;
    assert_eq!(
        admin.actions(&user).await,
        ["link_session.create", "link_session.create"]
    );
    assert_eq!(rows.data()[1]["subject"], created["id"]);
    assert!(!rows.text.contains("/link/"));
}

#[tokio::test]
async fn wrong_link_sessions_are_named() {
    let admin = admin_with_origin().await;
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
        let message = error(
            &admin.post(SESSIONS, &body).await,
            400,
            "invalid_parameters",
        );
        assert!(message.contains(expected), "{message}");
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
        assert_eq!(
            error(&admin.post(SESSIONS, &body).await, 404, "not_found"),
            format!("{noun} not found ")
        );
    }
    for id in [unknown.as_str(), "x"] {
        let message = error(
            &admin.get(&format!("{SESSIONS}/{id}")).await,
            404,
            "not_found",
        );
        assert_eq!(message, "Link session not found ");
    }
    // A link that is no link session has no result.
    let link = app
        .create_link(
            app.ben.user.id,
            bellbird_connections::LinkTarget::UserChoice,
        )
        .await
        .unwrap();
    error(
        &admin.get(&format!("{SESSIONS}/{}", link.id)).await,
        404,
        "not_found",
    );
}
