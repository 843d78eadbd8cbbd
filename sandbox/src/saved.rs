//! How the state refers to the world when it is saved: securities by their symbols, and all else by
//! places in the lists of the world, which are part of the program. Whoever changes a list raises
//! [`VERSION`](crate::state::VERSION).

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::world::australia::{self, AUSTRALIA};
use crate::world::brokerage::{BROKERAGE, Broker, Deal};
use crate::world::new_zealand::{self, NEW_ZEALAND};
use crate::world::securities::{MARKET, Security};
use crate::world::template::Template;

/// What has a list of all that there are.
pub(crate) trait Listed: Sized + 'static {
    fn all() -> impl Iterator<Item = &'static Self>;
}

impl Listed for Deal {
    fn all() -> impl Iterator<Item = &'static Self> {
        BROKERAGE.deals()
    }
}

/// One list for both countries, whose rows have the same templates.
impl Listed for Template {
    fn all() -> impl Iterator<Item = &'static Self> {
        AUSTRALIA.lists.all().chain(NEW_ZEALAND.lists.all())
    }
}

impl Listed for australia::Institution {
    fn all() -> impl Iterator<Item = &'static Self> {
        AUSTRALIA.institutions.iter()
    }
}

impl Listed for new_zealand::Institution {
    fn all() -> impl Iterator<Item = &'static Self> {
        NEW_ZEALAND.institutions.iter()
    }
}

impl Listed for Broker {
    fn all() -> impl Iterator<Item = &'static Self> {
        BROKERAGE.brokers.iter()
    }
}

pub(crate) fn serialize<T: Listed, S: Serializer>(
    item: &&'static T,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let place = T::all().position(|known| std::ptr::eq(known, *item));
    place.serialize(serializer)
}

fn found<T: 'static, E: de::Error>(item: Option<&'static T>) -> Result<&'static T, E> {
    item.ok_or_else(|| E::custom("it is of another world"))
}

pub(crate) fn deserialize<'de, T: Listed, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<&'static T, D::Error> {
    let place = usize::deserialize(deserializer)?;
    found(T::all().nth(place))
}

/// A security, if there is one.
pub(crate) mod security {
    use super::{Deserialize, Deserializer, MARKET, Security, Serialize, Serializer};

    pub(crate) fn serialize<S: Serializer>(
        item: &Option<&'static Security>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let symbol = item.map(|security| security.symbol);
        symbol.serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<&'static Security>, D::Error> {
        let Some(symbol) = Option::<String>::deserialize(deserializer)? else {
            return Ok(None);
        };
        let mut all = MARKET.securities.iter();
        super::found(all.find(|known| known.symbol == symbol)).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::VERSION;

    /// An item that is added renames those behind it in every older state.
    #[test]
    fn other_lists_have_another_version() {
        let sizes = [
            AUSTRALIA.lists.all().count(),
            NEW_ZEALAND.lists.all().count(),
            AUSTRALIA.institutions.len(),
            NEW_ZEALAND.institutions.len(),
            BROKERAGE.brokers.len(),
            BROKERAGE.deals().count(),
        ];
        assert_eq!((VERSION, sizes), (3, [57, 105, 7, 10, 5, 77]));
    }
}
