use bellbird_domain::{ApiKey, OperatorKey, SetupToken};
use secrecy::ExposeSecret as _;

use crate::{new_key, new_operator_key, new_setup_token, new_token};

#[test]
fn keys_and_tokens_are_random_and_have_their_form() {
    let (key, operator, setup_token) = (new_key(), new_operator_key(), new_setup_token());
    // With its cell, by which a proxy in front of several databases could tell whose a request is.
    assert_eq!(&key.expose()[..5], "bb_00");
    assert_eq!(&operator.expose()[..6], "bbo_00");
    assert_eq!(&setup_token.expose()[..6], "bbst00");
    assert_eq!(&new_token().expose_secret()[..2], "00");
    assert_eq!(ApiKey::parse(key.expose()), Ok(key.clone()));
    assert_eq!(OperatorKey::parse(operator.expose()), Ok(operator.clone()));
    assert_eq!(
        SetupToken::parse(setup_token.expose()),
        Ok(setup_token.clone())
    );
    assert_ne!(key, new_key());
    assert_ne!(operator, new_operator_key());
    assert_ne!(setup_token, new_setup_token());
    let (one, two) = (new_token(), new_token());
    assert_eq!(one.expose_secret().len(), 64);
    assert_ne!(one.expose_secret(), two.expose_secret());
}
