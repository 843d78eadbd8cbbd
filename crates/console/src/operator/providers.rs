//! `/operator/providers`: the credentials of each provider, or that it is simulated, of which it
//! shows no stored value, and how others know the console. What the settings file or the
//! environment sets wins, and the page says so.

use std::collections::BTreeMap;

use askama::Template;
use bellbird_management::{Refusal, provider_settings, values};
use bellbird_providers::Error;
use bellbird_providers::registry::{PROVIDERS, declaration};
use bellbird_providers::settings::{Declaration, Form, Setting};
use bellbird_storage::{StorageError, StoredProviderSettings};
use http::{HeaderMap, StatusCode};
use secrecy::SecretString;

use super::{OPERATOR_NAME, Operator, OperatorForm, PROVIDERS_PATH, PUBLIC_URL, setup};
use crate::cookie::{Cookies, with_cookies};
use crate::error_page::{Failure, PageResult};
use crate::local::{is_elsewhere, is_loopback_url, public_origin};
use crate::pages::{Done, SignedInFrame, page_response, sentence};
use crate::provider_control::TestError;
use crate::session::{OwnForm, Session};

/// Longer than any credential of a provider.
const VALUE_CHARS_MAX: usize = 1000;

#[derive(Template)]
#[template(path = "operator_providers.html")]
struct ProvidersPage<'a> {
    frame: &'a SignedInFrame<'a>,
    rows: Vec<ProviderRow<'a>>,
    has_sandbox: bool,
    /// Whether an institution can be linked now.
    is_linkable: bool,
    is_first_start: bool,
    /// The source of the operator's name, if that is not entered here.
    name_set_by: Option<String>,
    /// At which address others reach the console.
    address: &'a str,
    address_source: AddressSource,
    /// Whether the browser has the page at another address, which can be used instead.
    offers_address: bool,
}

impl ProvidersPage<'_> {
    /// Whether all providers can be simulated with one button, because none has credentials.
    fn offers_sandbox(&self) -> bool {
        self.has_sandbox && self.rows.iter().all(ProviderRow::is_off)
    }

    /// Whether banks of the sandbox can be linked.
    fn uses_sandbox(&self) -> bool {
        self.is_linkable && self.rows.iter().any(|row| row.is_sandbox)
    }
}

struct ProviderRow<'a> {
    declared: &'static Declaration,
    state: ProviderState,
    /// Whether a simulation of it runs.
    is_sandbox: bool,
    /// Whether an operator has chosen the sandbox for it, which may not run.
    is_simulated: bool,
    /// Whether somebody has a connection of it, or is on the way to one.
    is_in_use: bool,
    /// The settings that are not entered here, because the settings file or the environment has
    /// them, and where.
    set_elsewhere: BTreeMap<&'static str, String>,
    rejected: Option<&'a Rejected>,
}

impl ProviderRow<'_> {
    fn is_configured(&self) -> bool {
        matches!(
            self.state,
            ProviderState::Configured(_) | ProviderState::LeftOut(..)
        )
    }

    fn is_off(&self) -> bool {
        matches!(self.state, ProviderState::Off)
    }

    /// Whether the fields are shown at once.
    fn is_open(&self) -> bool {
        self.is_off() || self.has_rejected_credentials()
    }

    fn has_rejected_credentials(&self) -> bool {
        self.rejected.is_some_and(|of| of.entered.is_some())
    }

    fn is_wrong(&self, setting: &Setting) -> bool {
        let rejected = self.rejected;
        rejected.is_some_and(|rejected| rejected.settings.contains(&setting.name))
    }

    /// What was entered now and is not stored. Empty if it is secret.
    fn entered(&self, setting: &Setting) -> &str {
        let entered = self.rejected.and_then(|of| of.entered.as_ref());
        let entered = entered.and_then(|entered| entered.get(setting.name));
        entered.map_or("", String::as_str)
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

/// Where the address of the console is from.
enum AddressSource {
    /// This setting of the file or the environment.
    Set(String),
    /// Entered here, or of a listener that others reach.
    Known,
    /// Of this browser only, which is in the same network.
    Browser,
    /// Of a listener on this machine.
    Loopback,
}

/// What a form does.
enum Step {
    Set(BTreeMap<String, SecretString>),
    Remove,
    UseSandbox,
}

/// Why a form has changed nothing.
struct Rejected {
    provider: &'static str,
    problem: String,
    /// The names of those that the provider rejects.
    settings: Vec<&'static str>,
    /// What was entered and is not secret, by the names of the settings. None: it is not about
    /// credentials.
    entered: Option<BTreeMap<&'static str, String>>,
}

/// `GET /operator/providers`
pub(super) async fn show(Operator(session): Operator, headers: HeaderMap) -> PageResult {
    page(&session, &headers, None).await
}

async fn page(session: &Session, headers: &HeaderMap, rejected: Option<Rejected>) -> PageResult {
    let settings = session.storage().provider_settings();
    let stored = settings.list().await?;
    let in_use = settings.list_in_use(session.clock.now()).await?;
    let is_first_start = setup::in_progress(session).await?.is_some();
    let row = |&declared: &&'static Declaration| {
        let name = declared.name.as_str();
        let stored = stored.iter().find(|stored| stored.provider == name);
        let providers = &session.frame.providers;
        ProviderRow {
            declared,
            state: state(session, declared, stored),
            is_sandbox: providers.find(name).is_some() && providers.is_sandbox(name),
            is_simulated: stored.is_some_and(|stored| stored.is_sandbox),
            is_in_use: in_use.iter().any(|in_use| in_use == name),
            set_elsewhere: entered(declared)
                .filter_map(|setting| Some((setting.name, set_by(session, declared, setting)?)))
                .collect(),
            rejected: rejected.as_ref().filter(|of| of.provider == name),
        }
    };
    let current = match is_first_start {
        true => setup::PATH,
        false => PROVIDERS_PATH,
    };
    let address = session.console_url();
    let set_by = |setting| session.site.providers.set_by(setting);
    let address_source = match set_by(PUBLIC_URL) {
        Some(by) => AddressSource::Set(by),
        None if session.at_home.is_some() => AddressSource::Browser,
        None if is_loopback_url(&address) => AddressSource::Loopback,
        None => AddressSource::Known,
    };
    let offers_address = match address_source {
        AddressSource::Set(_) => false,
        AddressSource::Browser => true,
        AddressSource::Known | AddressSource::Loopback => is_elsewhere(&address, headers),
    };
    let page = ProvidersPage {
        frame: &session.frame(current),
        rows: PROVIDERS.iter().map(row).collect(),
        has_sandbox: session.site.providers.has_sandbox(),
        is_linkable: !session.connections.links().providers().is_empty(),
        is_first_start,
        name_set_by: set_by(OPERATOR_NAME),
        offers_address,
        address: &address,
        address_source,
    };
    let status = match rejected {
        Some(_) => StatusCode::BAD_REQUEST,
        None => StatusCode::OK,
    };
    Ok(page_response(status, &page))
}

fn state(
    session: &Session,
    declared: &Declaration,
    stored: Option<&StoredProviderSettings>,
) -> ProviderState {
    const SEALED: &str = "The stored credentials cannot be opened with this master key. Put the key back that sealed \
                          them, or enter them again.";
    const FAILED: &str = "What is stored cannot be used. The log of the service says why.";
    let control = &session.site.providers;
    if let Some(by) = control.configured_by(declared) {
        return match control.left_out(declared) {
            Some(why) => ProviderState::LeftOut(by, why),
            None => ProviderState::Configured(by),
        };
    }
    let is_enabled = session
        .frame
        .providers
        .find(declared.name.as_str())
        .is_some();
    match stored {
        Some(stored) if stored.is_sealed => ProviderState::Unusable(SEALED),
        Some(stored) if stored.is_sandbox && is_enabled => ProviderState::Sandbox,
        Some(stored) if stored.credentials.is_some() && is_enabled => {
            ProviderState::Stored(session.zone().day(stored.changed_at))
        }
        Some(stored) if stored.is_used() => ProviderState::Unusable(FAILED),
        _ => ProviderState::Off,
    }
}

/// Which line of the settings file or the environment has a setting, and wins.
fn set_by(session: &Session, declared: &Declaration, setting: &Setting) -> Option<String> {
    let name = format!("{}.{}", declared.name, setting.name);
    session.site.providers.set_by(&name)
}

/// The settings that an operator enters.
fn entered(declared: &'static Declaration) -> impl Iterator<Item = &'static Setting> {
    let settings = declared.settings.iter();
    settings.filter(|setting| !matches!(setting.form, Form::Url(_)))
}

/// `POST /operator/providers`, with the field `set`, `remove` or `sandbox`, whose value is the name
/// of a provider, or `all` for `sandbox`. With `set`, the credentials too. Or with the field
/// `console`, whose value is `name`, with the field `operator_name`, or `address`.
pub(super) async fn change(headers: HeaderMap, OperatorForm(form): OperatorForm) -> PageResult {
    let session = &form.session;
    if let Some(what) = form.field("console") {
        return enter_for_console(&form, &headers, what).await;
    }
    let named = |field| form.field(field).and_then(declaration);
    let (step, providers) = if let Some(declared) = named("set") {
        match credentials(&form, declared).await {
            Ok(credentials) => (Step::Set(credentials), vec![declared]),
            Err(rejected) => return page(session, &headers, Some(rejected)).await,
        }
    } else if let Some(declared) = named("remove") {
        (Step::Remove, vec![declared])
    } else if let Some(declared) = named("sandbox") {
        (Step::UseSandbox, free(session, &[declared]).await?)
    } else if form.field("sandbox") == Some("all") {
        (Step::UseSandbox, free(session, PROVIDERS).await?)
    } else {
        return Err(Failure::InvalidForm);
    };
    if let Some(rejected) = take(session, &step, &providers).await? {
        return page(session, &headers, Some(rejected)).await;
    }
    session.site.providers.apply().await?;
    let done = match step {
        Step::Set(_) => Done::CredentialsStored,
        Step::Remove => Done::ProviderRemoved,
        // The line that says so is on top, and has the next button.
        Step::UseSandbox => return Ok(session.redirect(&format!("{PROVIDERS_PATH}#used"))),
    };
    let provider = providers.first().map(|declared| declared.name.as_str());
    Ok(done.redirect(session, PROVIDERS_PATH, provider.unwrap_or_default()))
}

/// Stores the name of the operator, or as the address the one at which the browser has the page, so
/// that it is one that leads here.
async fn enter_for_console(form: &OwnForm, headers: &HeaderMap, what: &str) -> PageResult {
    let session = &form.session;
    let mut entered = session.storage().provider_settings().console().await?;
    let setting = match what {
        "name" => {
            let name = values::operator_name(form.field("operator_name").unwrap_or_default());
            entered.operator_name = name.map_err(|_| Failure::InvalidForm)?;
            OPERATOR_NAME
        }
        "address" => {
            entered.public_url = Some(public_origin(headers).ok_or(Failure::InvalidForm)?);
            PUBLIC_URL
        }
        _ => return Err(Failure::InvalidForm),
    };
    if session.site.providers.set_by(setting).is_some() {
        return Err(Failure::InvalidForm);
    }
    let mut change = session.begin_as_operator().await?;
    provider_settings::set_console(&mut change, &entered, setting).await?;
    change.commit().await?;
    session.site.providers.apply().await?;
    let response = Done::Saved.redirect(session, PROVIDERS_PATH, "console");
    let address = entered.public_url.filter(|_| setting == PUBLIC_URL);
    let before = &session.cookies.session;
    let (Some(address), Some(token)) = (address, before.value(headers)) else {
        return Ok(response);
    };
    // The name of the cookie of this session depends on the address. The one of the other name does
    // not stay, because the browser would send it without https too.
    let now = Cookies::new(&address).session;
    let old = before.removal().filter(|_| !now.has_name_of(before));
    Ok(with_cookies(response, [now.header(token), old]))
}

/// What a form has entered. Calls the provider with it, which may reject it.
async fn credentials(
    form: &OwnForm,
    declared: &'static Declaration,
) -> Result<BTreeMap<String, SecretString>, Rejected> {
    let rejected = |problem: String, settings| Rejected {
        provider: declared.name.as_str(),
        problem,
        settings,
        entered: Some(
            entered(declared)
                .filter(|setting| setting.form == Form::Text)
                .filter_map(|setting| Some((setting.name, form.field(setting.name)?.to_owned())))
                .collect(),
        ),
    };
    let mut credentials = BTreeMap::new();
    for setting in entered(declared) {
        if set_by(&form.session, declared, setting).is_some() {
            continue;
        }
        let value = form.field(setting.name).unwrap_or_default().trim();
        let fault = if value.is_empty() && declared.needs.contains(&setting.name) {
            "is missing"
        } else if value.chars().count() > VALUE_CHARS_MAX || value.chars().any(char::is_control) {
            "has to be one line of text"
        } else {
            if !value.is_empty() {
                credentials.insert(setting.name.to_owned(), SecretString::from(value));
            }
            continue;
        };
        let problem = format!("{} {fault}.", setting.label);
        return Err(rejected(problem, vec![setting.name]));
    }
    let (control, user) = (&form.session.site.providers, form.session.user());
    let tested = control.test(user, declared, credentials.clone()).await;
    tested.map_err(|error| {
        tracing::info!(provider = %declared.name, %error, "credentials not stored");
        let (problem, settings) = explain(declared, &error);
        rejected(problem, settings)
    })?;
    Ok(credentials)
}

/// Takes a step with all of these providers, or with none, because one is in use.
async fn take(
    session: &Session,
    step: &Step,
    providers: &[&'static Declaration],
) -> Result<Option<Rejected>, Failure> {
    if providers.is_empty() {
        return Ok(None);
    }
    let mut change = session.begin_as_operator().await?;
    for declared in providers {
        let taken = match step {
            Step::Set(credentials) => {
                provider_settings::set(&mut change, declared.name, credentials).await
            }
            Step::Remove => provider_settings::remove(&mut change, declared.name).await,
            Step::UseSandbox => provider_settings::use_sandbox(&mut change, declared.name).await,
        };
        if let Err(refusal @ Refusal::ProviderInUse) = &taken {
            return Ok(Some(Rejected {
                provider: declared.name.as_str(),
                problem: sentence(&refusal.to_string()),
                settings: Vec::new(),
                entered: None,
            }));
        }
        taken?;
    }
    change.commit().await?;
    Ok(None)
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
            // A signature holds the time.
            let clock = match settings.contains("clock") {
                true => ", or the clock of the server is wrong",
                false => "",
            };
            let problem = format!(
                "{title} rejects {labels}{clock} (status {status}). Copy them again {}.",
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

/// Those of the providers that are neither configured nor entered, opened or not.
async fn free(
    session: &Session,
    providers: &[&'static Declaration],
) -> Result<Vec<&'static Declaration>, StorageError> {
    let control = &session.site.providers;
    let stored = session.storage().provider_settings().list().await?;
    let is_free = |declared: &&&'static Declaration| {
        let name = declared.name.as_str();
        let mut used = stored.iter().filter(|stored| stored.is_used());
        let is_entered = used.any(|stored| stored.provider == name);
        let is_enabled = session.frame.providers.find(name).is_some();
        let is_configured = control.configured_by(declared).is_some();
        control.has_sandbox() && !is_configured && !is_entered && !is_enabled
    };
    Ok(providers.iter().filter(is_free).copied().collect())
}
