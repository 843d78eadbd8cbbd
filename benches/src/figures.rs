//! Summarises measurements as figures, compares them with targets, and prints the report.

use serde::Serialize;

/// Median, minimum and maximum of some measurements.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Summary {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

impl Summary {
    /// Expects at least one value; without one, all three are NaN.
    pub(crate) fn of(values: &[f64]) -> Self {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let at = |index: usize| sorted.get(index).copied().unwrap_or(f64::NAN);
        let middle = sorted.len() / 2;
        let median = if sorted.len() % 2 == 1 {
            at(middle)
        } else {
            f64::midpoint(at(middle.wrapping_sub(1)), at(middle))
        };
        Self {
            median,
            min: at(0),
            max: at(sorted.len().wrapping_sub(1)),
        }
    }
}

/// The value that a `share` (such as 0.99) of the sorted values do not exceed.
pub(crate) fn percentile(sorted: &[f64], share: f64) -> f64 {
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "an index, cut to the last"
    )]
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted
        .get(rank.saturating_sub(1).min(sorted.len().wrapping_sub(1)))
        .copied()
        .unwrap_or(f64::NAN)
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Figure {
    pub(crate) name: String,
    /// The measured quantity with its unit.
    pub(crate) measure: &'static str,
    pub(crate) subject: Summary,
    pub(crate) baseline_name: Option<&'static str>,
    pub(crate) baseline: Option<Summary>,
    /// Subject divided by baseline, round by round.
    pub(crate) ratio: Option<Summary>,
    /// Subject minus baseline, round by round. A figure has either this or a ratio.
    pub(crate) difference: Option<Summary>,
    /// Upper bound of the median ratio or difference, or of the subject's median in a figure
    /// without a baseline.
    pub(crate) target: Option<f64>,
    /// Lower bound of the subject's median or of the median ratio.
    pub(crate) least: Option<f64>,
    /// Whether the figure meets its bound; `None` without a bound.
    pub(crate) met: Option<bool>,
}

impl Figure {
    pub(crate) fn single(
        name: &str,
        measure: &'static str,
        values: &[f64],
        target: Option<f64>,
    ) -> Self {
        let subject = Summary::of(values);
        let met = target.map(|target| subject.median <= target);
        Self {
            name: name.to_owned(),
            measure,
            subject,
            baseline_name: None,
            baseline: None,
            ratio: None,
            difference: None,
            target,
            least: None,
            met,
        }
    }

    /// The ratio of subject to baseline; both have one value per round.
    pub(crate) fn compared(
        name: &str,
        measure: &'static str,
        baseline_name: &'static str,
        subject: &[f64],
        baseline: &[f64],
        target: Option<f64>,
    ) -> Self {
        let ratios: Vec<f64> = subject
            .iter()
            .zip(baseline)
            .map(|(subject, baseline)| subject / baseline)
            .collect();
        let ratio = Summary::of(&ratios);
        let met = target.map(|target| ratio.median <= target);
        Self {
            name: name.to_owned(),
            measure,
            subject: Summary::of(subject),
            baseline_name: Some(baseline_name),
            baseline: Some(Summary::of(baseline)),
            ratio: Some(ratio),
            difference: None,
            target,
            least: None,
            met,
        }
    }

    /// The difference of subject and baseline; both have one value per round.
    pub(crate) fn difference(
        name: &str,
        measure: &'static str,
        baseline_name: &'static str,
        subject: &[f64],
        baseline: &[f64],
        target: Option<f64>,
    ) -> Self {
        let differences: Vec<f64> = subject
            .iter()
            .zip(baseline)
            .map(|(subject, baseline)| subject - baseline)
            .collect();
        let difference = Summary::of(&differences);
        let met = target.map(|target| difference.median <= target);
        let ratio = None;
        Self {
            ratio,
            difference: Some(difference),
            met,
            ..Self::compared(name, measure, baseline_name, subject, baseline, target)
        }
    }

    /// Like [`Self::compared`], with `least` as the lower bound of the subject.
    pub(crate) fn rate(
        name: &str,
        measure: &'static str,
        baseline_name: &'static str,
        subject: &[f64],
        baseline: &[f64],
        least: Option<f64>,
    ) -> Self {
        let met = least.map(|least| Summary::of(subject).median >= least);
        Self {
            least,
            met,
            ..Self::compared(name, measure, baseline_name, subject, baseline, None)
        }
    }

    /// Like [`Self::compared`], with `least` as the lower bound of the ratio.
    pub(crate) fn ratio_at_least(
        name: &str,
        measure: &'static str,
        baseline_name: &'static str,
        subject: &[f64],
        baseline: &[f64],
        least: f64,
    ) -> Self {
        let figure = Self::compared(name, measure, baseline_name, subject, baseline, None);
        let met = figure.ratio.as_ref().map(|ratio| ratio.median >= least);
        Self {
            least: Some(least),
            met,
            ..figure
        }
    }

    fn target_text(&self) -> Option<String> {
        self.target.map(number).or_else(|| {
            self.least
                .map(|least| format!("at least {}", number(least)))
        })
    }

    fn outcome(&self) -> Option<String> {
        let ratio = self.ratio.as_ref().map(with_range);
        ratio.or_else(|| {
            self.difference
                .as_ref()
                .map(|more| format!("{} more", with_range(more)))
        })
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Report {
    rounds: u32,
    connections: u32,
    cores: usize,
    figures: Vec<Figure>,
    /// Comparisons that could not run, each with the reason.
    left_out: Vec<String>,
}

impl Report {
    pub(crate) fn new(rounds: u32, connections: u32) -> Self {
        let cores = std::thread::available_parallelism().map_or(0, usize::from);
        Self {
            rounds,
            connections,
            cores,
            figures: Vec::new(),
            left_out: Vec::new(),
        }
    }

    pub(crate) fn add(&mut self, figure: Figure) {
        progress(&format!(
            "{}, {}: {}",
            figure.name,
            figure.measure,
            short(&figure)
        ));
        self.figures.push(figure);
    }

    pub(crate) fn leave_out(&mut self, why: String) {
        progress(&why);
        self.left_out.push(why);
    }

    #[allow(clippy::print_stdout, reason = "the result of the program")]
    pub(crate) fn print_json(&self) -> anyhow::Result<()> {
        println!("{}", serde_json::to_string_pretty(self)?);
        Ok(())
    }

    #[allow(clippy::print_stdout, reason = "the result of the program")]
    #[allow(clippy::unnecessary_wraps, reason = "same signature as print_json")]
    pub(crate) fn print_table(&self) -> anyhow::Result<()> {
        println!(
            "{} cores, {} connections, {} rounds; median (least..most)\n",
            self.cores, self.connections, self.rounds
        );
        println!(
            "| what | measure | Bellbird | compared with | ratio, or how much more | target | met |"
        );
        println!("|---|---|---:|---:|---:|---:|---|");
        for figure in &self.figures {
            println!("{}", line(figure));
        }
        for why in &self.left_out {
            println!("\nLeft out: {why}");
        }
        Ok(())
    }
}

fn line(figure: &Figure) -> String {
    let baseline = match (figure.baseline_name, &figure.baseline) {
        (Some(baseline_name), Some(baseline)) => {
            format!("{} ({baseline_name})", number(baseline.median))
        }
        _ => String::new(),
    };
    let subject = if figure.baseline_name.is_some() {
        number(figure.subject.median)
    } else {
        with_range(&figure.subject)
    };
    format!(
        "| {} | {} | {subject} | {baseline} | {} | {} | {} |",
        figure.name,
        figure.measure,
        figure.outcome().unwrap_or_default(),
        figure.target_text().unwrap_or_default(),
        figure.met.map_or("", |met| if met { "yes" } else { "NO" }),
    )
}

fn short(figure: &Figure) -> String {
    let target = figure
        .target_text()
        .map(|bound| format!(", target {bound}"))
        .unwrap_or_default();
    match &figure.ratio {
        Some(ratio) => format!(
            "{}, ratio {}{target}",
            with_range(&figure.subject),
            with_range(ratio)
        ),
        None => format!(
            "{}{target}",
            figure
                .outcome()
                .unwrap_or_else(|| with_range(&figure.subject))
        ),
    }
}

fn with_range(summary: &Summary) -> String {
    format!(
        "{} ({}..{})",
        number(summary.median),
        number(summary.min),
        number(summary.max)
    )
}

fn number(value: f64) -> String {
    match value.abs() {
        value_abs if value_abs >= 100.0 => format!("{value:.0}"),
        value_abs if value_abs >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// Prints progress to standard error.
#[allow(
    clippy::print_stderr,
    reason = "progress of a program that runs for minutes"
)]
pub(crate) fn progress(text: &str) {
    eprintln!("{text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_taken_round_by_round() {
        let figure = Figure::difference(
            "x",
            "ms",
            "y",
            &[205.0, 211.0, 203.0],
            &[200.0, 201.0, 202.0],
            Some(5.0),
        );
        assert_eq!(figure.outcome().unwrap(), "5.00 (1.00..10.0) more");
        assert_eq!(figure.met, Some(true));
        assert!(figure.ratio.is_none());
    }

    #[test]
    fn rates_and_ratios_have_lower_bounds() {
        let (fast, slow) = ([1_200.0, 1_100.0, 900.0], [2_000.0, 2_000.0, 2_000.0]);
        let figure = Figure::rate("x", "a second", "y", &fast, &slow, Some(1_000.0));
        assert_eq!(figure.met, Some(true));
        assert_eq!(figure.target_text().unwrap(), "at least 1000");
        assert_eq!(
            Figure::rate("x", "a second", "y", &slow, &fast, Some(2_001.0)).met,
            Some(false)
        );
        assert_eq!(
            Figure::ratio_at_least("x", "a second", "y", &fast, &slow, 0.9).met,
            Some(false)
        );
        assert_eq!(
            Figure::ratio_at_least("x", "a second", "y", &slow, &fast, 0.9).met,
            Some(true)
        );
    }

    #[test]
    fn medians_and_percentiles() {
        let summary = Summary::of(&[3.0, 1.0, 2.0]);
        assert_eq!((summary.median, summary.min, summary.max), (2.0, 1.0, 3.0));
        assert_eq!(Summary::of(&[1.0, 2.0]).median, 1.5);
        let hundred: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!(percentile(&hundred, 0.5), 50.0);
        assert_eq!(percentile(&hundred, 0.99), 99.0);
        assert_eq!(percentile(&hundred, 1.0), 100.0);
    }
}
