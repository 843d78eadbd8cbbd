//! What the page shows, read from the OpenAPI document.

use std::collections::BTreeMap;

use askama::Template;
use bellbird_domain::EventType;
use serde::Deserialize;
use serde_json::Value;

use super::schema::{self, Member, entries, items, string};
use super::text::{Span, Text};
use crate::docs::DocsPaths;

#[derive(Template)]
#[template(path = "docs.html")]
pub(super) struct Contents {
    /// Empty: the page leads to no console.
    console_url: String,
    title: String,
    version: String,
    /// Links to the document, from the folder of the page.
    document: [&'static str; 2],
    introduction: Text,
    groups: Vec<Group>,
    errors: Body,
    headers: Vec<Header>,
}

/// The operations of a tag, or its webhook events.
struct Group {
    id: String,
    name: String,
    description: Text,
    operations: Vec<Operation>,
    /// What all events have in common. None if the tag has no events.
    requests: Option<EventRequests>,
    events: Vec<Event>,
}

/// The form of the requests of all webhook events, and what an endpoint may return.
struct EventRequests {
    headers: Vec<Header>,
    responses: Vec<Response>,
}

struct Event {
    id: String,
    summary: String,
    name: &'static str,
    description: Text,
    body: Body,
}

struct Operation {
    id: String,
    summary: String,
    method: String,
    path: String,
    /// From the folder of the page.
    link: String,
    description: Text,
    needs_key: bool,
    parameters: Vec<Parameter>,
    /// The URL of the `curl` line: required parameters have their examples.
    url: String,
    /// Whether the page sends it. A change is only shown.
    is_read: bool,
    sample: Option<Sample>,
    /// The body of the request.
    request: Option<Body>,
    success: Response,
    /// None if the response is a file.
    body: Option<Body>,
    errors: Vec<Response>,
}

/// How the clients make a call.
#[derive(Clone, Deserialize)]
struct Sample {
    typescript: String,
    python: String,
}

struct Parameter {
    name: String,
    /// Type, bounds and default, in words.
    facts: String,
    required: bool,
    is_in_path: bool,
    /// None where the default is an example.
    example: Option<String>,
    description: Text,
    /// The operation that lists the ids, whose response the page offers here.
    ids_from: Option<&'static str>,
}

struct Response {
    status: String,
    description: Text,
    headers: Vec<String>,
}

struct Body {
    example: String,
    members: Vec<Member>,
}

struct Header {
    name: String,
    kind: String,
    example: String,
    description: Text,
}

impl Contents {
    pub(super) fn new(
        document: &Value,
        paths: &[String],
        [public_url, console_url]: &[String; 2],
        docs: &DocsPaths,
    ) -> Self {
        let samples = yaml_serde::from_str(docs.samples).unwrap_or_default();
        Self {
            console_url: console_url.clone(),
            title: heading(&string(&document["info"]["title"])),
            document: docs
                .document
                .map(|path| path.trim_start_matches(docs.folder).trim_start_matches('/')),
            version: string(&document["info"]["version"]),
            introduction: text(&document["info"]["description"]),
            groups: items(&document["tags"])
                .map(|tag| Group::new(document, paths, tag, (public_url, docs.folder, &samples)))
                .collect(),
            errors: Body::new(
                document,
                &document["components"]["schemas"]["ErrorBody"],
                None,
            ),
            headers: entries(&document["components"]["headers"])
                .map(|(name, header)| Header::new(name, header))
                .collect(),
        }
    }
}

/// The start of URLs, the folder of the page, and the samples by operation.
type Places<'p> = (&'p str, &'p str, &'p BTreeMap<String, Sample>);

/// The document's title says what the API is about, which a reader of the page knows.
fn heading(title: &str) -> String {
    format!(
        "API reference{}",
        title.strip_prefix("Bellbird API").unwrap_or_default()
    )
}

impl Group {
    fn new(document: &Value, paths: &[String], tag: &Value, places: Places<'_>) -> Self {
        let name = string(&tag["name"]);
        let methods = ["get", "post", "patch", "delete"];
        let all = paths.iter().flat_map(|path| {
            methods.map(|method| ((path.as_str(), method), &document["paths"][path][method]))
        });
        let operations = all.filter(|(_, operation)| operation["tags"][0] == tag["name"]);
        let events = EventType::ALL.iter().map(|event| {
            let name = event.as_str();
            (name, &document["webhooks"][name]["post"])
        });
        let events: Vec<_> = events
            .filter(|(_, event)| event["tags"][0] == tag["name"])
            .collect();
        Self {
            id: name.to_lowercase().replace(' ', "-"),
            description: text(&tag["description"]),
            operations: operations
                .map(|(named, operation)| Operation::new(document, named, operation, places))
                .collect(),
            requests: events
                .first()
                .map(|(_, event)| EventRequests::new(document, event)),
            events: events
                .into_iter()
                .map(|(name, event)| Event::new(document, name, event))
                .collect(),
            name,
        }
    }
}

impl EventRequests {
    fn new(document: &Value, event: &Value) -> Self {
        Self {
            headers: items(&event["parameters"])
                .map(|header| schema::resolve(document, header))
                .map(|header| Header::new(&string(&header["name"]), header))
                .collect(),
            responses: entries(&event["responses"])
                .map(|(status, response)| Response::new(status, response))
                .collect(),
        }
    }
}

impl Event {
    fn new(document: &Value, name: &'static str, event: &Value) -> Self {
        Self {
            id: string(&event["operationId"]),
            summary: string(&event["summary"]),
            name,
            description: text(&event["description"]),
            body: Body::of(
                document,
                &event["requestBody"]["content"]["application/json"],
            ),
        }
    }
}

impl Operation {
    fn new(
        document: &Value,
        (path, method): (&str, &str),
        operation: &Value,
        (public_url, folder, samples): Places<'_>,
    ) -> Self {
        let parameters: Vec<_> = items(&operation["parameters"])
            .map(Parameter::new)
            .collect();
        let mut url = format!("{public_url}{path}");
        for parameter in parameters.iter().filter(|parameter| parameter.required) {
            let name = &parameter.name;
            let example = parameter.example.as_deref().unwrap_or_default();
            if parameter.is_in_path {
                url = url.replace(&format!("{{{name}}}"), example);
            } else {
                let separator = if url.contains('?') { '&' } else { '?' };
                url += &format!("{separator}{name}={example}");
            }
        }
        let (successes, errors): (Vec<_>, Vec<_>) =
            entries(&operation["responses"]).partition(|(status, _)| status.starts_with('2'));
        let (status, success) = successes
            .first()
            .map_or(("200", &Value::Null), |(status, value)| (status, *value));
        let json_body = |part: &Value| {
            let json = part["content"].get("application/json")?;
            Some(Body::of(document, json))
        };
        Self {
            id: string(&operation["operationId"]),
            summary: string(&operation["summary"]),
            method: method.to_uppercase(),
            path: path.to_owned(),
            link: path.trim_start_matches(folder).to_owned(),
            is_read: method == "get",
            sample: operation["operationId"]
                .as_str()
                .and_then(|id| samples.get(id))
                .cloned(),
            request: json_body(&operation["requestBody"]),
            description: text(&operation["description"]),
            needs_key: operation.get("security").is_none(),
            parameters,
            url,
            success: Response::new(status, success),
            body: json_body(success),
            errors: errors
                .into_iter()
                .map(|(status, response)| Response::new(status, response))
                .collect(),
        }
    }
}

impl Parameter {
    fn new(parameter: &Value) -> Self {
        let schema = &parameter["schema"];
        let name = string(&parameter["name"]);
        let (accepted, default) = (schema::values(schema), schema.get("default"));
        let bound = |name: &str, words: &str| {
            let bound = schema.get(name);
            bound.map(|bound| format!("{words} {bound}"))
        };
        let facts = [
            Some(schema::kind(schema)),
            (!accepted.is_empty()).then(|| format!("one of {}", accepted.join(", "))),
            (schema["minLength"] == 1).then(|| "not empty".to_owned()),
            bound("minimum", "at least"),
            bound("maximum", "at most"),
            default.map(|default| format!("default {}", string(default))),
        ];
        Self {
            ids_from: match name.as_str() {
                "connectionId" => Some("/v1/connections"),
                "accountId" | "accountIds" => Some("/v1/accounts"),
                _ => None,
            },
            name,
            facts: facts.into_iter().flatten().collect::<Vec<_>>().join(", "),
            required: parameter["required"] == true,
            is_in_path: parameter["in"] == "path",
            example: default.is_none().then(|| string(&parameter["example"])),
            description: text(&parameter["description"]),
        }
    }
}

impl Response {
    fn new(status: &str, response: &Value) -> Self {
        Self {
            status: status.to_owned(),
            description: text(&response["description"]),
            headers: entries(&response["headers"])
                .map(|(name, _)| name.clone())
                .collect(),
        }
    }
}

impl Body {
    /// Of a media type, which may have an example of its own.
    fn of(document: &Value, content: &Value) -> Self {
        Self::new(document, &content["schema"], content.get("example"))
    }

    fn new(document: &Value, schema: &Value, values: Option<&Value>) -> Self {
        Self {
            example: schema::example(document, schema, values),
            members: schema::members(document, schema),
        }
    }
}

impl Header {
    fn new(name: &str, header: &Value) -> Self {
        Self {
            name: name.to_owned(),
            kind: schema::kind(&header["schema"]),
            example: string(&header["example"]),
            description: text(&header["description"]),
        }
    }
}

fn text(markdown: &Value) -> Text {
    Text::new(markdown.as_str().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a client has the method that a sample calls.
    fn has_method(source: &str, sample: &str, declared: impl Fn(&str) -> Vec<String>) -> bool {
        let calls = sample.split('.').skip(1).map(|call| call.split('(').next());
        let method = calls.flatten().next().unwrap_or_default();
        declared(method)
            .iter()
            .any(|declaration| source.contains(declaration))
    }

    #[test]
    fn clients_have_the_methods_of_samples() {
        let samples: BTreeMap<String, Sample> =
            yaml_serde::from_str(crate::docs::V1_PATHS.samples).unwrap();
        assert_eq!(samples.len(), 10);
        for (operation, Sample { typescript, python }) in samples {
            let client = include_str!("../../../../../clients/typescript/src/client.ts");
            let declared = |name: &str| vec![format!("  {name}("), format!("  async {name}(")];
            assert!(has_method(client, &typescript, declared), "{operation}");
            let client =
                include_str!("../../../../../clients/python/src/bellbird_client/client.py");
            assert!(
                has_method(client, &python, |name| vec![format!("def {name}(")]),
                "{operation}"
            );
        }
    }
}
