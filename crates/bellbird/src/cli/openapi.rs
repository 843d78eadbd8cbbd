//! `bellbird openapi`: prints the OpenAPI document.

use clap::Args;

use super::output;

/// Print the OpenAPI 3.1 document of the API.
#[derive(Args)]
#[command(after_long_help = "Example:
  bellbird openapi > openapi.json")]
pub(super) struct OpenapiArgs {
    /// Print the document of the operator's API
    #[arg(long)]
    admin: bool,

    /// Print YAML instead of JSON
    #[arg(long, conflicts_with = "json")]
    yaml: bool,

    /// Print JSON (the default)
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &OpenapiArgs) -> anyhow::Result<()> {
    let document = if args.admin {
        bellbird_api::admin::document()
    } else {
        crate::openapi::document()
    };
    let text = if args.yaml {
        document.yaml()
    } else {
        document.json()
    };
    output::print_text(&String::from_utf8_lossy(text))
}
