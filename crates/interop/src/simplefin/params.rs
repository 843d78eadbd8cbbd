//! The query string of `GET /simplefin/accounts`.

use std::collections::BTreeSet;

use bellbird_api::http::Problem;
use bellbird_api::http::parameters::{self, Id, RawParams};
use bellbird_domain::AccountId;
use serde::{Deserialize, Deserializer, de};

use super::posted::{Days, is_beyond_all_days};

const IDS_MAX: usize = 100;

/// The known parameters. Others are ignored, and so is `pending`: only posted rows are known.
#[derive(Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct SetParams {
    start_date: Option<Second>,
    end_date: Option<Second>,
    /// Changes nothing, because each response has the members of both versions.
    version: Option<Version>,
    #[serde(rename = "account")]
    pub(super) accounts: Accounts,
    pub(super) balances_only: Flag,
}

/// Of any length: a number beyond those of 64 bits is the last one of these.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Second(i64);

#[derive(Debug, PartialEq, Eq)]
struct Version;

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Flag(pub(super) bool);

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Accounts {
    /// Each once. None: all accounts.
    pub(super) ids: Option<Vec<AccountId>>,
    /// A given account is not an id, so no user has it.
    pub(super) has_unknown: bool,
}

impl SetParams {
    /// Fails with [`Problem::BadRequest`], which names each wrong parameter.
    pub(super) fn read(query: Option<&str>) -> Result<Self, Problem> {
        Ok(parameters::read_known(RawParams::Query(
            query.unwrap_or_default(),
        ))?)
    }

    pub(super) fn window(&self) -> Days {
        Days::new(
            self.start_date.map(|start| start.0),
            self.end_date.map(|end| end.0),
        )
    }

    /// The window ends before it starts, or starts after all days, as with milliseconds.
    pub(super) fn is_mistaken(&self) -> bool {
        self.start_date.is_some_and(|Second(start)| {
            is_beyond_all_days(start) || self.end_date.is_some_and(|Second(end)| start > end)
        })
    }
}

impl<'de> Deserialize<'de> for Second {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        let text = String::deserialize(input)?;
        let digits = text.strip_prefix('-').unwrap_or(&text);
        if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(de::Error::custom("whole seconds since 1970"));
        }
        let beyond = if text.starts_with('-') {
            i64::MIN
        } else {
            i64::MAX
        };
        Ok(Self(text.parse().unwrap_or(beyond)))
    }
}

impl<'de> Deserialize<'de> for Version {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        match &*String::deserialize(input)? {
            "1" | "2" => Ok(Self),
            _ => Err(de::Error::custom("1 or 2")),
        }
    }
}

impl<'de> Deserialize<'de> for Flag {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        Ok(Self(
            Vec::<String>::deserialize(input)?
                .iter()
                .any(|value| value != "0"),
        ))
    }
}

impl<'de> Deserialize<'de> for Accounts {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        let values = Vec::<Id<AccountId>>::deserialize(input)?;
        let ids: BTreeSet<AccountId> = values.iter().filter_map(|Id(id)| *id).collect();
        if ids.len() > IDS_MAX {
            return Err(de::Error::custom(format_args!("at most {IDS_MAX} ids")));
        }
        let has_unknown = values.iter().any(|Id(id)| id.is_none());
        Ok(Self {
            ids: (!values.is_empty()).then(|| ids.into_iter().collect()),
            has_unknown,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "0191e7a0-91d4-7a01-8000-00aabbccddee";

    #[test]
    fn reads_the_parameters_of_real_clients() {
        let read = |query: &str| SetParams::read(Some(query)).unwrap();
        let all = SetParams::read(None).unwrap();
        assert_eq!(
            (all.window(), all.accounts.ids, all.balances_only),
            (Days::new(None, None), None, Flag(false))
        );
        for pending in ["1", "0", "", "x"] {
            assert_eq!(
                read(&format!("pending={pending}")),
                SetParams::read(None).unwrap()
            );
        }
        let some = read(&format!(
            "account={ID}&account={ID}&account=x&start-date=86400&end-date=-5&version=2&new=1"
        ));
        assert_eq!(some.window(), Days::new(Some(86_400), Some(-5)));
        assert_eq!(
            some.accounts,
            Accounts {
                ids: Some([ID.parse().unwrap()].into()),
                has_unknown: true
            }
        );
        assert!(
            read("balances-only=1").balances_only.0 && !read("balances-only=0").balances_only.0
        );
        assert!(read("balances-only=0&balances-only=1").balances_only.0);
        let far = read("start-date=-99999999999999999999&end-date=99999999999999999999999");
        assert_eq!(far.window(), Days::new(Some(i64::MIN), Some(i64::MAX)));
        assert!(
            !far.is_mistaken()
                && some.is_mistaken()
                && !read("start-date=5&end-date=5").is_mistaken()
        );
        assert!(
            read("start-date=1795132800000").is_mistaken()
                && !read("end-date=1795132800000").is_mistaken()
        );
    }

    #[test]
    fn wrong_values_are_named() {
        let details = |query: &str| match SetParams::read(Some(query)) {
            Err(Problem::BadRequest { details, .. }) => details,
            other => panic!("{:?}", other.is_ok()),
        };
        for value in [
            "",
            "1.5",
            "1e9",
            "2026-01-01",
            "+5",
            "-",
            " 5",
            "%00",
            "NaN",
            "1_000",
        ] {
            assert_eq!(
                details(&format!("start-date={value}")),
                ["start-date: Must be whole seconds since 1970"],
                "{value}"
            );
        }
        for value in ["", "0", "3", "1.0", "2.0", "two"] {
            assert_eq!(
                details(&format!("version={value}")),
                ["version: Must be 1 or 2"],
                "{value}"
            );
        }
        assert_eq!(
            details("version=1&version=1"),
            ["version: Must be given once"]
        );
        assert_eq!(details("end-date=1&end-date=1&version=9").len(), 2);
        let many: Vec<_> = (0..101)
            .map(|number| format!("account=0191e7a0-91d4-7a01-8000-{number:012}"))
            .collect();
        assert_eq!(
            details(&many.join("&")),
            ["account: Must be at most 100 ids"]
        );
    }
}
