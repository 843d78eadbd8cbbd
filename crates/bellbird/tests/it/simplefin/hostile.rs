//! Thousands of requests that no client makes: nothing breaks, and nothing is learned about other
//! users.

use std::collections::BTreeMap;

use reqwest::Method;

use super::{ask, new_token};
use crate::support::harness::{App, Setup};
use crate::support::random::{Random, seed};

const REQUESTS: usize = 6_000;

/// Values of parameters and parts of paths. The first is empty, and so is the first name.
const VALUES: &str = " 0 1 -1 2 3 1.5 1e309 NaN null true [] %7B%7D %00 %ff%fe % +5 2026-01-01 \
                      9223372036854775807 9223372036854775808 -9223372036854775808 \
                      99999999999999999999999999 0191e7a0-7c3b-7def-8000-00aabbccddee \
                      OWN FOREIGN TOKEN KEY ..%2f..%2fetc '%3B%20DROP%20TABLE %F0%9F%98%80";
const NAMES: &str = " start-date end-date pending account balances-only version start-date%5B%5D \
                     Account x";
const PATHS: [&str; 9] = [
    "/simplefin/accounts",
    "/simplefin/accounts",
    "/simplefin/accounts",
    "/simplefin/claim/VALUE",
    "/simplefin/claim/VALUE",
    "/simplefin/info",
    "/simplefin/create",
    "/simplefin/VALUE",
    "/simplefin/claim/VALUE/VALUE",
];
const METHODS: [Method; 6] = [
    Method::GET,
    Method::GET,
    Method::POST,
    Method::POST,
    Method::PUT,
    Method::HEAD,
];

struct Inputs {
    own: String,
    foreign: String,
    /// Of Ben, unclaimed.
    token: String,
    key: String,
}

impl Inputs {
    fn value(&self, random: &mut Random) -> String {
        let values: Vec<&str> = VALUES.split(' ').collect();
        let value = match random.below(values.len() + 2) {
            at if at < values.len() => values[at].to_owned(),
            at if at == values.len() => "%5B".repeat(1 + random.below(1_000)),
            _ => (0..random.below(60))
                .map(|_| format!("%{:02x}", random.below(256)))
                .collect(),
        };
        let (start, last) = self.token.split_at(self.token.len() - 1);
        let wrong_token = format!("{start}{}", if last == "x" { "y" } else { "x" });
        value
            .replace("OWN", &self.own)
            .replace("FOREIGN", &self.foreign)
            .replace("TOKEN", &wrong_token)
            .replace("KEY", &self.key)
    }

    fn url(&self, random: &mut Random) -> String {
        let mut url = (*random.one_of(&PATHS)).to_owned();
        while url.contains("VALUE") {
            url = url.replacen("VALUE", &self.value(random), 1);
        }
        let names: Vec<&str> = NAMES.split(' ').collect();
        let pairs: Vec<_> = (0..random.below(5))
            .map(|_| format!("{}={}", random.one_of(&names), self.value(random)))
            .collect();
        format!("{url}?{}", pairs.join("&"))
    }
}

#[tokio::test]
async fn hostile_requests_break_and_teach_nothing() {
    let app = App::start(Setup::with_rows(20)).await;
    let foreign = app.accounts_of(&app.ben.connections[0]).await[0].clone();
    let inputs = Inputs {
        own: app.accounts_of(&app.olivia.connections[0]).await[0]
            .id
            .clone(),
        foreign: foreign.id.clone(),
        token: new_token(&app, app.ben.user.id).await.expose().to_owned(),
        key: app.ben.key.clone(),
    };
    let mut random = Random::new(seed());
    let mut statuses = BTreeMap::new();
    for _ in 0..REQUESTS {
        let (method, url) = (
            METHODS[random.below(METHODS.len())].clone(),
            inputs.url(&mut random),
        );
        let mut request = app
            .http
            .request(method.clone(), format!("{}{url}", app.url));
        request = match random.below(5) {
            0 => request.header("authorization", "Basic Og=="),
            1 => request.header(
                "authorization",
                format!("Basic {}", "A".repeat(random.below(2_000))),
            ),
            2 => request.basic_auth(
                "x",
                Some(&app.olivia.key[..random.below(app.olivia.key.len())]),
            ),
            _ => request.basic_auth("bellbird", Some(&app.olivia.key)),
        };
        if method == Method::POST {
            request = request.body("[".repeat(random.below(3_000)));
        }
        let answer = app.send(request).await;
        let status = answer.status.as_u16();
        *statuses.entry(status).or_insert(0) += 1;
        assert!(
            [200, 400, 403, 404, 405, 414].contains(&status),
            "{method} {url}: {status} {}",
            answer.text
        );
        assert!(
            !answer.text.contains(&inputs.foreign) && !answer.text.contains(&foreign.name),
            "{method} {url}"
        );
        if status != 200 && method != Method::HEAD {
            assert_eq!(
                answer.header("content-type"),
                Some("text/plain; charset=utf-8"),
                "{method} {url}"
            );
        }
    }
    assert!(
        [200, 400, 403, 404, 405]
            .iter()
            .all(|status| statuses.contains_key(status)),
        "{statuses:?}"
    );
    assert!(
        app.query("SELECT id FROM key_audit").await.is_empty(),
        "no token was claimed"
    );
    assert_eq!(ask(&app, "").await.status, 200);
}
