//! Words that are put together while a page is made.

/// Such as `1 bank` and `2 banks`.
pub(crate) fn count(number: u64, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{plural}")
}

/// The sentence of a wait, such as that of `Retry-After`.
pub(crate) fn try_again_in(seconds: u64) -> String {
    format!("Try again in {}.", count(seconds.max(1), "second"))
}

/// Makes a sentence of an error text: adds a capital letter and a full stop.
pub(crate) fn sentence(text: &str) -> String {
    let mut characters = text.chars();
    let first: String = characters
        .next()
        .into_iter()
        .flat_map(char::to_uppercase)
        .collect();
    let stop = if text.ends_with(['.', '!', '?']) {
        ""
    } else {
        "."
    };
    format!("{first}{}{stop}", characters.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_become_sentences() {
        assert_eq!(
            sentence("the bank is down: try later"),
            "The bank is down: try later."
        );
        assert_eq!(sentence("The bank is down."), "The bank is down.");
        assert_eq!(sentence(""), ".");
    }
}
