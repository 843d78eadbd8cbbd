//! `/programs`: what to paste where, so that a program reads the accounts. The key or setup token
//! is made on the spot, and shown once.

mod catalogue;

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use bellbird_domain::ConnectionCategory;
use bellbird_management::values::KeyName;
use bellbird_management::{Refusal, setup_tokens};
use bellbird_storage::StorageError;
use http::StatusCode;
use secrecy::{ExposeSecret as _, SecretString};

use self::catalogue::{Copy, GROUPS, Program};
use crate::error_page;
use crate::keys_page::{self, create_key};
use crate::pages::{Done, SignedInFrame, page_response};
use crate::plan;
use crate::rows::linked::{Bank, Linked};
use crate::session::{OwnForm, Session};
use crate::state::Console;

#[derive(Template)]
#[template(path = "programs.html")]
struct ProgramsPage<'a> {
    frame: &'a SignedInFrame<'a>,
    api_url: &'a str,
    shown: Option<Shown>,
    /// The newest key, and the newest setup token, for the forms that make one: see
    /// `keys_page::newest`.
    newest: [String; 2],
    /// Accounts of banks, for a file.
    banks: &'a [Bank],
}

/// What a form has done for a program.
struct Shown {
    program: &'static Program,
    made: Result<SecretString, &'static str>,
}

impl ProgramsPage<'_> {
    /// What a form has done for this program.
    fn shown(&self, program: &Program) -> Option<&Shown> {
        let shown = self.shown.as_ref();
        shown.filter(|shown| shown.program.id == program.id)
    }

    /// Whether the program's part is open.
    fn is_open(&self, program: &Program) -> bool {
        self.shown(program).is_some() || self.frame.done_at(program.id).is_some()
    }

    /// What a step lets the user copy. None: the secret is not made yet, or is not shown any more.
    fn copied(&self, program: &Program, copy: Option<&Copy>) -> Option<String> {
        let secret = self.shown(program)?.made.as_ref().ok()?;
        Some(copy?.text(self.api_url, secret.expose_secret()))
    }

    fn is_made(&self, program: &Program) -> bool {
        self.shown(program).is_some_and(|shown| shown.made.is_ok())
    }

    fn problem(&self, program: &Program) -> Option<&'static str> {
        self.shown(program)?.made.as_ref().err().copied()
    }

    fn newest(&self, program: &Program) -> &str {
        &self.newest[usize::from(program.takes.is_token())]
    }
}

/// `GET /programs`
pub(crate) async fn show(State(console): State<Console>, session: Session) -> Response {
    if let Some(page) =
        plan::page_in_place(&console, &session, "/programs", ConnectionCategory::Banking)
    {
        return page;
    }
    page(&console, &session, None).await
}

async fn page(console: &Console, session: &Session, shown: Option<Shown>) -> Response {
    let linked = match Linked::load(console, session, ConnectionCategory::Banking).await {
        Ok(linked) => linked,
        Err(error) => return error_page::storage_error(console, &error),
    };
    let newest = match newest(console, session).await {
        Ok(newest) => newest,
        Err(error) => return error_page::storage_error(console, &error),
    };
    let frame = session.frame(console, "/programs");
    let api_url = &session.api_url(console);
    let status = match &shown {
        Some(Shown { made: Err(_), .. }) => StatusCode::CONFLICT,
        _ => StatusCode::OK,
    };
    page_response(
        status,
        &ProgramsPage {
            frame: &frame,
            api_url,
            shown,
            newest,
            banks: &linked.banks,
        },
    )
}

async fn newest(console: &Console, session: &Session) -> Result<[String; 2], StorageError> {
    let key = keys_page::newest(console, session).await?;
    Ok([key, newest_token(console, session).await?])
}

/// Empty without tokens.
async fn newest_token(console: &Console, session: &Session) -> Result<String, StorageError> {
    let tokens = console.storage().setup_tokens();
    let newest = tokens.find_newest(session.user()).await?;
    Ok(newest.map(|id| id.to_string()).unwrap_or_default())
}

/// `POST /programs`, with the field `program`, or `void` for setup tokens that no program has
/// claimed. The first with `newest`, so that a reload makes no other key or token.
pub(crate) async fn change(State(console): State<Console>, form: OwnForm) -> Response {
    let session = &form.session;
    if form.field("void").is_some() {
        return match revoke_tokens(&console, session).await {
            Ok(0) => Done::NoUnusedTokens.redirect(&console, "/programs", "void"),
            Ok(_) => Done::TokensRevoked.redirect(&console, "/programs", "void"),
            Err(refusal) => error_page::refused(&console, refusal),
        };
    }
    if let Some(refused) = plan::refuse_form(&console, session) {
        return refused;
    }
    let Some(program) = Program::find(form.field("program").unwrap_or_default()) else {
        return error_page::invalid_form(&console);
    };
    let Ok(name) = program.name.parse() else {
        return error_page::invalid_form(&console);
    };
    let made = if program.takes.is_token() {
        create_token(&console, &form, &name).await
    } else {
        let key = create_key(&console, &form, &name, None).await;
        key.map(|key| key.map(|key| key.expose().into()))
    };
    let made = match made {
        Ok(Some(secret)) => Ok(secret),
        Ok(None) => {
            let done = if program.takes.is_token() {
                Done::TokenShownBefore
            } else {
                Done::KeyShownBefore
            };
            return done.redirect(&console, "/programs", program.id);
        }
        Err(Refusal::TooMany(text)) => Err(text),
        Err(refusal) => return error_page::refused(&console, refusal),
    };
    page(&console, session, Some(Shown { program, made })).await
}

async fn revoke_tokens(console: &Console, session: &Session) -> Result<u64, Refusal> {
    let mut change = session.begin(console).await?;
    let revoked = setup_tokens::revoke(&mut change, session.user()).await?;
    session.commit(change).await?;
    Ok(revoked)
}

/// None: the form was sent before, and has made its token.
async fn create_token(
    console: &Console,
    form: &OwnForm,
    name: &KeyName,
) -> Result<Option<SecretString>, Refusal> {
    let session = &form.session;
    let mut change = session.begin(console).await?;
    if let Some(known) = form.field("newest") {
        let newest = setup_tokens::newest(&mut change, session.user()).await?;
        if newest.map(|id| id.to_string()).unwrap_or_default() != known {
            return Ok(None);
        }
    }
    let created = setup_tokens::create(&mut change, session.user(), Some(name)).await?;
    session.commit(change).await?;
    Ok(Some(created.text(&session.api_url(console))))
}
