//! The providers, as tests know them: members, routes and how to change what they have. Nothing
//! else in these tests depends on a provider's name unless it tests what only that provider has.
//!
//! To add a provider, add its name to [`for_every_provider`] and its description to [`SPECS`].

use std::collections::BTreeSet;

use bellbird_domain::AccountType;
use bellbird_sandbox::{Bank, ConsentState};
use futures_util::future::BoxFuture;
use jiff::Timestamp;
use reqwest::{Method, Url};
use serde_json::{Value, json};

use crate::support::browser::client;
use crate::support::harness::App;
use crate::support::process::text;

/// The list of providers. Calls the macro `$then` with `$given`, followed by their names.
macro_rules! for_every_provider {
    ($then:ident! $given:tt) => {
        $then! { $given fiskil akahu snaptrade }
    };
}
pub(crate) use for_every_provider;

pub(crate) static SPECS: [ProviderSpec; 3] = [FISKIL, AKAHU, SNAPTRADE];

/// The description of a provider.
pub(crate) fn spec(provider: &str) -> &'static ProviderSpec {
    SPECS
        .iter()
        .find(|spec| spec.name == provider)
        .unwrap_or_else(|| panic!("no description of {provider}"))
}

/// The names of the providers of bank accounts.
pub(crate) fn bank_names() -> impl Iterator<Item = &'static str> {
    SPECS
        .iter()
        .filter(|spec| !spec.is_brokerage())
        .map(|spec| spec.name)
}

pub(crate) struct ProviderSpec {
    pub(crate) name: &'static str,

    // Credentials and users.
    /// The member of credentials that names the provider user.
    pub(crate) user: &'static str,
    /// The member of credentials that names one connection. Without it, credentials cover all
    /// connections of the user.
    pub(crate) connection: &'static str,
    /// Members of the sandbox's description that are secret.
    pub(crate) secrets: &'static [&'static str],
    /// Which of the sandbox's credentials [`App::person_at`] imports: not those of Olivia and Ben.
    pub(crate) spare_credentials: usize,
    /// The email address of a user with exactly one login.
    pub(crate) email: &'static str,
    /// How the provider registers users, if it does.
    pub(crate) registration: Option<Registration>,

    // Calls.
    /// The route of calls that only authenticate. They are not counted.
    pub(crate) authentication: Option<&'static str>,
    /// The route that tells the state of a consent.
    pub(crate) consent_route: &'static str,
    /// How many calls the balances of so many users, connections and accounts may need.
    pub(crate) balances_calls: fn(users: usize, connections: usize, accounts: usize) -> usize,

    // Accounts.
    /// The members of credentials that name the connection of an account to add.
    pub(crate) account_of: &'static [&'static str],
    /// The member of an account with its id.
    pub(crate) account_id: &'static str,
    /// The members of an account with this name and number, in every place where the provider shows
    /// them.
    pub(crate) numbered: fn(name: &str, number: &str) -> Value,
    /// A member, its value, and the type of an account that has it.
    pub(crate) types: &'static [(&'static str, &'static str, AccountType)],
    /// Sets the balance of an account.
    pub(crate) set_balance: fn(bank: &Bank, account: &str, amount: &str),
    /// The account numbers that the provider's own API returns for these credentials.
    pub(crate) account_numbers:
        for<'a> fn(sandbox: &'a Value, credentials: &'a Value) -> BoxFuture<'a, BTreeSet<String>>,

    // Rows.
    /// The control path of rows, and the list of `/v1` that shows them: `transactions` or `trades`.
    pub(crate) list: &'static str,
    /// A row with an amount, in the provider's form and without its time.
    pub(crate) row: fn(account: &str, text: &str) -> Value,
    /// The member of a row with its time.
    pub(crate) row_time: &'static str,
    /// The member of a row with its id at the provider.
    pub(crate) row_id: &'static str,
    /// The id of a row in events and in `/v1`.
    pub(crate) shown_id: fn(row: &Value) -> String,
    /// The member of a row that changes its amount and is not part of its id.
    pub(crate) amount: &'static str,
    /// Sets that member.
    pub(crate) set_amount: fn(cents: u64) -> SetAmount,
    /// Members with values that nothing else contains.
    pub(crate) planted: fn() -> Value,
    /// What events and `/v1` show of [`Self::planted`].
    pub(crate) shown_of_planted: &'static [&'static str],
    /// Rows whose amounts need care, at this time.
    pub(crate) odd_rows: fn(account: &str) -> Vec<Value>,

    // The end of a consent.
    /// Ways of ending the consent of a connection.
    pub(crate) revocations: &'static [Revocation],
}

/// How a provider registers users.
pub(crate) struct Registration {
    /// The route that registers a user.
    pub(crate) register: &'static str,
    /// The route that deletes one.
    pub(crate) delete: &'static str,
    /// How many users with this email address are registered now.
    pub(crate) count: for<'a> fn(app: &'a App, email: &'a str) -> BoxFuture<'a, usize>,
}

/// A change of a row's amount.
pub(crate) struct SetAmount {
    pub(crate) members: Value,
    /// The member of the row in events, and its value.
    pub(crate) shown: (&'static str, Value),
}

/// What ends a consent.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Revocation {
    OfConsent,
    /// The credentials of the user, which all of their connections need.
    OfUser,
}

impl ProviderSpec {
    /// A row at this time. Its digits after the second are those of the provider.
    pub(crate) fn row_at(&self, account: &str, at: Timestamp, text: &str) -> Value {
        let mut row = (self.row)(account, text);
        row[self.row_time] = at.strftime("%Y-%m-%dT%H:%M:%S.000Z").to_string().into();
        row
    }

    /// The member that names the connection in these credentials.
    pub(crate) fn connection_in<'a>(&self, credentials: &'a Value) -> &'a str {
        text(credentials, self.connection)
    }

    pub(crate) fn is_brokerage(&self) -> bool {
        self.list == "trades"
    }

    /// Adds a row at exactly this time.
    pub(crate) fn add_row(&self, bank: &Bank, account: &str, at: Timestamp, text: &str) {
        let mut row = (self.row)(account, text);
        row[self.row_time] = at.to_string().into();
        bank.add_row(&row).unwrap();
    }

    /// Adds an account with these members to a connection, and returns its id.
    pub(crate) fn add_account(
        &self,
        bank: &Bank,
        credentials: &Value,
        mut members: Value,
    ) -> String {
        for name in self.account_of {
            members[*name] = credentials[*name].clone();
        }
        text(&bank.add_account(&members).unwrap(), self.account_id).to_owned()
    }

    /// Sets the state of a connection's consent.
    pub(crate) fn set_consent(&self, bank: &Bank, credentials: &Value, state: ConsentState) {
        bank.set_consent(self.connection_in(credentials), state)
            .unwrap();
    }

    /// Ends the consent of a connection.
    pub(crate) fn revoke(&self, bank: &Bank, credentials: &Value, revocation: Revocation) {
        match revocation {
            Revocation::OfConsent => self.set_consent(bank, credentials, ConsentState::Revoked),
            Revocation::OfUser => bank.set_user(text(credentials, self.user), false).unwrap(),
        }
    }
}

/// Sets members of an object.
pub(crate) fn set_members(object: &mut Value, members: Value) {
    let Value::Object(members) = members else {
        panic!("not an object: {members}")
    };
    object.as_object_mut().expect("an object").extend(members);
}

/// `10.01`.
pub(crate) fn decimal(cents: u64) -> String {
    format!("{}.{:02}", cents / 100, cents % 100)
}

fn number(text: &str) -> Value {
    serde_json::from_str(text).expect("a number")
}

/// The members `names` of rows.
fn collected(rows: &Value, names: &[&str]) -> BTreeSet<String> {
    let rows = rows.as_array().expect("rows").iter();
    rows.flat_map(|row| names.iter().filter_map(|name| row[*name].as_str()))
        .map(str::to_owned)
        .collect()
}

const FISKIL: ProviderSpec = ProviderSpec {
    name: "fiskil",
    user: "endUserId",
    connection: "arrangementId",
    secrets: &["clientSecret"],
    spare_credentials: 4,
    email: "me@example.com",
    registration: Some(Registration {
        register: "/v1/end-users",
        delete: "/v1/end-users/{id}",
        count: |app, email| {
            Box::pin(async move {
                let description = serde_json::to_value(app.sandbox.description()).expect("JSON");
                let mut route: Url = "http://fiskil/v1/end-users".parse().expect("a URL");
                route.query_pairs_mut().append_pair("email", email);
                let path = format!("{}?{}", route.path(), route.query().expect("a query"));
                let listed = fiskil_get(&description, &path).await;
                listed["end_users"]
                    .as_array()
                    .or(listed.as_array())
                    .unwrap_or_else(|| panic!("{listed}"))
                    .len()
            })
        },
    }),
    authentication: Some("/v1/token"),
    consent_route: "/v1/consent",
    balances_calls: |users, _, _| users,
    account_of: &["endUserId", "arrangementId"],
    account_id: "account_id",
    numbered: |name, number| json!({"display_name": name, "account_number": number, "masked_number": number}),
    types: &[
        (
            "product_category",
            "CRED_AND_CHRG_CARDS",
            AccountType::CreditCard,
        ),
        (
            "product_category",
            "TERM_DEPOSITS",
            AccountType::TermDeposit,
        ),
        ("product_category", "SOMETHING_NEW", AccountType::Other),
    ],
    set_balance: |bank, account, amount| {
        let balance = json!({"current_balance": amount});
        bank.set_balance(account, &balance).unwrap();
    },
    account_numbers: |sandbox, credentials| {
        Box::pin(async move {
            let path = format!(
                "/v1/banking/accounts?end_user_id={}",
                text(credentials, "endUserId")
            );
            collected(
                &fiskil_get(sandbox, &path).await["accounts"],
                &["account_number", "masked_number"],
            )
        })
    },
    list: "transactions",
    row: |account, text| json!({"account_id": account, "amount": "-12.34", "description": text}),
    row_time: "posting_date_time",
    row_id: "fiskil_id",
    shown_id: |row| text(row, "fiskil_id").to_owned(),
    amount: "amount",
    set_amount: |cents| SetAmount {
        members: json!({"amount": decimal(cents)}),
        shown: ("amount", json!(cents)),
    },
    planted: || json!({"amount": "-98765432.19", "description": "PLANTED MILK BAR", "reference": "PLANTED REFERENCE"}),
    shown_of_planted: &[
        "-9876543219",
        "-98765432.19",
        "PLANTED MILK BAR",
        "PLANTED REFERENCE",
    ],
    odd_rows: |account| {
        let row = |(currency, amount): (&str, &str)| {
            json!({"account_id": account, "currency": currency, "amount": amount,
                "description": format!("{currency} {amount}"), "type": "DIRECT DEBIT",
                "posting_date_time": "2026-11-20T09:00:00+11:00"})
        };
        [
            ("JPY", "-1500"),
            ("BHD", "1.2345"),
            ("BHD", "1.2335"),
            ("XXX", "0.005"),
        ]
        .map(row)
        .to_vec()
    },
    revocations: &[Revocation::OfConsent],
};

/// A call of Fiskil's API, with a token of its own.
async fn fiskil_get(sandbox: &Value, path: &str) -> Value {
    fiskil_call(sandbox, Method::GET, path, &Value::Null).await
}

/// Calls Fiskil's API as an app of its own does.
pub(crate) async fn fiskil_call(
    sandbox: &Value,
    method: Method,
    path: &str,
    body: &Value,
) -> Value {
    let fiskil = &sandbox["fiskil"];
    let base = text(fiskil, "baseUrl").trim_end_matches('/');
    let send = async |request: reqwest::RequestBuilder| -> Value {
        let response = request.send().await.expect("the sandbox responds");
        response.json().await.expect("JSON")
    };
    let credentials =
        json!({"client_id": fiskil["clientId"], "client_secret": fiskil["clientSecret"]});
    let http = client();
    let token = send(http.post(format!("{base}/v1/token")).json(&credentials)).await;
    let mut request = http
        .request(method, format!("{base}{path}"))
        .bearer_auth(text(&token, "token"));
    if !body.is_null() {
        request = request.json(body);
    }
    send(request).await
}

const AKAHU: ProviderSpec = ProviderSpec {
    name: "akahu",
    user: "userToken",
    connection: "authorisation",
    secrets: &["appToken", "appSecret"],
    spare_credentials: 0,
    email: "aroha.williams@example.com",
    registration: None,
    authentication: None,
    consent_route: "/v1/accounts",
    balances_calls: |users, _, _| users,
    account_of: &["userToken", "authorisation"],
    account_id: "_id",
    numbered: |name, number| json!({"name": name, "formatted_account": number}),
    types: &[
        ("type", "CREDITCARD", AccountType::CreditCard),
        ("type", "TERMDEPOSIT", AccountType::TermDeposit),
        ("type", "SOMETHING_NEW", AccountType::Other),
    ],
    set_balance: |bank, account, amount| {
        let balance = json!({"currency": "NZD", "current": number(amount)});
        let balance = json!({"balance": balance});
        bank.change_account(account, &balance).unwrap();
    },
    account_numbers: |sandbox, credentials| {
        Box::pin(async move {
            let akahu = &sandbox["akahu"];
            let request = client().get(format!("{}/accounts", text(akahu, "baseUrl")));
            let request = request.bearer_auth(text(credentials, "userToken"));
            let request = request.header("X-Akahu-Id", text(akahu, "appToken"));
            let response = request.send().await.expect("the sandbox responds");
            let accounts: Value = response.json().await.expect("JSON");
            collected(&accounts["items"], &["formatted_account"])
        })
    },
    list: "transactions",
    row: |account, text| json!({"_account": account, "amount": -12.34, "description": text}),
    row_time: "date",
    row_id: "_id",
    shown_id: |row| text(row, "_id").to_owned(),
    amount: "amount",
    set_amount: |cents| SetAmount {
        members: json!({"amount": number(&decimal(cents))}),
        shown: ("amount", json!(cents)),
    },
    planted: || json!({"amount": number("-98765432.18"), "description": "PLANTED DAIRY"}),
    shown_of_planted: &["PLANTED DAIRY"],
    odd_rows: |_| Vec::new(),
    revocations: &[Revocation::OfConsent, Revocation::OfUser],
};

const SNAPTRADE: ProviderSpec = ProviderSpec {
    name: "snaptrade",
    user: "userId",
    connection: "authorizationId",
    secrets: &["consumerKey"],
    spare_credentials: 0,
    email: "me@example.com",
    registration: Some(Registration {
        register: "/snapTrade/registerUser",
        delete: "/snapTrade/deleteUser",
        // It names no user. The sandbox counts the events that it would deliver.
        count: |app, _| {
            let deliveries = app.bank("snaptrade").deliveries();
            let events = |name: &str| {
                let all = deliveries.iter();
                all.filter(|delivery| delivery["event"] == name).count()
            };
            let count = events("USER_REGISTERED") - events("USER_DELETED");
            Box::pin(async move { count })
        },
    }),
    authentication: None,
    consent_route: "/authorizations",
    balances_calls: |_, connections, accounts| connections + accounts,
    account_of: &["authorizationId"],
    account_id: "id",
    numbered: |name, number| json!({"name": name, "number": number, "institution_account_id": number}),
    types: &[
        ("account_category", "DEPOSIT", AccountType::Transaction),
        ("account_category", "INVESTMENT", AccountType::Investment),
        ("account_category", "SOMETHING_NEW", AccountType::Other),
    ],
    set_balance: |bank, account, amount| {
        let total = json!({"amount": number(amount), "currency": "USD"});
        let balance = json!({"balance": {"total": total}});
        bank.change_account(account, &balance).unwrap();
    },
    account_numbers: |_, _| Box::pin(async { BTreeSet::new() }),
    list: "trades",
    row: |account, text| json!({"account": account, "description": text, "units": 1.5, "price": 2}),
    row_time: "trade_date",
    row_id: "id",
    // Our id of a trade: eight of its members.
    shown_id: |row| {
        format!(
            "{}-{}-{}-{}-{}-{}-{}-{}",
            text(row, "trade_date"),
            text(&row["symbol"], "symbol"),
            text(row, "type"),
            row["amount"],
            row["units"],
            text(row, "settlement_date"),
            row["fee"],
            text(row, "description")
        )
    },
    // The amount of a trade is part of its id, and its price is not.
    amount: "price",
    set_amount: |cents| SetAmount {
        members: json!({"price": cents}),
        shown: ("price", json!(cents.to_string())),
    },
    planted: || {
        json!({"description": "PLANTED TRADE", "units": number("987654.3217"), "price": number("12345.6789"),
            "amount": number("-1234567.89")})
    },
    shown_of_planted: &["PLANTED TRADE"],
    odd_rows: |_| Vec::new(),
    revocations: &[Revocation::OfConsent, Revocation::OfUser],
};
