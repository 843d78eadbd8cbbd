//! `/programs`: what to paste where, so that a program reads the accounts. The key or setup token
//! is made on the spot, and shown once.

mod catalogue;

use askama::Template;
use bellbird_domain::ConnectionCategory;
use bellbird_management::values::KeyName;
use bellbird_management::{Refusal, setup_tokens};
use http::StatusCode;
use secrecy::{ExposeSecret as _, SecretString};

use self::catalogue::{GROUPS, Program, Takes};
use crate::error_page::{Failure, PageResult};
use crate::keys_page::{self, MadeFor, make_key};
use crate::pages::{Done, SignedInFrame, page_response};
use crate::plan;
use crate::rows::linked::{Bank, Linked};
use crate::session::{OwnForm, Session, newest_of};

#[derive(Template)]
#[template(path = "programs.html")]
struct ProgramsPage<'a> {
    frame: &'a SignedInFrame<'a>,
    api_url: &'a str,
    made: Option<Made>,
    /// The newest key and the newest setup token, for the forms that make one: see
    /// `keys_page::newest`.
    newest_key: String,
    newest_token: String,
    /// Accounts of banks, for a file.
    banks: &'a [Bank],
}

/// What a form has made for a program, or why it has made nothing.
type Made = (&'static Program, Result<SecretString, &'static str>);

impl ProgramsPage<'_> {
    /// What a form has just made for this program.
    fn made(&self, program: &Program) -> Option<&Result<SecretString, &'static str>> {
        let (made_for, made) = self.made.as_ref()?;
        (made_for.id == program.id).then_some(made)
    }

    /// None: it is not made yet, or is not shown any more.
    fn secret(&self, program: &Program) -> Option<&str> {
        let secret = self.made(program)?.as_ref().ok()?;
        Some(secret.expose_secret())
    }
}

/// `GET /programs`
pub(crate) async fn show(session: Session) -> PageResult {
    if let Some(page) = plan::page_in_place(&session, "/programs", ConnectionCategory::Banking) {
        return Ok(page);
    }
    page(&session, None).await
}

async fn page(session: &Session, made: Option<Made>) -> PageResult {
    let linked = Linked::load(session, ConnectionCategory::Banking).await?;
    let token = session.storage().setup_tokens();
    let status = match made {
        Some((_, Err(_))) => StatusCode::CONFLICT,
        _ => StatusCode::OK,
    };
    let page = ProgramsPage {
        frame: &session.frame("/programs"),
        api_url: &session.api_url(),
        made,
        newest_key: keys_page::newest(session).await?,
        newest_token: newest_of(token.find_newest(session.user()).await?),
        banks: &linked.banks,
    };
    Ok(page_response(status, &page))
}

/// `POST /programs`, with the field `program`, or `void` for setup tokens that no program has
/// claimed. The first with `newest`, so that a reload makes no other key or token.
pub(crate) async fn change(form: OwnForm) -> PageResult {
    let session = &form.session;
    if form.field("void").is_some() {
        let mut change = session.begin().await?;
        let revoked = setup_tokens::revoke(&mut change, session.user()).await?;
        session.commit(change).await?;
        let done = match revoked {
            0 => Done::NoUnusedTokens,
            _ => Done::TokensRevoked,
        };
        return Ok(done.redirect(session, "/programs", "void"));
    }
    if let Some(refused) = plan::refuse_form(session) {
        return Ok(refused);
    }
    let program = Program::find(form.field("program").unwrap_or_default());
    let program = program.ok_or(Failure::InvalidForm)?;
    let name: KeyName = program.name.parse().map_err(|_| Failure::InvalidForm)?;
    let (made, shown_before) = if program.takes.is_token() {
        let token = create_token(&form, &name).await;
        (token, Done::TokenShownBefore)
    } else {
        let key = make_key(&form, MadeFor::New(&name, None)).await;
        let key = key.map(|key| key.map(|key| SecretString::from(key.expose())));
        (key, Done::KeyShownBefore)
    };
    let made = match made {
        Ok(Some(secret)) => Ok(secret),
        Ok(None) => return Ok(shown_before.redirect(session, "/programs", &program.id)),
        Err(Refusal::TooMany(text)) => Err(text),
        Err(refusal) => return Err(refusal.into()),
    };
    page(session, Some((program, made))).await
}

/// None: the form was sent before, and has made its token.
async fn create_token(form: &OwnForm, name: &KeyName) -> Result<Option<SecretString>, Refusal> {
    let session = &form.session;
    let mut change = session.begin().await?;
    let newest = setup_tokens::newest(&mut change, session.user()).await?;
    if form.is_sent_again(newest) {
        return Ok(None);
    }
    let created = setup_tokens::create(&mut change, session.user(), Some(name)).await?;
    session.commit(change).await?;
    Ok(Some(created.text(&session.api_url())))
}
