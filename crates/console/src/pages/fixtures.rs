//! Connections and accounts with hostile names.

use bellbird_connections::LinkableProvider;
use bellbird_domain::{
    Account, AccountId, AccountType, Connection, ConnectionCategory, ConnectionId,
    ConnectionStatus, Currency, MaskedNumber, UserId,
};

pub(crate) const HOSTILE: &str = "\u{202e}<script>alert(1)</script>\" onclick='x' &amp; \0\n";

pub(crate) fn connection(institution_name: &str, status: ConnectionStatus) -> Connection {
    Connection {
        id: ConnectionId::new(),
        user_id: UserId::new(),
        provider: "somebank".to_owned(),
        category: ConnectionCategory::Banking,
        institution_id: HOSTILE.to_owned(),
        institution_name: institution_name.to_owned(),
        institution_logo: Some("https://logos.example/logo.png".to_owned()),
        status,
        consent_expires_at: None,
        last_refreshed_at: None,
        created_at: "2026-11-20T00:00:00Z".parse().unwrap(),
    }
}

pub(crate) fn account(connection: &Connection, name: &str) -> Account {
    Account {
        id: AccountId::new(),
        user_id: connection.user_id,
        connection_id: connection.id,
        provider: connection.provider.clone(),
        provider_account_id: HOSTILE.to_owned(),
        name: name.to_owned(),
        account_type: AccountType::Savings,
        institution_name: Some(connection.institution_name.clone()),
        number: MaskedNumber::mask("12345678"),
        currency: Currency::UNKNOWN,
    }
}

pub(crate) fn assert_harmless(html: &str) {
    for harmful in ["<script", "onclick='", "elsewhere", "\u{202e}", "\0"] {
        assert!(!html.contains(harmful), "{harmful:?} in {html}");
    }
}

/// A provider that users can link themselves.
pub(crate) const LINKABLE: [LinkableProvider; 1] = [LinkableProvider {
    is_sandbox: false,
    name: "somebank",
    title: "SomeBank",
    reaches: "Some banks",
    category: ConnectionCategory::Banking,
}];
