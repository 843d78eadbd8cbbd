//! Balances of several accounts and connections in one request.

use std::collections::BTreeSet;
use std::time::Duration;

use bellbird_domain::{Account, Balance, ConnectionStatus};
use bellbird_providers::{BalancesQuery, Error, Provider};

use super::fixture::{Fixture, Link, call_context};

/// Two accounts for each connection, and their balances in the same order. Every balance is
/// different.
fn accounts(fixture: &Fixture, links: &[Link]) -> (Vec<Vec<Account>>, Vec<Vec<String>>) {
    let (mut accounts, mut amounts) = (Vec::new(), Vec::new());
    for (at, link) in links.iter().enumerate() {
        let (mut link_accounts, mut link_amounts) = (Vec::new(), Vec::new());
        for number in 0..2 {
            let account = fixture.add_account(link, serde_json::json!({}));
            let amount = format!("{}.5", 100 * (at + 1) + number);
            let id = &account.provider_account_id;
            (fixture.spec.set_balance)(fixture.bank(), id, &amount);
            link_accounts.push(account);
            link_amounts.push(amount);
        }
        // The reverse of the order in which the provider lists them.
        link_accounts.reverse();
        link_amounts.reverse();
        accounts.push(link_accounts);
        amounts.push(link_amounts);
    }
    (accounts, amounts)
}

type Outcomes = Vec<Vec<Result<Option<String>, Error>>>;

async fn read_balances(
    provider: &dyn Provider,
    links: &[Link],
    accounts: &[Vec<Account>],
) -> Outcomes {
    let request = links
        .iter()
        .zip(accounts)
        .map(|(link, accounts)| BalancesQuery {
            credentials: &link.credentials,
            accounts,
        });
    let answer = provider
        .balances(&call_context(), &request.collect::<Vec<_>>())
        .await;
    let amount = |balance: Balance| balance.current.map(|amount| amount.to_string());
    answer
        .into_iter()
        .map(|found| {
            found
                .into_iter()
                .map(|balance| balance.map(amount))
                .collect()
        })
        .collect()
}

fn all_ok(amounts: &[Vec<String>]) -> Outcomes {
    amounts
        .iter()
        .map(|amounts| {
            amounts
                .iter()
                .map(|amount| Ok(Some(amount.clone())))
                .collect()
        })
        .collect()
}

promise! {
    balances_are_those_of_each_account:

    async fn balances_keep_request_order_in_few_calls(fixture) {
        let mut links = fixture.links().await;
        links.reverse();
        let (accounts, amounts) = accounts(fixture, &links);
        let provider = fixture.adapter(Duration::from_secs(20)).await;
        assert_eq!(read_balances(&*provider, &links, &accounts).await, all_ok(&amounts));
        let users: BTreeSet<String> = links.iter().map(|link| link.members[fixture.spec.user].to_string()).collect();
        let expected = (fixture.spec.balances_calls)(users.len(), links.len(), 2 * links.len());
        assert_eq!(fixture.calls().values().sum::<u64>(), expected as u64);
        assert_eq!(read_balances(&*provider, &[], &[]).await, Outcomes::new());
    }

    async fn an_unknown_account_fails_alone(fixture) {
        let links = fixture.links().await;
        let (mut accounts, amounts) = accounts(fixture, &links);
        accounts[0].insert(1, fixture.account("00000000-0000-4000-8000-000000000000"));
        let mut outcomes = read_balances(&*fixture.provider, &links, &accounts).await;
        let error = outcomes[0].remove(1).expect_err("an unknown account");
        assert!(!error.is_transient() && !matches!(error, Error::ReconnectNeeded(_)), "{error:?}");
        assert_eq!(outcomes, all_ok(&amounts));
    }

    async fn a_lost_consent_fails_alone(fixture) {
        let mut links = fixture.links().await;
        let (accounts, amounts) = accounts(fixture, &links);
        // Revokes one connection of the first user and all of the last user. The second link gets
        // invalid credentials.
        let last = links.len() - 1;
        let (spec, bank) = (fixture.spec, fixture.bank());
        spec.revoke(bank, &links[0].members, spec.revocations[0]);
        spec.revoke(bank, &links[last].members, *spec.revocations.last().expect("one"));
        let good = std::mem::replace(&mut links[1].credentials, "{}".into());
        // One that knows nothing of the consents yet.
        let provider = fixture.adapter(Duration::from_secs(20)).await;
        let outcomes = read_balances(&*provider, &links, &accounts).await;
        let lost = Err(Error::ReconnectNeeded(ConnectionStatus::Revoked));
        assert_eq!([&outcomes[0], &outcomes[last]], [&vec![lost.clone(), lost.clone()]; 2]);
        assert!(outcomes[1].iter().all(|outcome| matches!(outcome, Err(Error::InvalidCredentials(_)))), "{outcomes:?}");
        assert_eq!(outcomes[2..last], all_ok(&amounts)[2..last]);
        links[1].credentials = good;
        assert_eq!(read_balances(&*provider, &links, &accounts).await[1], all_ok(&amounts)[1]);
    }
}
