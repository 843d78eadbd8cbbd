//! The table of paths.

use crate::front::{Class, Route, route};

pub(crate) const DOCS_SCRIPT_PATH: &str = "/docs/page.js";
pub(crate) const DOCS_STYLE_PATH: &str = "/docs/page.css";
pub(crate) const DOCS_LOGO_PATH: &str = "/docs/logo.svg";

/// Those with an operation are in the order of the reference page.
pub(crate) static ROUTES: [Route; 14] = [
    route("/health", Class::Open),
    route("/v1/connections", Class::Metadata),
    route("/v1/accounts", Class::Metadata),
    route("/v1/balances", Class::Balances),
    route("/v1/categories", Class::Metadata),
    route("/v1/transactions", Class::Live),
    route("/v1/holdings", Class::Brokerage),
    route("/v1/trades", Class::Brokerage),
    route("/openapi.json", Class::Open),
    route("/openapi.yaml", Class::Open),
    route("/docs", Class::Open),
    route(DOCS_SCRIPT_PATH, Class::Open),
    route(DOCS_STYLE_PATH, Class::Open),
    route(DOCS_LOGO_PATH, Class::Open),
];
