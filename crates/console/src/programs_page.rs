//! `/programs`: what to paste where, so that a program reads the accounts. The key or setup token
//! is made on the spot, and shown once.

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use bellbird_domain::ConnectionCategory;
use bellbird_management::values::KeyName;
use bellbird_management::{Refusal, setup_tokens};
use http::StatusCode;
use secrecy::{ExposeSecret as _, SecretString};

use crate::error_page;
use crate::keys_page::create_key;
use crate::pages::{SignedInFrame, page_response};
use crate::plan;
use crate::rows::choice::{Choice, ChoiceQuery};
use crate::session::{OwnForm, Session};
use crate::state::Console;

/// A program, by the name of its key, and what it takes.
struct Program {
    name: &'static str,
    /// What it does with the accounts.
    gives: &'static str,
    takes: Takes,
    /// What to do with the secret, or with the file.
    steps: &'static str,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Takes {
    SetupToken,
    /// A key, and the address of MCP.
    McpKey,
    /// A key, and the address of files.
    FileKey,
    /// A key.
    Key,
}

const PROGRAMS: [Program; 5] = [
    Program {
        name: "Actual Budget",
        gives: "Your bank accounts with their balances, and new transactions when you press Bank Sync.",
        takes: Takes::SetupToken,
        steps: "In Actual, open Bank Sync, press Set up in the card SimpleFIN, and paste the token. Link the accounts \
                of one currency only, because Actual has no currencies.",
    },
    Program {
        name: "Home Assistant",
        gives: "A sensor with the balance of each account, read every four hours.",
        takes: Takes::SetupToken,
        steps: "In Home Assistant, open Settings, Devices & services, Add integration, choose SimpleFIN, and paste the \
                token.",
    },
    Program {
        name: "Spreadsheet",
        gives: "Transactions as CSV, which a sheet can read again whenever you open it.",
        takes: Takes::FileKey,
        steps: "Let the sheet read this address with the header below.",
    },
    Program {
        name: "Assistant",
        gives: "An assistant that speaks MCP can answer questions about your accounts. It only reads.",
        takes: Takes::McpKey,
        steps: "Give the assistant this address with the header below.",
    },
    Program {
        name: "My program",
        gives: "Everything, as JSON with exact decimals.",
        takes: Takes::Key,
        steps: "Send the key with each request, in the header below.",
    },
];

impl Program {
    fn takes_token(&self) -> bool {
        self.takes == Takes::SetupToken
    }

    fn path(&self) -> &'static str {
        match self.takes {
            Takes::SetupToken => "/simplefin",
            Takes::McpKey => "/mcp",
            Takes::FileKey => "/v1/export/transactions.csv",
            Takes::Key => "/v1/accounts",
        }
    }
}

#[derive(Template)]
#[template(path = "programs.html")]
struct ProgramsPage<'a> {
    frame: &'a SignedInFrame<'a>,
    programs: &'static [Program],
    api_url: &'a str,
    made: Option<Made>,
    /// Accounts of banks, for a file.
    choice: &'a Choice,
    notice: Option<&'static str>,
}

/// What was made for a program, shown now and never again.
struct Made {
    program: &'static Program,
    secret: SecretString,
}

impl Made {
    fn text(&self) -> &str {
        self.secret.expose_secret()
    }
}

/// `GET /programs`
pub(crate) async fn show(State(console): State<Console>, session: Session) -> Response {
    if let Some(page) =
        plan::page_in_place(&console, &session, "/programs", ConnectionCategory::Banking)
    {
        return page;
    }
    page(&console, &session, None, None).await
}

async fn page(
    console: &Console,
    session: &Session,
    made: Option<Made>,
    notice: Option<&'static str>,
) -> Response {
    let choice = match Choice::load(
        console,
        session,
        ConnectionCategory::Banking,
        ChoiceQuery::default(),
    )
    .await
    {
        Ok(choice) => choice,
        Err(error) => return error_page::storage_error(console, &error),
    };
    let frame = session.frame(console, "/programs");
    let api_url = console.inner.site.api_url.trim_end_matches('/');
    page_response(
        StatusCode::OK,
        &ProgramsPage {
            frame: &frame,
            programs: &PROGRAMS,
            api_url,
            made,
            choice: &choice,
            notice,
        },
    )
}

/// `POST /programs`, with the field `program`, or `void` for setup tokens that no program has
/// claimed.
pub(crate) async fn change(State(console): State<Console>, form: OwnForm) -> Response {
    let session = &form.session;
    if form.field("void").is_some() {
        return match revoke_tokens(&console, session).await {
            Ok(0) => {
                page(
                    &console,
                    session,
                    None,
                    Some("There was no token that a program could still use."),
                )
                .await
            }
            Ok(_) => {
                page(
                    &console,
                    session,
                    None,
                    Some("No program can use the tokens any more."),
                )
                .await
            }
            Err(refusal) => error_page::refused(&console, refusal),
        };
    }
    if let Some(refused) = plan::refuse_form(&console, session) {
        return refused;
    }
    let name = form.field("program").unwrap_or_default();
    let Some(program) = PROGRAMS.iter().find(|program| program.name == name) else {
        return error_page::invalid_form(&console);
    };
    let Ok(name) = program.name.parse() else {
        return error_page::invalid_form(&console);
    };
    let made = if program.takes_token() {
        create_token(&console, session, &name).await
    } else {
        let key = create_key(&console, session, &name).await;
        key.map(|key| key.expose().into())
    };
    match made {
        Ok(secret) => page(&console, session, Some(Made { program, secret }), None).await,
        Err(Refusal::TooMany(text)) => page(&console, session, None, Some(text)).await,
        Err(refusal) => error_page::refused(&console, refusal),
    }
}

async fn revoke_tokens(console: &Console, session: &Session) -> Result<u64, Refusal> {
    let mut change = session.begin(console).await?;
    let revoked = setup_tokens::revoke(&mut change, session.user()).await?;
    session.commit(change).await?;
    Ok(revoked)
}

async fn create_token(
    console: &Console,
    session: &Session,
    name: &KeyName,
) -> Result<SecretString, Refusal> {
    let mut change = session.begin(console).await?;
    let created = setup_tokens::create(&mut change, session.user(), Some(name)).await?;
    session.commit(change).await?;
    Ok(created.text(&console.inner.site.api_url))
}
