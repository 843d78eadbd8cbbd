//! Stores whom an identity provider signs in to the console: its issuer and subject, for each user.

use bellbird_domain::{Plan, UserId};
use jiff::Timestamp;

use crate::db::{Tx, params, statements};
use crate::error::Result;
use crate::locks::lock_user_if_exists;
use crate::users::{sessions, user};
use crate::{BegunSession, NewSession, NewUser, Sessions, StorageError};

statements! {
    FIND = "SELECT user_id FROM identities WHERE issuer = $1 AND subject = $2";

    FIND_SUBJECT = "SELECT subject FROM identities WHERE user_id = $1 AND issuer = $2";

    INSERT = "INSERT INTO identities (user_id, issuer, subject, created_at) VALUES ($1, $2, $3, $4)";

    DELETE = "DELETE FROM identities WHERE user_id = $1";
}

/// Who signs in, proven by an identity provider.
#[derive(Debug, Clone, Copy)]
pub struct Identity<'a> {
    pub issuer: &'a str,
    /// The provider's id of the user, which never changes.
    pub subject: &'a str,
    /// Verified.
    pub email: &'a str,
}

/// How a sign-in with an identity ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IdentitySignIn {
    Begun(BegunSession),
    /// No user has the e-mail address, or the one who has it may not sign in.
    UnknownUser,
    /// The user of the e-mail address signs in with another identity of this provider.
    OtherIdentity,
}

impl Sessions<'_> {
    /// Begins a session for the user of an identity. The e-mail address finds the user only the
    /// first time. If no user has the address and there is a `new_plan`, adds one.
    pub async fn sign_in_as(
        self,
        identity: &Identity<'_>,
        new_plan: Option<Plan>,
        session: &NewSession<'_>,
        now: Timestamp,
    ) -> Result<IdentitySignIn> {
        match self.try_sign_in_as(identity, new_plan, session, now).await {
            // Another first sign-in has committed meanwhile, which the second attempt finds.
            Err(StorageError::Conflict(_)) => {
                self.try_sign_in_as(identity, new_plan, session, now).await
            }
            ended => ended,
        }
    }

    async fn try_sign_in_as(
        self,
        identity: &Identity<'_>,
        new_plan: Option<Plan>,
        session: &NewSession<'_>,
        now: Timestamp,
    ) -> Result<IdentitySignIn> {
        let mut tx = self.db.begin().await?;
        let Some((user, is_new)) = find_user(&mut tx, identity, new_plan, now).await? else {
            return Ok(IdentitySignIn::UnknownUser);
        };
        if !lock_user_if_exists(&mut tx, user).await?
            || !sessions::may_sign_in(&mut tx, user).await?
        {
            return Ok(IdentitySignIn::UnknownUser);
        }
        if is_new {
            let (issuer, subject) = (identity.issuer, identity.subject);
            match tx
                .value::<String>(FIND_SUBJECT, params![user, issuer])
                .await?
            {
                None => {
                    let values = params![user, issuer, subject, now];
                    tx.execute_or_conflict(INSERT, values, "this identity")
                        .await?;
                }
                // Another sign-in has added it meanwhile.
                Some(other) if other == subject => {}
                Some(_) => return Ok(IdentitySignIn::OtherIdentity),
            }
        }
        let begun = sessions::insert(&mut tx, user, session, now).await?;
        tx.commit().await?;
        Ok(IdentitySignIn::Begun(begun))
    }
}

/// Deletes the identities of a user, so that the next one with the e-mail address is theirs.
/// Returns how many.
pub async fn forget(tx: &mut Tx, user: UserId) -> Result<u64> {
    tx.run(DELETE, params![user]).await
}

/// The user, and whether the identity is new.
async fn find_user(
    tx: &mut Tx,
    identity: &Identity<'_>,
    new_plan: Option<Plan>,
    now: Timestamp,
) -> Result<Option<(UserId, bool)>> {
    let known = params![identity.issuer, identity.subject];
    if let Some(user) = tx.value(FIND, known).await? {
        return Ok(Some((user, false)));
    }
    let email = identity.email;
    // Such as the Kelvin sign, whose lower case is a k: it makes another address, and not that of a
    // user here.
    let folds_to_ascii = |c: char| !c.is_ascii() && c.to_lowercase().any(|lower| lower.is_ascii());
    if email.chars().any(folds_to_ascii) {
        return Ok(None);
    }
    if let Some(user) = user::find_by_email(tx, email).await? {
        return Ok(Some((user.id, true)));
    }
    let Some(plan) = new_plan else {
        return Ok(None);
    };
    let new = NewUser {
        email,
        plan,
        timezone: None,
        reference: None,
        console_sign_in: true,
    };
    Ok(Some((user::insert(tx, &new, now).await?.id, true)))
}
