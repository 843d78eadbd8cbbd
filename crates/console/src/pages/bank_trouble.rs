//! A bank that cannot be read, in words for its owner, with what helps. `bank_trouble` of
//! `parts.html` shows it.

use bellbird_api::http::Problem;
use bellbird_connections::LinkableProvider;
use bellbird_domain::{Connection, ConnectionId, ConnectionStatus};
use bellbird_reads::ReadError;

use super::bank_names::BankNames;
use super::words::{sentence, status_text, try_again_in};

const TOO_MANY_AT_ONCE: &str = "Other pages of yours are still being read. Try again in a moment.";

/// Sorts by name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct BankTrouble {
    pub(crate) name: String,
    pub(crate) id: ConnectionId,
    /// One or two sentences.
    pub(crate) why: String,
    remedy: Remedy,
    /// Whether it is simulated.
    pub(crate) is_sandbox: bool,
}

/// What helps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Remedy {
    /// The user's consent.
    Reconnect,
    /// To try again.
    Time,
    /// The operator, or nothing.
    Other,
}

/// A bank among the others of its user, for what is said when it cannot be read.
pub(crate) struct AskedBank<'a> {
    pub(crate) connection: &'a Connection,
    /// Of all that the user has linked.
    pub(crate) names: &'a BankNames,
    /// The providers that users can link themselves.
    pub(crate) linkable: Vec<LinkableProvider>,
    /// Whether it is simulated.
    pub(crate) is_sandbox: bool,
}

impl AskedBank<'_> {
    /// A read that failed.
    pub(crate) fn failed(&self, error: &ReadError) -> BankTrouble {
        let (why, remedy) = match error {
            ReadError::Reconnect(_) => return self.without_consent(),
            ReadError::BudgetUsedUp { retry_after } => {
                let seconds = retry_after.as_millis().div_ceil(1_000);
                return self.asked_too_often(Some(u64::try_from(seconds).unwrap_or(u64::MAX)));
            }
            ReadError::OperatorNeeded => (
                "This service cannot use it now, until its operator corrects the settings.",
                Remedy::Other,
            ),
            ReadError::Unavailable { .. } => ("It does not respond now.", Remedy::Time),
            ReadError::NotFound | ReadError::WrongCategory => {
                ("It was removed a moment ago.", Remedy::Other)
            }
            ReadError::Storage(_) => ("This service could not look it up.", Remedy::Time),
        };
        self.trouble(why.to_owned(), remedy)
    }

    /// A read by the API that failed, by the code of its error. `retry_after` is in seconds, and
    /// unknown of one among several balances.
    pub(crate) fn failed_by_api(&self, code: &str, retry_after: Option<u64>) -> BankTrouble {
        let error = match code {
            "rate_limited" | "budget_used_up" => return self.asked_too_often(retry_after),
            "too_many_at_once" => {
                return self.trouble(TOO_MANY_AT_ONCE.to_owned(), Remedy::Time);
            }
            "reconnect_required" => return self.without_consent(),
            "not_found" => ReadError::NotFound,
            _ => ReadError::Unavailable {
                retry_after: None,
                is_transient: true,
            },
        };
        self.failed(&error)
    }

    fn asked_too_often(&self, retry_after: Option<u64>) -> BankTrouble {
        let again = retry_after.map(try_again_in);
        let again = again.unwrap_or_else(|| "Try again in a minute.".to_owned());
        let why = format!("It was asked too often in the last minute. {again}");
        self.trouble(why, Remedy::Time)
    }

    /// What is known without a read. None: nothing is wrong.
    pub(crate) fn broken(&self) -> Option<BankTrouble> {
        let status = self.connection.status;
        let is_fine = matches!(
            status,
            ConnectionStatus::Active | ConnectionStatus::Deleting
        );
        (!is_fine).then(|| self.without_consent())
    }

    fn without_consent(&self) -> BankTrouble {
        let why = match self.connection.status {
            // The next refresh finds out whether it has ended or was withdrawn.
            ConnectionStatus::Active => "Your consent is not valid any more",
            known => status_text(known),
        };
        self.trouble(sentence(why), Remedy::Reconnect)
    }

    fn trouble(&self, why: String, remedy: Remedy) -> BankTrouble {
        BankTrouble {
            name: self.names.of(self.connection),
            id: self.connection.id,
            why,
            remedy: match remedy {
                Remedy::Reconnect if !self.is_linkable() => Remedy::Other,
                remedy => remedy,
            },
            is_sandbox: self.is_sandbox,
        }
    }

    /// As [`is_linkable`].
    pub(crate) fn is_linkable(&self) -> bool {
        is_linkable(self.connection, &self.linkable)
    }
}

impl BankTrouble {
    /// What follows the name.
    pub(crate) fn what(&self) -> &'static str {
        match self.remedy {
            Remedy::Reconnect => "needs you.",
            Remedy::Time | Remedy::Other => "could not be read.",
        }
    }

    pub(crate) fn sentences(&self) -> String {
        format!("{} {} {}", self.name, self.what(), self.why)
    }

    pub(crate) fn needs_consent(&self) -> bool {
        self.remedy == Remedy::Reconnect
    }

    pub(crate) fn may_pass(&self) -> bool {
        self.remedy == Remedy::Time
    }

    /// Whether both are of one bank, and the same helps.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        (self.id, self.remedy) == (other.id, other.remedy)
    }
}

/// Whether users can link it themselves, by one of these providers.
pub(super) fn is_linkable(connection: &Connection, linkable: &[LinkableProvider]) -> bool {
    let mut providers = linkable.iter();
    providers.any(|provider| provider.name == connection.provider)
}

/// Why nothing was read from any bank, as a sentence for its user.
pub(crate) fn why_not_read(problem: &Problem) -> String {
    match problem {
        Problem::TooManyRequests(seconds) | Problem::BudgetUsedUp(seconds) => format!(
            "Your banks were asked too often in the last minute. {}",
            try_again_in(*seconds)
        ),
        Problem::TooManyAtOnce => TOO_MANY_AT_ONCE.to_owned(),
        other => sentence(&other.message()),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::fixtures::{HOSTILE, LINKABLE, connection};
    use super::*;

    fn asked<'a>(connection: &'a Connection, names: &'a BankNames) -> AskedBank<'a> {
        AskedBank {
            connection,
            names,
            linkable: LINKABLE.to_vec(),
            is_sandbox: false,
        }
    }

    #[test]
    fn consent_that_is_gone_leads_to_its_bank() {
        let bank = connection(HOSTILE, ConnectionStatus::Revoked);
        let error = ReadError::Reconnect(ConnectionStatus::Revoked);
        let names = BankNames::default();
        let mut bank = asked(&bank, &names);
        let trouble = bank.failed(&error);
        assert!(trouble.needs_consent() && !trouble.may_pass());
        assert_eq!(trouble.what(), "needs you.");
        assert_eq!(trouble.why, "Your consent was withdrawn.");
        assert!(!trouble.name.contains('\u{202e}'));
        assert_eq!(bank.broken(), Some(trouble));
        bank.linkable.clear();
        assert!(!bank.failed(&error).needs_consent(), "nobody can link it");
        // A read sees that it is gone before a refresh knows how.
        let active = connection("Bank", ConnectionStatus::Active);
        let active = asked(&active, &names);
        assert_eq!(active.broken(), None);
        let first = active.failed(&ReadError::Reconnect(ConnectionStatus::Invalidated));
        assert!(first.needs_consent());
        assert_eq!(first.why, "Your consent is not valid any more.");
        assert_eq!(active.failed_by_api("reconnect_required", None), first);
    }

    #[test]
    fn provider_that_is_down_may_come_back() {
        let bank = connection("Bank", ConnectionStatus::Active);
        let error = ReadError::Unavailable {
            retry_after: None,
            is_transient: true,
        };
        let trouble = asked(&bank, &BankNames::default()).failed(&error);
        assert!(trouble.may_pass() && !trouble.needs_consent());
        assert_eq!(trouble.what(), "could not be read.");
    }

    #[test]
    fn limits_say_when_to_try_again() {
        let text = why_not_read(&Problem::TooManyRequests(1));
        assert!(text.ends_with("Try again in 1 second."), "{text}");
        let bank = connection("Bank", ConnectionStatus::Active);
        let error = ReadError::BudgetUsedUp {
            retry_after: Duration::from_millis(11_200),
        };
        let names = BankNames::default();
        let bank = asked(&bank, &names);
        let trouble = bank.failed(&error);
        assert!(trouble.may_pass());
        assert!(
            trouble.why.ends_with("Try again in 12 seconds."),
            "{}",
            trouble.why
        );
        for (code, wait, why) in [
            ("rate_limited", Some(12), "Try again in 12 seconds."),
            ("budget_used_up", None, "Try again in a minute."),
            ("too_many_at_once", Some(1), TOO_MANY_AT_ONCE),
        ] {
            let trouble = bank.failed_by_api(code, wait);
            assert!(trouble.may_pass() && trouble.why.ends_with(why), "{code}");
        }
    }
}
