//! `bellbird export`: writes transactions, trades or holdings to a file.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use bellbird_domain::{AccountId, Bound, Caller, ConnectionId, DateFilter, KeyId, User};
use bellbird_interop::export::formats::{Format, FormatError, Layout, Options};
use bellbird_interop::export::{Export, ExportError, FileRequest, OpenError, Resource, Retries};
use bellbird_reads::{Cause, ReadError, Reads};
use bellbird_storage::Storage;
use clap::Args;
use jiff::Timestamp;
use serde_json::json;
use tempfile::NamedTempFile;

use super::arguments::{self, SettingArgs};
use super::output::{self, Progress, UsageError, count};
use super::user::UserArgs;
use crate::failure::Failure;
use crate::wiring::{self, Wiring};

/// Standard output, as an argument.
const STDOUT: &str = "-";

/// Write transactions, trades or holdings of a user to a file.
///
/// The command reads from the providers with the settings of the service, and needs no API key. It
/// works while the service is running, and for users of every plan. Without --account and
/// --connection, the file has all bank accounts of the user, or all brokerage accounts.
///
/// The file appears only when it is whole, with mode 0600, and then replaces an older one. If a
/// provider fails, the command exits with status 1 and leaves the older file as it is. Standard
/// output may have a part of the file by then. With --partial, a connection that cannot be read is
/// left out and named on standard error, and the status is 0 unless all of them fail.
/// docs/exports.md describes the formats.
#[derive(Args)]
#[command(after_long_help = "Examples:
  bellbird export --user me@example.com --format csv --from 2026-07-01 --output transactions.csv
  bellbird export holdings --user me@example.com --format jsonl | jq .symbol")]
pub(super) struct ExportArgs {
    /// What to write
    #[arg(default_value = "transactions", value_name = "WHAT")]
    #[arg(value_parser = arguments::one_of(&Resource::ALL, Resource::as_str))]
    resource: Resource,

    #[command(flatten)]
    user: UserArgs,

    /// Format of the file
    #[arg(long, value_name = "FORMAT")]
    #[arg(value_parser = arguments::one_of(Format::ALL, Format::as_str))]
    format: Format,

    /// Id of one account, as `connection show` and the API show it
    #[arg(long, value_name = "ID", value_parser = arguments::account_id)]
    account: Option<AccountId>,

    /// Id of one connection, as `connection list` shows it
    #[arg(long, value_name = "ID", value_parser = arguments::connection_id)]
    connection: Option<ConnectionId>,

    /// First day or instant; by default 30 days ago, and for trades chosen by the broker
    #[arg(long, value_name = "DATE", value_parser = arguments::bound)]
    from: Option<Bound>,

    /// Last day or instant; by default now
    #[arg(long, value_name = "DATE", value_parser = arguments::bound)]
    to: Option<Bound>,

    /// For csv: the columns that YNAB imports
    #[arg(long, value_parser = ["ynab"])]
    layout: Option<String>,

    /// For csv: begin with a byte order mark, by which Excel recognises UTF-8
    #[arg(long)]
    byte_order_mark: bool,

    /// For csv: put ' before texts that spreadsheets would run as formulas
    #[arg(long)]
    quote_formulas: bool,

    /// Leave out connections that cannot be read, and say so, as long as one of several can be read
    #[arg(long)]
    partial: bool,

    /// File to write, or - for standard output
    #[arg(long, value_name = "FILE", default_value = STDOUT)]
    output: String,
}

pub(super) async fn run(settings: &SettingArgs, args: &ExportArgs) -> anyhow::Result<()> {
    let request = args.request().map_err(UsageError)?;
    let settings = settings.load(None)?;
    let storage = wiring::open_sealed_storage(&settings).await?;
    let reads = Wiring::new(&settings, &storage).await?.reads();
    // A signal has to delete the unfinished file.
    let stop = wiring::stop_on_signal(Duration::ZERO)?;
    let written = stop
        .run_until_cancelled(export(&storage, &reads, args, request))
        .await;
    storage.close().await;
    written.unwrap_or_else(|| Err(anyhow!("stopped before the file was whole")))
}

impl ExportArgs {
    /// The requested file, or what is wrong with the arguments.
    fn request(&self) -> Result<FileRequest, String> {
        let (resource, format) = (self.resource, self.format);
        if !resource.formats().any(|other| other == format) {
            let formats: Vec<_> = resource.formats().map(Format::as_str).collect();
            return Err(format!(
                "{} have no format {}: choose {}",
                resource.as_str(),
                format.as_str(),
                formats.join(" or ")
            ));
        }
        let layout = if self.layout.is_some() {
            Layout::Ynab
        } else {
            Layout::Wide
        };
        let options = Options {
            layout,
            byte_order_mark: self.byte_order_mark,
            quote_formulas: self.quote_formulas,
        };
        if format != Format::Csv && options != Options::default() {
            return Err(
                "--layout, --byte-order-mark and --quote-formulas are for --format csv".to_owned(),
            );
        }
        if resource != Resource::Transactions && layout == Layout::Ynab {
            return Err("--layout is for transactions".to_owned());
        }
        if output::is_json() && self.output == STDOUT {
            return Err(
                "--json needs --output FILE, because standard output would hold two things"
                    .to_owned(),
            );
        }
        let request = FileRequest {
            resource,
            format,
            options,
            connection_id: self.connection,
            account_id: self.account,
            dates: DateFilter {
                from: self.from,
                to: self.to,
            },
            partial: self.partial,
        };
        if request.lacks_account() {
            return Err("a file of this format holds one account: add --account ID".to_owned());
        }
        Ok(request)
    }
}

/// Writes the file, and says so, unless it went to standard output.
async fn export(
    storage: &Storage,
    reads: &Reads,
    args: &ExportArgs,
    request: FileRequest,
) -> anyhow::Result<()> {
    let user = args.user.find(storage).await?;
    let timezone = storage
        .users()
        .find_zone(user.id)
        .await?
        .context("the user was removed meanwhile")?;
    // No key: its id identifies this command, and the revision is one that no cached fact has.
    let caller = Caller {
        key_id: KeyId::new(),
        user_id: user.id,
        plan: user.plan,
        timezone,
        revision: -1,
    };
    let opened = Export::open(reads.clone(), storage, caller, request, Timestamp::now()).await;
    let mut export = opened.map_err(|error| describe_open(error, &user, request.resource))?;
    // The operator reads, so nobody's budget is charged. Where all users share a limit, it leaves
    // some to requests.
    let new_call = || reads.call_context(Cause::Schedule).for_sync();
    let broken = export
        .leave_out_broken(Retries::On, &new_call)
        .await
        .map_err(describe)?;
    for error in broken {
        output::note(&format!("left out: {:#}", describe(error)));
    }
    let mut target = Target::open(&args.output)?;
    let mut progress = Progress::new("rows", 0);
    let (mut page, mut bytes, mut has_more) = (Vec::new(), 0, true);
    while has_more {
        let before = export.rows();
        if let Some(id) = export.next_connection()
            && storage.connections().find(user.id, id).await?.is_none()
        {
            bail!("the connection {id} was removed meanwhile");
        }
        has_more = export
            .next_page(Retries::On, &new_call, &mut page)
            .await
            .map_err(describe)?;
        if !target.write(&page)? {
            return Ok(());
        }
        bytes += page.len() as u64;
        progress.add(export.rows() - before);
        page.clear();
    }
    drop(progress);
    if !target.finish()? {
        return Ok(());
    }
    let (rows, left_out) = (export.rows(), export.left_out());
    let view = json!({"file": args.output, "rows": rows, "bytes": bytes, "leftOut": left_out});
    output::print_done(&view, |_| {
        format!("Wrote {} to {}.", count(rows, "row", "rows"), args.output)
    })
}

enum Target {
    Stdout,
    /// A file beside the one to write, which is renamed when it is whole. Dropping it deletes it.
    File(NamedTempFile, PathBuf),
}

impl Target {
    fn open(output: &str) -> anyhow::Result<Self> {
        if output == STDOUT {
            return Ok(Self::Stdout);
        }
        let is_link = fs::symlink_metadata(output).is_ok_and(|found| found.is_symlink());
        if is_link && !fs::exists(output).unwrap_or(false) {
            bail!("{output} is a link to nothing: choose another file");
        }
        // A link stays, and what it points to is replaced.
        let path = fs::canonicalize(output).unwrap_or_else(|_| PathBuf::from(output));
        if path.exists() && !path.is_file() {
            bail!("{output} is not a regular file: choose another one, or - for standard output");
        }
        let folder = folder_of(&path);
        let new = tempfile::Builder::new()
            .prefix(".bellbird-export-")
            .tempfile_in(folder)
            .map_err(|error| {
                // The file has a random name, which says nothing to anybody.
                let reason = match error.kind() {
                    io::ErrorKind::NotFound => "it does not exist".to_owned(),
                    other => other.to_string(),
                };
                anyhow!(
                    "could not write in the folder {}: {reason}",
                    folder.display()
                )
            })?;
        Ok(Self::File(new, path))
    }

    /// Returns false if the reader of standard output went away: it has read enough.
    fn write(&mut self, page: &[u8]) -> anyhow::Result<bool> {
        let written = match self {
            Self::Stdout => {
                let mut out = io::stdout().lock();
                out.write_all(page).and_then(|()| out.flush())
            }
            Self::File(file, _) => file.write_all(page),
        };
        match written {
            Err(error)
                if matches!(self, Self::Stdout) && error.kind() == io::ErrorKind::BrokenPipe =>
            {
                Ok(false)
            }
            written => written.map(|()| true).context("could not write the file"),
        }
    }

    /// Gives the file its name, once it is on the disk. Returns false for standard output.
    fn finish(self) -> anyhow::Result<bool> {
        let Self::File(file, path) = self else {
            return Ok(false);
        };
        file.as_file()
            .sync_all()
            .context("could not write the file")?;
        file.persist(&path)
            .with_context(|| format!("could not write {}", path.display()))?;
        // So that the name is on the disk, too. Some file systems have no such call.
        let _ = File::open(folder_of(&path)).and_then(|folder| folder.sync_all());
        Ok(true)
    }
}

fn folder_of(path: &Path) -> &Path {
    path.parent()
        .filter(|folder| !folder.as_os_str().is_empty())
        .unwrap_or(Path::new("."))
}

fn describe_open(error: OpenError, user: &User, resource: Resource) -> anyhow::Error {
    let (noun, error) = match error {
        OpenError::Connection(error) => ("connection", error),
        OpenError::Account(error) => ("account", error),
        OpenError::Open {
            connection_id,
            error,
        } => return describe_unopened(connection_id, error),
        OpenError::Format(error) => return describe_format(error),
    };
    match error {
        ReadError::NotFound => {
            let email = &user.email;
            Failure::not_found(format!(
                "{email} has no such {noun}: see `bellbird connection list --user {email}`"
            ))
        }
        ReadError::WrongCategory => {
            let (category, name) = (resource.category(), resource.as_str());
            anyhow!(
                "{name} are those of a {category} connection, and this {noun} is of another category"
            )
        }
        other => other.into(),
    }
}

fn describe(error: ExportError) -> anyhow::Error {
    let (context, error) = match error {
        ExportError::Open {
            connection_id,
            error,
        } => return describe_unopened(connection_id, error),
        ExportError::Read { context, error } => (context, error),
        ExportError::Format(error) => return describe_format(error),
    };
    let connection = &context.connection;
    let (id, institution) = (connection.id, &connection.institution_name);
    match error {
        ReadError::Reconnect(status) => anyhow!(
            "the connection to {institution} is {status}: renew it with `bellbird connection link --reconnect {id}`"
        ),
        error => anyhow::Error::new(error).context(format!(
            "could not read from {institution} (connection {id})"
        )),
    }
}

fn describe_unopened(id: ConnectionId, error: ReadError) -> anyhow::Error {
    anyhow::Error::new(error).context(format!("could not open the connection {id}"))
}

fn describe_format(error: FormatError) -> anyhow::Error {
    anyhow::Error::new(error).context("this format cannot hold the rows")
}
