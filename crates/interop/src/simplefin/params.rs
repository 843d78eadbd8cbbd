//! The query string of `GET /simplefin/accounts`.

use std::collections::BTreeSet;

use bellbird_api::front::Problem;
use bellbird_domain::AccountId;

use super::posted::{Window, is_beyond_all_days};

const ACCOUNTS_MAX: usize = 100;

/// The known parameters. Others are ignored, and so is the value of `pending`: only posted rows are known.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Params {
    pub(super) window: Window,
    /// None: all accounts.
    pub(super) accounts: Option<BTreeSet<AccountId>>,
    /// A given account is none of any user.
    pub(super) has_unknown_account: bool,
    pub(super) is_balances_only: bool,
    /// The window ends before it starts, or starts after all days, as with milliseconds.
    pub(super) is_mistaken: bool,
}

#[derive(Default)]
struct Given {
    start: Option<i64>,
    end: Option<i64>,
    version: Option<()>,
    accounts: Option<BTreeSet<AccountId>>,
    has_unknown_account: bool,
    is_balances_only: bool,
}

impl Params {
    /// Fails with [`Problem::BadRequest`], which names each wrong parameter.
    pub(super) fn read(query: Option<&str>) -> Result<Self, Problem> {
        let (mut given, mut wrong) = (Given::default(), BTreeSet::new());
        let (mut seen_start, mut seen_end) = (false, false);
        for (name, value) in form_urlencoded::parse(query.unwrap_or_default().as_bytes()) {
            match name.as_ref() {
                "start-date" => read_second(&value, &mut given.start, &mut seen_start, "start-date", &mut wrong),
                "end-date" => read_second(&value, &mut given.end, &mut seen_end, "end-date", &mut wrong),
                "version" if matches!(value.as_ref(), "1" | "2") && given.version.is_none() => given.version = Some(()),
                "version" => drop(wrong.insert("version: must be 1 or 2, given once")),
                "balances-only" => given.is_balances_only |= value != "0",
                "account" => {
                    let accounts = given.accounts.get_or_insert_default();
                    match value.parse() {
                        Ok(id) => drop(accounts.insert(id)),
                        Err(_) => given.has_unknown_account = true,
                    }
                    if accounts.len() > ACCOUNTS_MAX {
                        wrong.insert("account: must be at most 100 ids");
                        accounts.clear();
                    }
                }
                _ => {}
            }
        }
        if !wrong.is_empty() {
            let details = wrong.into_iter().map(str::to_owned).collect();
            return Err(Problem::BadRequest { message: "Invalid query parameters".into(), details });
        }
        Ok(Self {
            window: Window::new(given.start, given.end),
            accounts: given.accounts,
            has_unknown_account: given.has_unknown_account,
            is_balances_only: given.is_balances_only,
            is_mistaken: given
                .start
                .is_some_and(|start| is_beyond_all_days(start) || given.end.is_some_and(|end| start > end)),
        })
    }
}

fn read_second(
    value: &str,
    into: &mut Option<i64>,
    seen: &mut bool,
    name: &'static str,
    wrong: &mut BTreeSet<&'static str>,
) {
    let parsed = second(value);
    if *seen || parsed.is_none() {
        wrong.insert(match name {
            "start-date" => "start-date: must be whole seconds since 1970, given once",
            _ => "end-date: must be whole seconds since 1970, given once",
        });
    }
    (*into, *seen) = (parsed, true);
}

/// Digits of any length, perhaps with a minus sign.
fn second(text: &str) -> Option<i64> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let beyond = if text.starts_with('-') { i64::MIN } else { i64::MAX };
    Some(text.parse().unwrap_or(beyond))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "0191e7a0-91d4-7a01-8000-00aabbccddee";

    #[test]
    fn reads_the_parameters_of_real_clients() {
        let read = |query: &str| Params::read(Some(query)).unwrap();
        let all = Params::read(None).unwrap();
        assert_eq!((all.window, all.accounts, all.is_balances_only), (Window::new(None, None), None, false));
        for pending in ["1", "0", "", "x"] {
            assert_eq!(read(&format!("pending={pending}")), Params::read(None).unwrap());
        }
        let some = read(&format!("account={ID}&account={ID}&account=x&start-date=86400&end-date=-5&version=2&new=1"));
        assert_eq!(some.window, Window::new(Some(86_400), Some(-5)));
        assert_eq!(some.accounts, Some([ID.parse().unwrap()].into()));
        assert!(some.has_unknown_account);
        assert!(read("balances-only=1").is_balances_only && !read("balances-only=0").is_balances_only);
        let far = read("start-date=-99999999999999999999&end-date=99999999999999999999999");
        assert_eq!(far.window, Window::new(Some(i64::MIN), Some(i64::MAX)));
        assert!(!far.is_mistaken && some.is_mistaken && !read("start-date=5&end-date=5").is_mistaken);
        assert!(read("start-date=1795132800000").is_mistaken && !read("end-date=1795132800000").is_mistaken);
    }

    #[test]
    fn wrong_values_are_named() {
        let details = |query: &str| match Params::read(Some(query)) {
            Err(Problem::BadRequest { details, .. }) => details,
            other => panic!("{:?}", other.is_ok()),
        };
        for value in ["", "1.5", "1e9", "2026-01-01", "+5", "-", " 5", "%00", "NaN", "1_000"] {
            assert_eq!(
                details(&format!("start-date={value}")),
                ["start-date: must be whole seconds since 1970, given once"]
            );
        }
        for value in ["", "0", "3", "1.0", "2.0", "two", "1&version=1"] {
            assert_eq!(details(&format!("version={value}")), ["version: must be 1 or 2, given once"], "{value}");
        }
        assert_eq!(details("end-date=1&end-date=1&version=9").len(), 2);
        let many: Vec<_> = (0..101).map(|number| format!("account=0191e7a0-91d4-7a01-8000-{number:012}")).collect();
        assert_eq!(details(&many.join("&")), ["account: must be at most 100 ids"]);
    }
}
