//! The metrics that the crates record, the list in code, and the table of docs/monitoring.md are
//! the same. So are the kinds of jobs.

use std::collections::BTreeSet;

use bellbird::telemetry::metrics::METRICS;

use super::{code_lines, read, root, sources};

const LIST: &str = "crates/bellbird/src/telemetry/metrics.rs";

/// The parts of a line between quotes.
fn quoted(line: &str, quote: char) -> Vec<String> {
    line.split(quote)
        .skip(1)
        .step_by(2)
        .map(str::to_owned)
        .collect()
}

/// What follows a prefix in the lines of a text.
fn following<'t>(text: &'t str, prefix: &str) -> Vec<&'t str> {
    let lines = text.lines().map(str::trim);
    lines.filter_map(|line| line.strip_prefix(prefix)).collect()
}

#[test]
fn list_has_every_metric_that_is_recorded() {
    let is_metric = |name: &String| {
        let begins = name.starts_with("bellbird_") || name.starts_with("process_");
        begins && name.chars().all(|c| c.is_ascii_lowercase() || c == '_')
    };
    let mut recorded = BTreeSet::new();
    for path in sources().into_iter().filter(|path| path != LIST) {
        let text = read(&root().join(path));
        recorded.extend(
            code_lines(&text)
                .flat_map(|(_, line)| quoted(line, '"'))
                .filter(is_metric),
        );
    }
    let names = METRICS.iter().map(|metric| metric.name.to_owned());
    let listed: BTreeSet<String> = names.collect();
    assert_eq!(recorded, listed, "change {LIST}");
    assert_eq!(listed.len(), METRICS.len());
}

#[test]
fn documentation_has_the_list_of_metrics() {
    let page = read(&root().join("docs/monitoring.md"));
    let rows = page
        .lines()
        .filter(|line| line.starts_with("| `bellbird_") || line.starts_with("| `process_"));
    let documented: Vec<(String, Vec<String>)> = rows
        .map(|row| {
            let mut cells = row.split('|').skip(1);
            let name = quoted(cells.next().unwrap(), '`').remove(0);
            // The values of a label follow in brackets.
            let labels = cells.next().unwrap().split('(').next().unwrap();
            (name, quoted(labels, '`'))
        })
        .collect();
    let labels = |labels: &[&str]| labels.iter().map(|label| (*label).to_owned()).collect();
    let metrics = METRICS.iter();
    let metrics = metrics.map(|metric| (metric.name.to_owned(), labels(metric.labels)));
    let listed: Vec<(String, Vec<String>)> = metrics.collect();
    // In the same order.
    assert_eq!(documented, listed, "change docs/monitoring.md or {LIST}");
}

#[test]
fn documentation_has_every_kind_of_job() {
    let page = read(&root().join("docs/monitoring.md"));
    let table = page
        .lines()
        .skip_while(|line| !line.starts_with("| job | what it does |"));
    let rows = table.take_while(|line| line.starts_with('|')).skip(2);
    let documented: Vec<String> = rows
        .filter_map(|row| quoted(row.split('|').nth(1)?, '`').pop())
        .collect();
    let kinds: Vec<_> = bellbird_connections::job_kinds().collect();
    assert_eq!(documented, kinds);
}

/// So that an alert at night leads to what to do.
#[test]
fn every_alert_has_its_heading() {
    let rules = read(&root().join("deploy/prometheus/rules.yml"));
    let page = read(&root().join("docs/alerts.md"));
    let alerts = following(&rules, "- alert: ");
    let lower = alerts.iter().map(|alert| alert.to_lowercase());
    let links = lower.map(|alert| format!("\"docs/alerts.md#{alert}\""));
    let links: Vec<String> = links.collect();
    assert_eq!(following(&rules, "description: "), links);
    let headings = page.lines();
    let headings = headings.filter_map(|line| line.strip_prefix("## Bellbird"));
    let headings: Vec<&str> = headings.collect();
    let named = alerts.iter();
    let named = named.filter_map(|alert| alert.strip_prefix("Bellbird"));
    let named: Vec<&str> = named.collect();
    assert_eq!(headings, named, "docs/alerts.md has the order of rules.yml");
}

/// Alerts and dashboard name metrics of the program, and series that the rules record. promtool
/// tests the alerts (`scripts/lint-workflows`).
#[test]
fn alerts_and_dashboard_name_metrics_that_there_are() {
    let deployed = |path: &str| read(&root().join("deploy").join(path));
    let rules = deployed("prometheus/rules.yml");
    let recorded = following(&rules, "- record: ");
    let recorded: BTreeSet<&str> = recorded.into_iter().collect();
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | ':');
    for text in [
        rules.as_str(),
        &deployed("grafana/bellbird.json"),
        &deployed("prometheus/tests.yml"),
    ] {
        // Without a label of a rule file.
        let words = text.split(|c: char| !is_name(c));
        for word in words.filter(|word| *word != "bellbird_alerts") {
            if word.starts_with("bellbird_") {
                let name = word.trim_end_matches("_bucket");
                let is_metric = METRICS.iter().any(|metric| metric.name == name);
                assert!(is_metric, "{name} is no metric");
            } else if word.starts_with("bellbird:") {
                assert!(recorded.contains(word), "{word} is not recorded");
            }
        }
    }
    assert!(recorded.len() > 2);
}
