//! Matches the accounts that a provider lists with the stored accounts of a connection. Pure.
//!
//! A repair can give an account a new id at the provider. The account keeps its Bellbird id only if
//! the match is certain. In doubt it becomes a new account, because two accounts merged by mistake
//! could not be separated again.

use bellbird_domain::{Account, AccountId};
use bellbird_providers::FoundAccount;
use bellbird_storage::NewAccount;

/// Returns, for each found account, the stored account that it matches, if any. `existing` are the
/// accounts of one connection, so all belong to one institution.
///
/// Equal provider ids always match. An account with a new id matches by masked number, type and
/// name. These must belong to exactly one found account with a new id, and to exactly one stored
/// account that is no longer listed. An account without a number matches by id only.
pub fn match_accounts(existing: &[Account], found: &[FoundAccount]) -> Vec<Option<AccountId>> {
    let is_listed = |account: &Account| {
        found
            .iter()
            .any(|other| other.provider_account_id == account.provider_account_id)
    };
    let by_id = |account: &FoundAccount| {
        existing
            .iter()
            .find(|other| other.provider_account_id == account.provider_account_id)
            .map(|other| other.id)
    };
    let by_description = |account: &FoundAccount| {
        account.number.as_ref()?;
        let has_new_id = |other: &&FoundAccount| by_id(other).is_none();
        if found
            .iter()
            .filter(has_new_id)
            .filter(|other| is_alike(account, other))
            .count()
            != 1
        {
            return None;
        }
        let mut alike = existing
            .iter()
            .filter(|other| !is_listed(other) && matches_existing(account, other));
        alike
            .next()
            .filter(|_| alike.next().is_none())
            .map(|other| other.id)
    };
    found
        .iter()
        .map(|account| by_id(account).or_else(|| by_description(account)))
        .collect()
}

fn is_alike(one: &FoundAccount, other: &FoundAccount) -> bool {
    one.number == other.number && one.account_type == other.account_type && one.name == other.name
}

fn matches_existing(found: &FoundAccount, existing: &Account) -> bool {
    found.number == existing.number
        && found.account_type == existing.account_type
        && found.name == existing.name
}

/// Converts accounts of the provider. `known_as` are the stored accounts that they match, and may
/// be shorter.
pub(crate) fn new_accounts<'a>(
    found: &'a [FoundAccount],
    known_as: &[Option<AccountId>],
) -> Vec<NewAccount<'a>> {
    let known_as = known_as.iter().copied().chain(std::iter::repeat(None));
    let new_account = |(found, known_as): (&'a FoundAccount, _)| NewAccount {
        provider_account_id: &found.provider_account_id,
        name: &found.name,
        account_type: found.account_type,
        number: found.number.as_ref(),
        currency: found.currency,
        known_as,
    };
    found.iter().zip(known_as).map(new_account).collect()
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

    fn existing(id: &str, name: &str, number: &str) -> Account {
        let FoundAccount {
            provider_account_id,
            name,
            account_type,
            number,
            ..
        } = found(id, name, number);
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
    fn provider_id_decides() {
        let before = [
            existing("a", "Everyday", "1234"),
            existing("b", "Saver", "5678"),
        ];
        let after = [found("b", "Everyday", "1234"), found("a", "Renamed", "")];
        let matched = match_accounts(&before, &after);
        assert_eq!(matched, [Some(before[1].id), Some(before[0].id)]);
        let after = ["a", "n"].map(|id| found(id, "Everyday", "1234"));
        let matched = match_accounts(&before[..1], &after);
        assert_eq!(matched, [Some(before[0].id), None], "only itself");
    }

    #[test]
    fn without_the_id_only_certain_matches_count() {
        let before = [
            existing("a", "Everyday", "1234"),
            existing("b", "Saver", "5678"),
            existing("c", "Cash", ""),
        ];
        let certain =
            |after: &FoundAccount| match_accounts(&before, std::slice::from_ref(after))[0];
        assert_eq!(certain(&found("n", "Everyday", "1234")), Some(before[0].id));
        let matched = certain(&found("n", "Everyday", "1235"));
        assert_eq!(matched, None, "another number");
        let matched = certain(&found("n", "Everyday 2", "1234"));
        assert_eq!(matched, None, "another name");
        assert_eq!(certain(&found("n", "Cash", "")), None, "no number");
        let other_type = FoundAccount {
            account_type: AccountType::Loan,
            ..found("n", "Everyday", "1234")
        };
        assert_eq!(certain(&other_type), None, "another type");
    }

    #[test]
    fn ambiguous_accounts_are_new() {
        let alike = |ids: [&str; 2]| ids.map(|id| found(id, "Everyday", "1234"));
        let before = ["a", "b"].map(|id| existing(id, "Everyday", "1234"));
        let matched = match_accounts(&before, &alike(["n", "m"])[..1]);
        assert_eq!(matched, [None], "two stored accounts fit");
        let matched = match_accounts(&before[..1], &alike(["n", "m"]));
        assert_eq!(matched, [None, None], "two found accounts fit");
        let matched = match_accounts(&before, &alike(["b", "n"]));
        let expected = [Some(before[1].id), Some(before[0].id)];
        assert_eq!(matched, expected, "one is left on each side");
    }

    proptest! {
        #[test]
        fn matches_are_unique_and_equal(
            before in proptest::collection::vec((0..6_u8, 0..3_u8, 0..3_u8), 0..6),
            after in proptest::collection::vec((0..9_u8, 0..3_u8, 0..3_u8), 0..6),
        ) {
            const NUMBERS: [&str; 3] = ["", "1234", "5678"];
            let mut seen = HashSet::new();
            let before: Vec<Account> = before.into_iter().filter(|(id, ..)| seen.insert(*id))
                .map(|(id, name, number)| (id.to_string(), name.to_string(), NUMBERS[usize::from(number)]))
                .map(|(id, name, number)| existing(&id, &name, number)).collect();
            seen.clear();
            let after: Vec<FoundAccount> = after.into_iter().filter(|(id, ..)| seen.insert(*id))
                .map(|(id, name, number)| (id.to_string(), name.to_string(), NUMBERS[usize::from(number)]))
                .map(|(id, name, number)| found(&id, &name, number)).collect();
            let matched = match_accounts(&before, &after);
            prop_assert_eq!(matched.len(), after.len());
            let ids: Vec<AccountId> = matched.iter().flatten().copied().collect();
            prop_assert_eq!(ids.iter().collect::<HashSet<_>>().len(), ids.len(), "each stored account at most once");
            for (found, id) in after.iter().zip(&matched) {
                let same_id = before.iter().find(|account| account.provider_account_id == found.provider_account_id);
                match id {
                    None => prop_assert!(same_id.is_none(), "the provider's id always counts"),
                    Some(id) => {
                        let account = before.iter().find(|account| account.id == *id).unwrap();
                        let same = same_id.is_some_and(|other| other.id == *id);
                        let is_described = found.number.is_some() && matches_existing(found, account);
                        prop_assert!(same || (same_id.is_none() && is_described));
                    }
                }
            }
        }
    }
}
