//! Ten thousand generated cursors and parameters: none of them is a 500.

use axum::body::Body;
use axum::http::Request;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures_util::stream::{self, StreamExt as _};
use serde_json::{Value, json};
use tower::ServiceExt as _;

use super::{HOUR, STALE, setup};
use crate::support::follower::Follower;
use crate::support::harness::App;
use crate::support::random::{Random, seed};

const REQUESTS: usize = 10_000;
/// Of the cursors whose seal is right, each may read from the provider. One in forty gets rows, so
/// with 300 a seed in three thousand would have none.
const SEALED: usize = 600;

fn bytes(random: &mut Random, count: usize) -> Vec<u8> {
    (0..count)
        .map(|_| u8::try_from(random.below(256)).unwrap())
        .collect()
}

/// A cursor that nobody was given.
fn cursor(random: &mut Random, real: &[String]) -> String {
    let cursor = real[random.below(real.len())].clone();
    let sealed = URL_SAFE_NO_PAD.decode(&cursor).unwrap();
    match random.below(8) {
        // Few, because they may read from the provider.
        0 if random.one_in(8) => cursor,
        1 => random.odd_text().to_owned(),
        2 => {
            let count = random.below(200);
            URL_SAFE_NO_PAD.encode(bytes(random, count))
        }
        3 => cursor[..random.below(cursor.len())].to_owned(),
        4 => {
            let mut changed = sealed;
            let at = random.below(changed.len());
            changed[at] ^= u8::try_from(1 + random.below(255)).unwrap();
            URL_SAFE_NO_PAD.encode(changed)
        }
        5 => {
            let other = &real[random.below(real.len())];
            let other = URL_SAFE_NO_PAD.decode(other).unwrap();
            let at = random.below(sealed.len().min(other.len()));
            URL_SAFE_NO_PAD.encode([&sealed[..at], &other[at..]].concat())
        }
        6 => {
            let count = random.below(64);
            let added = bytes(random, count);
            URL_SAFE_NO_PAD.encode([sealed, added].concat())
        }
        7 if random.one_in(50) => "A".repeat(random.below(14_000)),
        _ => format!("{cursor}{}", random.odd_text()),
    }
}

/// Half of the requests, mostly for one list.
async fn send_generated(is_bank: bool) {
    let app = App::start(setup()).await;
    let broker = app.person_at("snaptrade").await;
    let bank = app.person_at("akahu").await;
    let mut questions = Vec::new();
    let mut cursors = Vec::new();
    for person in [&broker, &bank] {
        let copy = Follower::new(&app, person, &person.connections[0]);
        let mut begun = copy.with("&limit=2");
        begun.next_page(&app).await;
        let mut complete = copy.clone();
        complete.follow(&app).await;
        cursors.extend([begun.cursor.unwrap(), complete.cursor.unwrap()]);
        questions.push(copy);
    }
    let mut random = Random::new(seed());
    let requests: Vec<(String, &str)> = (0..REQUESTS / 2)
        .map(|_| {
            let (person, mut list) =
                [(&broker, "trades"), (&bank, "transactions")][usize::from(is_bank)];
            let mut id = person.connections[0].id;
            if random.one_in(20) {
                list = ["transactions", "trades"][random.below(2)];
                id = [broker.connections[0].id, bank.connections[0].id][random.below(2)];
            }
            let mut parameters = Vec::new();
            if !random.one_in(20) {
                parameters.push(format!("connectionId={id}"));
            }
            if !random.one_in(100) {
                parameters.push(format!("cursor={}", cursor(&mut random, &cursors)));
            }
            for name in [
                "limit",
                "from",
                "accountId",
                "connectionId",
                "cursor",
                "to",
                "%C3%A9",
            ] {
                if random.one_in(20) {
                    parameters.push(format!("{name}={}", random.odd_text()));
                }
            }
            (
                format!("/v1/{list}/changes?{}", parameters.join("&")),
                person.key.as_str(),
            )
        })
        .collect();
    // Without sockets, which would take most of the time.
    let router = app.router();
    let answers = stream::iter(requests).map(async |(url, key)| {
        let request = Request::get(&url).header("authorization", format!("Bearer {key}"));
        let request = request.body(Body::empty()).unwrap();
        let answer = router.clone().oneshot(request).await.unwrap();
        let status = answer.status().as_u16();
        assert!([200, 400, 404, 410].contains(&status), "{status}: {url}");
        let code = answer.headers().get("bellbird-error");
        let code = code.map(|code| code.to_str().unwrap().to_owned());
        assert_eq!(code.is_some(), status != 200, "{url}");
        (status, code.unwrap_or_default())
    });
    let answers: Vec<_> = answers.buffer_unordered(8).collect().await;
    let count = |code: &str| answers.iter().filter(|(_, other)| other == code).count();
    let counts = ["", "invalid_cursor", "invalid_parameters", "not_found"].map(count);
    assert!(
        counts.iter().all(|count| *count > 20) && counts[1] > 500,
        "{counts:?}"
    );
}

#[tokio::test]
async fn no_request_for_transactions_is_an_internal_error() {
    send_generated(true).await;
}

#[tokio::test]
async fn no_request_for_trades_is_an_internal_error() {
    send_generated(false).await;
}

/// A value of JSON that looks like the one in the cursor, or not at all.
fn meddle(random: &mut Random, value: &Value) -> Value {
    if random.one_in(4) {
        let others = [
            json!(null),
            json!(0),
            json!(-1),
            json!(u32::MAX),
            json!(u64::MAX),
            json!(i64::MIN),
            json!(""),
            json!("2026-11-01"),
            json!("x"),
            json!("0000000000000000"),
            json!("ffffffffffffffff+"),
            json!([]),
            json!(["ffffffffffffffff", "+", "", "0"]),
            json!({"Mark": 0}),
            json!({"Mark": u32::MAX}),
            json!({"From": "-009999-01-01"}),
            json!({"From": "9999-12-31T23:59:59Z"}),
            json!({"From": "x"}),
            json!([1, u64::MAX]),
            json!("9223372036854775807"),
            json!("-99999999999999999999999999"),
            json!("1.-.-.1.1"),
        ];
        return others[random.below(others.len())].clone();
    }
    match value {
        Value::Object(members) => {
            let members = members
                .iter()
                .map(|(name, value)| (name.clone(), meddle(random, value)));
            Value::Object(members.collect())
        }
        Value::Number(number) => {
            let number = number.as_u64().unwrap_or(0);
            [
                json!(number),
                json!(number.wrapping_add(1)),
                json!(number.saturating_sub(1)),
                json!(0),
            ][random.below(4)]
            .clone()
        }
        other => other.clone(),
    }
}

/// As if another version of the service had made them.
#[tokio::test]
async fn sealed_cursor_with_odd_contents_is_no_internal_error() {
    let app = App::start(setup()).await;
    let person = app.person_at("fiskil").await;
    let connection = &person.connections[0];
    let copy = Follower::new(&app, &person, connection);
    let mut begun = copy.with("&limit=2");
    begun.next_page(&app).await;
    let mut later = copy.clone();
    later.follow(&app).await;
    app.add_recent_row(connection, "ONE").await;
    let at = app.clock.now() - 2 * HOUR;
    app.add_row(connection, "TWO", at).await;
    app.advance_clock(STALE);
    let mut news = later.with("&limit=1");
    news.next_page(&app).await;
    let secrets = app.storage.secrets();
    let open = |follower: &Follower| -> Value {
        let cursor = follower.cursor.as_ref().unwrap();
        let sealed = URL_SAFE_NO_PAD.decode(cursor).unwrap();
        let opened = secrets.open_cursor(person.user.id, "changes", &sealed);
        serde_json::from_slice(&opened.unwrap()).unwrap()
    };
    let real = [open(&begun), open(&later), open(&news)];
    let mut random = Random::new(seed());
    let mut statuses = Vec::new();
    for _ in 0..SEALED {
        let chosen = &real[random.below(real.len())];
        let mut contents = meddle(&mut random, chosen);
        if contents.is_object() && !random.one_in(10) {
            for name in ["connection", "account"] {
                contents[name] = real[0][name].clone();
            }
        }
        let opened = contents.to_string();
        let sealed = secrets.seal_cursor(person.user.id, "changes", opened.as_bytes());
        let sealed = sealed.unwrap();
        let follower = copy.with_cursor(&URL_SAFE_NO_PAD.encode(sealed));
        let answer = follower.ask(&app).await;
        assert_ne!(answer.status, 500, "{contents}");
        statuses.push(answer.status.as_u16());
    }
    for status in [200, 400, 410] {
        assert!(statuses.contains(&status), "{statuses:?}");
    }
}
