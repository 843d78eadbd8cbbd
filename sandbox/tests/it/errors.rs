//! Fiskil's API versions, and the two shapes of its errors.

use reqwest::Method;
use serde_json::Value;

use crate::client::{client, text_of};

#[tokio::test]
async fn error_shape_depends_on_the_path() {
    let client = client().await;
    let plain = async |path: &str| {
        let response = client
            .http
            .get(format!("{}{path}", client.base))
            .send()
            .await
            .unwrap();
        let kind = response.headers()["content-type"]
            .to_str()
            .unwrap()
            .to_owned();
        (
            response.status().as_u16(),
            kind,
            response.json::<Value>().await.unwrap(),
        )
    };
    let (status, kind, front) = plain("/v1/consent").await;
    assert_eq!((status, kind.as_str()), (401, "application/vnd.goa.error"));
    assert_eq!(front["name"], "unauthorized");
    assert!(
        front["temporary"].is_boolean()
            && front["timeout"].is_boolean()
            && front["fault"].is_boolean()
    );
    let (status, kind, data) = plain("/v1/banking/accounts").await;
    assert_eq!((status, kind.as_str()), (401, "application/json"));
    let mut members: Vec<_> = data.as_object().unwrap().keys().cloned().collect();
    members.sort();
    assert_eq!(members, ["id", "message", "name"]);
    assert_eq!(plain("/v1/nothing").await.0, 404);
    assert_eq!(
        client
            .call(Method::PUT, "/v1/token")
            .send()
            .await
            .unwrap()
            .status(),
        405
    );
}

#[tokio::test]
async fn bad_parameters_are_rejected() {
    let client = client().await;
    let user = client.credentials(0).0;
    let message = async |path: String| {
        let response = client.get(&path).await;
        assert_eq!(response.status(), 400, "{path}");
        let body: Value = response.json().await.unwrap();
        assert_eq!(body["name"], "InvalidRequest");
        text_of(&body["message"]).to_owned()
    };
    let rows = format!("/v1/banking/transactions?end_user_id={user}");
    assert_eq!(
        message("/v1/banking/transactions".to_owned()).await,
        "The end_user_id parameter is required"
    );
    for bad in [
        "2026-01-01",
        "2026-01-01T00:00Z",
        "2026-02-30T00:00:00Z",
        "2026-01-01%2000:00:00Z",
        "2026-01-01T00:00:00+10:00",
    ] {
        let text = message(format!("{rows}&from={bad}")).await;
        assert!(
            text.starts_with("invalid from datetime: not in RFC3339 format"),
            "{bad}: {text}"
        );
    }
    assert!(
        message(format!("{rows}&to=x"))
            .await
            .starts_with("invalid to datetime")
    );
    message(format!("{rows}&status=posted")).await;
    message(format!("{rows}&page[size]=0")).await;
    message(format!("{rows}&page[size]=-3")).await;
    for cursor in ["garbage", "AAAAAAAAAAAAAAAAAAAAAAAAAAAA"] {
        let response = client
            .get(&format!("{rows}&page%5Bafter%5D={cursor}"))
            .await;
        assert_eq!(response.status(), 503);
        assert_eq!(
            response.json::<Value>().await.unwrap()["message"],
            "temporarily unavailable"
        );
    }
}

#[tokio::test]
async fn another_version_is_rejected() {
    let client = client().await;
    for (version, status) in [("v3", 200), ("v2", 400), ("2.0.0", 400)] {
        let request = client.http.get(format!("{}/v1/consent", client.base));
        let request = request.bearer_auth(&client.token);
        let response = request.header("x-fiskil-version", version).send().await;
        assert_eq!(response.unwrap().status(), status, "{version}");
    }
}
