//! The line that says what a form has done. A form that succeeds leads to its page again, so that
//! reloading repeats nothing, with a word in the query (`?done=key-revoked&at=keys#done`). Only the
//! words below have a text, so a link of somebody else can make a page say nothing else.

use axum::response::Response;

use crate::state::Console;

/// What forms do: the variant, its word, and its text.
macro_rules! done {
    ($($name:ident => $word:literal, $text:literal;)*) => {
        /// What a form has done.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Done {
            $($name),*
        }

        impl Done {
            const ALL: &[(Self, &'static str, &'static str)] = &[$((Self::$name, $word, $text)),*];
        }
    };
}

done! {
    Saved => "saved", "Saved.";
    TimezoneSaved => "timezone-saved", "Your timezone is saved.";
    KeyRevoked => "key-revoked", "The key is revoked, and reads nothing any more.";
    TokensRevoked => "tokens-revoked", "Unused tokens are revoked.";
    SyncRequested => "sync-requested", "It is read within a minute. This page shows when.";
    ConnectionRemoved => "removed",
        "Your consent is being withdrawn, which can take a few minutes.";
    EndpointEnabled => "enabled",
        "The endpoint gets events again. What it missed can be sent again from its log.";
    EndpointDisabled => "disabled", "The endpoint gets no more events.";
    EndpointDeleted => "deleted", "The endpoint is deleted.";
    EventRequested => "event-requested", "The event is sent again now.";
    EventsRequested => "events-requested", "Events that have failed are sent again now.";
    SessionEnded => "signed-out", "That browser is signed out.";
    OtherSessionsEnded => "others-signed-out", "All other browsers are signed out.";
    SessionsOfUserEnded => "user-signed-out", "The user is signed out everywhere.";
    SignInAllowed => "sign-in-allowed",
        "The user may sign in. Next, give the user a link to sign in.";
    PlanSaved => "plan-saved", "The plan is saved.";
    CredentialsStored => "credentials-stored",
        "The provider takes these credentials, and all of Bellbird uses them within seconds.";
    ProviderRemoved => "provider-removed", "Nothing is stored for this provider any more.";
    UserAdded => "user-added",
        "The user is added. Next, give the user a link to sign in.";
    UserRemoved => "user-removed",
        "The user's access has ended, and the user is removed once every consent is withdrawn.";
    LinkSent => "link-sent", "The link is sent by e-mail. It works once, for a day.";
    SignedOut => "goodbye", "You are signed out.";
    LinkShownBefore => "link-shown-before",
        "The link was made and shown before, and no second one is made. If it is lost, make another.";
    KeyShownBefore => "key-shown-before",
        "The key was made and shown before, and no second one is made. If you have not copied it, revoke it, and make another.";
    TokenShownBefore => "token-shown-before",
        "The token was made and shown before, and no second one is made. If you have not copied it, make another.";
    NoUnusedTokens => "no-unused-tokens", "There was no unused token.";
    SecretShownBefore => "secret-shown-before",
        "The secret was made and shown before, and no second one is made. If you have not copied it, make a new secret.";
    TestShownBefore => "test-shown-before",
        "The test event was sent before, and no second one is sent. Its log has the result.";
    NoFailedEvents => "no-failed-events", "No event of that time has failed.";
    SessionHasEnded => "session-has-ended", "That browser was signed out already.";
    ExampleDelivered => "example-delivered", "The example was sent, and your program accepted it.";
    ExampleNotDelivered => "example-not-delivered",
        "The example was not delivered. Send a test event to see why.";
    ExampleNotSent => "example-not-sent",
        "No example was sent. Wait a minute, or send a test event to see why.";
}

impl Done {
    /// Leads to the page at `path`, whose line is at `place`: the word of a part of the page, or
    /// the id of a row.
    pub(crate) fn redirect(self, console: &Console, path: &str, place: impl ToString) -> Response {
        let (_, word, _) = Self::ALL[self as usize];
        let joint = if path.contains('?') { '&' } else { '?' };
        let query = form_urlencoded::Serializer::new(String::new())
            .append_pair("done", word)
            .append_pair("at", &place.to_string())
            .finish();
        console.redirect(&format!("{path}{joint}{query}#done"))
    }
}

/// What was done, and the place on the page of the line that says it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DoneAt {
    done: Done,
    place: String,
}

impl DoneAt {
    pub(crate) fn of_query(query: Option<&str>) -> Option<Self> {
        let (mut done, mut place) = (None, String::new());
        for (name, value) in form_urlencoded::parse(query?.as_bytes()) {
            match &*name {
                "done" => done = Done::ALL.iter().find(|(_, word, _)| *word == value),
                "at" => place = value.into_owned(),
                _ => {}
            }
        }
        done.map(|(done, ..)| Self { done: *done, place })
    }

    pub(crate) fn text_at(&self, place: &str) -> Option<&'static str> {
        let (.., text) = Done::ALL[self.done as usize];
        (self.place == place).then_some(text)
    }

    /// Whether the form did not do what it is for.
    pub(crate) fn has_failed(&self) -> bool {
        matches!(self.done, Done::ExampleNotDelivered | Done::ExampleNotSent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_known_words_have_a_text() {
        let done = DoneAt::of_query(Some("account=1&done=key-revoked&at=keys")).unwrap();
        assert!(done.text_at("keys").unwrap().contains("revoked"));
        assert_eq!(done.text_at("sessions"), None);
        for query in [
            None,
            Some(""),
            Some("done=you+have+won&at=keys"),
            Some("at=keys"),
        ] {
            assert_eq!(DoneAt::of_query(query), None);
        }
        for (done, word, _) in Done::ALL {
            assert_eq!(Done::ALL[*done as usize].1, *word);
        }
    }
}
