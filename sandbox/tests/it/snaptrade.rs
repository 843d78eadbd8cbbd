//! SnapTrade's authentication, users, links, connections and rate limits.

use bellbird_sandbox::{ConsentState, Fault};
use serde_json::{Value, json};

use crate::client::text_of;
use crate::snaptrade_client::{Answer, client};

#[tokio::test]
async fn calls_are_rejected_in_documented_order() {
    let mut client = client().await;
    let plain = |path: &str| client.http.get(format!("{}{path}", client.base)).send();
    for path in [
        "/accounts",
        "/snapTrade/partners",
        "/accounts?clientId=x&timestamp=1",
    ] {
        let answer = Answer::of(plain(path).await.unwrap()).await;
        assert_eq!(answer.error(), (401, "0000".to_owned()), "{path}");
        assert_eq!(
            answer.json()["detail"],
            "Authentication credentials were not provided."
        );
    }
    // Checks happen in this order: signature, timestamp, user, account.
    let now = client.now();
    let path = format!("/accounts/{}/balances?{}", uuid::Uuid::nil(), client.user);
    let stranger = path.replace("olivia-nguyen", "unknown");
    let key = client.consumer_key.clone();
    for (seconds, path, key, expected) in [
        (
            400,
            &stranger,
            "wrong",
            (401, "1076", "Unable to verify signature sent"),
        ),
        (
            400,
            &stranger,
            key.as_str(),
            (401, "1076", "Invalid timestamp"),
        ),
        (
            -400,
            &path,
            key.as_str(),
            (401, "1076", "Invalid timestamp"),
        ),
        (
            -200,
            &stranger,
            key.as_str(),
            (401, "1083", "Invalid userID or userSecret provided"),
        ),
        (
            290,
            &path,
            key.as_str(),
            (404, "1011", "The requested resource does not exist."),
        ),
    ] {
        client.consumer_key = key.to_owned();
        let answer = client
            .signed_at("GET", path, Value::Null, now + seconds)
            .await;
        let (status, code, detail) = expected;
        assert_eq!(answer.error(), (status, code.to_owned()));
        assert_eq!(answer.json()["detail"], detail);
    }
    let milliseconds = client
        .signed_at("GET", "/snapTrade/partners", Value::Null, now * 1000)
        .await;
    assert_eq!(milliseconds.json()["detail"], "Invalid timestamp");
    let anonymous = client.signed("GET", "/accounts", Value::Null).await;
    assert_eq!(
        anonymous.json()["detail"],
        "Please provide clientId, userId and userSecret in query params"
    );
    client.client_id = "DUMMY".to_owned();
    client.get("/accounts").await.fails(401, "1076");
}

#[tokio::test]
async fn signature_covers_the_sent_bytes() {
    let client = client().await;
    let now = client.now();
    // The query may have any order and any escapes.
    let (_, secret, _) = &client.credentials()[0];
    let query = format!(
        "timestamp={now}&userSecret={secret}&clientId={}&userId=olivia%2Dnguyen&x=a+b%20c",
        client.client_id
    );
    let get = async |target: String, signature: &str| {
        client.send("GET", &target, signature, String::new()).await
    };
    let signature = client.signature("null", "/accounts", &query);
    let sent = get(format!("/accounts?{query}"), &signature).await;
    assert_eq!(sent.ok().as_array().unwrap().len(), 7);
    let other = get(format!("/accounts?{query}&"), &signature).await;
    assert_eq!(other.error().1, "1076");
    // Under the old prefix, the path may be signed with or without it.
    for signed in ["/api/v1/accounts", "/accounts"] {
        let signature = client.signature("null", signed, &query);
        let sent = get(format!("/api/v1/accounts?{query}"), &signature).await;
        assert_eq!(sent.ok().as_array().unwrap().len(), 7);
        assert_eq!(sent.header("deprecation"), "@1781222400");
    }
    let prefixed = client.signature("null", "/api/v1/accounts", &query);
    let sent = get(format!("/accounts?{query}"), &prefixed).await;
    assert_eq!(sent.status, 401);
    // An empty object counts as no body. Letters beyond ASCII may be escaped or not, and members
    // may have any order.
    let login = format!("/snapTrade/login?{query}");
    let empty = client.signature("null", "/snapTrade/login", &query);
    let log_in = async |signature: &str, body: &str| {
        client
            .send("POST", &login, signature, body.to_owned())
            .await
    };
    log_in(&empty, "{}").await.ok();
    for letter in ["é", "\\u00e9"] {
        let content =
            format!("{{\"customRedirect\":\"https://example.com/{letter}\",\"darkMode\":true}}");
        let signature = client.signature(&content, "/snapTrade/login", &query);
        let body = "{ \"darkMode\": true, \"customRedirect\": \"https://example.com/é\" }";
        log_in(&signature, body).await.ok();
    }
    let not_json = log_in(&empty, "{").await;
    assert_eq!(
        (not_json.status, not_json.error().1.as_str()),
        (400, "1076")
    );
}

#[tokio::test]
async fn every_answer_has_request_id_and_quota_headers() {
    let client = client().await;
    for path in ["/accounts", "/nowhere", "/api/v1/authorizations"] {
        let answer = client.get(path).await;
        let id = answer.header("x-request-id");
        assert!(
            id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit()),
            "{id}"
        );
        assert_eq!(answer.header("x-ratelimit-limit"), "1000000");
    }
    client.get("/nowhere").await.fails(404, "1011");
    assert_eq!(
        client.call("PUT", "/accounts", Value::Null).await.error().0,
        405
    );
    client
        .bank()
        .add_fault(Fault::status(503).retry_after(3).times(1));
    let busy = client.get("/accounts").await;
    assert_eq!(
        (busy.error(), busy.header("retry-after")),
        ((503, "3002".to_owned()), "3")
    );
    busy.header("x-request-id");
    busy.header("x-ratelimit-reset");
}

#[tokio::test]
async fn limits_count_the_last_minute() {
    let client = client().await;
    client.bank().set_options(&json!({"perMinute": 3})).unwrap();
    for left in ["2", "1", "0"] {
        assert_eq!(
            client
                .get("/authorizations")
                .await
                .header("x-ratelimit-remaining"),
            left
        );
    }
    let limited = client.get("/authorizations").await;
    limited.fails(429, "0000");
    let seconds: i64 = limited.header("retry-after").parse().unwrap();
    assert_eq!(
        limited.json()["detail"],
        format!("Request was throttled. Expected available in {seconds} seconds.")
    );
    assert_eq!(limited.header("x-ratelimit-remaining"), "0");
    client.advance(seconds);
    client.ok("/authorizations").await;
}

#[tokio::test]
async fn users_are_registered_and_deleted() {
    let mut client = client().await;
    let made = client.register("new-user").await.ok();
    let twice = client.register("new-user").await;
    twice.fails(400, "1010");
    assert_eq!(
        twice.json()["detail"],
        "User with the following userId already exist: 'new-user'"
    );
    assert_eq!(
        client
            .signed("POST", "/snapTrade/registerUser", json!({"x": 1}))
            .await
            .error()
            .0,
        400
    );
    let secret = text_of(&made["userSecret"]);
    uuid::Uuid::try_parse(secret).unwrap();
    client.user = format!("userId=new-user&userSecret={secret}&");
    assert_eq!(client.accounts().await.len(), 0);

    let gone = client.delete_user("new-user").await.ok();
    assert_eq!(
        (gone["status"].as_str(), gone["userId"].as_str()),
        (Some("deleted"), Some("new-user"))
    );
    client.advance(1);
    client.get("/accounts").await.fails(401, "1083");
    client.delete_user("new-user").await.fails(404, "1011");
    client.register("new-user").await.ok();

    client.act_as_user_of(0);
    client.bank().set_user("olivia-nguyen", false).unwrap();
    client.get("/accounts").await.fails(401, "1083");
    client.bank().set_user("olivia-nguyen", true).unwrap();
    client.ok("/accounts").await;
}

#[tokio::test]
async fn links_expire_and_are_single_use() {
    let client = client().await;
    let link = async |body: Value| {
        let answer = client.login(body).await.ok();
        let uri = text_of(&answer["redirectURI"]).to_owned();
        assert!(
            uri.starts_with(&format!("{}/snapTrade/redeemToken?token=", client.base)),
            "{uri}"
        );
        assert!(
            uri.contains(&format!("&clientId={}&", client.client_id)),
            "{uri}"
        );
        assert!(
            uri.ends_with(&format!("&sessionId={}", text_of(&answer["sessionId"]))),
            "{uri}"
        );
        uri
    };
    let follow = async |uri: &str| Answer::of(client.http.get(uri).send().await.unwrap()).await;
    let redirect_with = async |uri: &str, outcome: &str| {
        let answer = follow(&format!("{uri}&sandbox_auto={outcome}")).await;
        assert_eq!(answer.status, 303);
        answer.header("location").to_owned()
    };
    let accept = async |uri: &str| redirect_with(uri, "accept").await;
    let again = async |uri: &str| follow(&format!("{uri}&sandbox_auto=accept")).await.error();

    let back =
        json!({"customRedirect": "https://example.com/cb?state=1", "broker": "TIDEPOOL-EXAMPLE"});
    let uri = link(back.clone()).await;
    assert!(uri.contains("&broker=TIDEPOOL-EXAMPLE&"), "{uri}");
    let location = accept(&uri).await;
    let id = location
        .strip_prefix("https://example.com/cb?state=1&status=SUCCESS&connection_id=")
        .unwrap()
        .to_owned();
    assert_eq!(again(&uri).await, (400, "1006".to_owned()));
    assert_eq!(
        client.ok(&format!("/authorizations/{id}")).await["brokerage"]["slug"],
        "TIDEPOOL-EXAMPLE"
    );
    assert_eq!(
        client
            .ok(&format!("/authorizations/{id}/accounts"))
            .await
            .as_array()
            .unwrap()
            .len(),
        2
    );
    // The same login keeps its connection.
    assert_eq!(accept(&link(back).await).await, location);

    for (outcome, end) in [
        ("error", "?status=ERROR&status_code=403&error_code=1066"),
        ("abandon", "?status=ABANDONED"),
        ("deny", ""),
    ] {
        let uri = link(json!({"customRedirect": "https://example.com/cb"})).await;
        let location = redirect_with(&uri, outcome).await;
        assert_eq!(location, format!("https://example.com/cb{end}"));
    }
    let late = link(Value::Null).await;
    client.advance(300);
    assert_eq!(again(&late).await, (400, "1006".to_owned()));

    // A reconnect repairs a broken connection, which keeps its ids.
    let broken = client.connection(0);
    client
        .bank()
        .set_consent(&broken, ConsentState::Expired)
        .unwrap();
    let location = accept(&link(json!({"reconnect": broken})).await).await;
    assert_eq!(
        location,
        format!("https://client.example.com/linked?status=SUCCESS&connection_id={broken}")
    );
    assert_eq!(
        client.ok(&format!("/authorizations/{broken}")).await["disabled"],
        false
    );
}

#[tokio::test]
async fn bad_link_requests_are_rejected() {
    let client = client().await;
    let good = json!({"broker": "BLUEGUM-EXAMPLE", "showCloseButton": false, "unknown": [1]});
    client.login(good).await.ok();
    for (bad, error) in [
        (json!({"broker": "UNKNOWN"}), (400, "1012")),
        (json!({"connectionType": "write"}), (400, "1012")),
        (json!({"showCloseButton": "yes"}), (400, "1012")),
        (json!({"customRedirect": 3}), (400, "1012")),
        (json!(["BLUEGUM-EXAMPLE"]), (400, "1012")),
        (json!({"reconnect": uuid::Uuid::nil()}), (404, "1011")),
        (json!({"reconnect": client.connection(2)}), (404, "1011")),
    ] {
        let answer = client.login(bad.clone()).await;
        assert_eq!(answer.error(), (error.0, error.1.to_owned()), "{bad}");
    }
}

#[tokio::test]
async fn connections_are_refreshed_and_deleted() {
    let client = client().await;
    let first = client.connection(0);
    let path = format!("/authorizations/{first}/refresh");
    let refresh = async || client.post(&path).await;
    assert_eq!(
        refresh().await.ok()["detail"],
        format!("Connection {first} scheduled for refresh")
    );
    let again = refresh().await;
    again.fails(429, "throttled");
    assert!((1..=60).contains(&again.header("retry-after").parse().unwrap()));
    client.advance(60);
    refresh().await.ok();
    let bank = client.bank();
    bank.set_consent(&first, ConsentState::Expired).unwrap();
    refresh().await.fails(402, "3003");
    let shown = client.ok(&format!("/authorizations/{first}")).await;
    assert!(shown["disabled"] == true && shown["disabled_date"].is_string());
    assert_eq!(client.accounts().await.len(), 7, "the data stays");

    let answer = client.delete(&format!("/connection/{first}")).await.ok();
    assert_eq!(answer["connection_id"], first.as_str());
    // Deletion takes a second. Turn the clock back, so that a slow test still sees the connection.
    client.advance(-60);
    assert_eq!(
        client.ok("/authorizations").await.as_array().unwrap().len(),
        2
    );
    client.advance(61);
    assert_eq!(
        client.ok("/authorizations").await.as_array().unwrap().len(),
        1
    );
    assert_eq!(client.accounts().await.len(), 3);
}

#[tokio::test]
async fn users_cannot_see_other_users_data() {
    let mut client = client().await;
    let (account, connection) = (
        client.account("Bluegum Futures").await,
        client.connection(0),
    );
    client.act_as_user_of(2);
    for path in [
        format!("/accounts/{account}/balances"),
        format!("/accounts/{account}/positions/all"),
        format!("/accounts/{account}/activities"),
        format!("/authorizations/{connection}"),
        format!("/authorizations/{connection}/accounts"),
        "/accounts/not-a-uuid/balances".to_owned(),
    ] {
        assert_eq!(
            client.get(&path).await.error(),
            (404, "1011".to_owned()),
            "{path}"
        );
    }
    for (method, path) in [
        ("DELETE", format!("/connection/{connection}")),
        ("POST", format!("/authorizations/{connection}/refresh")),
    ] {
        assert_eq!(
            client.call(method, &path, Value::Null).await.error(),
            (404, "1011".to_owned()),
            "{path}"
        );
    }
}
