//! How the state refers to the world when it is saved: by places in the lists of the world, which
//! are part of the program.

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

impl Listed for Template {
    fn all() -> impl Iterator<Item = &'static Self> {
        AUSTRALIA.lists.all().chain(NEW_ZEALAND.lists.all())
    }
}

impl Listed for Deal {
    fn all() -> impl Iterator<Item = &'static Self> {
        BROKERAGE.deals()
    }
}

impl Listed for Security {
    fn all() -> impl Iterator<Item = &'static Self> {
        MARKET.securities.iter()
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

fn place<T: Listed>(item: &'static T) -> Option<usize> {
    T::all().position(|known| std::ptr::eq(known, item))
}

fn at<T: Listed, E: de::Error>(place: usize) -> Result<&'static T, E> {
    let item = T::all().nth(place);
    item.ok_or_else(|| E::custom("it is of another world"))
}

pub(crate) fn serialize<T: Listed, S: Serializer>(
    item: &&'static T,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    place(*item).serialize(serializer)
}

pub(crate) fn deserialize<'de, T: Listed, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<&'static T, D::Error> {
    at(usize::deserialize(deserializer)?)
}

/// What may be missing.
pub(crate) mod optional {
    use super::{Deserialize, Deserializer, Listed, Serialize, Serializer, at, place};

    pub(crate) fn serialize<T: Listed, S: Serializer>(
        item: &Option<&'static T>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        item.and_then(place).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, T: Listed, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<&'static T>, D::Error> {
        let place = Option::<usize>::deserialize(deserializer)?;
        place.map(at).transpose()
    }
}
