//! Words that are put together while a page is made.

use bellbird_domain::ConnectionStatus;

/// What has happened to a bank, for its owner.
pub(crate) fn status_text(status: ConnectionStatus) -> &'static str {
    match status {
        ConnectionStatus::Active => "Works again",
        ConnectionStatus::Invalidated => "Your consent has ended",
        ConnectionStatus::PendingMfa => "It asks you to confirm your sign-in",
        ConnectionStatus::Revoked => "Your consent was withdrawn",
        ConnectionStatus::Deleting => "It is being removed",
    }
}

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
