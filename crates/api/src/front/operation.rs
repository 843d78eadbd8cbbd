//! The description of a path for the OpenAPI document, written beside its handler.

use bellbird_connections::provider_names;
use bellbird_domain::connection::schema_of;
use serde_json::{Map, Value, json};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{IntoParams, PartialSchema, ToSchema};

use crate::front::route::RouteMethod;

/// What a path does, takes and returns. The document adds what all paths share: common errors and
/// headers.
pub struct Operation {
    pub(crate) id: &'static str,
    pub(crate) tag: &'static str,
    pub(crate) summary: &'static str,
    pub(crate) description: &'static str,
    pub(crate) parameters: Vec<Value>,
    /// The body of the request.
    pub(crate) body: Option<Value>,
    pub(crate) status: u16,
    pub(crate) success: &'static str,
    /// Media types and schemas of the success.
    pub(crate) content: Map<String, Value>,
    /// Headers of the success, which `docs/document.yaml` describes.
    pub(crate) headers: &'static [&'static str],
    pub(crate) errors: Vec<(u16, &'static str)>,
    /// Another success: its status, description and schema.
    pub(crate) also: Option<(u16, &'static str, Value)>,
    pub(crate) is_for_every_plan: bool,
    pub(crate) schemas: Vec<(String, RefOr<Schema>)>,
}

/// A path in the document.
pub struct PathDocs {
    pub(crate) path: &'static str,
    pub(crate) method: RouteMethod,
    pub(crate) needs_key: bool,
    /// A parameter of the path, and its values.
    pub(crate) parameter: Option<(&'static str, Vec<&'static str>)>,
    pub(crate) operation: Operation,
}

/// Describes the name of a provider.
pub struct ProviderSchema;

impl PartialSchema for ProviderSchema {
    fn schema() -> RefOr<Schema> {
        schema_of(provider_names())
    }
}

impl ToSchema for ProviderSchema {}

impl Operation {
    /// `success` describes the response with status 200.
    #[must_use]
    pub fn new(id: &'static str, tag: &'static str, success: &'static str) -> Self {
        Self {
            id,
            tag,
            summary: "",
            description: "",
            parameters: Vec::new(),
            body: None,
            status: 200,
            success,
            content: Map::new(),
            headers: &[],
            errors: Vec::new(),
            also: None,
            is_for_every_plan: false,
            schemas: Vec::new(),
        }
    }

    /// `description` is Markdown.
    #[must_use]
    pub fn text(self, summary: &'static str, description: &'static str) -> Self {
        Self {
            summary,
            description,
            ..self
        }
    }

    /// The query parameters.
    #[must_use]
    pub fn query<Q: IntoParams>(mut self) -> Self {
        for parameter in Q::into_params(|| None) {
            let mut parameter = json!(parameter);
            // The lines of a doc comment.
            parameter["description"] = parameter["description"]
                .as_str()
                .unwrap_or_default()
                .replace('\n', " ")
                .into();
            self.parameters.push(parameter);
        }
        self
    }

    /// The body of the request, as JSON.
    #[must_use]
    pub fn body<T: ToSchema>(mut self) -> Self {
        let schema = self.reference::<T>();
        self.body = Some(json!({"content": {"application/json": {"schema": schema}}}));
        self
    }

    /// The body of a success, as JSON.
    #[must_use]
    pub fn json<T: ToSchema>(mut self) -> Self {
        let schema = self.reference::<T>();
        self.content("application/json", json!({"schema": schema}))
    }

    fn reference<T: ToSchema>(&mut self) -> Value {
        self.schemas.push((T::name().into_owned(), T::schema()));
        T::schemas(&mut self.schemas);
        json!({"$ref": format!("#/components/schemas/{}", T::name())})
    }

    /// The status of a success, instead of 200.
    #[must_use]
    pub fn status(self, status: u16) -> Self {
        Self { status, ..self }
    }

    /// Another success, with a body of JSON.
    #[must_use]
    pub fn also<T: ToSchema>(mut self, status: u16, description: &'static str) -> Self {
        self.also = Some((status, description, self.reference::<T>()));
        self
    }

    /// The body of a success as text of this media type. May be called several times.
    #[must_use]
    pub fn text_file(self, media_type: &'static str) -> Self {
        self.content(media_type, json!({"schema": {"type": "string"}}))
    }

    fn content(mut self, media_type: &'static str, content: Value) -> Self {
        self.content.insert(media_type.to_owned(), content);
        self
    }

    /// The headers of a success, beside those of all paths.
    #[must_use]
    pub fn headers(self, headers: &'static [&'static str]) -> Self {
        Self { headers, ..self }
    }

    /// An error that is particular to this path, or that replaces the text of a common one.
    #[must_use]
    pub fn error(mut self, status: u16, description: &'static str) -> Self {
        self.errors.push((status, description));
        self
    }

    /// Leaves out the error of a plan without API access.
    #[must_use]
    pub fn for_every_plan(self) -> Self {
        Self {
            is_for_every_plan: true,
            ..self
        }
    }

    /// The errors of paths that read a connection from its provider.
    #[must_use]
    pub fn provider_errors(self) -> Self {
        self.error(404, "The connection does not exist, or has no such account.").error(
            503,
            "The provider is temporarily unavailable (with `Retry-After`), or the user must reconnect. Then there is \
             no `Retry-After`, and `error.details` has the status of the connection: `status: invalidated`, `status: \
             pending_mfa` or `status: revoked`.",
        )
    }

    /// The errors of paths that read a brokerage connection.
    #[must_use]
    pub fn brokerage_errors(self) -> Self {
        self.error(
            400,
            "A parameter is missing or invalid (one `details` entry each), or the connection is not a brokerage \
             connection.",
        )
        .professional_errors()
        .provider_errors()
    }

    /// The error of paths that need the Professional plan.
    #[must_use]
    pub fn professional_errors(self) -> Self {
        self.error(
            403,
            "The user's plan has no API access, or is not the Professional plan (`error.code` is \
             `professional_required`).",
        )
    }
}
