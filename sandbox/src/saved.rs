//! How the state refers to the world when it is saved: by ids and by places in the lists of the
//! world, which are part of the program.

/// A text of the world. By its own name, because serde borrows what is a `&str`.
pub(crate) type Text = &'static str;

/// Something of the world, by its place in a list.
macro_rules! by_place {
    ($name:ident, $Item:ty, $list:expr) => {
        pub(crate) mod $name {
            use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

            pub(crate) fn serialize<S: Serializer>(
                item: &&'static $Item,
                serializer: S,
            ) -> Result<S::Ok, S::Error> {
                let place = $list.position(|known| std::ptr::eq(known, *item));
                place.serialize(serializer)
            }

            pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
                deserializer: D,
            ) -> Result<&'static $Item, D::Error> {
                let place = Option::<usize>::deserialize(deserializer)?;
                let item = place.and_then(|place| $list.nth(place));
                item.ok_or_else(|| de::Error::custom("it is of another world"))
            }
        }
    };
}

by_place!(
    au_template,
    crate::world::template::Template,
    crate::world::australia::AUSTRALIA.lists.all()
);
by_place!(
    nz_template,
    crate::world::template::Template,
    crate::world::new_zealand::NEW_ZEALAND.lists.all()
);
by_place!(
    deal,
    crate::world::brokerage::Deal,
    crate::world::brokerage::BROKERAGE.deals()
);
by_place!(
    au_institution,
    crate::world::australia::Institution,
    crate::world::australia::AUSTRALIA.institutions.iter()
);
by_place!(
    nz_institution,
    crate::world::new_zealand::Institution,
    crate::world::new_zealand::NEW_ZEALAND.institutions.iter()
);
by_place!(
    broker,
    crate::world::brokerage::Broker,
    crate::world::brokerage::BROKERAGE.brokers.iter()
);

pub(crate) mod security {
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

    use crate::world::securities::{MARKET, Security};

    pub(crate) fn serialize<S: Serializer>(
        security: &Option<&'static Security>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let symbol = security.map(|security| security.symbol);
        symbol.serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<&'static Security>, D::Error> {
        let Some(symbol) = Option::<String>::deserialize(deserializer)? else {
            return Ok(None);
        };
        let mut all = MARKET.securities.iter();
        let security = all.find(|known| known.symbol == symbol);
        security
            .map(Some)
            .ok_or_else(|| de::Error::custom("it is of another world"))
    }
}

/// A text of the world. The texts that are read stay in memory, each once.
pub(crate) mod text {
    use std::collections::BTreeSet;

    use parking_lot::Mutex;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    static KNOWN: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());

    pub(crate) fn serialize<S: Serializer>(
        text: &&'static str,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        text.serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<&'static str, D::Error> {
        let text = String::deserialize(deserializer)?;
        let mut known = KNOWN.lock();
        if let Some(known) = known.get(text.as_str()) {
            return Ok(known);
        }
        let text: &'static str = text.leak();
        known.insert(text);
        Ok(text)
    }
}
