//! Questions on a terminal.

use std::io::BufRead as _;

use anyhow::bail;
use secrecy::SecretString;

use super::output;
use crate::config::terminal;

/// The line that is typed, without the spaces around it. The end of standard input is an error.
pub(super) fn line(question: &str) -> anyhow::Result<String> {
    output::ask(question);
    let mut line = String::new();
    if std::io::stdin().lock().read_line(&mut line)? == 0 {
        bail!("no answer, so nothing was made");
    }
    Ok(line.trim().to_owned())
}

/// As [`line`], without showing what is typed.
pub(super) fn secret(question: &str) -> anyhow::Result<SecretString> {
    let hidden = terminal::hide_input();
    let text = line(question);
    drop(hidden);
    output::note("");
    text.map(SecretString::from)
}

/// Asks until there is an answer that can be parsed. The error completes "that".
pub(super) fn until<T>(
    question: &str,
    parse: impl Fn(&str) -> Result<T, String>,
) -> anyhow::Result<T> {
    loop {
        match parse(&line(question)?) {
            Ok(value) => return Ok(value),
            Err(error) => output::note(&format!("That {error}.")),
        }
    }
}
