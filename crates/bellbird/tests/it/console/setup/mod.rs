//! The first page of a service that starts for the first time.

mod address;
mod chromium;
mod credentials;

use crate::console::Page;
use crate::support::browser::{open, submit};
use crate::support::process::{Addresses, RunningCommand};

/// The console of a first start, in which the first operator is signed in.
pub(crate) struct FirstPage {
    console: String,
}

impl FirstPage {
    pub(crate) async fn of(service: &RunningCommand, addresses: &Addresses) -> Self {
        let page = Self {
            console: format!("http://{}", addresses.console),
        };
        let setup_url = service.url("setupUrl");
        open(&setup_url).await.assert_status(200);
        submit(&setup_url, "").await.assert_leads_to("/setup");
        page.get("/setup").await.assert_status(200);
        let operator = "email=me@example.com&timezone=Australia/Sydney";
        let made = page.post("/setup", operator).await;
        made.assert_leads_to("/operator/setup");
        page
    }

    pub(crate) async fn get(&self, path: &str) -> Page {
        open(format!("{}{path}", self.console)).await
    }

    pub(crate) async fn post(&self, path: &str, form: &str) -> Page {
        submit(format!("{}{path}", self.console), form).await
    }
}
