//! Two instances behind a proxy are replaced one after the other, as
//! docs/several-instances.md#5-upgrade-them says, while clients read.

use std::process::Output;

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::behind_both_proxies;
use super::site::{Program, Site};
use crate::support::harness::eventually;
use crate::support::servers::Postgres;

/// Requests of one client over one connection.
const BATCH: usize = 20;
const CLIENTS: usize = 3;
/// How often each instance is replaced.
const ROUNDS: usize = 3;

/// Reads this URL again and again. Returns the status of each response.
fn read_until(site: &Site, url: &str, stop: &CancellationToken) -> JoinHandle<Vec<u16>> {
    let (url, stop) = (format!("{url}#[1-{BATCH}]"), stop.clone());
    let key = format!("Authorization: Bearer {}", site.key);
    let mut command = site.curl.command(&[
        "--header",
        &key,
        "--output",
        "/dev/null",
        "--write-out",
        "%{http_code}\n",
    ]);
    command.arg(url);
    tokio::task::spawn_blocking(move || {
        let mut statuses = Vec::new();
        while !stop.is_cancelled() {
            let Output { stdout, .. } = command.output().unwrap();
            let lines = String::from_utf8(stdout).unwrap();
            statuses.extend(lines.lines().map(|line| line.parse::<u16>().unwrap()));
        }
        statuses
    })
}

behind_both_proxies! {
    async fn instances_are_replaced_without_a_failed_request(program) {
        let server = Postgres::start();
        let settings = [("DATABASE__URL", server.url.as_str()), ("LIMITS__METADATA_PER_MINUTE", "0")];
        let mut site = Site::start_several(program, 2, &settings).await;
        let stop = CancellationToken::new();
        let _stopped_in_any_case = stop.clone().drop_guard();
        let paths = ["/v1/connections", "/v1/accounts?limit=5", "/sign-in"];
        let urls = paths.iter().cycle().take(CLIENTS).map(|path| format!("{}{path}", site.url));
        let readers: Vec<_> = urls.map(|url| read_until(&site, &url, &stop)).collect();
        for _ in 0..ROUNDS {
            for number in 0..2 {
                site.restart(number);
                // The proxy has found it again.
                let requests = || site.service_log(number).matches("\"message\":\"request\"").count();
                let before = requests();
                eventually(async || requests() > before).await;
            }
        }
        stop.cancel();
        for (reader, path) in readers.into_iter().zip(paths.iter().cycle()) {
            let statuses = reader.await.unwrap();
            let failed: Vec<_> = statuses.iter().filter(|status| **status != 200).collect();
            assert!(failed.is_empty(), "{path}: {failed:?} of {}: {}", statuses.len(), site.log());
            assert!(statuses.len() >= BATCH, "{path}");
        }

        // A POST whose connection is refused was not sent, so another instance gets it.
        let (stopped, _) = site.services.remove(0);
        assert_eq!(stopped.stop("-TERM").0, Some(0));
        // As a button of another website posts it. Caddy cannot repeat a POST with a body: see
        // deploy/caddy/Caddyfile.
        let body = match program {
            Program::Caddy => "",
            Program::Nginx => "email=a%40b.example",
        };
        let url = format!("{}/sign-in", site.url);
        for _ in 0..20 {
            let answer = site.curl.send(&["--header", "Sec-Fetch-Site: cross-site", "--data", body, &url]);
            assert_eq!(answer.status, 403, "{}", answer.text());
        }
    }
}
