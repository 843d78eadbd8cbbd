//! What commands print, one after the other, for a snapshot.

use std::collections::BTreeMap;
use std::process::Output;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use uuid::Uuid;

use crate::support::process::{Workdir, errors};

/// The time at which a transcript begins, in its text.
const START: &str = "2026-01-01T00:00:00Z";
const SECRETS: [&str; 3] = ["bb_", "bbo_", "whsec_"];

/// Each command with its standard output, its standard error (`! `) and its exit status, unless
/// that is 0. Ids, secrets and times are replaced by values of the same length, where equal ones
/// stay equal, and the time between two of them stays what it is.
pub(crate) struct Transcript<'w> {
    workdir: &'w Workdir,
    text: String,
    replaced: Vec<(String, String)>,
    start: Timestamp,
}

/// The transcript of these commands.
pub(crate) fn transcript(workdir: &Workdir, lines: &[&str]) -> String {
    let mut all = Transcript::new(workdir);
    for line in lines {
        all.run(line);
    }
    all.finish()
}

impl<'w> Transcript<'w> {
    pub(crate) fn new(workdir: &'w Workdir) -> Self {
        let folder = workdir.path().display().to_string();
        Self {
            workdir,
            text: String::new(),
            replaced: vec![(folder, "FOLDER".to_owned())],
            start: Timestamp::now(),
        }
    }

    /// Shows `value` as `name`: a port, or a time that does not depend on that of the test.
    pub(crate) fn name(&mut self, value: impl ToString, name: &str) {
        self.replaced.push((value.to_string(), name.to_owned()));
    }

    pub(crate) fn run(&mut self, line: &str) -> Output {
        let output = self.workdir.run(line);
        self.add(line, &String::from_utf8_lossy(&output.stdout), &output);
        output
    }

    /// As [`Self::run`], with what the command reads from standard input.
    pub(crate) fn run_with_input(&mut self, line: &str, input: &str) -> Output {
        let output = self.workdir.run_with_input(line, input);
        let stdout = String::from_utf8_lossy(&output.stdout);
        self.add(&format!("{line} < {input}"), &stdout, &output);
        output
    }

    /// Runs a command with `--json`, which prints one line, and shows that on several.
    pub(crate) fn json(&mut self, line: &str) -> Value {
        let line = format!("{line} --json");
        let output = self.workdir.run(&line);
        let stdout = String::from_utf8_lossy(&output.stdout);
        assert_eq!(stdout.lines().count(), 1, "{line}: {stdout}");
        let printed: Value = serde_json::from_str(&stdout).unwrap();
        let mut shown = printed.clone();
        for name in ["durationMs", "lastDurationMs"] {
            hide_number(&mut shown, name);
        }
        let shown = format!("{shown:#}\n");
        self.add(&line, &shown, &output);
        printed
    }

    fn add(&mut self, line: &str, stdout: &str, output: &Output) {
        self.text.push_str(&format!("$ bellbird {line}\n{stdout}"));
        for line in errors(output).lines() {
            self.text.push_str(&format!("! {line}\n"));
        }
        let code = output.status.code().expect("no signal ends a command");
        if code != 0 {
            self.text.push_str(&format!("exit {code}\n"));
        }
        self.text.push('\n');
    }

    pub(crate) fn finish(self) -> String {
        let mut text = self.text;
        for (value, name) in &self.replaced {
            text = text.replace(value, name);
        }
        redact(&without_milliseconds(&text), self.start)
    }
}

/// Replaces a number that differs from run to run.
fn hide_number(value: &mut Value, name: &str) {
    match value {
        Value::Array(values) => values.iter_mut().for_each(|value| hide_number(value, name)),
        Value::Object(fields) => {
            if let Some(number) = fields.get_mut(name).filter(|value| value.is_number()) {
                *number = 0.into();
            }
            fields
                .values_mut()
                .for_each(|value| hide_number(value, name));
        }
        _ => {}
    }
}

/// Replaces how long something took.
fn without_milliseconds(text: &str) -> String {
    let parts: Vec<&str> = text.split(" ms").collect();
    let (last, before) = parts.split_last().expect("a part");
    let shown = before.iter().map(|part| {
        let rest = part.trim_end_matches(|c: char| c.is_ascii_digit());
        format!("{rest}0 ms")
    });
    shown.collect::<String>() + last
}

fn redact(text: &str, start: Timestamp) -> String {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "_:+-./=".contains(c);
    let mut words: Vec<&str> = text
        .split(|c: char| !is_part(c))
        .map(|word| word.trim_end_matches(['.', ':', ',']))
        .collect();
    // A secret before the first characters of it, which a list shows.
    words.sort_by_key(|word| std::cmp::Reverse(word.len()));
    let mut letters = 'A'..='Z';
    let mut secrets: BTreeMap<String, String> = BTreeMap::new();
    let mut ids: BTreeMap<String, String> = BTreeMap::new();
    let mut times = BTreeMap::new();
    for word in words {
        if let Ok(time) = word.parse::<Timestamp>() {
            times.insert(word.to_owned(), shown_time(time, start));
        } else if let Some(head) = SECRETS.iter().find(|head| word.starts_with(**head)) {
            let of_secret = secrets.iter().find(|(secret, _)| secret.starts_with(word));
            let shown = match of_secret {
                Some((_, shown)) => shown[..word.len()].to_owned(),
                None => {
                    let letter = letters.next().expect("few secrets").to_string();
                    format!("{head}{}", letter.repeat(word.len() - head.len()))
                }
            };
            secrets.insert(word.to_owned(), shown);
        }
    }
    // In the order of the text.
    for word in text.split(|c: char| !(c.is_ascii_hexdigit() || c == '-')) {
        if Uuid::try_parse(word).is_ok_and(|id| !id.is_nil()) && word.len() == 36 {
            let number = u128::try_from(ids.len()).unwrap() + 1;
            ids.entry(word.to_owned())
                .or_insert_with(|| Uuid::from_u128(number).to_string());
        }
    }
    let mut text = text.to_owned();
    let mut all: Vec<(String, String)> = secrets.into_iter().chain(ids).chain(times).collect();
    all.sort_by_key(|(value, _)| std::cmp::Reverse(value.len()));
    for (value, shown) in all {
        text = text.replace(&value, &shown);
    }
    text
}

/// To the nearest ten minutes, so that a slow machine changes nothing.
fn shown_time(time: Timestamp, start: Timestamp) -> String {
    let tens = (time.duration_since(start).as_secs() + 300).div_euclid(600);
    let shown: Timestamp = START.parse().unwrap();
    (shown + SignedDuration::from_mins(tens * 10)).to_string()
}
