//! What several operations say in their `#[utoipa::path]`: sets of errors, and parameters.

use std::collections::BTreeMap;

use serde_json::json;
use utoipa::openapi::path::{Parameter, ParameterBuilder, ParameterIn};
use utoipa::openapi::schema::{ObjectBuilder, Type};
use utoipa::openapi::{RefOr, Required, Response, SchemaFormat};
use utoipa::{IntoParams, IntoResponses};

use crate::http::operator::PathId;

/// Errors by status. The document adds their body and headers.
pub fn errors<const N: usize>(
    descriptions: [(&str, &str); N],
) -> BTreeMap<String, RefOr<Response>> {
    let response = |(status, description): (&str, &str)| {
        (status.to_owned(), Response::new(description).into())
    };
    descriptions.into_iter().map(response).collect()
}

/// Of paths that need a plan with API access.
pub struct PlanErrors;

impl IntoResponses for PlanErrors {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        errors([("403", "The user's plan has no API access.")])
    }
}

/// Of paths that need the Professional plan.
pub struct ProfessionalErrors;

impl IntoResponses for ProfessionalErrors {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        errors([(
            "403",
            "The user's plan has no API access, or is not the Professional plan (`error.code` is \
             `professional_required`).",
        )])
    }
}

/// Of paths that read a connection from its provider.
pub struct ProviderErrors;

impl IntoResponses for ProviderErrors {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        let mut responses = errors([
            (
                "404",
                "The connection does not exist, or has no such account.",
            ),
            (
                "503",
                "The provider is temporarily unavailable (with `Retry-After`), or the user must \
                 reconnect. Then there is no `Retry-After`, and `error.details` has the status of \
                 the connection: `status: invalidated`, `status: pending_mfa` or `status: revoked`.",
            ),
        ]);
        responses.extend(PlanErrors::responses());
        responses
    }
}

/// Of paths that read a brokerage connection.
pub struct BrokerageErrors;

impl IntoResponses for BrokerageErrors {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        let mut responses = errors([(
            "400",
            "A parameter is missing or invalid (one `details` entry each), or the connection is not \
             a brokerage connection.",
        )]);
        responses.extend(ProviderErrors::responses());
        responses.extend(ProfessionalErrors::responses());
        responses
    }
}

impl<T> IntoParams for PathId<T> {
    fn into_params(_: impl Fn() -> Option<ParameterIn>) -> Vec<Parameter> {
        let uuid = SchemaFormat::Custom("uuid".to_owned());
        let schema = ObjectBuilder::new()
            .schema_type(Type::String)
            .format(Some(uuid));
        let id = ParameterBuilder::new()
            .name("id")
            .parameter_in(ParameterIn::Path)
            .required(Required::True)
            .description(Some("The id."))
            .schema(Some(schema))
            .example(Some(json!("0191e7a0-7c3b-7def-8000-00aabbccddee")));
        vec![id.build()]
    }
}
