//! A table in a text, for tests whose cases differ in texts.

/// The rows of a table with its columns between `|`. Lines that begin with `//` say what the next
/// rows are about.
///
/// # Panics
/// If a row has another number of columns.
#[must_use]
pub fn table<const COLUMNS: usize>(text: &str) -> Vec<[&str; COLUMNS]> {
    let mut rows: Vec<[&str; COLUMNS]> = Vec::new();
    for line in text.trim().lines() {
        if !line.trim_start().starts_with("//") {
            let cells: Vec<&str> = line.split('|').map(str::trim).collect();
            rows.push(cells.try_into().unwrap_or_else(|_| panic!("{line}")));
        }
    }
    rows
}
