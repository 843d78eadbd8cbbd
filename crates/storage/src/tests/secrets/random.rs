//! Keys and tokens name their cell.

use bellbird_domain::{ApiKey, OperatorKey, SetupToken};
use secrecy::ExposeSecret as _;

use crate::Cell;
use crate::tests::support::on_sqlite;

#[test]
fn cell_is_two_digits() {
    for text in ["00", "0a", "ff"] {
        assert_eq!(Cell::parse(text).expect(text).to_string(), text);
    }
    for text in ["", "0", "000", "0A", "+a", "gg", "é"] {
        assert_eq!(Cell::parse(text), None, "{text}");
    }
}

#[test]
fn keys_and_tokens_begin_with_their_cell() {
    on_sqlite(async |db| {
        let other = db.storage().in_cell(Cell::parse("7f").unwrap());
        for (storage, cell) in [(db.storage(), "00"), (other, "7f")] {
            let (key, operator, token) = (
                storage.new_key(),
                storage.new_operator_key(),
                storage.new_setup_token(),
            );
            assert_eq!(&key.expose()[..5], format!("bb_{cell}"));
            assert_eq!(&operator.expose()[..6], format!("bbo_{cell}"));
            assert_eq!(&token.expose()[..6], format!("bbst{cell}"));
            assert!(
                ApiKey::parse(key.expose()).is_ok()
                    && OperatorKey::parse(operator.expose()).is_ok()
            );
            assert!(SetupToken::parse(token.expose()).is_ok());
            let (one, two) = (storage.new_token(), storage.new_token());
            assert!(one.expose_secret().starts_with(cell) && one.expose_secret().len() == 64);
            assert_ne!(one.expose_secret(), two.expose_secret());
        }
    });
}
