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
    let listed: BTreeSet<String> = METRICS
        .iter()
        .map(|metric| metric.name.to_owned())
        .collect();
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
            (
                name,
                quoted(cells.next().unwrap().split('(').next().unwrap(), '`'),
            )
        })
        .collect();
    let labels = |labels: &[&str]| labels.iter().map(|label| (*label).to_owned()).collect();
    let listed: Vec<(String, Vec<String>)> = METRICS
        .iter()
        .map(|metric| (metric.name.to_owned(), labels(metric.labels)))
        .collect();
    assert_eq!(
        documented, listed,
        "docs/monitoring.md has the order of {LIST}"
    );
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
    assert_eq!(
        documented,
        bellbird_connections::job_kinds().collect::<Vec<_>>()
    );
}

/// So that an alert at night leads to what to do.
#[test]
fn every_alert_has_its_heading() {
    let (rules, page) = (
        read(&root().join("deploy/prometheus/rules.yml")),
        read(&root().join("docs/alerts.md")),
    );
    let alerts: Vec<&str> = rules
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- alert: "))
        .collect();
    let described: Vec<&str> = rules
        .lines()
        .filter_map(|line| line.trim().strip_prefix("description: "))
        .collect();
    let expected: Vec<_> = alerts
        .iter()
        .map(|alert| format!("\"docs/alerts.md#{}\"", alert.to_lowercase()))
        .collect();
    assert_eq!(described, expected);
    let headings: Vec<&str> = page
        .lines()
        .filter_map(|line| line.strip_prefix("## Bellbird"))
        .collect();
    let named: Vec<&str> = alerts
        .iter()
        .filter_map(|alert| alert.strip_prefix("Bellbird"))
        .collect();
    assert_eq!(headings, named, "docs/alerts.md has the order of rules.yml");
}

/// Alerts and dashboard name metrics of the program, and series that the rules record. promtool
/// tests the alerts (`scripts/lint-workflows`).
#[test]
fn alerts_and_dashboard_name_metrics_that_there_are() {
    let deployed = |path: &str| read(&root().join("deploy").join(path));
    let rules = deployed("prometheus/rules.yml");
    let recorded: BTreeSet<&str> = rules
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- record: "))
        .collect();
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | ':');
    for text in [
        rules.as_str(),
        &deployed("grafana/bellbird.json"),
        &deployed("prometheus/tests.yml"),
    ] {
        let words = text
            .split(|c: char| !is_name(c))
            .filter(|word| word.starts_with("bellbird_"));
        // A label of a rule file, and a part of a histogram.
        let words = words
            .filter(|word| *word != "bellbird_alerts")
            .map(|word| word.trim_end_matches("_bucket"));
        for word in words {
            assert!(
                METRICS.iter().any(|metric| metric.name == word),
                "{word} is no metric"
            );
        }
        for word in text
            .split(|c: char| !is_name(c))
            .filter(|word| word.starts_with("bellbird:"))
        {
            assert!(recorded.contains(word), "{word} is not recorded");
        }
    }
    assert!(recorded.len() > 2);
}
