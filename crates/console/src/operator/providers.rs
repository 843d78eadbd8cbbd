//! `/operator/providers`: the credentials of each provider, or that it is simulated. What the
//! settings file or the environment sets wins, and the page says so. It shows no stored value.

use std::collections::BTreeMap;

use askama::Template;
use bellbird_management::{Refusal, provider_settings};
use bellbird_providers::Error;
use bellbird_providers::registry::{PROVIDERS, declaration};
use bellbird_providers::settings::{Declaration, Form, Setting};
use bellbird_storage::StoredProviderSettings;
use http::StatusCode;
use secrecy::SecretString;

use super::{Operator, OperatorForm, PROVIDERS_PATH, setup};
use crate::error_page::{Failure, PageResult};
use crate::local::is_loopback_url;
use crate::pages::{LocalTime, SignedInFrame, page_response, sentence};
use crate::provider_control::TestError;
use crate::session::{OwnForm, Session};
use crate::state::Console;

/// Longer than any credential of a provider.
const VALUE_CHARS_MAX: usize = 1000;

#[derive(Template)]
#[template(path = "operator_providers.html")]
struct ProvidersPage<'a> {
    frame: &'a SignedInFrame<'a>,
    rows: Vec<ProviderRow>,
    /// Whether all providers that have no credentials can be simulated with one button.
    offers_sandbox: bool,
    /// Whether an institution can be linked now.
    is_linkable: bool,
    /// Only while a first start is going on.
    address: Option<PublicAddress<'a>>,
}

impl ProvidersPage<'_> {
    /// Whether banks of the sandbox can be linked.
    fn uses_sandbox(&self) -> bool {
        self.is_linkable && self.rows.iter().any(|row| row.is_sandbox)
    }
}

/// At which address others reach the console.
struct PublicAddress<'a> {
    url: &'a str,
    /// Whether it is this machine only.
    is_local: bool,
    /// Whether the browser has found it, and no setting names it.
    is_unset: bool,
}

struct ProviderRow {
    declared: &'static Declaration,
    state: ProviderState,
    is_sandbox: bool,
    /// Whether an operator has chosen the sandbox for it, which may not run.
    is_simulated: bool,
    fields: Vec<Field>,
    /// Why the credentials that were entered now are not stored.
    problem: Option<String>,
    /// Why the provider is not changed.
    refusal: Option<String>,
    offers_sandbox: bool,
    /// Whether somebody has a connection of it, or is on the way to one.
    is_in_use: bool,
}

impl ProviderRow {
    fn is_configured(&self) -> bool {
        matches!(
            self.state,
            ProviderState::Configured(_) | ProviderState::LeftOut(..)
        )
    }

    /// Whether the fields are shown at once.
    fn is_open(&self) -> bool {
        matches!(self.state, ProviderState::Off) || self.problem.is_some()
    }

    fn is_removable(&self) -> bool {
        !matches!(self.state, ProviderState::Off) && !self.is_configured()
    }
}

enum ProviderState {
    /// By this setting of the file or the environment.
    Configured(String),
    /// Since this day.
    Stored(String),
    Sandbox,
    Off,
    /// By this setting, and left out for this reason.
    LeftOut(String, String),
    /// They are stored, and cannot be used: why, and what to do.
    Unusable(&'static str),
}

struct Field {
    name: &'static str,
    label: &'static str,
    is_required: bool,
    is_secret: bool,
    is_wrong: bool,
    /// What was entered now and is not stored. Empty if it is secret.
    value: String,
}

/// A form that has changed nothing.
struct Rejected {
    provider: &'static str,
    problem: String,
    /// Whether the problem is in the credentials that were entered.
    is_of_credentials: bool,
    /// The names of the settings that the provider rejects.
    fields: Vec<&'static str>,
    /// What was entered and is not secret, by the names of the settings.
    entered: BTreeMap<&'static str, String>,
}

/// `GET /operator/providers`
pub(super) async fn show(Operator(session): Operator) -> PageResult {
    page(&session, None).await
}

async fn page(session: &Session, rejected: Option<Rejected>) -> PageResult {
    let settings = session.storage().provider_settings();
    let stored = settings.list().await?;
    let in_use = settings.list_in_use(session.clock.now()).await?;
    let first_start = setup::in_progress(session).await?;
    let zone = session.zone();
    let rows: Vec<_> = PROVIDERS
        .iter()
        .map(|declared| ProviderRow {
            is_in_use: in_use.iter().any(|name| name == declared.name.as_str()),
            ..row(session, declared, &stored, &zone, rejected.as_ref())
        })
        .collect();
    let is_unset = |row: &ProviderRow| matches!(row.state, ProviderState::Off);
    let url = &session.console_url();
    let current = match first_start {
        Some(_) => setup::PATH,
        None => PROVIDERS_PATH,
    };
    let page = ProvidersPage {
        frame: &session.frame(current),
        offers_sandbox: session.site.providers.has_sandbox() && rows.iter().all(is_unset),
        is_linkable: !session.connections.links().providers().is_empty(),
        rows,
        address: first_start.map(|_| PublicAddress {
            url,
            is_local: is_loopback_url(url),
            is_unset: session.is_at_home(),
        }),
    };
    let status = rejected.map_or(StatusCode::OK, |_| StatusCode::BAD_REQUEST);
    Ok(page_response(status, &page))
}

fn row(
    console: &Console,
    declared: &'static Declaration,
    stored: &[StoredProviderSettings],
    zone: &LocalTime,
    rejected: Option<&Rejected>,
) -> ProviderRow {
    let (name, control) = (declared.name.as_str(), &console.site.providers);
    let stored = stored.iter().find(|stored| stored.provider == name);
    let is_enabled = console.frame.providers.find(name).is_some();
    const SEALED: &str = "The stored credentials cannot be opened with this master key. Put the key back that sealed \
                          them, or enter them again.";
    const FAILED: &str = "What is stored cannot be used. The log of the service says why.";
    let state = match (control.configured_by(declared), stored) {
        (Some(by), _) => match control.left_out(declared) {
            Some(why) => ProviderState::LeftOut(by, why),
            None => ProviderState::Configured(by),
        },
        (None, Some(stored)) if stored.is_sealed => ProviderState::Unusable(SEALED),
        (None, Some(stored)) if stored.is_sandbox && is_enabled => ProviderState::Sandbox,
        (None, Some(stored)) if stored.credentials.is_some() && is_enabled => {
            ProviderState::Stored(zone.day(stored.changed_at))
        }
        (None, Some(stored)) if stored.is_used() => ProviderState::Unusable(FAILED),
        (None, _) => ProviderState::Off,
    };
    let rejected = rejected.filter(|rejected| rejected.provider == name);
    let field = |setting: &Setting| Field {
        name: setting.name,
        label: setting.label,
        is_required: declared.needs.contains(&setting.name),
        is_secret: setting.form == Form::Secret,
        is_wrong: rejected.is_some_and(|rejected| rejected.fields.contains(&setting.name)),
        value: rejected
            .and_then(|rejected| rejected.entered.get(setting.name).cloned())
            .unwrap_or_default(),
    };
    let problem = |of_credentials| {
        rejected
            .filter(|rejected| rejected.is_of_credentials == of_credentials)
            .map(|rejected| rejected.problem.clone())
    };
    ProviderRow {
        declared,
        offers_sandbox: control.has_sandbox() && matches!(state, ProviderState::Off),
        state,
        is_sandbox: console.frame.providers.is_sandbox(name),
        is_simulated: stored.is_some_and(|stored| stored.is_sandbox),
        fields: entered(declared).map(field).collect(),
        problem: problem(true),
        refusal: problem(false),
        is_in_use: false,
    }
}

/// The settings that an operator enters.
fn entered(declared: &'static Declaration) -> impl Iterator<Item = &'static Setting> {
    let settings = declared.settings.iter();
    settings.filter(|setting| !matches!(setting.form, Form::Url(_)))
}

/// `POST /operator/providers`, with the field `set`, `remove` or `sandbox`, whose value is the name
/// of a provider, or `all` for `sandbox`. With `set`, the credentials too.
pub(super) async fn change(OperatorForm(form): OperatorForm) -> PageResult {
    let session = &form.session;
    let named = |field| form.field(field).and_then(declaration);
    let rejected = if let Some(declared) = named("set") {
        set(&form, declared).await?
    } else if let Some(declared) = named("remove") {
        remove(session, declared).await?
    } else if let Some(declared) = named("sandbox") {
        use_sandbox(session, &[declared]).await?
    } else if form.field("sandbox") == Some("all") {
        use_sandbox(session, PROVIDERS).await?
    } else {
        return Err(Failure::InvalidForm);
    };
    if rejected.is_some() {
        return page(session, rejected).await;
    }
    session.site.providers.apply().await?;
    // The line that says so is on top, and has the next button.
    let place = form.field("sandbox").map_or("", |_| "#used");
    Ok(session.redirect(&format!("{PROVIDERS_PATH}{place}")))
}

/// Calls the provider with the credentials, and stores them if it does not reject them.
async fn set(form: &OwnForm, declared: &'static Declaration) -> Result<Option<Rejected>, Refusal> {
    let rejected = |problem: String, fields| Rejected {
        provider: declared.name.as_str(),
        problem,
        is_of_credentials: true,
        fields,
        entered: entered(declared)
            .filter(|setting| setting.form == Form::Text)
            .filter_map(|setting| Some((setting.name, form.field(setting.name)?.to_owned())))
            .collect(),
    };
    let mut credentials = BTreeMap::new();
    for setting in entered(declared) {
        let value = form.field(setting.name).unwrap_or_default().trim();
        let is_missing = value.is_empty() && declared.needs.contains(&setting.name);
        if is_missing {
            let problem = format!("{} is missing.", setting.label);
            return Ok(Some(rejected(problem, vec![setting.name])));
        }
        if value.chars().count() > VALUE_CHARS_MAX || value.chars().any(char::is_control) {
            let problem = format!("{} has to be one line of text.", setting.label);
            return Ok(Some(rejected(problem, vec![setting.name])));
        }
        if !value.is_empty() {
            credentials.insert(setting.name.to_owned(), SecretString::from(value));
        }
    }
    let control = &form.session.site.providers;
    if let Err(error) = control
        .test(form.session.user(), declared, credentials.clone())
        .await
    {
        tracing::info!(provider = %declared.name, %error, "credentials not stored");
        let (problem, fields) = explain(declared, &error);
        return Ok(Some(rejected(problem, fields)));
    }
    let mut change = form.session.begin_as_operator().await?;
    let set = provider_settings::set(&mut change, declared.name, &credentials).await;
    if let Some(rejected) = refused(declared, set)? {
        return Ok(Some(rejected));
    }
    change.commit().await?;
    Ok(None)
}

async fn remove(
    session: &Session,
    declared: &'static Declaration,
) -> Result<Option<Rejected>, Refusal> {
    let mut change = session.begin_as_operator().await?;
    let removed = provider_settings::remove(&mut change, declared.name).await;
    if let Some(rejected) = refused(declared, removed)? {
        return Ok(Some(rejected));
    }
    change.commit().await?;
    Ok(None)
}

/// What the page shows in place of a change of a provider that is in use.
fn refused(
    declared: &'static Declaration,
    changed: Result<(), Refusal>,
) -> Result<Option<Rejected>, Refusal> {
    match changed {
        Ok(()) => Ok(None),
        Err(refusal @ Refusal::ProviderInUse) => Ok(Some(Rejected {
            provider: declared.name.as_str(),
            problem: sentence(&refusal.to_string()),
            is_of_credentials: false,
            fields: Vec::new(),
            entered: BTreeMap::new(),
        })),
        Err(other) => Err(other),
    }
}

/// What to do about an error of a test, and the settings that the provider rejects.
fn explain(declared: &'static Declaration, error: &TestError) -> (String, Vec<&'static str>) {
    let title = declared.title;
    let named = |text: &str| {
        let is_named = |setting: &&Setting| text.contains(setting.name);
        let settings: Vec<_> = entered(declared).filter(is_named).collect();
        let labels: Vec<_> = settings.iter().map(|setting| setting.label).collect();
        let names = settings.iter().map(|setting| setting.name).collect();
        (labels.join(" or "), names)
    };
    match error {
        TestError::Form(text) => (format!("{title} was not called: {text}."), named(text).1),
        TestError::Call(Error::OperatorRejected { settings, status }) => {
            let (labels, names) = named(settings);
            let problem = format!(
                "{title} rejects {labels} (status {status}). Copy them again {}.",
                declared.credentials_at
            );
            (problem, names)
        }
        TestError::Call(error) if error.is_transient() => (
            format!("{title} could not be asked: {error}. Try again."),
            Vec::new(),
        ),
        TestError::Call(error) => (format!("{title} could not be used: {error}."), Vec::new()),
    }
}

/// Simulates those of the providers that are neither configured nor entered, opened or not.
async fn use_sandbox(
    session: &Session,
    providers: &[&'static Declaration],
) -> Result<Option<Rejected>, Refusal> {
    let control = &session.site.providers;
    let stored = session.storage().provider_settings().list().await?;
    let is_entered = |name: &str| {
        let mut used = stored.iter().filter(|stored| stored.is_used());
        used.any(|stored| stored.provider == name)
    };
    let is_free = |declared: &&&'static Declaration| {
        let name = declared.name.as_str();
        let is_enabled = session.frame.providers.find(name).is_some();
        let is_set = control.configured_by(declared).is_some() || is_entered(name);
        control.has_sandbox() && !is_set && !is_enabled
    };
    let free: Vec<_> = providers.iter().filter(is_free).collect();
    if free.is_empty() {
        return Ok(None);
    }
    let mut change = session.begin_as_operator().await?;
    for declared in free {
        let used = provider_settings::use_sandbox(&mut change, declared.name).await;
        if let Some(rejected) = refused(declared, used)? {
            return Ok(Some(rejected));
        }
    }
    change.commit().await?;
    Ok(None)
}
