//! Draws years of rows for one account in New Zealand.

use serde::{Deserialize, Serialize};

use super::YEARS_DAYS;
use super::calendar::{Calendar, DAY, HOUR, SECOND};
use super::new_zealand::{NEW_ZEALAND, Plan, Times};
use super::rng::Rng;
use super::template::{Template, on_fixed_days, pick};
use crate::saved;
use crate::store::Numbered;

/// One settled row. Instants are Unix milliseconds, amounts are cents.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Row {
    /// Unique in the world, and stable for a seed. Of rows of one instant the larger number is
    /// newer.
    pub(crate) number: u64,
    #[serde(with = "saved")]
    pub(crate) template: &'static Template,
    /// When it was posted; often only the start of the day.
    pub(crate) at: i64,
    /// When Akahu first saw it.
    pub(crate) first_seen: i64,
    /// When Akahu last changed it.
    pub(crate) last_changed: i64,
    pub(crate) cents: i64,
    /// The account's balance after the row.
    pub(crate) balance: Option<i64>,
    pub(crate) place: u8,
}

/// How many days back rows are placed around the midnights of other zones.
pub(crate) const BORDERS_DAYS: u32 = 720;
/// Rows per page (docs/providers/akahu.md#pages). Page borders are placed between rows of one
/// instant.
const PAGE: usize = 100;

impl Numbered for Row {
    fn number(&self) -> u64 {
        self.number
    }

    fn set_number(&mut self, number: u64) {
        self.number = number;
    }

    fn repeats_from(&self) -> Option<i64> {
        Some(self.at)
    }

    fn later(&self, ms: i64) -> Self {
        Self {
            at: self.at + ms,
            first_seen: self.first_seen + ms,
            last_changed: self.last_changed + ms,
            balance: None,
            ..self.clone()
        }
    }
}

/// The days of the three zones whose midnights matter.
pub(crate) struct Calendars {
    pub(crate) nz: Calendar,
    sydney: Calendar,
    utc: Calendar,
    /// No row and no change is later than this.
    now: i64,
}

impl Calendars {
    pub(crate) fn new(now: jiff::Timestamp) -> Self {
        Self {
            // Two days more than the rows need, so that the calendar always has the oldest row's
            // day.
            nz: Calendar::in_zone("Pacific/Auckland", now, YEARS_DAYS + 2),
            sydney: Calendar::in_zone("Australia/Sydney", now, BORDERS_DAYS),
            utc: Calendar::in_zone("UTC", now, BORDERS_DAYS),
            now: now.as_millisecond(),
        }
    }
}

/// Draws the settled rows of an account, newest first. `base` is the number of the first one drawn;
/// `running` is the balance after the newest.
pub(crate) fn draw(
    plan: &Plan,
    seed: u64,
    base: u64,
    calendars: &Calendars,
    running: Option<i64>,
) -> Vec<Row> {
    let mut drawing = Drawing {
        rng: Rng::new(seed, base),
        calendars,
        base,
        rows: Vec::new(),
    };
    drawing.fixed(plan);
    drawing.spending(plan);
    if plan.edges {
        drawing.day_borders(plan.shops());
        drawing.clock_changes(plan.shops());
    }
    let mut rows = drawing.rows;
    sort(&mut rows);
    if plan.edges {
        share_instants_at_page_borders(&mut rows);
    }
    count_balances(&mut rows, running);
    rows
}

fn sort(rows: &mut [Row]) {
    rows.sort_unstable_by_key(|row| std::cmp::Reverse((row.at, row.number)));
}

/// Gives the rows on both sides of a page border the instant of the newer one.
fn share_instants_at_page_borders(rows: &mut [Row]) {
    for border in (PAGE..rows.len().saturating_sub(1)).step_by(PAGE) {
        let at = rows[border - 1].at;
        (rows[border].at, rows[border + 1].at) = (at, at);
    }
    sort(rows);
}

/// Sets the balance after each row, counting back from the newest.
fn count_balances(rows: &mut [Row], running: Option<i64>) {
    let Some(mut balance) = running else { return };
    for row in rows {
        row.balance = Some(balance);
        balance -= row.cents;
    }
}

struct Drawing<'a> {
    rng: Rng,
    calendars: &'a Calendars,
    base: u64,
    rows: Vec<Row>,
}

impl Drawing<'_> {
    fn fixed(&mut self, plan: &Plan) {
        for (back, template) in on_fixed_days(plan.fixed(), plan.days()) {
            self.push(template, self.calendars.nz.instant(back, 0));
        }
    }

    fn spending(&mut self, plan: &Plan) {
        let (nearest, farthest) = plan.days();
        let (days, shops) = (u64::from(farthest - nearest + 1), plan.shops());
        for index in 0..plan.spending {
            let back = nearest + (u64::from(index) * days / u64::from(plan.spending)) as u32;
            // Every third row rotates through the templates, so that each occurs.
            let rotated = index as usize / 3 % shops.len();
            let drawn = self.rng.next() as usize % shops.len();
            let template = &shops[if index % 3 == 0 { rotated } else { drawn }];
            // From six in the morning to ten at night.
            let real = self.rng.between(21_600_000, 79_200_000) as i64;
            let at = match plan.times {
                Times::UtcMidnight => self.calendars.utc.instant(back + 1, 0),
                Times::Mixed if self.rng.chance(50) => self.calendars.nz.instant(back, 0),
                Times::Mixed | Times::Real => self.calendars.nz.instant(back, real),
            };
            self.push(template, at);
        }
    }

    /// Adds rows in the first and last millisecond of days in New Zealand, Sydney and UTC, and six
    /// rows of one instant.
    fn day_borders(&mut self, shops: &'static [Template]) {
        let calendars = self.calendars;
        for back in [2, 5, 28, 29, 30, 31, 90, 364, 365, 700] {
            for calendar in [&calendars.nz, &calendars.sydney, &calendars.utc] {
                let midnight = calendar.instant(back, 0);
                self.pick(shops, midnight);
                self.pick(shops, midnight - 1);
            }
        }
        for _ in 0..6 {
            self.pick(shops, calendars.nz.instant(4, 13 * HOUR + 27 * SECOND + 89));
        }
    }

    /// Adds rows around the last clock changes of New Zealand and Sydney: in the milliseconds
    /// before and after, and at the midnights around. Those midnights are an hour apart in UTC.
    fn clock_changes(&mut self, shops: &'static [Template]) {
        let calendars = self.calendars;
        for (calendar, count) in [(&calendars.nz, 6), (&calendars.sydney, 2)] {
            for change in calendar.clock_changes(count) {
                self.pick(shops, change - 1);
                self.pick(shops, change);
                let newest = calendars.nz.instant(1, DAY);
                for midnight in calendar
                    .midnights_around(change)
                    .into_iter()
                    .filter(|at| *at <= newest)
                {
                    self.pick(shops, midnight);
                }
            }
        }
    }

    fn pick(&mut self, shops: &'static [Template], at: i64) {
        let template = pick(shops, &mut self.rng);
        self.push(template, at);
    }

    fn push(&mut self, template: &'static Template, at: i64) {
        let (low, high) = template.cents;
        let cents = self.rng.between(u64::from(low), u64::from(high)) as i64;
        let now = self.calendars.now;
        let first_seen =
            (at + self.rng.between(4 * 3600, 30 * 3600) as i64 * SECOND + 659).min(now);
        // Some rows are enriched a day after Akahu first saw them.
        let last_changed = if self.rng.chance(30) {
            (first_seen + DAY + 1164).min(now)
        } else {
            first_seen
        };
        self.rows.push(Row {
            number: self.base + self.rows.len() as u64,
            template,
            at,
            first_seen,
            last_changed,
            cents: if template.incoming { cents } else { -cents },
            balance: None,
            place: self.rng.between(0, NEW_ZEALAND.places.len() as u64 - 1) as u8,
        });
    }
}
