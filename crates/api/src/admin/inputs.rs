//! The values in bodies and queries: their form, and what is expected.

use std::fmt;
use std::str::FromStr;

use bellbird_domain::{ApiVersion, ConnectionId, DeliveryState, EventType, Plan, UserId};
use bellbird_management::values;
use bellbird_webhooks::endpoint::in_order;
use jiff::Timestamp;
use serde::de::{Deserialize, Deserializer, Error as _, Visitor};

use crate::http::parameters::parse_text;

/// Declares a member of a body or a query that is checked text. The document has its `value_type`.
macro_rules! checked {
    ($($name:ident: $type:ty = $parse:expr;)*) => {$(
        #[derive(Debug, Clone)]
        pub(crate) struct $name(pub $type);

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
                parse_text(input, |text| $parse(text).map(Self).map_err(D::Error::custom))
            }
        }
    )*};
}

checked! {
    EmailText: String = values::email;
    TimezoneText: String = values::timezone;
    KeyName: values::KeyName = values::KeyName::from_str;
    ReferenceText: String = values::reference;
    PlanName: Plan = plan;
    Time: Timestamp = time;
    UserIdText: UserId = id;
    ConnectionIdText: ConnectionId = id;
    ApiVersionName: ApiVersion = api_version;
    DeliveryStateName: DeliveryState = delivery_state;
    RemoveText: () = remove;
}

fn remove(text: &str) -> Result<(), &'static str> {
    if text == "remove" {
        Ok(())
    } else {
        Err("remove, or absent")
    }
}

fn api_version(text: &str) -> Result<ApiVersion, &'static str> {
    text.parse().map_err(|_| "2026-11-01 or 2026-12-01")
}

fn delivery_state(text: &str) -> Result<DeliveryState, &'static str> {
    text.parse()
        .map_err(|_| "pending, waiting, delivered or failed")
}

fn id<T: FromStr>(text: &str) -> Result<T, &'static str> {
    text.parse()
        .map_err(|_| "an id such as 0191e7a0-7c3b-7def-8000-00aabbccddee")
}

fn plan(text: &str) -> Result<Plan, &'static str> {
    text.parse().map_err(|_| "saver, developer or professional")
}

fn time(text: &str) -> Result<Timestamp, &'static str> {
    text.parse()
        .map_err(|_| "a time such as 2027-01-31T00:00:00Z")
}

/// The event types of an endpoint, each once.
#[derive(Debug, Clone)]
pub(crate) struct EventNames(pub Vec<EventType>);

impl<'de> Deserialize<'de> for EventNames {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        let known = || {
            EventType::SUBSCRIBABLE
                .iter()
                .map(|event| event.as_str())
                .collect::<Vec<_>>()
                .join(", ")
        };
        let expected = || D::Error::custom(format!("a list of {}", known()));
        let names = Vec::<String>::deserialize(input).map_err(|_| expected())?;
        let mut events = Vec::with_capacity(names.len());
        for (number, name) in (1..).zip(&names) {
            let event = name
                .parse()
                .ok()
                .filter(|event| EventType::SUBSCRIBABLE.contains(event));
            let unknown = || {
                D::Error::custom(format!(
                    "a list of {}, and entry {number} is none of these",
                    known()
                ))
            };
            events.push(event.ok_or_else(unknown)?);
        }
        if events.is_empty() {
            Err(expected())
        } else {
            Ok(Self(in_order(&events)))
        }
    }
}

/// A number of seconds, up to ten years.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seconds(pub i64);

impl<'de> Deserialize<'de> for Seconds {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        struct Bounded;

        impl Visitor<'_> for Bounded {
            type Value = Seconds;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("a whole number from 0 to 315360000")
            }

            fn visit_i64<E: serde::de::Error>(self, seconds: i64) -> Result<Seconds, E> {
                if (0..=315_360_000).contains(&seconds) {
                    Ok(Seconds(seconds))
                } else {
                    Err(E::invalid_value(
                        serde::de::Unexpected::Signed(seconds),
                        &self,
                    ))
                }
            }
        }

        input.deserialize_i64(Bounded)
    }
}
