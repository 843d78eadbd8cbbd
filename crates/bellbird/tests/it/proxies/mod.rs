//! The configurations in `deploy/` for Caddy and nginx, run by the programs of Debian in front of
//! the built service.

mod curl;
mod roll;
mod sandbox;
mod site;
mod walk;

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use aws_lc_rs::hmac::{self, HMAC_SHA256, Key};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bellbird_sandbox::Fault;
use reqwest::Url;
use serde_json::json;

use crate::proxies::curl::Response;
use crate::proxies::site::{Program, Site, USER};
use crate::support::deployment::add_fault;
use crate::support::harness::eventually;
use crate::support::process::{get, text};

/// More than the proxies' own time limits, so a wait that ends here has failed.
const HANG: Duration = Duration::from_secs(60);

/// Runs a test behind both proxies.
macro_rules! behind_both_proxies {
    ($(#[$meta:meta])* async fn $name:ident($program:ident) $body:block) => {
        mod $name {
            use super::*;

            async fn body($program: Program) $body

            #[tokio::test]
            async fn caddy() {
                body(Program::Caddy).await;
            }

            #[tokio::test]
            async fn nginx() {
                body(Program::Nginx).await;
            }
        }
    };
}

pub(crate) use behind_both_proxies;

/// The secrets of one consent session.
struct ConsentSession {
    link_url: String,
    callback_url: Url,
    cookie: String,
}

/// Links an account as a browser does. Returns the last page, too.
fn link(site: &Site) -> (ConsentSession, Response) {
    let link = site
        .workdir
        .json(&format!("connection link --user {USER} --provider akahu"));
    let link_url = text(&link, "url").to_owned();
    assert!(link_url.starts_with(&site.url), "the public URL");
    assert_eq!(site.curl.send(&[&link_url]).status, 200);
    let own = ["--header", "Sec-Fetch-Site: same-origin"];
    let form = ["--data", "provider=akahu", &link_url];
    let started = site.curl.send(&[&own[..], &form].concat());
    assert_eq!(started.status, 303, "{}", started.text());
    let mut attributes = started.header("set-cookie").split(';');
    let cookie = attributes.next().unwrap().to_owned();
    assert!(cookie.starts_with("__Host-bellbird="));
    let mut consent_page: Url = started.header("location").parse().unwrap();
    let mut parameters = consent_page.query_pairs_mut();
    parameters.append_pair("sandbox_auto", "accept");
    drop(parameters);
    let consented = site.curl.send(&[consent_page.as_str()]);
    let callback_url: Url = consented.header("location").parse().unwrap();
    let ours = format!("{}/link/callback?", site.url);
    assert!(callback_url.as_str().starts_with(&ours), "{callback_url}");
    let with_cookie = ["--cookie", &cookie, callback_url.as_str()];
    let page = site.curl.send(&with_cookie);
    let session = ConsentSession {
        link_url,
        callback_url,
        cookie,
    };
    (session, page)
}

behind_both_proxies! {
    /// Neither is what clients claim of their trace believed.
    async fn linking_works_and_no_secret_is_logged(program) {
        let mut site = Site::start(program, &[]).await;
        let token = "c2V0dXAtdG9rZW4tb2YtYS10ZXN0";
        let claim = |url: &str| {
            site.curl.send(&["--header", "Host: localhost", "--data", "", &format!("{url}/simplefin/claim/{token}")])
        };
        assert_eq!(claim(&site.url).status, 403);
        assert_eq!(claim(&format!("http://{}", site.http())).status, 308);
        for path in ["setup", "link", "sign-in"] {
            let status = site.get(&format!("/{path}/{token}")).status;
            assert!((400..500).contains(&status), "{path}: {status}");
            let plain = format!("http://{}/{path}/{token}", site.http());
            assert_eq!(site.curl.send(&["--header", "Host: localhost", &plain]).status, 308);
        }
        // The log has this line later than those.
        site.get("/docs/last");
        eventually(async || site.log().contains("/docs")).await;
        assert!(!site.log().contains(token), "{}", site.log());

        let chosen = "4bf92f3577b34da6a3ce929d0e0e4736";
        let traceparent = format!("traceparent: 00-{chosen}-00f067aa0ba902b7-01");
        for url in [format!("{}/v1/accounts", site.url), format!("http://{}/v1/accounts", site.services[0].1.api)] {
            assert_eq!(site.curl.send(&["--header", &traceparent, &url]).status, 401);
        }
        // The log has this line later than those. Without a proxy between them, the service
        // believes 127.0.0.1.
        site.get("/v1/me");
        eventually(async || site.service_log(0).contains("/v1/me")).await;
        let log = site.service_log(0);
        let lines = log.lines().filter(|line| line.contains("\"message\":\"request\"") && line.contains(chosen));
        assert_eq!(lines.count(), 1, "of the request past the proxy: {log}");

        let before = site.connections().len();
        let (session, page) = link(&site);
        assert_eq!(page.status, 200, "{}", page.text());
        // A browser waits some seconds for a provider, and the service goes on without it.
        eventually(async || site.connections().len() > before).await;

        // Requests that fail are logged elsewhere, and so are those without TLS.
        let http = |url: &str| url.replace(&site.url, &format!("http://{}", site.http()));
        for url in [&session.link_url, session.callback_url.as_str()] {
            assert_eq!(site.curl.send(&["--header", "Host: localhost", &http(url)]).status, 308);
        }
        let (service, _) = site.services.remove(0);
        assert_eq!(service.stop("-TERM").0, Some(0));
        for url in [&session.link_url, session.callback_url.as_str()] {
            let failed = site.curl.send(&["--cookie", &session.cookie, url]).status;
            assert!([502, 503].contains(&failed), "of the proxy: {failed}");
        }
        site.read("/v1/accounts?limit=7");

        // nginx writes a line after the response.
        let is_logged = |log: &str| log.contains("/v1/connections") && (log.contains("502") || log.contains("503"));
        eventually(async || is_logged(&site.log())).await;
        let log = site.log();
        let parameters = || session.callback_url.query_pairs();
        let value = |name: &str| parameters().find(|(key, _)| key == name).unwrap().1.into_owned();
        let token = session.link_url.rsplit('/').next().unwrap();
        for secret in [token, &value("state"), &value("code"), session.cookie.split_once('=').unwrap().1, &site.key] {
            assert!(secret.len() >= 16 && !log.contains(secret), "{secret} in {log}");
        }
    }
}

behind_both_proxies! {
    /// From the public paths, which are reached over HTTPS only, to files that are cut off. Slow
    /// clients are cut off too, and block no other.
    async fn what_is_sent_arrives_whole(program) {
        let site = Site::start(program, &[]).await;
        let mut slow: Vec<TcpStream> = Vec::new();
        for _ in 0..100 {
            // No TLS handshake, and a request without an end.
            slow.push(TcpStream::connect(site.https()).unwrap());
            let mut plain = TcpStream::connect(site.http()).unwrap();
            plain.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n").unwrap();
            slow.push(plain);
        }
        // Declares more than it sends.
        let unfinished = ["--http1.1", "--header", "Content-Length: 100", "--data", "{"];
        let url = format!("{}/webhooks/fiskil", site.url);
        let unfinished = site.curl.command(&unfinished).arg(&url).spawn().unwrap();
        for _ in 0..10 {
            assert_eq!(site.read("/v1/accounts").status, 200);
        }
        for (path, status) in [
            ("/health", 200),
            ("/health/ready", 200),
            ("/docs", 200),
            ("/openapi.json", 200),
            ("/v1/accounts", 401),
            ("/v1", 401),
            ("/v1/export/transactions.csv", 401),
            ("/simplefin/info", 200),
            ("/simplefin/accounts", 403),
            ("/", 200),
            ("/link/unknown", 404),
            ("/webhooks/fiskil", 405),
            ("/metrics", 404),
            ("/ready", 404),
            ("/live", 404),
            ("/v1/../metrics", 404),
        ] {
            let answer = site.curl.send(&["--path-as-is", &format!("{}{path}", site.url)]);
            assert_eq!(answer.status, status, "{path}: {}", answer.text());
            assert!(answer.header("strict-transport-security").starts_with("max-age="), "{path}");
        }
        let home = site.get("/").text();
        let mut links = home.split("href=\"").map(|rest| rest.split('"').next().unwrap());
        let style = links.find(|url| url.ends_with(".css")).unwrap();
        assert!(site.get(style).header("cache-control").contains("immutable"));

        let plain = site.curl.send(&["--header", "Host: localhost", &format!("http://{}/docs?a=b", site.http())]);
        assert_eq!(plain.status, 308);
        let target: Url = plain.header("location").parse().unwrap();
        assert_eq!((target.scheme(), target.path(), target.query()), ("https", "/docs", Some("a=b")));

        // Such as a cursor of changes that has many pending rows.
        let read = |bytes: usize| site.read(&format!("/v1/transactions/changes?cursor={}", "c".repeat(bytes)));
        assert_eq!(read(15 * 1024).status, 400);
        let too_long = read(17 * 1024);
        assert_eq!(too_long.status, 414);
        assert!(text(&too_long.json()["error"], "message").contains("16 KiB"), "{}", too_long.text());

        let secret = STANDARD.decode(text(&site.sandbox.json()["fiskil"], "webhookSecret")).unwrap();
        let path = site.proxy_folder().join("event");
        let post_event = |bytes: usize| {
            let event = json!({"message_id": "1", "delivery_attempt": 1, "data": {"event": "weather.changed"}});
            let mut event = event.to_string();
            // White space, which the signature covers.
            event.extend(std::iter::repeat_n(' ', bytes - event.len()));
            std::fs::write(&path, &event).unwrap();
            let signature = hmac::sign(&Key::new(HMAC_SHA256, &secret), event.as_bytes());
            let signature = format!("X-Fiskil-Signature: {}", STANDARD.encode(signature));
            let body = format!("@{}", path.display());
            let url = format!("{}/webhooks/fiskil", site.url);
            site.curl.send(&["--header", &signature, "--data-binary", &body, &url])
        };
        assert_eq!(post_event(256 * 1024).status, 200);
        let too_large = post_event(256 * 1024 + 1);
        assert_eq!(too_large.status, 413);
        assert!(too_large.json()["error"]["message"].is_string());
        // Caddy closes the connection in the middle of the body.
        assert!([413, 502, 0].contains(&post_event(2 * 1024 * 1024).status));

        let account = site.read("/v1/accounts?limit=1").json()["data"][0].clone();
        let (connection, account) = (text(&account, "connectionId"), text(&account, "id"));
        let query = format!("connectionId={connection}&accountId={account}&from=2000-01-01&limit=500");
        let window = format!("/v1/transactions?{query}");
        let api = &site.services[0].1.api;
        let (_, direct) = get(&format!("http://{api}{window}"), Some(&site.key)).await;
        let answer = site.read(&window);
        assert!(answer.body.len() > 100_000, "{}", answer.body.len());
        assert_eq!(answer.json(), direct);
        assert!(answer.header("cache-control").contains("no-store"));
        // nginx deletes such a file at once, but notes it.
        assert!(!site.log().contains("temporary file"), "{}", site.log());

        let path = "/v1/export/transactions.jsonl?from=2000-01-01";
        let whole = site.read(path);
        assert_eq!(whole.status, 200);
        let rows = whole.text().lines().count();
        assert!(rows > 1_000, "{rows} rows");
        for fault in [Fault::delay_ms(0).times(1), Fault::status(500)] {
            let fault = fault.at("/v1/banking/transactions");
            add_fault(&site.sandbox.json(), "fiskil", fault).await;
        }
        let key = format!("Authorization: Bearer {}", site.key);
        let aborted = || site.log().matches("aborting with incomplete response").count();
        let before = aborted();
        let output = site.curl.command(&["--fail", "--header", &key, &format!("{}{path}", site.url)]).output().unwrap();
        assert!(output.stdout.ends_with(b"200"), "it began");
        match program {
            // Caddy 2.6 says it in its log only, as the documentation does. 2.7.6 breaks the
            // connection off.
            Program::Caddy => {
                let received = String::from_utf8_lossy(&output.stdout).lines().count();
                let noticed = async {
                    while aborted() <= before {
                        tokio::time::sleep(Duration::from_millis(20)).await;
                    }
                };
                let noticed = tokio::time::timeout(HANG, noticed).await;
                assert!(noticed.is_ok(), "{received} of {rows} rows: {}", site.log());
            }
            Program::Nginx => assert!(!output.status.success(), "a file that is not whole seems to be"),
        }

        for mut stream in slow {
            stream.set_read_timeout(Some(HANG)).unwrap();
            let mut rest = Vec::new();
            let ended = stream.read_to_end(&mut rest);
            let is_timeout = ended.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock);
            assert!(!is_timeout, "a slow client keeps its connection");
        }
        let answer = String::from_utf8(unfinished.wait_with_output().unwrap().stdout).unwrap();
        // Bellbird's 408 behind Caddy; nginx closes the connection.
        assert!(answer.ends_with("408") || answer == "000", "{answer}");
    }
}

behind_both_proxies! {
    async fn service_sees_the_client_address(program) {
        let site = Site::start(program, &[("LIMITS__FAILED_AUTH_PER_MINUTE", "3")]).await;
        let attempt = |client: &str, claim: &str| {
            let claim = format!("X-Forwarded-For: {claim}");
            let unknown_link = format!("{}/sign-in/{}", site.url, "0".repeat(64));
            site.curl.send(&["--interface", client, "--header", &claim, &unknown_link]).status
        };
        // A new claim each time does not help. While a slow machine makes three attempts, the limit
        // may allow further ones, one each 20 seconds.
        let mut statuses = (1..20).map(|last| attempt("127.0.0.2", &format!("203.0.113.{last}")));
        assert_eq!([(); 3].map(|()| statuses.next()), [Some(410); 3]);
        assert_eq!(statuses.find(|status| *status != 410), Some(429));
        assert_eq!(attempt("127.0.0.3", "127.0.0.2"), 410, "another address");
    }
}

/// They pause for as long as a provider does, and longer where a search finds few rows.
#[test]
fn nginx_waits_for_the_files_of_the_console() {
    let routes = include_str!("../../../../console/src/lib.rs");
    let is_file = |text: &&str| text.starts_with('/') && text.ends_with(".csv");
    let files: BTreeSet<&str> = routes.split('"').filter(is_file).collect();
    let names: Vec<&str> = files
        .iter()
        .map(|file| file.trim_matches('/').trim_end_matches(".csv"))
        .collect();
    let location = format!(
        "location ~ ^/({})\\.(csv|ofx)$ {{\n        proxy_read_timeout 65m;",
        names.join("|")
    );
    let site = include_str!("../../../../../deploy/nginx/bellbird.conf");
    assert!(site.contains(&location), "no {location}");
}
