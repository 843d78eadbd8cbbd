//! Plain data for the tests of decisions.

use bellbird_domain::{
    Account, AccountId, AccountType, Connection, ConnectionCategory, ConnectionId,
    ConnectionStatus, Currency, MaskedNumber, UserId,
};
use bellbird_providers::{ConsentStatus, FoundAccount, FoundConnection};
use jiff::Timestamp;
use uuid::Uuid;

/// A time in seconds. Sessions of the tests start at 0.
pub(crate) fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + seconds).unwrap()
}

pub(crate) fn connection_id(number: u8) -> ConnectionId {
    Uuid::from_u128(u128::from(number)).into()
}

pub(crate) fn connection(
    number: u8,
    institution: u8,
    status: ConnectionStatus,
    created_at: Timestamp,
) -> Connection {
    Connection {
        id: connection_id(number),
        user_id: UserId::from(Uuid::nil()),
        provider: "acme".to_owned(),
        category: ConnectionCategory::Banking,
        institution_id: format!("bank{institution}"),
        institution_name: String::new(),
        institution_logo: None,
        status,
        consent_expires_at: None,
        last_refreshed_at: None,
        created_at,
    }
}

/// A consent with this number as its id.
pub(crate) fn found(number: u8, institution: u8, consent_status: ConsentStatus) -> FoundConnection {
    FoundConnection {
        provider_connection_id: format!("consent{number}"),
        provider_user_id: None,
        institution_id: format!("bank{institution}"),
        institution_name: String::new(),
        institution_logo: None,
        consent_status,
        consent_expires_at: None,
        credentials: "{}".into(),
    }
}

/// An account with this number, under an id that differs from consent to consent.
pub(crate) fn found_account(consent: u8, number: u8) -> FoundAccount {
    FoundAccount {
        provider_account_id: format!("{consent}.{number}"),
        name: "Everyday".to_owned(),
        account_type: AccountType::Savings,
        number: MaskedNumber::mask(&format!("00{number:04}")),
        currency: None,
    }
}

/// The account with this number, as stored with a connection.
pub(crate) fn stored_account(connection: u8, number: u8) -> Account {
    let FoundAccount {
        name,
        account_type,
        number: masked,
        ..
    } = found_account(0, number);
    Account {
        id: AccountId::from(Uuid::from_u128(
            u128::from(connection) * 1_000 + u128::from(number),
        )),
        user_id: UserId::from(Uuid::nil()),
        connection_id: connection_id(connection),
        provider: "acme".to_owned(),
        provider_account_id: format!("stored{connection}.{number}"),
        name,
        account_type,
        institution_name: None,
        number: masked,
        currency: Currency::UNKNOWN,
    }
}
