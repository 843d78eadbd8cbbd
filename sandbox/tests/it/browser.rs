//! A minimal browser. It follows links, fills in forms, and stops at a redirect that leaves the
//! sandbox.

use reqwest::header::HeaderMap;

pub(crate) struct Browser {
    http: reqwest::Client,
    base: String,
}

#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) url: String,
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) html: String,
}

/// The response to a form.
#[derive(Debug)]
pub(crate) enum Next {
    Page(Page),
    /// A URL outside the sandbox.
    Redirect(String),
}

impl Next {
    #[track_caller]
    pub(crate) fn page(self) -> Page {
        match self {
            Self::Page(page) => page,
            Self::Redirect(location) => panic!("redirected to {location}"),
        }
    }

    #[track_caller]
    pub(crate) fn redirect_location(self) -> String {
        match self {
            Self::Redirect(location) => location,
            Self::Page(page) => panic!("still at {}: {}", page.url, page.html),
        }
    }
}

impl Page {
    /// The text after the first occurrence of `before`, up to a quote or `<`.
    pub(crate) fn after(&self, before: &str) -> Option<String> {
        let rest = self.html.split_once(before)?.1;
        Some(rest.split_once(['"', '<'])?.0.to_owned())
    }

    #[track_caller]
    pub(crate) fn heading(&self) -> String {
        self.after("<h1>")
            .unwrap_or_else(|| panic!("no heading: {}", self.html))
    }

    pub(crate) fn message(&self) -> Option<String> {
        self.after("<p class=\"wrong\" role=\"alert\">")
    }

    /// The one-time code that the page shows.
    #[track_caller]
    pub(crate) fn code(&self) -> String {
        self.after("<span class=\"code\">").unwrap()
    }

    /// Names of the accounts that the page offers.
    pub(crate) fn accounts(&self) -> Vec<String> {
        let parts = self.html.split("checked><span>").skip(1);
        parts
            .map(|part| part.split_once('<').unwrap().0.to_owned())
            .collect()
    }

    /// The form fields that select all accounts.
    pub(crate) fn all(&self) -> Vec<(&'static str, String)> {
        (0..self.accounts().len())
            .map(|index| ("account", index.to_string()))
            .collect()
    }
}

pub(crate) fn encode(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

impl Browser {
    pub(crate) fn new(base: &str) -> Self {
        let http = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .unwrap();
        Self {
            http,
            base: base.to_owned(),
        }
    }

    pub(crate) async fn open(&self, url: &str) -> Page {
        let response = self.http.get(url).send().await.unwrap();
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        Page {
            url: url.to_owned(),
            status,
            headers,
            html: response.text().await.unwrap(),
        }
    }

    /// Sends the form of a page: these fields and the hidden ones.
    pub(crate) async fn submit<V: AsRef<str>>(&self, page: &Page, fields: &[(&str, V)]) -> Next {
        let action = page.after("<form method=\"post\" action=\"");
        let url = action.map_or_else(|| page.url.clone(), |path| format!("{}{path}", self.base));
        let hidden = ["session", "form_number"].map(|name| {
            let value = page
                .after(&format!("name=\"{name}\" value=\""))
                .unwrap_or_else(|| panic!("{}", page.html));
            format!("{name}={}", encode(&value))
        });
        let fields = fields
            .iter()
            .map(|(name, value)| format!("{name}={}", encode(value.as_ref())));
        self.post(
            &url,
            hidden
                .into_iter()
                .chain(fields)
                .collect::<Vec<_>>()
                .join("&"),
        )
        .await
    }

    pub(crate) async fn post(&self, url: &str, body: String) -> Next {
        let form = ("content-type", "application/x-www-form-urlencoded");
        let response = self
            .http
            .post(url)
            .header(form.0, form.1)
            .body(body)
            .send()
            .await
            .unwrap();
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        if status != 303 {
            return Next::Page(Page {
                url: url.to_owned(),
                status,
                headers,
                html: response.text().await.unwrap(),
            });
        }
        assert_eq!(headers["cache-control"], "no-store");
        let location = headers["location"].to_str().unwrap();
        if location.starts_with('/') {
            return Next::Page(self.open(&format!("{}{location}", self.base)).await);
        }
        Next::Redirect(location.to_owned())
    }

    pub(crate) async fn allow(&self, page: &Page) -> Next {
        self.submit(page, &[("do", "allow")]).await
    }

    pub(crate) async fn cancel(&self, page: &Page) -> Next {
        self.submit(page, &[("do", "cancel")]).await
    }

    /// Sends the form of the sign-in with this code.
    pub(crate) async fn enter_code(&self, page: &Page, code: &str) -> Next {
        self.submit(page, &[("name", "x"), ("code", code)]).await
    }

    pub(crate) async fn choose(&self, page: &Page, institution: &str) -> Page {
        self.submit(page, &[("institution", institution)])
            .await
            .page()
    }

    /// Signs in with the code that the page shows.
    pub(crate) async fn sign_in(&self, page: &Page, name: &str) -> Next {
        self.submit(page, &[("name", name), ("code", &page.code())])
            .await
    }

    /// Goes from the first page to the choice of accounts.
    pub(crate) async fn to_accounts(
        &self,
        url: &str,
        institution: Option<&str>,
        name: &str,
    ) -> Page {
        let mut page = self.allow(&self.open(url).await).await.page();
        if let Some(institution) = institution {
            page = self.choose(&page, institution).await;
        }
        self.sign_in(&page, name).await.page()
    }

    /// Goes from the first page to the end, with all accounts selected.
    pub(crate) async fn walk(&self, url: &str, institution: Option<&str>, name: &str) -> Next {
        let page = self.to_accounts(url, institution, name).await;
        self.submit(&page, &page.all()).await
    }
}

/// A query parameter of a URL.
pub(crate) fn parameter(url: &str, name: &str) -> Option<String> {
    let query = url.split_once('?')?.1;
    query
        .split('&')
        .find_map(|pair| Some(pair.strip_prefix(name)?.strip_prefix('=')?.to_owned()))
}
