//! The reference page, as it is served. `chromium.rs` uses it in a browser.

use serde_json::Value;

use crate::support::harness::{App, Response, Setup};
use crate::support::process::text;
use crate::support::words::{assert_has, assert_lacks, assert_starts};

/// The texts of the page, without tags and with characters in place of their escapes.
fn text_of(html: &str) -> String {
    let texts: String = html
        .split('<')
        .map(|part| part.split_once('>').map_or(part, |(_, text)| text))
        .collect();
    let escapes = [
        ("&#34;", "\""),
        ("&#39;", "'"),
        ("&#60;", "<"),
        ("&#62;", ">"),
        ("&#38;", "&"),
    ];
    let text = escapes
        .into_iter()
        .fold(texts, |text, (escape, character)| {
            text.replace(escape, character)
        });
    one_line(&text)
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A description of the document without its Markdown.
fn described(value: &Value) -> String {
    one_line(&text(value, "description").replace(['`', '*'], ""))
}

async fn page(app: &App) -> Response {
    let page = app.get_without_key("/docs").await;
    let html = Some("text/html; charset=utf-8");
    assert_eq!(page.header("content-type"), html);
    page
}

#[tokio::test]
async fn page_is_whole_and_needs_nothing_else() {
    let app = App::start(Setup::default()).await;
    let page = page(&app).await;
    page_has_all_of_the_document(&page);
    examples_are_json(&page);
    page_is_self_contained(&app, &page).await;
    page_is_compressed_on_request(&app, &page).await;
}

fn page_has_all_of_the_document(page: &Response) {
    let document = bellbird::openapi::document().value();
    let shown = text_of(&page.text).replace(['`', '*'], "");
    let assert_shown = |text: &str| assert!(shown.contains(text), "{text:?} is not on the page");
    assert_shown(&described(&document["info"]));
    for tag in document["tags"].as_array().unwrap() {
        assert_shown(text(tag, "name"));
        assert_shown(&described(tag));
    }
    for headers in ["headers", "parameters"] {
        for (name, header) in document["components"][headers].as_object().unwrap() {
            let name = name.to_lowercase();
            assert_has(&page.text, &format!("id=\"header-{name}\""));
            assert_shown(&described(header));
        }
    }
    let schemas = document["components"]["schemas"].as_object().unwrap();
    for schema in schemas.values().flat_map(crate::support::schema::forms) {
        for (name, member) in schema["properties"].as_object().unwrap() {
            assert_has(&page.text, &format!("{name}</code>"));
            if member.get("description").is_some() {
                assert_shown(&described(member));
            }
            let values = member["enum"].as_array().into_iter().flatten();
            for value in values.filter_map(Value::as_str) {
                assert_has(&page.text, &format!("<code>{value}</code>"));
            }
        }
    }
    let articles: Vec<&str> = page.text.split("<article ").skip(1).collect();
    let webhooks = document["webhooks"].as_object().unwrap();
    let paths = document["paths"].as_object().unwrap();
    assert_eq!(articles.len(), paths.len() + webhooks.len());
    for (name, event) in webhooks {
        let operation = &event["post"];
        let article = article(&articles, text(operation, "operationId"));
        let article = text_of(article).replace('`', "");
        assert_has(&article, name);
        assert_has(&article, text(operation, "summary"));
        assert_has(&article, &described(operation));
        for answer in operation["responses"].as_object().unwrap().values() {
            assert_shown(&described(answer));
        }
    }
    for (path, item) in paths {
        assert_operation_is_shown(&articles, path, &item["get"]);
    }
}

/// The article of an operation.
fn article<'p>(articles: &[&'p str], id: &str) -> &'p str {
    let own_id = format!("id=\"{id}\"");
    let found = articles.iter().find(|article| article.contains(&own_id));
    let article = found.unwrap_or_else(|| panic!("{id} is not on the page"));
    article.split("</article>").next().unwrap()
}

fn assert_operation_is_shown(articles: &[&str], path: &str, operation: &Value) {
    let id = text(operation, "operationId");
    let article = article(articles, id);
    let shown = text_of(article);
    let without_stars = shown.replace('*', "");
    assert_has(&without_stars, path);
    assert_has(&without_stars, text(operation, "summary"));
    assert_has(&without_stars, &described(operation));
    for parameter in operation["parameters"].as_array().into_iter().flatten() {
        let name = text(parameter, "name");
        let input = article.split_once(&format!("name=\"{name}\""));
        let (_, input) = input.unwrap_or_else(|| panic!("{id}: {name}"));
        let (input, _) = input.split_once('>').unwrap();
        let is_required = input.contains(" required");
        assert_eq!(is_required, parameter["required"] == true, "{id}: {name}");
        assert!(shown.contains(&described(parameter)), "{id}: {name}");
        let schema = &parameter["schema"];
        for (bound, words) in [
            ("default", "default"),
            ("minimum", "at least"),
            ("maximum", "at most"),
        ] {
            if let Some(value) = schema.get(bound) {
                assert_has(&shown, &format!("{words} {value}"));
            }
        }
    }
    for (status, response) in operation["responses"].as_object().unwrap() {
        let is_named = shown.contains(status.as_str());
        assert!(status == "200" || is_named, "{id}: {status}");
        assert!(shown.contains(&described(response)), "{id}: {status}");
        for name in response["headers"].as_object().unwrap().keys() {
            assert!(shown.contains(name.as_str()), "{id}: {status}: {name}");
        }
    }
}

/// The examples on the page are JSON with the members that responses have.
fn examples_are_json(page: &Response) {
    let examples: Vec<Value> = page
        .text
        .split("<pre><code>")
        .skip(1)
        .map(|rest| text_of(rest.split("</code>").next().unwrap()))
        .map(|text| serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}")))
        .collect();
    let document = bellbird::openapi::document().value();
    let is_json = |item: &&Value| {
        let content = &item["get"]["responses"]["200"]["content"];
        content.get("application/json").is_some()
    };
    let paths = document["paths"].as_object().unwrap().values();
    let (answers, errors) = (paths.filter(is_json).count(), 1);
    let webhooks = document["webhooks"].as_object().unwrap().len();
    assert_eq!(examples.len(), answers + webhooks + errors);
    let is_of_rows = |example: &Value| example["data"][0]["amount"] == "-5.00";
    assert!(examples.iter().any(is_of_rows));
}

async fn page_is_self_contained(app: &App, page: &Response) {
    let policy = page.header("content-security-policy").unwrap();
    assert_starts(policy, "default-src 'none'; script-src 'self'");
    assert_lacks(policy, "unsafe");
    // An inline style does not apply.
    assert_lacks(&page.text, " style=");
    assert_lacks(&page.text, "<style");
    for attribute in ["src=\"", "href=\""] {
        for rest in page.text.split(attribute).skip(1) {
            let link = rest.split('"').next().unwrap();
            if let Some(id) = link.strip_prefix('#') {
                let targets = page.text.matches(&format!("id=\"{id}\"")).count();
                assert_eq!(targets, 1, "{link}");
                continue;
            }
            // The way back, which is followed by whoever reads, and loads nothing.
            if link == format!("{}/keys", app.console_url) {
                continue;
            }
            assert!(
                !link.contains("//") && !link.starts_with('/'),
                "{link} does not work behind a proxy with a prefix"
            );
            let linked = app.get_without_key(&format!("/{link}")).await;
            assert_eq!(linked.status, 200, "{link}");
        }
    }
    let line = "\"<span class=\"url\">https://bellbird.example/v1/balances?accountIds=";
    assert_has(&page.text, line);
}

async fn page_is_compressed_on_request(app: &App, page: &Response) {
    use std::io::Read as _;
    let request = app.http.get(format!("{}/docs", app.url));
    let request = request.header("accept-encoding", "br, gzip");
    let response = request.send().await.unwrap();
    assert_eq!(response.headers()["content-encoding"], "gzip");
    assert_eq!(response.headers()["vary"], "accept-encoding");
    let packed = response.bytes().await.unwrap();
    let mut unpacked = String::new();
    let mut decoder = flate2::read::GzDecoder::new(&packed[..]);
    decoder.read_to_string(&mut unpacked).unwrap();
    assert_eq!(unpacked, page.text);
}
