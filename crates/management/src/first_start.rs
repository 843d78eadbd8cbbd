//! The first start of a service on a new database: a code from its log, used in one browser, makes
//! the first operator. There is no such code unless [`begin`] marked the database while it was
//! empty, nor once there is an operator.

use bellbird_domain::{Plan, TimestampExt as _, User};
use bellbird_storage::writes::{first_start, sessions, user};
use bellbird_storage::{
    AuditAction, BegunSession, FirstStart, ManagementChange, NewSession, NewUser, UserChange,
};
use jiff::SignedDuration;
use secrecy::{ExposeSecret as _, SecretString};

use crate::refusal::Refusal;

/// How long a code works, and then the browser that used it.
const CODE_TTL: SignedDuration = SignedDuration::from_hours(1);
/// How long the first operator may download the master key.
const KEY_TTL: SignedDuration = SignedDuration::from_hours(1);

/// A code that opens the page of a first start, once. It is not stored. Has no `Debug`.
pub struct SetupCode(SecretString);

impl SetupCode {
    /// The address of the page that the code opens.
    #[must_use]
    pub fn url(&self, console_url: &str) -> SecretString {
        let base = console_url.trim_end_matches('/');
        format!("{base}/setup/{}", self.0.expose_secret()).into()
    }
}

/// The first operator.
#[derive(Debug, Clone, Copy)]
pub struct FirstOperator<'a> {
    pub email: &'a str,
    /// IANA name, already checked with `find_timezone`.
    pub timezone: Option<&'a str>,
}

/// Marks the database of a service that starts for the first time. Returns false, and there is
/// nothing to commit, if it has users or is marked already.
pub async fn begin(change: &mut ManagementChange<'_>) -> Result<bool, Refusal> {
    if !first_start::begin(change.tx()).await? {
        return Ok(false);
    }
    record(change, "first_start.begin").await?;
    Ok(true)
}

/// Makes a code, which voids the one before and the browser that has used it. None, and there is
/// nothing to commit, unless this database is of a first start and has no operator.
pub async fn new_code(change: &mut ManagementChange<'_>) -> Result<Option<SetupCode>, Refusal> {
    let (code, ends_at) = (
        SetupCode(bellbird_storage::new_setup_code()),
        change.now().plus(CODE_TTL),
    );
    if !first_start::set_code(change.tx(), code.0.expose_secret(), ends_at).await? {
        return Ok(None);
    }
    record(change, "first_start.code").await?;
    Ok(Some(code))
}

/// Uses a code in the browser with this cookie.
///
/// # Errors
/// [`Refusal::NoFirstStart`] if the code is not valid.
pub async fn claim(
    change: &mut ManagementChange<'_>,
    code: &str,
    browser: &str,
) -> Result<(), Refusal> {
    let now = change.now();
    if !first_start::claim(change.tx(), code, browser, now).await? {
        return Err(Refusal::NoFirstStart);
    }
    record(change, "first_start.claim").await
}

/// Makes the first operator, in the browser that has used the code, and signs them in there.
///
/// # Errors
/// [`Refusal::NoFirstStart`] if this browser has not used the code, or too long ago.
pub async fn create_operator(
    change: &mut ManagementChange<'_>,
    browser: &str,
    operator: FirstOperator<'_>,
    session: &NewSession<'_>,
) -> Result<(User, BegunSession), Refusal> {
    let now = change.now();
    if !first_start::leave_claim(change.tx(), browser, now, now.plus(KEY_TTL)).await? {
        return Err(Refusal::NoFirstStart);
    }
    let created = insert_operator(change, operator).await?;
    let begun = sessions::insert(change.tx(), created.id, session, now).await?;
    Ok((created, begun))
}

/// Makes the first operator by a command, which completes the first start, if there is one. `found`
/// is from before the operators were looked for.
///
/// # Errors
/// [`Refusal::NoFirstStart`] if somebody else does at the same time.
pub async fn create_operator_by_command(
    change: &mut ManagementChange<'_>,
    found: Option<&FirstStart>,
    operator: FirstOperator<'_>,
) -> Result<User, Refusal> {
    let now = change.now();
    if !first_start::take(change.tx(), found, now).await? {
        return Err(Refusal::NoFirstStart);
    }
    let created = insert_operator(change, operator).await?;
    record(change, "first_start.finish").await?;
    Ok(created)
}

async fn insert_operator(
    change: &mut ManagementChange<'_>,
    operator: FirstOperator<'_>,
) -> Result<User, Refusal> {
    let now = change.now();
    let new = NewUser {
        email: operator.email,
        plan: Plan::Professional,
        timezone: operator.timezone,
        reference: None,
        // Whoever has the code reads the log of the service, and may make any user. So may a
        // command.
        console_sign_in: true,
    };
    let created = user::insert(change.tx(), &new, now).await?;
    let is_operator = UserChange {
        is_operator: Some(true),
        ..UserChange::default()
    };
    let created = user::update(change.tx(), created.id, &is_operator).await?;
    for name in ["user.create", "operator.add"] {
        change
            .record(&AuditAction::of_user(name, created.id))
            .await?;
    }
    Ok(created)
}

/// Records that the master key was downloaded.
pub async fn record_key_download(change: &mut ManagementChange<'_>) -> Result<(), Refusal> {
    record(change, "master_key.download").await
}

/// Records that an operator keeps the master key.
pub async fn keep_key(change: &mut ManagementChange<'_>) -> Result<(), Refusal> {
    let now = change.now();
    first_start::keep_key(change.tx(), now).await?;
    record(change, "master_key.keep").await
}

/// Ends the first start, once an operator has taken all steps.
pub async fn finish(change: &mut ManagementChange<'_>) -> Result<(), Refusal> {
    let now = change.now();
    first_start::finish(change.tx(), now).await?;
    record(change, "first_start.finish").await
}

async fn record(change: &mut ManagementChange<'_>, name: &'static str) -> Result<(), Refusal> {
    Ok(change.record(&AuditAction::of_installation(name)).await?)
}
