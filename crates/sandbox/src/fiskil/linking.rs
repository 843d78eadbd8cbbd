//! What somebody consents to on the hosted page, and what comes of it (docs/providers/fiskil.md#sessions). A bank's
//! account is one thing; each consent shows it under ids of its own, unless a test asks for the same ones again.

use jiff::{SignedDuration, Timestamp};

use super::rows::{Body, Entry, transaction_id};
use super::store::{Account, CONSENT_SECONDS, Consent, Grip, NUMBERS_PER_ACCOUNT, Store, blank, fill};
use crate::consent_page::Offer;
use crate::members::Members;
use crate::world::calendar::Calendar;
use crate::world::invented::{AUSTRALIAN, about, first_word, full_name, stream};
use crate::world::people::{Holding, Institution, PEOPLE, YEARS_DAYS};
use crate::world::rng::{Rng, label};
use crate::world::rows::{Row, draw};

/// One consent as it is given.
pub(super) struct Given<'a> {
    pub(super) end_user_id: &'a str,
    pub(super) institution: &'static Institution,
    /// The user name at the bank.
    pub(super) owner: &'a str,
    pub(super) chosen: &'a [Offer],
    /// Accounts that the end user has linked before keep their ids.
    pub(super) same_ids: bool,
    pub(super) now: Timestamp,
    /// When accounts and rows can be seen.
    pub(super) visible_at: Timestamp,
}

/// Whoever has that user name.
pub(super) fn who(seed: u64, user_name: &str) -> String {
    let known = PEOPLE.iter().find(|person| person.email == user_name);
    known.map_or_else(|| full_name(seed, user_name), |person| person.name.to_owned())
}

impl Store {
    /// The accounts of a login: those that the bank has shown before, else what everybody has.
    pub(super) fn offers(&self, institution: &Institution, owner: &str, now: Timestamp) -> Vec<Offer> {
        let mut offers: Vec<Offer> = Vec::new();
        for account in self.accounts.iter().filter(|account| account.belongs(owner, institution.id)) {
            let offer = offer(account);
            match offers.iter_mut().find(|known| known.slot == offer.slot) {
                // Of several views of one account the last is as good as any.
                Some(known) => *known = offer,
                None => offers.push(offer),
            }
        }
        if offers.is_empty() {
            let calendar = Calendar::new(now, 1);
            let invented = |holding| offer(&self.invented(holding, institution, owner, &calendar));
            offers = AUSTRALIAN.iter().map(invented).collect();
        }
        offers
    }

    /// Gives a consent: a new arrangement, and the chosen accounts under it. Returns its id.
    pub(super) fn consent_to(&mut self, given: &Given<'_>) -> String {
        let arrangement_id = uuid::Uuid::new_v4().to_string();
        let expires_at = given.now.saturating_add(SignedDuration::from_secs(CONSENT_SECONDS));
        self.consents.push(Consent {
            arrangement_id: arrangement_id.clone(),
            end_user_id: given.end_user_id.to_owned(),
            institution: given.institution,
            created_at: given.now,
            expires_at: expires_at.unwrap_or(Timestamp::MAX),
            grip: Grip::Held,
        });
        for offer in given.chosen {
            self.share(given, offer, &arrangement_id);
        }
        arrangement_id
    }

    fn share(&mut self, given: &Given<'_>, offer: &Offer, arrangement_id: &str) {
        let is_it =
            |account: &Account| account.belongs(given.owner, given.institution.id) && account.slot == offer.slot;
        if given.same_ids {
            let mine = |account: &&mut Account| is_it(account) && account.end_user_id == given.end_user_id;
            if let Some(account) = self.accounts.iter_mut().rev().find(mine) {
                account.move_to(arrangement_id, given.visible_at);
                return;
            }
        }
        let known = self.accounts.iter().rposition(is_it);
        let random = uuid::Uuid::new_v4().as_u64_pair();
        let mut rng = Rng::new(random.0, random.1);
        let mut account = blank(&mut rng, given.end_user_id, arrangement_id, given.institution.id);
        (account.owner, account.slot) = (given.owner.to_owned(), offer.slot.clone());
        account.visible_at = given.visible_at;
        let entries = match known {
            Some(known) => {
                let known = &self.accounts[known];
                (account.members, account.balance) = (known.members.clone(), known.balance.clone());
                known.entries.iter().map(Entry::again).collect()
            }
            None => {
                let Some(holding) = AUSTRALIAN.iter().find(|holding| holding.name == offer.slot) else { return };
                let calendar = Calendar::new(given.now, YEARS_DAYS + 2);
                let seen = self.invented(holding, given.institution, given.owner, &calendar);
                (account.members, account.balance) = (seen.members, seen.balance);
                // From their own numbers, so that they are the same whatever else was linked before.
                let base = label(&[given.owner, given.institution.id, holding.name]);
                let base = base / NUMBERS_PER_ACCOUNT * NUMBERS_PER_ACCOUNT;
                draw(&holding.kind.plan(0), self.seed, base, &calendar).into_iter().map(Again::Drawn).collect()
            }
        };
        account.rename(&mut rng);
        let seed = self.seed;
        self.add_account(account).replace(entries, seed);
    }

    /// An account that nobody has linked yet, without rows and ids.
    fn invented(&self, holding: &Holding, institution: &Institution, owner: &str, calendar: &Calendar) -> Account {
        let mut rng = stream(self.seed, owner, institution.id, holding.name);
        let mut account = blank(&mut rng, "", "", institution.id);
        let cents = about(&mut rng, holding.cents);
        fill(&mut account, &Holding { cents, nickname: None, ..*holding }, &mut rng, calendar);
        let name = format!("{} {}", first_word(institution.name), holding.name);
        account.members.set("display_name", &name);
        account.members.set("product_name", &name);
        account.slot = holding.name.to_owned();
        account
    }
}

fn offer(account: &Account) -> Offer {
    let text = |name| account.members.text(name).unwrap_or_default();
    Offer { slot: account.slot.clone(), name: text("display_name"), detail: text("masked_number") }
}

impl Account {
    fn belongs(&self, owner: &str, institution_id: &str) -> bool {
        self.owner == owner && self.institution_id == institution_id
    }

    /// Under another consent from now on, with all ids.
    fn move_to(&mut self, arrangement_id: &str, visible_at: Timestamp) {
        arrangement_id.clone_into(&mut self.arrangement_id);
        self.visible_at = visible_at;
        self.members.set("arrangement_id", &arrangement_id);
        self.balance.set("arrangement_id", &arrangement_id);
        self.name_rows();
    }

    /// Puts its own ids in the place of those that its members have from another view.
    fn rename(&mut self, rng: &mut Rng) {
        for members in [&mut self.members, &mut self.balance] {
            members.set("fiskil_id", &self.fiskil_id);
            members.set("account_id", &self.account_id);
            members.set("arrangement_id", &self.arrangement_id);
        }
        self.balance.set("fiskil_id", &format!("bank_balance_{}", rng.text(b"0123456789abcdef", 32)));
    }

    /// Rows of another view, as this one's own: with ids of its own.
    fn replace(&mut self, rows: Vec<Again>, seed: u64) {
        let first = self.first_number();
        self.entries = rows.into_iter().map(|row| row.numbered(first, seed)).collect();
        self.entries.sort_unstable_by_key(|entry| entry.position);
        let last = self.entries.iter().map(Entry::number).max();
        self.next_row = last.map_or(0, |last| last - first + 1);
        self.name_rows();
    }

    /// Rows that are kept to the letter say whose they are.
    fn name_rows(&mut self) {
        for entry in &mut self.entries {
            if let Body::Given { members, .. } = &mut entry.body {
                members.set("account_id", &self.account_id);
                members.set("arrangement_id", &self.arrangement_id);
            }
        }
    }
}

/// A row that is to be shown once more.
enum Again {
    Drawn(Row),
    Given(Members, u64),
}

impl Entry {
    fn again(&self) -> Again {
        match &self.body {
            Body::Drawn(row) => Again::Drawn(row.clone()),
            Body::Given { members, .. } => Again::Given(members.clone(), self.number()),
        }
    }
}

impl Again {
    /// With a number, and so an id, among those that begin at `first`.
    fn numbered(self, first: u64, seed: u64) -> Entry {
        match self {
            Self::Drawn(mut row) => {
                row.number = first + row.number % NUMBERS_PER_ACCOUNT;
                Entry::drawn(row)
            }
            Self::Given(mut members, number) => {
                let number = first + number % NUMBERS_PER_ACCOUNT;
                members.set("fiskil_id", &transaction_id(seed, number));
                Entry::given(members, number)
            }
        }
    }
}
