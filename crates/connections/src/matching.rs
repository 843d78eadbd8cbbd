//! Which account is which after a connection was repaired. Pure.
//!
//! A provider may give an account a new id with a new consent. It is the same account to us when nothing else can be
//! meant; where there is any doubt it is a new one, as two accounts made one could not be told apart any more.

use bellbird_domain::{Account, AccountId};
use bellbird_providers::FoundAccount;

/// For each account found, the one of ours that it is. `ours` are the accounts of the connection that was repaired, so
/// that all are of one institution.
///
/// By the provider's id; else by masked number, type and name, if they are those of exactly one account found and of
/// exactly one of ours, whose own id is not listed any more. An account without a number is never certain.
#[must_use]
pub fn match_accounts(ours: &[Account], found: &[FoundAccount]) -> Vec<Option<AccountId>> {
    let is_listed =
        |account: &Account| found.iter().any(|other| other.provider_account_id == account.provider_account_id);
    let by_id = |account: &FoundAccount| {
        ours.iter().find(|other| other.provider_account_id == account.provider_account_id).map(|other| other.id)
    };
    let one = |account: &FoundAccount| {
        account.number.as_ref()?;
        let unknown = |other: &&FoundAccount| by_id(other).is_none();
        if found.iter().filter(unknown).filter(|other| describes(account, other)).count() != 1 {
            return None;
        }
        let mut alike = ours.iter().filter(|other| !is_listed(other) && is_described(account, other));
        alike.next().filter(|_| alike.next().is_none()).map(|other| other.id)
    };
    found.iter().map(|account| by_id(account).or_else(|| one(account))).collect()
}

fn describes(one: &FoundAccount, other: &FoundAccount) -> bool {
    one.number == other.number && one.account_type == other.account_type && one.name == other.name
}

fn is_described(found: &FoundAccount, ours: &Account) -> bool {
    found.number == ours.number && found.account_type == ours.account_type && found.name == ours.name
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use bellbird_domain::{AccountType, ConnectionId, Currency, MaskedNumber, UserId};
    use proptest::prelude::*;

    use super::*;

    fn found(id: &str, name: &str, number: &str) -> FoundAccount {
        FoundAccount {
            provider_account_id: id.to_owned(),
            name: name.to_owned(),
            account_type: AccountType::Savings,
            number: MaskedNumber::mask(number),
            currency: None,
        }
    }

    fn ours(id: &str, name: &str, number: &str) -> Account {
        let FoundAccount { provider_account_id, name, account_type, number, .. } = found(id, name, number);
        Account {
            id: AccountId::new(),
            user_id: UserId::new(),
            connection_id: ConnectionId::new(),
            provider: "acme".to_owned(),
            provider_account_id,
            name,
            account_type,
            institution_name: None,
            number,
            currency: Currency::UNKNOWN,
        }
    }

    #[test]
    fn the_providers_id_decides() {
        let before = [ours("a", "Everyday", "1234"), ours("b", "Saver", "5678")];
        let after = [found("b", "Everyday", "1234"), found("a", "Renamed", "")];
        assert_eq!(match_accounts(&before, &after), [Some(before[1].id), Some(before[0].id)]);
    }

    #[test]
    fn without_it_only_what_is_certain() {
        let before = [ours("a", "Everyday", "1234"), ours("b", "Saver", "5678"), ours("c", "Cash", "")];
        let certain = |after: &FoundAccount| match_accounts(&before, std::slice::from_ref(after))[0];
        assert_eq!(certain(&found("n", "Everyday", "1234")), Some(before[0].id));
        assert_eq!(certain(&found("n", "Everyday", "1235")), None, "another number");
        assert_eq!(certain(&found("n", "Everyday 2", "1234")), None, "another name");
        assert_eq!(certain(&found("n", "Cash", "")), None, "no number");
        let other_type = FoundAccount { account_type: AccountType::Loan, ..found("n", "Everyday", "1234") };
        assert_eq!(certain(&other_type), None, "another type");
    }

    #[test]
    fn two_that_look_alike_are_new() {
        let before = [ours("a", "Everyday", "1234"), ours("b", "Everyday", "1234")];
        assert_eq!(match_accounts(&before, &[found("n", "Everyday", "1234")]), [None], "which of ours?");
        let after = [found("n", "Everyday", "1234"), found("m", "Everyday", "1234")];
        assert_eq!(match_accounts(&before[..1], &after), [None, None], "which of theirs?");
        let after = [found("b", "Everyday", "1234"), found("n", "Everyday", "1234")];
        assert_eq!(
            match_accounts(&before, &after),
            [Some(before[1].id), Some(before[0].id)],
            "one is left on each side"
        );
    }

    #[test]
    fn one_that_is_still_listed_is_nobody_elses() {
        let before = [ours("a", "Everyday", "1234")];
        let after = [found("a", "Everyday", "1234"), found("n", "Everyday", "1234")];
        assert_eq!(match_accounts(&before, &after), [Some(before[0].id), None]);
    }

    proptest! {
        #[test]
        fn no_account_becomes_two_and_none_that_differs(
            before in proptest::collection::vec((0..6_u8, 0..3_u8, 0..3_u8), 0..6),
            after in proptest::collection::vec((0..9_u8, 0..3_u8, 0..3_u8), 0..6),
        ) {
            const NUMBERS: [&str; 3] = ["", "1234", "5678"];
            let mut seen = HashSet::new();
            let before: Vec<Account> = before.into_iter().filter(|(id, ..)| seen.insert(*id))
                .map(|(id, name, number)| ours(&id.to_string(), &name.to_string(), NUMBERS[usize::from(number)])).collect();
            seen.clear();
            let after: Vec<FoundAccount> = after.into_iter().filter(|(id, ..)| seen.insert(*id))
                .map(|(id, name, number)| found(&id.to_string(), &name.to_string(), NUMBERS[usize::from(number)])).collect();
            let matched = match_accounts(&before, &after);
            prop_assert_eq!(matched.len(), after.len());
            let given: Vec<AccountId> = matched.iter().flatten().copied().collect();
            prop_assert_eq!(given.iter().collect::<HashSet<_>>().len(), given.len(), "each of ours at most once");
            for (found, id) in after.iter().zip(&matched) {
                let same_id = before.iter().find(|account| account.provider_account_id == found.provider_account_id);
                match id {
                    None => prop_assert!(same_id.is_none(), "the provider's id always counts"),
                    Some(id) => {
                        let account = before.iter().find(|account| account.id == *id).unwrap();
                        let same = same_id.is_some_and(|other| other.id == *id);
                        prop_assert!(same || (same_id.is_none() && found.number.is_some() && is_described(found, account)));
                    }
                }
            }
        }
    }
}
