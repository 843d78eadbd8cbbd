//! Untrusted text, made fit for formats without an escape.

use std::borrow::Cow;
use std::fmt;
use std::io::Write as _;

use aws_lc_rs::digest::{SHA256, digest};
use bellbird_domain::Transaction;

use super::{Head, LeftOut};

/// Whether a character ends a line for some reader, or is not allowed in XML.
fn is_break(character: char) -> bool {
    character.is_control() || matches!(character, '\u{2028}' | '\u{2029}' | '\u{fffe}' | '\u{ffff}')
}

/// The text on one line: a blank for each run of line breaks and other control characters, and none
/// at the ends.
pub(super) fn one_line(text: &str) -> Cow<'_, str> {
    let text =
        text.trim_matches(|character: char| character.is_whitespace() || is_break(character));
    if !text.contains(is_break) {
        return Cow::Borrowed(text);
    }
    let parts = text.split(is_break).filter(|part| !part.is_empty());
    Cow::Owned(parts.collect::<Vec<_>>().join(" "))
}

/// The parts of a text between characters that are not kept, joined by `separator`.
pub(super) fn words(text: &str, separator: &str, is_kept: impl Fn(char) -> bool) -> String {
    let words = text.split(|character| !is_kept(character));
    let words: Vec<_> = words.filter(|word| !word.is_empty()).collect();
    words.join(separator)
}

pub(super) fn cut(text: &str, chars: usize) -> &str {
    text.char_indices()
        .nth(chars)
        .map_or(text, |(end, _)| &text[..end])
}

/// An id as it is if it has only allowed characters, at most `chars` of them. Else a digest of it,
/// so that different ids stay different.
pub(super) fn key(id: &str, chars: usize, is_allowed: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !id.is_empty() && id.chars().count() <= chars && id.chars().all(is_allowed) {
        Cow::Borrowed(id)
    } else {
        Cow::Owned(hex::encode(digest(&SHA256, id.as_bytes())))
    }
}

/// The merchant, else the description, on one line.
pub(super) fn payee<'r>(row: &'r Transaction<'_>) -> Cow<'r, str> {
    let merchant = row
        .merchant_name
        .as_deref()
        .map(one_line)
        .filter(|merchant| !merchant.is_empty());
    merchant.unwrap_or_else(|| one_line(&row.description))
}

/// Appends a text. Cannot fail, because memory takes every text, and none of what is written here
/// fails to format.
pub(super) fn write(text: fmt::Arguments<'_>, out: &mut Vec<u8>) {
    out.write_fmt(text)
        .expect("memory takes every text that formats");
}

/// Appends a text and a line feed.
pub(super) fn line(text: fmt::Arguments<'_>, out: &mut Vec<u8>) {
    write(text, out);
    out.push(b'\n');
}

/// The first line of a journal.
pub(super) fn start_comment(head: &Head<'_>, out: &mut Vec<u8>) {
    let read_at = head.read_at.strftime("%FT%TZ");
    line(
        format_args!("; Transactions of Bellbird, read at {read_at}"),
        out,
    );
}

/// The last lines of a journal: the connections that are left out, and the end, by which a reader
/// sees that nothing else is missing.
pub(super) fn end_comments(rows: u64, left_out: &[LeftOut], out: &mut Vec<u8>) {
    for LeftOut {
        connection_id,
        institution_name,
        error,
    } in left_out
    {
        let institution = one_line(institution_name);
        line(
            format_args!("\n; Left out: {institution}, connection {connection_id}: {error}"),
            out,
        );
    }
    line(
        format_args!("\n; End of the file. Transactions: {rows}"),
        out,
    );
}
