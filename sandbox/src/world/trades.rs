//! Draws years of rows for one account at a broker.

use std::borrow::Cow;

use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan, civil};
use serde::{Deserialize, Serialize};

use super::brokerage::{Deal, Flow, Plan, Style};
use super::rng::Rng;
use super::scaled::Scaled;
use super::securities::{self, Security};
use crate::saved;
use crate::store::Numbered;

/// One row of an account's history.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Trade {
    /// Unique in the world, and stable for a seed.
    pub(crate) number: u64,
    /// Equal for rows that belong together.
    pub(crate) group: u64,
    #[serde(with = "saved")]
    pub(crate) deal: &'static Deal,
    /// The share or option of the row.
    #[serde(with = "saved::security")]
    pub(crate) security: Option<&'static Security>,
    pub(crate) currency: Cow<'static, str>,
    /// The coin that pays, instead of a currency.
    #[serde(with = "saved::security")]
    pub(crate) coin: Option<&'static Security>,
    pub(crate) units: Scaled,
    pub(crate) price: Scaled,
    pub(crate) amount: Scaled,
    pub(crate) fee: Scaled,
    pub(crate) foreign: bool,
    /// Unix seconds.
    pub(crate) at: i64,
    pub(crate) settled: civil::Date,
}

impl Numbered for Trade {
    fn number(&self) -> u64 {
        self.number
    }

    fn set_number(&mut self, number: u64) {
        self.group = number - (self.number - self.group);
        self.number = number;
    }
}

const DAY: i64 = 86_400;

/// Draws the rows of an account in `currency`; the newest is yesterday's. `base` is the number of
/// the first row.
pub(crate) fn draw(
    plan: &Plan,
    currency: &'static str,
    seed: u64,
    base: u64,
    today: civil::Date,
) -> Vec<Trade> {
    let zone = TimeZone::get("America/New_York").expect("the time zone database is built in");
    let rng = Rng::new(seed, base);
    let mut drawing = Drawing {
        rng,
        plan,
        currency,
        base,
        today,
        zone,
        trades: Vec::with_capacity(plan.rows as usize),
    };
    let (daily, rotation) = (plan.daily(), plan.rotation());
    for index in 0..plan.rows {
        let back = 1 + (u64::from(index) * u64::from(plan.days) / u64::from(plan.rows)) as u32;
        // Now and then an order is filled in two equal parts, which only the id distinguishes.
        let twin = drawing
            .trades
            .last()
            .filter(|last| index % 20 == 7 && last.is_traded())
            .cloned();
        if let Some(twin) = twin {
            drawing.trades.push(Trade {
                number: base + u64::from(index),
                ..twin
            });
            continue;
        }
        let rotated = &rotation[index as usize / 4 % rotation.len()];
        let drawn = &daily[drawing.rng.next() as usize % daily.len()];
        drawing.push(if index % 4 == 0 { rotated } else { drawn }, back);
    }
    drawing.move_to_clock_changes();
    drawing.trades
}

impl Trade {
    fn is_traded(&self) -> bool {
        matches!(
            self.deal.flow,
            Flow::Buy | Flow::Sell | Flow::OptionBuy | Flow::OptionSell
        )
    }
}

struct Drawing<'a> {
    rng: Rng,
    plan: &'a Plan,
    currency: &'static str,
    base: u64,
    today: civil::Date,
    zone: TimeZone,
    trades: Vec<Trade>,
}

impl Drawing<'_> {
    fn push(&mut self, deal: &'static Deal, back: u32) {
        let day = self.today.saturating_sub(i64::from(back).days());
        let (deal, securities) = match (deal.flow.is_option(), &self.plan.options) {
            // Without options in the plan, the most common kind replaces them.
            (true, options) if options.is_empty() => (&self.plan.daily()[0], &self.plan.securities),
            (true, options) => (deal, options),
            (false, _) => (deal, &self.plan.securities),
        };
        let money = matches!(deal.flow, Flow::MoneyIn | Flow::MoneyOut);
        let security = (!money && !securities.is_empty()).then(|| self.pick(securities));
        let number = self.base + self.trades.len() as u64;
        let currency = security.map_or(self.currency, |security| security.currency);
        let mut trade = Trade {
            number,
            group: number,
            deal,
            security,
            currency: currency.into(),
            // The coin that pays for crypto trades.
            coin: (self.plan.is_crypto() && !money).then(|| securities::security("USDC")),
            units: Scaled::ZERO,
            price: Scaled::ZERO,
            amount: Scaled::ZERO,
            fee: Scaled::ZERO,
            foreign: currency != self.currency,
            at: 0,
            settled: day,
        };
        self.price(&mut trade);
        self.date(&mut trade, day);
        self.trades.push(trade);
    }

    fn pick(&mut self, symbols: &[&str]) -> &'static Security {
        securities::security(symbols[self.rng.next() as usize % symbols.len()])
    }

    fn price(&mut self, trade: &mut Trade) {
        let flow = trade.deal.flow;
        if matches!(flow, Flow::Income | Flow::MoneyIn | Flow::MoneyOut) {
            trade.amount = self.money(flow);
            return;
        }
        trade.units = self.units(flow);
        if !trade.is_traded() {
            return;
        }
        let cents = u64::from(trade.security.map_or(100, |security| security.cents));
        trade.price = Scaled::cents(self.rng.between(cents * 7 / 10, cents * 12 / 10) as i64);
        trade.fee = Scaled::cents(if self.rng.chance(30) {
            self.rng.between(1, 995) as i64
        } else {
            0
        });
        let multiplier = if flow.is_option() { 100 } else { 1 };
        let value = trade.units.times(trade.price, multiplier);
        trade.amount = Scaled::cents(-value - trade.fee.value);
    }

    fn money(&mut self, flow: Flow) -> Scaled {
        let (low, high) = if flow == Flow::Income {
            (40, 25_000)
        } else {
            (100, 150_000)
        };
        let amount = Scaled::cents(self.rng.between(low, high) as i64);
        if flow == Flow::MoneyOut {
            amount.minus()
        } else {
            amount
        }
    }

    fn units(&mut self, flow: Flow) -> Scaled {
        let (low, high, places) = match () {
            () if self.plan.is_crypto() => (1_000_001, 2_000_000_001, 9),
            () if flow.is_option() => (1, 5, 0),
            () if self.rng.chance(30) => (10_003, 4_000_003, 5),
            () => (1, 40, 0),
        };
        let units = Scaled {
            value: self.rng.between(low, high) as i64,
            places,
        };
        let out = matches!(
            flow,
            Flow::Sell | Flow::SharesOut | Flow::OptionSell | Flow::OptionEnd
        );
        if out { units.minus() } else { units }
    }

    fn date(&mut self, trade: &mut Trade, day: civil::Date) {
        let midnight = TimeZone::UTC
            .to_timestamp(day.at(0, 0, 0, 0))
            .map_or(0, Timestamp::as_second);
        let settlement_days = if trade.is_traded() { 1 } else { 0 };
        trade.settled = day.saturating_add(settlement_days.days());
        trade.at = match self.plan.style {
            // While New York's exchanges are open, both in winter and in summer.
            Style::Exact if trade.is_traded() => {
                midnight + self.rng.between(14 * 3600 + 1800, 20 * 3600 - 1) as i64
            }
            Style::Exact | Style::UtcMidnight => midnight,
            Style::NewYorkMidnight => self
                .zone
                .to_timestamp(day.at(0, 0, 0, 0))
                .map_or(midnight, Timestamp::as_second),
        };
    }

    /// Moves two trades to each recent clock change in New York: to the last second before it and
    /// the first second after it.
    fn move_to_clock_changes(&mut self) {
        if self.plan.style != Style::Exact || self.trades.len() < 200 {
            return;
        }
        let today = TimeZone::UTC
            .to_timestamp(self.today.at(0, 0, 0, 0))
            .unwrap_or_default();
        for change in self
            .zone
            .preceding(today)
            .take(4)
            .map(|change| change.timestamp().as_second())
        {
            let near = self
                .trades
                .iter_mut()
                .filter(|trade| trade.is_traded() && (trade.at - change).abs() <= 3 * DAY);
            for (trade, at) in near.take(2).zip([change - 1, change]) {
                trade.at = at;
                let day = TimeZone::UTC
                    .to_datetime(Timestamp::from_second(at).unwrap_or_default())
                    .date();
                trade.settled = day.saturating_add(1.days());
            }
        }
    }
}
