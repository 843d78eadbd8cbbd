//! The reference page, as it is served. `chromium.rs` uses it in a browser.

use serde_json::Value;

use crate::support::harness::{App, Response, Setup};
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
    one_line(
        &value["description"]
            .as_str()
            .unwrap()
            .replace(['`', '*'], ""),
    )
}

async fn page(app: &App) -> Response {
    let page = app.get_without_key("/docs").await;
    assert_eq!(
        page.header("content-type"),
        Some("text/html; charset=utf-8")
    );
    page
}

#[tokio::test]
async fn page_has_all_of_the_document() {
    let app = App::start(Setup::default()).await;
    let page = page(&app).await;
    let document = bellbird::openapi::document().value();
    let shown = text_of(&page.text).replace(['`', '*'], "");
    let assert_shown = |text: &str| assert!(shown.contains(text), "{text:?} is not on the page");
    assert_shown(&described(&document["info"]));
    for tag in document["tags"].as_array().unwrap() {
        assert_shown(tag["name"].as_str().unwrap());
        assert_shown(&described(tag));
    }
    for (name, header) in document["components"]["headers"].as_object().unwrap() {
        assert_has(
            &page.text,
            &format!("id=\"header-{}\"", name.to_lowercase()),
        );
        assert_shown(&described(header));
    }
    let schemas = document["components"]["schemas"]
        .as_object()
        .unwrap()
        .values();
    for schema in schemas.flat_map(crate::support::schema::forms) {
        for (name, member) in schema["properties"].as_object().unwrap() {
            assert_has(&page.text, &format!("{name}</code>"));
            if member.get("description").is_some() {
                assert_shown(&described(member));
            }
            for value in member["enum"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(Value::as_str)
            {
                assert_has(&page.text, &format!("<code>{value}</code>"));
            }
        }
    }
    let articles: Vec<&str> = page.text.split("<article ").skip(1).collect();
    let webhooks = document["webhooks"].as_object().unwrap();
    assert_eq!(
        articles.len(),
        document["paths"].as_object().unwrap().len() + webhooks.len()
    );
    for (name, event) in webhooks {
        let article = article(&articles, event["post"]["operationId"].as_str().unwrap());
        for text in [
            name,
            event["post"]["summary"].as_str().unwrap(),
            &described(&event["post"]),
        ] {
            assert!(
                text_of(article).replace('`', "").contains(text),
                "{name}: {text:?}"
            );
        }
        for answer in event["post"]["responses"].as_object().unwrap().values() {
            assert_shown(&described(answer));
        }
    }
    for (name, header) in document["components"]["parameters"].as_object().unwrap() {
        assert_has(
            &page.text,
            &format!("id=\"header-{}\"", name.to_lowercase()),
        );
        assert_shown(&described(header));
    }
    for (path, item) in document["paths"].as_object().unwrap() {
        assert_operation_is_shown(&articles, path, &item["get"]);
    }
}

/// The article of an operation.
fn article<'p>(articles: &[&'p str], id: &str) -> &'p str {
    let of_this = |article: &&&str| article.contains(&format!("id=\"{id}\""));
    let article = articles
        .iter()
        .find(of_this)
        .unwrap_or_else(|| panic!("{id} is not on the page"));
    article.split("</article>").next().unwrap()
}

fn assert_operation_is_shown(articles: &[&str], path: &str, operation: &Value) {
    let id = operation["operationId"].as_str().unwrap();
    let article = article(articles, id);
    let shown = text_of(article);
    for text in [
        path,
        operation["summary"].as_str().unwrap(),
        &described(operation),
    ] {
        assert!(shown.replace('*', "").contains(text), "{id}: {text:?}");
    }
    for parameter in operation["parameters"].as_array().into_iter().flatten() {
        let name = parameter["name"].as_str().unwrap();
        let (_, input) = article
            .split_once(&format!("name=\"{name}\""))
            .unwrap_or_else(|| panic!("{id}: {name}"));
        let (input, _) = input.split_once('>').unwrap();
        assert_eq!(
            input.contains(" required"),
            parameter["required"] == true,
            "{id}: {name}"
        );
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
        assert!(
            status == "200" || shown.contains(status.as_str()),
            "{id}: {status}"
        );
        assert!(shown.contains(&described(response)), "{id}: {status}");
        for name in response["headers"].as_object().unwrap().keys() {
            assert!(shown.contains(name.as_str()), "{id}: {status}: {name}");
        }
    }
}

/// The examples on the page are JSON with the members that responses have.
#[tokio::test]
async fn examples_are_json() {
    let app = App::start(Setup::default()).await;
    let page = page(&app).await;
    let examples: Vec<Value> = page
        .text
        .split("<pre><code>")
        .skip(1)
        .map(|rest| text_of(rest.split("</code>").next().unwrap()))
        .map(|text| serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}")))
        .collect();
    let document = bellbird::openapi::document().value();
    let is_json = |item: &&Value| {
        item["get"]["responses"]["200"]["content"]
            .get("application/json")
            .is_some()
    };
    let answers = document["paths"]
        .as_object()
        .unwrap()
        .values()
        .filter(is_json)
        .count();
    // And that of errors.
    assert_eq!(
        examples.len(),
        answers + document["webhooks"].as_object().unwrap().len() + 1
    );
    assert!(
        examples
            .iter()
            .any(|example| example["data"][0]["amount"] == "-5.00")
    );
}

#[tokio::test]
async fn page_is_self_contained() {
    let app = App::start(Setup::default()).await;
    let page = page(&app).await;
    let policy = page.header("content-security-policy").unwrap();
    assert_starts(policy, "default-src 'none'; script-src 'self'");
    assert_lacks(policy, "unsafe");
    // An inline style does not apply.
    assert_lacks(&page.text, " style=");
    assert_lacks(&page.text, "<style");
    for attribute in ["src=\"", "href=\""] {
        for link in page
            .text
            .split(attribute)
            .skip(1)
            .map(|rest| rest.split('"').next().unwrap())
        {
            if let Some(id) = link.strip_prefix('#') {
                assert_eq!(
                    page.text.matches(&format!("id=\"{id}\"")).count(),
                    1,
                    "{link}"
                );
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
            assert_eq!(
                app.get_without_key(&format!("/{link}")).await.status,
                200,
                "{link}"
            );
        }
    }
    assert_has(
        &page.text,
        "\"<span class=\"url\">https://bellbird.example/v1/balances?accountIds=",
    );
}

#[tokio::test]
async fn page_is_compressed_on_request() {
    use std::io::Read as _;
    let app = App::start(Setup::default()).await;
    let page = page(&app).await;
    let request = app
        .http
        .get(format!("{}/docs", app.url))
        .header("accept-encoding", "br, gzip");
    let response = request.send().await.unwrap();
    assert_eq!(response.headers()["content-encoding"], "gzip");
    assert_eq!(response.headers()["vary"], "accept-encoding");
    let packed = response.bytes().await.unwrap();
    let mut unpacked = String::new();
    flate2::read::GzDecoder::new(&packed[..])
        .read_to_string(&mut unpacked)
        .unwrap();
    assert_eq!(unpacked, page.text);
}
