//! Parses any bytes as a provider's page of rows. The page is rejected, or every row keeps the
//! adapter's promises.

#![no_main]

use std::sync::LazyLock;

use bellbird_domain::{Account, AccountId, AccountType, ConnectionId, Currency, UserId};
use bellbird_providers::{akahu, fiskil, json, snaptrade};
use libfuzzer_sys::fuzz_target;

fn account(provider_account_id: &str) -> Account {
    Account {
        id: AccountId::new(),
        user_id: UserId::new(),
        connection_id: ConnectionId::new(),
        provider: String::new(),
        provider_account_id: provider_account_id.to_owned(),
        name: "Everyday".to_owned(),
        account_type: AccountType::Other,
        institution_name: None,
        number: None,
        currency: Currency::UNKNOWN,
    }
}

/// The account of each provider's seeds, with the id that the provider uses.
static FISKIL: LazyLock<Account> = LazyLock::new(|| account("123456789"));
static AKAHU: LazyLock<Account> = LazyLock::new(|| account("acc_c00000000000000000000a001"));
static SNAPTRADE: LazyLock<Account> =
    LazyLock::new(|| account("917c8734-8470-4a3e-a18f-57c3f2ee6631"));

fuzz_target!(|body: &[u8]| {
    json::test_support::fuzz_values(body);
    fiskil::test_support::fuzz_transactions_page(body, FISKIL.clone());
    akahu::test_support::fuzz_transactions_page(body, AKAHU.clone());
    snaptrade::test_support::fuzz_activities_page(body, &SNAPTRADE);
    snaptrade::test_support::fuzz_positions_page(body, &SNAPTRADE);
});
