//! Any bytes as a page of a provider's transactions: refused, or rows of which every promise holds.

#![no_main]

use std::sync::LazyLock;

use bellbird_domain::{Account, AccountId, AccountType, ConnectionId, Currency, UserId};
use bellbird_providers::fiskil::fuzz_transactions_page;
use libfuzzer_sys::fuzz_target;

/// The account of the seeds.
static ACCOUNT: LazyLock<Account> = LazyLock::new(|| Account {
    id: AccountId::new(),
    user_id: UserId::new(),
    connection_id: ConnectionId::new(),
    provider: "fiskil".to_owned(),
    provider_account_id: "123456789".to_owned(),
    name: "Everyday".to_owned(),
    account_type: AccountType::Other,
    institution_name: None,
    number: None,
    currency: Currency::UNKNOWN,
});

fuzz_target!(|body: &[u8]| fuzz_transactions_page(body, ACCOUNT.clone()));
