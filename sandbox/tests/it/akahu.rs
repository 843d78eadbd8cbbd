//! Akahu's API: authentication, errors, consent, tokens, refreshes and webhook subscriptions.

use bellbird_sandbox::{Credentials, Fault};
use reqwest::Method;
use serde_json::{Value, json};

use crate::akahu_client::{akahu, answer, error_of};
use crate::client::{list_of, text_of};

#[tokio::test]
async fn token_and_app_headers_are_required() {
    let akahu = akahu().await;
    let url = |path: &str| format!("{}{path}", akahu.access.base_url);
    let app = &akahu.access.app_token;
    for path in ["/me", "/accounts", "/transactions", "/webhooks"] {
        let none = akahu.http.get(url(path)).header("x-akahu-id", app);
        let unknown = akahu
            .http
            .get(url(path))
            .header("x-akahu-id", app)
            .bearer_auth("user_token_x");
        let basic = akahu.app(path).header("x-akahu-id", app);
        for request in [none, unknown, basic] {
            assert_eq!(
                error_of(request).await,
                (401, "Permission Denied".to_owned()),
                "{path}"
            );
        }
        let without = akahu.http.get(url(path)).bearer_auth(&akahu.token);
        let wrong = akahu
            .http
            .get(url(path))
            .bearer_auth(&akahu.token)
            .header("X-Akahu-ID", "app_token_x");
        for request in [without, wrong] {
            assert_eq!(
                error_of(request).await,
                (403, "Forbidden".to_owned()),
                "{path}"
            );
        }
        akahu.json(path).await;
    }
    for path in ["/connections", "/categories", "/keys/2"] {
        assert_eq!(
            error_of(akahu.call(Method::GET, path)).await.0,
            401,
            "{path}"
        );
        assert_eq!(
            error_of(akahu.http.get(url(path)).basic_auth(app, Some("wrong")))
                .await
                .0,
            401
        );
        answer(akahu.app(path).header("x-akahu-id", app)).await;
    }
}

#[tokio::test]
async fn malformed_and_foreign_ids_are_rejected() {
    let akahu = akahu().await;
    let spare = akahu.credentials(2);
    let well_formed = |prefix: &str| format!("{prefix}c{}", "0".repeat(24));
    for (method, prefix, before, after) in [
        (Method::GET, "acc_", "/accounts/", ""),
        (Method::GET, "acc_", "/accounts/", "/transactions"),
        (Method::GET, "acc_", "/accounts/", "/transactions/pending"),
        (Method::GET, "trans_", "/transactions/", ""),
        (Method::DELETE, "authorisation_", "/authorisations/", ""),
        (Method::DELETE, "hook_", "/webhooks/", ""),
    ] {
        let unknown = akahu.call(
            method.clone(),
            &format!("{before}{}{after}", well_formed(prefix)),
        );
        assert_eq!(
            error_of(unknown).await,
            (404, "Not Found".to_owned()),
            "{method} {before}"
        );
        for bad in [
            "x",
            &format!("{prefix}short"),
            &format!("{prefix}{}", "A".repeat(25)),
        ] {
            let (status, message) =
                error_of(akahu.call(method.clone(), &format!("{before}{bad}{after}"))).await;
            assert_eq!(status, 400, "{method} {before}{bad}");
            assert!(message.contains("pathParams.id"), "{message}");
        }
    }
    let foreign = format!("/authorisations/{}", spare.1);
    assert_eq!(error_of(akahu.call(Method::DELETE, &foreign)).await.0, 404);
    assert_eq!(error_of(akahu.call(Method::GET, "/nothing")).await.0, 404);
    assert_eq!(error_of(akahu.call(Method::PUT, "/accounts")).await.0, 405);
}

#[tokio::test]
async fn code_is_exchanged_once() {
    let akahu = akahu().await;
    let callback = akahu.consent("").await;
    let names: Vec<&str> = callback.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["code", "state", "source", "event"]);
    assert_eq!(
        (
            callback[1].1.as_str(),
            callback[2].1.as_str(),
            callback[3].1.as_str()
        ),
        ("s%201", "oauth", "ACCEPT")
    );
    let good = akahu.exchange(&callback[0].1);
    let with = |name: &str, value: Value| {
        let mut body = good.clone();
        body[name] = value;
        body
    };
    let mut without = good.clone();
    without.as_object_mut().unwrap().remove("code");
    for (body, error) in [
        (with("client_secret", json!("wrong")), "invalid_client"),
        (with("client_id", json!("app_token_x")), "invalid_client"),
        (
            with("redirect_uri", json!("https://other.example/")),
            "invalid_grant",
        ),
        (with("code", json!("unknown")), "invalid_grant"),
        (
            with("grant_type", json!("refresh_token")),
            "unsupported_grant_type",
        ),
        (with("code", json!(7)), "invalid Request"),
        (without, "invalid Request"),
    ] {
        assert_eq!(
            akahu.token(&body).await,
            (400, json!({"success": false, "error": error}))
        );
    }
    let (status, token) = akahu.token(&good).await;
    assert_eq!(status, 200);
    assert_eq!(
        (&token["success"], &token["token_type"]),
        (&json!(true), &json!("bearer"))
    );
    assert!(text_of(&token["scope"]).starts_with("ENDURING_CONSENT "));
    assert_eq!(
        token["access_token"], akahu.token,
        "a user's token stays the same while it is valid"
    );
    assert!(token.get("item").is_none() && token.get("expires_in").is_none());
    assert_eq!(
        akahu.token(&good).await.1["error"],
        "invalid_grant",
        "codes are single use"
    );
}

#[tokio::test]
async fn code_expires_and_form_bodies_are_accepted() {
    let akahu = akahu().await;
    let code = akahu.consent("").await[0].1.clone();
    akahu.advance(62);
    assert_eq!(
        akahu.token(&akahu.exchange(&code)).await.1["error"],
        "expired_grant"
    );
    let code = akahu.consent("&email=aroha.williams%40example.com").await[0]
        .1
        .clone();
    akahu.advance(30);
    let form = format!(
        "grant_type=authorization_code&code={code}&redirect_uri=https%3A%2F%2Fapp.example%2Fcb&client_id={}\
         &client_secret={}",
        akahu.access.app_token, akahu.access.app_secret
    );
    let request = akahu
        .http
        .post(format!("{}/token", akahu.access.base_url))
        .body(form);
    let form = "application/x-www-form-urlencoded";
    let token = answer(
        request
            .header("content-type", form)
            .header("Idempotency-Key", "1"),
    )
    .await;
    assert_eq!(
        token["access_token"],
        akahu.credentials(2).0,
        "the user with this e-mail address"
    );
}

#[tokio::test]
async fn consent_can_be_denied() {
    let akahu = akahu().await;
    let denied = akahu.consent_as("deny", "").await;
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    assert_eq!(
        denied,
        [pair("error", "access_denied"), pair("state", "s%201")]
    );
    let open = async |query: String| {
        let response = akahu
            .http
            .get(format!("{}/?{query}", akahu.access.oauth_url))
            .send()
            .await
            .unwrap();
        let location = response
            .headers()
            .get("location")
            .map(|value| value.to_str().unwrap().to_owned());
        (response.status().as_u16(), location)
    };
    let uris = json!({"redirectUris": ["https://a.example/?x=1"]});
    akahu.bank().set_options(&uris).unwrap();
    let good = format!(
        "client_id={}&redirect_uri=https://a.example/?x=1&sandbox_auto=accept",
        akahu.access.app_token
    );
    let (status, location) = open(format!(
        "{good}&response_type=code&scope=ENDURING_CONSENT%20ACCOUNTS"
    ))
    .await;
    assert!(
        status == 303
            && location
                .unwrap()
                .starts_with("https://a.example/?x=1&code=")
    );
    let scope = "scope=ENDURING_CONSENT";
    assert_eq!(
        open(format!("{good}&{scope}")).await.1.unwrap(),
        "https://a.example/?x=1&error=unsupported_response_type"
    );
    let location = open(format!("{good}&response_type=code")).await.1.unwrap();
    assert_eq!(location, "https://a.example/?x=1&error=invalid_scope");
    assert_eq!(
        open(format!("response_type=code&client_id=x&{scope}")).await,
        (400, None)
    );
}

#[tokio::test]
async fn revoked_token_is_invalid_until_a_new_consent() {
    let mut akahu = akahu().await;
    let (token, user) = (
        akahu.token.clone(),
        akahu.json("/me").await["item"]["_id"].clone(),
    );
    akahu.bank().set_user(&token, false).unwrap();
    assert_eq!(error_of(akahu.call(Method::GET, "/accounts")).await.0, 401);
    let code = akahu.consent("").await[0].1.clone();
    akahu.token = text_of(&akahu.token(&akahu.exchange(&code)).await.1["access_token"]).to_owned();
    assert_ne!(akahu.token, token);
    assert!(akahu.token.starts_with("user_token_c"));
    assert_eq!(akahu.json("/me").await["item"]["_id"], user);
    let (user_token, authorisation) = (akahu.token.clone(), akahu.credentials(0).1);
    let renewed = Credentials::Akahu {
        user_token,
        authorisation,
    };
    assert!(akahu.bank().all_credentials().contains(&renewed));
}

#[tokio::test]
async fn me_returns_the_user() {
    let akahu = akahu().await;
    let me = akahu.json("/me").await["item"].clone();
    assert_eq!(me["email"], "olivia.nguyen@example.com");
    assert!(text_of(&me["access_granted_at"]).ends_with(".000Z"));
    assert!(text_of(&me["_id"]).starts_with("user_c"));
    assert!(me.get("created_at").is_none());
}

#[tokio::test]
async fn connections_and_categories_need_app_credentials() {
    let akahu = akahu().await;
    let all = list_of(&answer(akahu.app("/connections")).await["items"]).clone();
    let of = |kind: &str| {
        all.iter()
            .filter(|one| one["connection_type"] == kind)
            .cloned()
            .collect::<Vec<_>>()
    };
    assert_eq!((of("classic").len(), of("official").len()), (9, 1));
    let official = &of("official")[0];
    let classic = all
        .iter()
        .find(|one| one["_id"] == official["_classic"])
        .unwrap();
    assert_eq!(
        (&official["name"], &official["mode"]),
        (&classic["name"], &json!("migration"))
    );
    assert_eq!(
        (
            &classic["new_connections_enabled"],
            &official["new_connections_enabled"]
        ),
        (&json!(false), &json!(true))
    );
    assert!(classic.get("mode").is_none() && classic.get("_classic").is_none());
    let all = list_of(&answer(akahu.app("/categories")).await["items"]).clone();
    assert_eq!(all.len(), 181);
    let groups: std::collections::BTreeSet<&str> = all
        .iter()
        .map(|one| text_of(&one["groups"]["personal_finance"]["name"]))
        .collect();
    assert_eq!(groups.len(), 10);
    let mut all = all.iter();
    let cafes = all.find(|one| one["_id"] == "nzfcc_ckouvvyw1004408mlhy158i7j");
    assert_eq!(cafes.unwrap()["name"], "Cafes and restaurants");
}

#[tokio::test]
async fn refresh_completes_later_and_is_rate_limited() {
    let akahu = akahu().await;
    let path = format!(
        "/accounts/{}",
        text_of(&akahu.account("CHECKING").await["_id"])
    );
    let refreshed = async || akahu.json(&path).await["item"]["refreshed"].clone();
    let refresh = async || {
        let request = akahu.call(Method::POST, "/refresh");
        let response = request
            .header("content-type", "application/x-www-form-urlencoded")
            .send()
            .await
            .unwrap();
        (
            response.status().as_u16(),
            response.json::<Value>().await.unwrap(),
        )
    };
    let before = refreshed().await;
    let asked = akahu.bank().now();
    assert_eq!(refresh().await, (200, json!({"success": true})));
    // Turned back, so that a slow test still sees that it takes seconds.
    akahu.advance(-60);
    assert_eq!(refreshed().await, before, "not yet");
    akahu.advance(60);
    let (status, body) = refresh().await;
    assert_eq!((status, body["success"].clone()), (429, json!(false)));
    akahu.advance(3);
    let after = refreshed().await;
    let completed: jiff::Timestamp = text_of(&after["balance"]).parse().unwrap();
    let took = completed.duration_since(asked);
    assert!(took.as_secs() >= 1, "it takes seconds: {took:?}");
    for name in ["balance", "meta", "transactions"] {
        assert!(after[name].as_str() > before[name].as_str(), "{name}");
    }
    assert_eq!(after["party"], before["party"]);
    akahu.advance(15 * 60);
    assert_eq!(refresh().await.0, 200);
    // Without a request, a day later Akahu has refreshed by itself.
    akahu.advance(3);
    let before = refreshed().await;
    akahu.advance(26 * 3600);
    assert!(refreshed().await["balance"].as_str() > before["balance"].as_str());
}

#[tokio::test]
async fn webhook_subscriptions_are_per_user_and_type() {
    let akahu = akahu().await;
    let post = |body: Value| akahu.call(Method::POST, "/webhooks").json(&body);
    let made = answer(post(
        json!({"webhook_type": "TRANSACTION", "state": "user 7"}),
    ))
    .await;
    let id = text_of(&made["item_id"]);
    assert!(id.starts_with("hook_c"));
    answer(post(json!({"webhook_type": "TOKEN"}))).await;
    assert_eq!(
        error_of(post(json!({"webhook_type": "WEATHER"}))).await,
        (400, "Invalid webhook_type".to_owned())
    );
    let form = akahu
        .call(Method::POST, "/webhooks")
        .body("webhook_type=TOKEN");
    assert_eq!(
        error_of(form).await,
        (400, "Invalid Content-Type".to_owned())
    );
    let list = akahu.items("/webhooks").await;
    assert_eq!(
        (list.len(), &list[0]["_id"], &list[0]["state"]),
        (2, &json!(id), &json!("user 7"))
    );
    assert_eq!(list[0]["type"], "TRANSACTION");
    answer(akahu.call(Method::DELETE, &format!("/webhooks/{id}"))).await;
    assert_eq!(list_of(&akahu.json("/webhooks").await["items"]).len(), 1);
    let key = text_of(&answer(akahu.app("/keys/2")).await["item"]).to_owned();
    assert!(key.starts_with("-----BEGIN RSA PUBLIC KEY-----\nMII"));
    assert_eq!(answer(akahu.app("/keys/2")).await["item"], key);
    assert_eq!(error_of(akahu.app("/keys/1")).await.0, 400);
    assert_eq!(error_of(akahu.app("/keys/3")).await.0, 404);
    assert_eq!(error_of(akahu.app("/keys/one")).await.0, 400);
}

#[tokio::test]
async fn forced_errors_have_akahus_shape() {
    let akahu = akahu().await;
    let limited = Fault::status(429).at("/v1/accounts").retry_after(7);
    akahu.bank().add_fault(limited.times(1));
    let limited = akahu.get("/accounts").await;
    assert_eq!(
        (
            limited.status().as_u16(),
            limited.headers()["retry-after"].to_str().unwrap()
        ),
        (429, "7")
    );
    assert_eq!(
        limited.json::<Value>().await.unwrap()["message"],
        "Rate limit exceeded"
    );
    akahu.bank().add_fault(Fault::status(500).times(2));
    assert_eq!(
        error_of(akahu.call(Method::GET, "/me")).await,
        (500, "Something went wrong".to_owned())
    );
    akahu.bank().add_fault(Fault::status(502).times(1));
    let token = akahu.token(&json!({})).await;
    assert_eq!(
        token,
        (500, json!({"success": false, "error": "server_error"}))
    );
    let gateway = akahu.get("/me").await;
    assert_eq!(
        (
            gateway.status().as_u16(),
            gateway.headers()["content-type"].to_str().unwrap()
        ),
        (502, "text/html")
    );
    akahu.bank().reset_calls();
    akahu.rows_path("CHECKING").await;
    akahu.get("/accounts/x/transactions").await;
    assert_eq!(akahu.bank().calls()["/v1/accounts/{id}/transactions"], 1);
}
