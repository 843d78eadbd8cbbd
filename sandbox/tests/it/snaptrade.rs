//! SnapTrade's authentication, users, links, connections and rate limits.

use bellbird_sandbox::Fault;
use serde_json::{Value, json};

use crate::snaptrade_client::{Answer, Client, client};

#[tokio::test]
async fn calls_are_rejected_in_documented_order() {
    let mut client = client().await;
    let plain = |path: &str| client.http.get(format!("{}{path}", client.base)).send();
    for path in [
        "/accounts",
        "/brokerages",
        "/accounts?clientId=x&timestamp=1",
    ] {
        let answer = Answer::of(plain(path).await.unwrap()).await;
        assert_eq!(answer.error(), (401, "0000".to_owned()), "{path}");
        assert_eq!(
            answer.json()["detail"],
            "Authentication credentials were not provided."
        );
    }
    assert_eq!(
        Answer::of(plain("/").await.unwrap()).await.ok()["online"],
        true
    );
    assert!(
        Answer::of(plain("/institutions").await.unwrap())
            .await
            .ok()
            .is_array()
    );

    // Checks happen in this order: signature, timestamp, user, account.
    let now = client.now();
    let path = format!("/accounts/{}?{}", uuid::Uuid::nil(), client.user);
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
            -290,
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
        .signed_at("GET", "/brokerages", Value::Null, now * 1000)
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
    let signature = client.signature("null", "/accounts", &query);
    let sent = client
        .send(
            "GET",
            &format!("/accounts?{query}"),
            &signature,
            String::new(),
        )
        .await;
    assert_eq!(sent.ok().as_array().unwrap().len(), 7);
    let other = client
        .send(
            "GET",
            &format!("/accounts?{query}&"),
            &signature,
            String::new(),
        )
        .await;
    assert_eq!(other.error().1, "1076");
    // Under the old prefix, the path may be signed with or without it.
    for signed in ["/api/v1/accounts", "/accounts"] {
        let signature = client.signature("null", signed, &query);
        let sent = client
            .send(
                "GET",
                &format!("/api/v1/accounts?{query}"),
                &signature,
                String::new(),
            )
            .await;
        assert_eq!(sent.ok().as_array().unwrap().len(), 7);
        assert_eq!(sent.header("deprecation"), "@1781222400");
    }
    let prefixed = client.signature("null", "/api/v1/accounts", &query);
    assert_eq!(
        client
            .send(
                "GET",
                &format!("/accounts?{query}"),
                &prefixed,
                String::new()
            )
            .await
            .status,
        401
    );
    // An empty object counts as no body. Letters beyond ASCII may be escaped or not, and members
    // may have any order.
    let login = format!("/snapTrade/login?{query}");
    let empty = client.signature("null", "/snapTrade/login", &query);
    client
        .send("POST", &login, &empty, "{}".to_owned())
        .await
        .ok();
    for letter in ["é", "\\u00e9"] {
        let content =
            format!("{{\"customRedirect\":\"https://example.com/{letter}\",\"darkMode\":true}}");
        let signature = client.signature(&content, "/snapTrade/login", &query);
        let body = "{ \"darkMode\": true, \"customRedirect\": \"https://example.com/é\" }";
        client
            .send("POST", &login, &signature, body.to_owned())
            .await
            .ok();
    }
    let not_json = client.send("POST", &login, &empty, "{".to_owned()).await;
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
        assert!(answer.headers.get("x-ratelimit-account-limit").is_none());
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

async fn personal() -> Client {
    let mut client = client().await;
    let personal = client.sandbox.description().snaptrade.personal.clone();
    client.client_id = personal.client_id;
    client.consumer_key = personal.consumer_key;
    client.user = String::new();
    client
}

#[tokio::test]
async fn personal_key_has_one_user_and_account_limits() {
    let client = personal().await;
    let accounts = client.accounts().await;
    assert_eq!(
        (accounts.len(), accounts[0]["name"].as_str()),
        (1, Some("Harrier Individual"))
    );
    client.register("another").await.fails(403, "1141");
    assert_eq!(client.users().await, json!(["zoe-okeefe"]));
    let connection = client.ok("/authorizations").await[0].clone();
    assert_eq!(connection["data_freshness_mode"]["snaptrade"], "realtime");
    let refresh = format!(
        "/authorizations/{}/refresh",
        connection["id"].as_str().unwrap()
    );
    client.post(&refresh).await.fails(403, "1141");

    let id = accounts[0]["id"].as_str().unwrap();
    client
        .bank()
        .set_options(&json!({"perMinute": 250, "perAccountPerMinute": 2}))
        .unwrap();
    let first = client.get(&format!("/accounts/{id}/balances")).await;
    assert_eq!(first.header("x-ratelimit-account-limit"), "2");
    assert_eq!(first.header("x-ratelimit-account-remaining"), "1");
    client.ok(&format!("/accounts/{id}/details")).await;
    let limited = client.get(&format!("/accounts/{id}/positions/all")).await;
    limited.fails(429, "0000");
    assert_eq!(limited.header("x-ratelimit-account-remaining"), "0");
    assert_eq!(limited.header("x-ratelimit-remaining"), "248");
    client.ok("/accounts/all").await;
    client.advance(61);
    client.ok(&format!("/accounts/{id}/positions/all")).await;
}

#[tokio::test]
async fn users_are_registered_and_deleted() {
    let mut client = client().await;
    let before = client.users().await;
    assert_eq!(
        before,
        json!(["olivia-nguyen", "priya-sharma", "jack-thompson"])
    );
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
    let secret = made["userSecret"].as_str().unwrap();
    uuid::Uuid::try_parse(secret).unwrap();
    client.user = format!("userId=new-user&userSecret={secret}&");
    assert_eq!(client.accounts().await.len(), 0);

    let reset = client
        .signed("POST", "/snapTrade/resetUserSecret", made.clone())
        .await
        .ok();
    client.get("/accounts").await.fails(401, "1083");
    assert_eq!(
        client
            .signed("POST", "/snapTrade/resetUserSecret", made)
            .await
            .error()
            .1,
        "1083"
    );
    client.user = format!(
        "userId=new-user&userSecret={}&",
        reset["userSecret"].as_str().unwrap()
    );
    client.ok("/accounts").await;

    let gone = client.delete_user("new-user").await.ok();
    assert_eq!(
        (gone["status"].as_str(), gone["userId"].as_str()),
        (Some("deleted"), Some("new-user"))
    );
    client.advance(1);
    client.get("/accounts").await.fails(401, "1083");
    assert_eq!(client.users().await, before);
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
        let uri = answer["redirectURI"].as_str().unwrap().to_owned();
        assert!(
            uri.starts_with(&format!("{}/snapTrade/redeemToken?token=", client.base)),
            "{uri}"
        );
        assert!(
            uri.contains(&format!("&clientId={}&", client.client_id)),
            "{uri}"
        );
        assert!(
            uri.ends_with(&format!(
                "&sessionId={}",
                answer["sessionId"].as_str().unwrap()
            )),
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
        .post(&format!("/authorizations/{broken}/disable"))
        .await
        .ok();
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
    for good in [
        json!({"locale": "pt_br", "connectionPortalVersion": "v3", "unknown": [1]}),
        json!({"broker": "BLUEGUM-EXAMPLE", "connectionType": "trade", "showCloseButton": false}),
        json!({"broker": "LAKESHORE-EXAMPLE", "connectionType": "trade-if-available"}),
    ] {
        client.login(good).await.ok();
    }
    for (bad, error) in [
        (json!({"locale": "de"}), (400, "1012")),
        (json!({"broker": "UNKNOWN"}), (400, "1012")),
        (json!({"connectionType": "write"}), (400, "1012")),
        (json!({"darkMode": "yes"}), (400, "1012")),
        (json!({"customRedirect": 3}), (400, "1012")),
        (json!(["BLUEGUM-EXAMPLE"]), (400, "1012")),
        (json!({"reconnect": uuid::Uuid::nil()}), (404, "1011")),
        (json!({"reconnect": client.connection(2)}), (404, "1011")),
    ] {
        let answer = client.login(bad.clone()).await;
        assert_eq!(answer.error(), (error.0, error.1.to_owned()), "{bad}");
    }
    let trade = json!({"broker": "LAKESHORE-EXAMPLE", "connectionType": "trade"});
    let answer = client.login(trade).await;
    assert_eq!(
        answer.json()["detail"],
        "LAKESHORE-EXAMPLE does not have a trade type available"
    );
}

#[tokio::test]
async fn connections_are_refreshed_disabled_and_deleted() {
    let client = client().await;
    let (first, second) = (client.connection(0), client.connection(1));
    let post = async |end: &str| client.post(&format!("/authorizations/{first}/{end}")).await;
    let answer = post("refresh").await.ok();
    assert_eq!(
        answer["detail"],
        format!("Connection {first} scheduled for refresh")
    );
    let again = post("refresh").await;
    again.fails(429, "throttled");
    assert!((1..=60).contains(&again.header("retry-after").parse().unwrap()));
    client.advance(60);
    post("refresh").await.ok();
    let answer = post("transactions/sync").await.ok();
    assert_eq!(
        answer["detail"],
        format!("Connection {first} scheduled for transactions sync")
    );
    let answer = post("disable").await.ok();
    assert_eq!(
        answer["detail"],
        format!("Connection {first} has been disabled")
    );
    for (end, code) in [
        ("disable", "3011"),
        ("refresh", "3003"),
        ("transactions/sync", "3003"),
    ] {
        assert_eq!(post(end).await.error(), (402, code.to_owned()), "{end}");
    }
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
    let legacy = client.delete(&format!("/authorizations/{second}")).await;
    assert_eq!((legacy.status, legacy.text.as_str()), (204, ""));
    assert_eq!(client.ok("/authorizations").await, json!([]));
    assert_eq!(client.accounts().await.len(), 0);
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
        format!("/accounts/{account}"),
        format!("/accounts/{account}/details"),
        format!("/accounts/{account}/balances"),
        format!("/accounts/{account}/positions/all"),
        format!("/accounts/{account}/activities"),
        format!("/authorizations/{connection}"),
        format!("/authorizations/{connection}/accounts"),
        format!("/connections/{connection}/accounts"),
        "/accounts/not-a-uuid".to_owned(),
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
