//! The address of the console and the name of its operator, which an operator enters.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::FirstPage;
use crate::support::browser::{browse, foreign_post};
use crate::support::process::{Addresses, RunningCommand, Workdir};
use crate::support::words::{assert_has, assert_starts};

const PATH: &str = "/operator/providers";
const PUBLIC: &str = "https://bellbird.example.com";

/// What others get to know of the service at a URL.
async fn assert_is_known_at(url: &str, workdir: &Workdir, addresses: &Addresses) {
    let link = workdir.field("connection link --user me@example.com", "url");
    assert_starts(&link, &format!("{url}/link/"));
    let login = workdir.secret("console login --user me@example.com").0;
    assert_starts(&login, &format!("{url}/sign-in/"));
    let api = format!("http://{}", addresses.api);
    let reference = reqwest::get(format!("{api}/docs")).await.unwrap();
    assert_has(&reference.text().await.unwrap(), url);
}

#[tokio::test]
async fn running_service_follows_name_and_address_and_settings_win() {
    let (mut workdir, addresses) = (Workdir::new(), Addresses::new());
    // As a compose file has them.
    for name in ["OPERATOR_NAME", "PUBLIC_URL"] {
        workdir.set(&format!("BELLBIRD_CONSOLE__{name}"), "");
    }
    let line = format!("serve --sandbox --json {}", addresses.options());
    let service = RunningCommand::start(&workdir, &line);
    let local = format!("http://{}", addresses.console);
    let console = FirstPage::of(&service, &addresses).await;
    assert_is_known_at(&local, &workdir, &addresses).await;
    console.get("/overview").await.assert_lacks("Example Ltd");

    // A proxy with https leads the browser here.
    let use_address = foreign_post(&format!("{local}{PATH}"), "console=address")
        .header("origin", PUBLIC)
        .header("sec-fetch-site", "same-origin");
    let used = browse(use_address).await;
    let line_of_console = format!("{PATH}?done=saved&at=console#done");
    used.assert_leads_to(&line_of_console);
    let page = console.get(PATH).await;
    page.assert_shows(200, &format!("Its address is <code>{PUBLIC}</code>."));
    let name = "console=name&operator_name=Example+Ltd";
    console
        .post(PATH, name)
        .await
        .assert_leads_to(&line_of_console);
    console
        .get("/overview")
        .await
        .assert_shows(200, "Example Ltd");
    assert_is_known_at(PUBLIC, &workdir, &addresses).await;
    let token = workdir.field("simplefin token --user me@example.com --name x", "token");
    let claim = String::from_utf8(STANDARD.decode(token).unwrap()).unwrap();
    assert_starts(&claim, &format!("{PUBLIC}/simplefin/claim/"));
    let linked = console.get("/connections").await;
    linked.assert_has("value=\"akahu\"");
    let consent = console.post("/connections", "provider=akahu").await;
    let consent = console.get(consent.location.as_deref().unwrap()).await;
    // The simulated provider compares it.
    consent.assert_status(200);
    service.end();

    let service = RunningCommand::start(&workdir, &line);
    assert_is_known_at(PUBLIC, &workdir, &addresses).await;
    service.end();
    let set = "https://set.example";
    workdir.set("BELLBIRD_CONSOLE__PUBLIC_URL", set);
    workdir.set("BELLBIRD_CONSOLE__OPERATOR_NAME", "Set Ltd");
    let service = RunningCommand::start(&workdir, &line);
    assert_is_known_at(set, &workdir, &addresses).await;
    let page = console.get(PATH).await;
    page.assert_has("set by the environment variable BELLBIRD_CONSOLE__PUBLIC_URL, which wins");
    page.assert_has("Set Ltd");
    page.assert_lacks("Example Ltd");
    service.end();
    workdir.unset("BELLBIRD_CONSOLE__");
    workdir.set("BELLBIRD_CONSOLE__SMTP_URL", "smtp://127.0.0.1:1");
    workdir.set("BELLBIRD_CONSOLE__MAIL_FROM", "bellbird@example.com");
    assert_eq!(workdir.doctor("e-mail").len(), 1, "nothing of links");
}
