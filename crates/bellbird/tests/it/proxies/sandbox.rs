//! The sandbox behind a proxy. A browser on another machine reaches the simulated providers through
//! the console only.

use reqwest::Url;

use super::behind_both_proxies;
use super::curl::Response;
use super::site::{Program, Site, USER};
use crate::support::harness::{eventually, simulated_providers};
use crate::support::process::text;
use crate::support::words::assert_starts;

/// More than a consent has.
const PAGES_MAX: usize = 10;

/// A browser, whose cookies are in a file.
struct Browser<'a> {
    site: &'a Site,
    cookies: String,
}

impl Browser<'_> {
    fn new(site: &Site) -> Browser<'_> {
        let cookies = site.workdir.folder.path().join("cookies");
        Browser {
            site,
            cookies: cookies.to_str().unwrap().to_owned(),
        }
    }

    fn url(&self, path: &str) -> Url {
        Url::parse(&format!("{}{path}", self.site.url)).unwrap()
    }

    fn send(&self, url: &Url, form: Option<&str>) -> Response {
        let cookies = self.cookies.as_str();
        let mut arguments = vec!["--cookie", cookies, "--cookie-jar", cookies];
        arguments.extend(["--header", "Accept: text/html"]);
        if let Some(form) = form {
            arguments.extend(["--header", "Sec-Fetch-Site: same-origin", "--data", form]);
        }
        arguments.push(url.as_str());
        self.site.curl.send(&arguments)
    }

    fn open(&self, url: &Url) -> String {
        let page = self.send(url, None);
        assert_eq!(page.status, 200, "{url}: {}", page.text());
        page.text()
    }

    /// Where a form leads, which is nowhere else.
    fn submit(&self, url: &Url, form: &str) -> Url {
        let response = self.send(url, Some(form));
        assert_eq!(response.status, 303, "{url}: {}", response.text());
        let to = url.join(response.header("location")).unwrap();
        assert_eq!(to.origin(), url.origin(), "{to}");
        to
    }

    fn sign_in(&self) {
        let login = self
            .site
            .workdir
            .json(&format!("console login --user {USER}"));
        let link = text(&login, "url").parse().unwrap();
        self.open(&link);
        self.submit(&link, "");
    }

    /// Goes through the pages of a simulated provider. Returns where they lead back to.
    fn consent(&self, provider: &str, first: Url) -> Url {
        let mut at = first;
        for _ in 0..PAGES_MAX {
            if at.path() == "/link/callback" {
                return at;
            }
            assert_starts(at.path(), &format!("/sandbox/{provider}"));
            let page = self.open(&at);
            if let Some(back) = after(&page, "<a class=\"yes\" href=\"") {
                at = at.join(&back.replace("&#38;", "&")).unwrap();
                continue;
            }
            let action = after(&page, "<form method=\"post\" action=\"");
            let to = action.map_or_else(|| at.clone(), |path| at.join(path).unwrap());
            at = self.submit(&to, &answer(&page));
        }
        panic!("still at {at}");
    }
}

/// What follows these words, up to a quote or a tag.
fn after<'p>(page: &'p str, words: &str) -> Option<&'p str> {
    let (_, rest) = page.split_once(words)?;
    rest.split(['"', '<']).next()
}

/// The form of a page, filled in by somebody who consents.
fn answer(page: &str) -> String {
    let mut fields = Vec::new();
    for name in ["session", "form_number"] {
        let value = after(page, &format!("name=\"{name}\" value=\""));
        fields.push((name, value.expect("a hidden field")));
    }
    let institutions = page.split("name=\"institution\" value=\"").skip(1);
    let mut institutions = institutions.filter_map(|rest| rest.split('>').next());
    let free = institutions.find(|tag| !tag.ends_with(" disabled"));
    if let Some(institution) = free {
        fields.push(("institution", institution.trim_end_matches('"')));
    } else if let Some(code) = after(page, "<span class=\"code\">") {
        fields.extend([("name", "somebody"), ("code", code)]);
    } else {
        fields.push(("do", "allow"));
        for rest in page.split("name=\"account\" value=\"").skip(1) {
            fields.push(("account", rest.split('"').next().unwrap()));
        }
    }
    let url = Url::parse_with_params("http://form.example/", &fields).unwrap();
    url.query().unwrap().to_owned()
}

behind_both_proxies! {
    /// By the button of the first page, as a newcomer does on a server.
    async fn simulated_banks_are_linked_from_another_machine(program) {
        let mut site = Site::start(program, &[]).await;
        let other = text(&site.connections()[0], "id").to_owned();
        let removed = site.workdir.run(&format!("connection remove {other} --yes"));
        assert_eq!(removed.status.code(), Some(0));
        for provider in simulated_providers() {
            let section = format!("BELLBIRD_{}__", provider.to_uppercase());
            site.workdir.unset(&section);
        }
        site.workdir.json(&format!("user set {USER} --operator"));
        site.restart(0);

        let browser = Browser::new(&site);
        browser.sign_in();
        let providers = browser.url("/operator/providers");
        browser.submit(&providers, "sandbox=all");
        let page = browser.open(&providers);
        assert!(page.contains("The sandbox is in use, and has banks to link."), "{page}");
        for provider in simulated_providers() {
            let form = format!("provider={provider}");
            let first = browser.submit(&browser.url("/connections"), &form);
            let back = browser.consent(provider, first);
            let linked = browser.open(&back);
            assert!(linked.contains(">Sandbox</span>"), "{linked}");
            eventually(async || {
                let linked = site.connections();
                let mut of_provider = linked.iter().filter(|one| text(one, "provider") == provider);
                of_provider.any(|one| text(one, "status") == "active")
            })
            .await;
        }
    }
}
