//! Every link and form of every page leads where it leads without a proxy, and so does every path
//! above them.

use std::collections::{BTreeMap, BTreeSet};

use reqwest::Url;

use super::behind_both_proxies;
use super::curl::Response;
use super::site::{Program, Site, USER};

/// Where a walk begins: what no page links to, too.
const STARTS: [&str; 6] = [
    "/",
    "/docs",
    "/health",
    "/health/ready",
    "/openapi.yaml",
    "/simplefin/create",
];

/// What a page refers to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Reference {
    Link(Url),
    /// A form that is sent as a query. Without its fields, it may be rejected.
    Query(Url),
    /// A form that is posted.
    Form(Url),
}

/// The references of a page that stay on its host, without fragments.
fn references(page: &Url, text: &str) -> Vec<Reference> {
    let mut found = Vec::new();
    for tag in text
        .split('<')
        .skip(1)
        .filter_map(|rest| rest.split('>').next())
    {
        let attribute = |name: &str| {
            let value = tag
                .split_once(&format!(" {name}=\""))
                .and_then(|(_, rest)| rest.split('"').next());
            value.map(|value| value.replace("&amp;", "&").replace("&#38;", "&"))
        };
        let is_form = tag.starts_with("form");
        let target = attribute("href")
            .or_else(|| attribute("src"))
            .or_else(|| attribute("action"));
        let Some(target) = target.or_else(|| is_form.then(String::new)) else {
            continue;
        };
        let mut url = page.join(&target).unwrap();
        url.set_fragment(None);
        if url.origin() == page.origin() {
            let is_posted = attribute("method").is_some_and(|method| method == "post");
            found.push(match (is_form, is_posted) {
                (false, _) => Reference::Link(url),
                (true, false) => Reference::Query(url),
                (true, true) => Reference::Form(url),
            });
        }
    }
    found
}

/// A browser that may be signed in.
struct Walker<'a> {
    site: &'a Site,
    cookie: Option<String>,
    /// The paths that were opened, each with the names of its parameters.
    seen: BTreeSet<String>,
}

impl Walker<'_> {
    fn new(site: &Site, cookie: Option<String>) -> Walker<'_> {
        Walker {
            site,
            cookie,
            seen: BTreeSet::new(),
        }
    }

    fn send(&self, url: &str, arguments: &[&str]) -> Response {
        let cookie = self.cookie.clone().unwrap_or_default();
        let mut all = vec!["--cookie", cookie.as_str(), "--header", "Accept: text/html"];
        all.extend(arguments);
        all.push(url);
        self.site.curl.send(&all)
    }

    /// Sends a request through the proxy and past it, and compares status and target. A path that
    /// the console does not have is the API's.
    fn compare(&self, url: &Url, arguments: &[&str]) -> Response {
        let addresses = &self.site.services[0].1;
        let past = |listener: &str| {
            self.send(
                url.as_str()
                    .replace(&self.site.url, &format!("http://{listener}"))
                    .as_str(),
                arguments,
            )
        };
        let console = past(&addresses.console);
        let direct = if console.status == 404 {
            past(&addresses.api)
        } else {
            console
        };
        let through = self.send(url.as_str(), arguments);
        let target = |answer: &Response| {
            answer
                .find_header("location")
                .map(|target| url.join(target).unwrap())
        };
        assert_eq!(
            (through.status, target(&through)),
            (direct.status, target(&direct)),
            "{url}: {}",
            through.text()
        );
        through
    }

    /// Follows all references from here. Returns the URLs by the status with which each ended.
    fn walk(&mut self, starts: &[Url]) -> BTreeMap<u16, Vec<Url>> {
        let mut ended: BTreeMap<u16, Vec<Url>> = BTreeMap::new();
        let mut open: Vec<Reference> = starts.iter().cloned().map(Reference::Link).collect();
        while let Some(reference) = open.pop() {
            let (Reference::Link(url) | Reference::Query(url) | Reference::Form(url)) = &reference;
            let names: BTreeSet<_> = url
                .query_pairs()
                .map(|(name, _)| name.into_owned())
                .collect();
            let kind = std::mem::discriminant(&reference);
            if !self
                .seen
                .insert(format!("{kind:?} {} {names:?}", url.path()))
            {
                continue;
            }
            if matches!(reference, Reference::Query(_)) {
                self.compare(url, &[]);
                continue;
            }
            if matches!(reference, Reference::Form(_)) {
                // As a button of another website would post it: it arrives, and changes nothing.
                let posted = self.compare(
                    url,
                    &["--header", "Sec-Fetch-Site: cross-site", "--data", "a=b"],
                );
                assert_eq!(posted.status, 403, "{url}: {}", posted.text());
                continue;
            }
            let mut page = self.compare(url, &[]);
            let mut at = url.clone();
            for _ in 0..5 {
                let Some(target) = page.find_header("location") else {
                    break;
                };
                assert!(
                    [302, 303, 307].contains(&page.status),
                    "{at}: a browser would keep {}",
                    page.status
                );
                at = at.join(target).unwrap();
                page = self.compare(&at, &[]);
            }
            if page.header("content-type").starts_with("text/html") {
                open.extend(references(&at, &page.text()));
            }
            ended.entry(page.status).or_default().push(url.clone());
        }
        ended
    }
}

/// Each path with those above it: `/a/b` and `/a` of `/a/b/c`.
fn with_paths_above(url: &Url) -> Vec<Url> {
    let path = url.path().to_owned();
    let ends = path
        .match_indices('/')
        .map(|(at, _)| at)
        .filter(|at| *at > 0)
        .chain([path.len()]);
    ends.map(|end| url.join(&path[..end]).unwrap()).collect()
}

behind_both_proxies! {
    async fn every_link_leads_where_it_leads_without_a_proxy(program) {
        let settings = [
            ("LIMITS__METADATA_PER_MINUTE", "0"),
            ("LIMITS__LIVE_PER_MINUTE", "0"),
            ("LIMITS__CONSOLE_PER_MINUTE", "0"),
            ("LIMITS__CONSOLE_FORMS_PER_MINUTE", "0"),
            // A form for an address, whose e-mails go nowhere.
            ("CONSOLE__SMTP_URL", "smtp://127.0.0.1:1"),
            ("CONSOLE__MAIL_FROM", "bellbird@example.com"),
        ];
        let site = Site::start(program, &settings).await;
        site.workdir.json(&format!("user set {USER} --operator"));
        let endpoint = site.workdir.run(&format!("webhook add --user {USER} --url https://receiver.example/hook"));
        assert_eq!(endpoint.status.code(), Some(0));
        let url = |path: &str| Url::parse(&format!("{}{path}", site.url)).unwrap();
        let starts = STARTS.map(url);

        let mut stranger = Walker::new(&site, None);
        let ended = stranger.walk(&starts);
        assert_eq!(ended.keys().collect::<Vec<_>>(), [&200], "{ended:?}");
        let own_form = ["--header", "Sec-Fetch-Site: same-origin", "--data", "email=a%40b.example"];
        let sent = stranger.send(url("/sign-in").as_str(), &own_form);
        assert_eq!(sent.status, 200, "{}", sent.text());

        let link = site.workdir.json(&format!("console login --user {USER}"));
        let link = link["url"].as_str().unwrap();
        assert_eq!(stranger.compare(&link.parse().unwrap(), &[]).status, 200);
        let signed_in = stranger.send(link, &own_form);
        assert_eq!((signed_in.status, signed_in.header("location")), (303, "/keys?first"), "{}", signed_in.text());
        let cookies: Vec<_> = signed_in.headers("set-cookie").map(|cookie| cookie.split(';').next().unwrap()).collect();
        let mut user = Walker::new(&site, Some(cookies.join("; ")));
        let ended = user.walk(&starts);
        assert_eq!(ended.keys().collect::<Vec<_>>(), [&200], "{ended:?}");
        let pages = &ended[&200];
        for page in ["/transactions", "/webhooks", "/settings/leave", "/operator/users", "/docs"] {
            assert!(pages.iter().any(|url| url.path() == page), "no page links to {page}: {pages:?}");
        }

        // The same pages without the session, all paths of the API without a key, and every path
        // above them.
        let link_url = site.workdir.json(&format!("connection link --user {USER}"));
        let link_url: Url = link_url["url"].as_str().unwrap().parse().unwrap();
        let document = bellbird::openapi::document().value();
        let paths = document["paths"].as_object().unwrap().keys().map(|path| url(path));
        let claim = url("/simplefin/claim/token");
        let others = ["/sign-in/token", "/sign-in/oidc/callback", "/link/callback", "/mcp", "/webhooks/akahu"].map(url);
        let all = pages.iter().cloned().chain(paths).chain([link_url, claim]).chain(others);
        let all: BTreeSet<Url> = all.flat_map(|url| with_paths_above(&url)).collect();
        for url in all {
            stranger.compare(&url, &[]);
        }
    }
}
