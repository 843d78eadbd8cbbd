//! A scrape of the running program has the kinds, labels and help texts of the list of metrics.

use std::collections::{BTreeMap, BTreeSet};

use bellbird::instances::COMMIT;
use bellbird::telemetry::metrics::{Kind, METRICS, Metric};

use super::Deployment;
use crate::support::words::assert_has;

/// Each metric of a scrape, with the rest of its `# TYPE` or `# HELP` line.
fn comments<'a>(page: &'a str, prefix: &str) -> BTreeMap<&'a str, &'a str> {
    page.lines()
        .filter_map(|line| line.strip_prefix(prefix)?.split_once(' '))
        .collect()
}

/// The names of the labels of every sample of a metric.
fn labels_of_samples<'a>(page: &'a str, metric: &Metric) -> Vec<BTreeSet<&'a str>> {
    let parts: &[&str] = if metric.kind == Kind::Histogram {
        &["_bucket", "_sum", "_count"]
    } else {
        &[""]
    };
    let names: Vec<String> = parts
        .iter()
        .map(|part| format!("{}{part}", metric.name))
        .collect();
    let samples = page.lines().filter(|line| {
        names
            .iter()
            .any(|name| line.split(['{', ' ']).next() == Some(name))
    });
    let labels = samples.map(|line| {
        line.split_once('{')
            .map_or("", |(_, rest)| rest.split('}').next().unwrap())
    });
    labels
        .map(|labels| {
            labels
                .split(',')
                .filter_map(|label| Some(label.split_once('=')?.0))
        })
        .map(|names| names.filter(|name| *name != "le").collect())
        .collect()
}

#[tokio::test]
async fn scrape_matches_the_list() {
    let deployment = Deployment::start().await;
    let read = deployment.get("apiUrl", &deployment.transactions()).await;
    assert_eq!(read.status, 200);
    let mut page = String::new();
    // A job that starts with the service counts what is in the database.
    while !page.contains("bellbird_webhook_endpoints{") {
        page = deployment.scrape().await;
    }
    for sample in [r#"status="active"} 1"#, r#"status="revoked"} 0"#] {
        let sample = format!(r#"bellbird_connections{{provider="fiskil",{sample}"#);
        assert_has(&page, &sample);
    }
    let build = format!(
        r#"bellbird_build_info{{version="{}",commit="{COMMIT}"}} 1"#,
        env!("CARGO_PKG_VERSION")
    );
    for sample in [r#"bellbird_consents_ending{provider="fiskil"} 0"#, &build] {
        assert!(page.lines().any(|line| line == sample), "{page}");
    }
    let value = |name: &str| -> u64 {
        let is_sample = |line: &&str| line.split(' ').next() == Some(name);
        let line = page.lines().find(is_sample);
        let value = line.and_then(|line| line.rsplit(' ').next());
        value
            .unwrap_or_else(|| panic!("{name}: {page}"))
            .parse()
            .unwrap()
    };
    // A service takes megabytes and has its sockets open, and a test takes no minutes.
    let memory = value("process_resident_memory_bytes");
    assert!((4_000_000..4_000_000_000).contains(&memory), "{memory}");
    let files = value("process_open_fds");
    assert!((5..1_000).contains(&files), "{files}");
    assert!(value("process_cpu_seconds_total") < 600);
    let (kinds, helps) = (comments(&page, "# TYPE "), comments(&page, "# HELP "));
    for name in [
        "bellbird_requests_total",
        "bellbird_request_seconds",
        "bellbird_provider_calls_total",
    ] {
        assert!(kinds.contains_key(name), "{page}");
    }
    for (name, kind) in kinds {
        let metric = METRICS
            .iter()
            .find(|metric| metric.name == name)
            .unwrap_or_else(|| panic!("{name} is not listed"));
        let expected = format!("{:?}", metric.kind).to_lowercase();
        assert_eq!(kind, expected, "{name}");
        assert_eq!(helps[name], metric.help, "{name}");
        let all = labels_of_samples(&page, metric);
        assert!(!all.is_empty(), "{name}");
        for labels in all {
            assert_eq!(labels, metric.labels.iter().copied().collect(), "{name}");
        }
    }
    deployment.service.end();
}
