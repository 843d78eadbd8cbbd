//! Draws years of rows for one account in Australia.

use serde::{Deserialize, Serialize};

use super::australia::{AUSTRALIA, Plan};
use super::calendar::{Calendar, HOUR, SECOND};
use super::rng::Rng;
use super::template::{Template, on_fixed_days};
use crate::saved;
use crate::store::Numbered;

/// One row of a statement. Instants are Unix milliseconds.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Row {
    /// Unique in the world, and stable for a seed.
    pub(crate) number: u64,
    #[serde(with = "saved")]
    pub(crate) template: &'static Template,
    pub(crate) posted: Option<i64>,
    pub(crate) executed: Option<i64>,
    /// Negative for debits.
    pub(crate) cents: i64,
    /// The UTC offset of the bank's times, in minutes; 0 is written `Z`.
    pub(crate) offset_minutes: i16,
    /// Whether the bank writes milliseconds.
    pub(crate) millis: bool,
    pub(crate) pending: bool,
    pub(crate) place: u8,
}

impl Numbered for Row {
    fn number(&self) -> u64 {
        self.number
    }

    fn set_number(&mut self, number: u64) {
        self.number = number;
    }

    fn repeats_from(&self) -> Option<i64> {
        self.posted.filter(|_| !self.pending)
    }

    fn later(&self, ms: i64) -> Self {
        let later = |at: i64| at + ms;
        Self {
            posted: self.posted.map(later),
            executed: self.executed.map(later),
            ..self.clone()
        }
    }
}

/// Draws the rows of an account. `base` is the number of its first row, `busiest_rows` the number
/// of posted rows of the busiest account.
pub(crate) fn draw(
    plan: &Plan,
    busiest_rows: u32,
    seed: u64,
    base: u64,
    calendar: &Calendar,
) -> Vec<Row> {
    let mut drawing = Drawing {
        rng: Rng::new(seed, base),
        calendar,
        base,
        rows: Vec::new(),
    };
    let (nearest, mut farthest) = plan.days();
    let mut wanted = plan.spending;
    if plan.busiest {
        // Few rows cover few days: a household has at least about one row a day.
        farthest = farthest.min(busiest_rows.max(nearest));
        drawing
            .rows
            .reserve(busiest_rows as usize + plan.pending as usize);
    }
    drawing.fixed(plan.fixed(), (nearest, farthest));
    if plan.busiest {
        drawing.rows.truncate(busiest_rows as usize / 2);
        wanted = busiest_rows - drawing.rows.len() as u32;
    }
    drawing.spending(wanted, nearest, farthest);
    drawing.move_to_clock_changes();
    if plan.execution_only {
        drawing.execution_only();
    }
    drawing.pending(plan.pending);
    drawing.rows
}

struct Drawing<'a> {
    rng: Rng,
    calendar: &'a Calendar,
    base: u64,
    rows: Vec<Row>,
}

impl Drawing<'_> {
    /// Newest first, so that truncating keeps the newest.
    fn fixed(&mut self, templates: &'static [Template], days: (u32, u32)) {
        for (back, template) in on_fixed_days(templates, days) {
            // Banks book such rows in the small hours.
            let offset = self.rng.between(0, 4 * 3600) as i64 * SECOND;
            let at = self.calendar.instant(back, offset);
            self.push(template, at);
        }
    }

    fn spending(&mut self, wanted: u32, nearest: u32, farthest: u32) {
        let days = u64::from(farthest - nearest + 1);
        let spending = AUSTRALIA.lists.spending();
        for index in 0..wanted {
            let back = nearest + (u64::from(index) * days / u64::from(wanted)) as u32;
            // Every fifth row rotates through the templates, so that each occurs.
            let rotated = index as usize / 5 % spending.len();
            let drawn = self.rng.next() as usize % spending.len();
            let template = &spending[if index % 5 == 0 { rotated } else { drawn }];
            let seconds = match self.rng.between(0, 19) {
                0 => 86_399,                           // last second of the day
                1 => 0,                                // midnight
                _ => self.rng.between(21_600, 79_200), // 06:00 to 22:00
            };
            let at = self.calendar.instant(back, seconds as i64 * SECOND);
            self.push(template, at);
        }
    }

    fn push(&mut self, template: &'static Template, at: i64) {
        let (low, high) = template.cents;
        let cents = self.rng.between(u64::from(low), u64::from(high)) as i64;
        let style = self.rng.between(0, 9);
        let millis = style >= 7;
        let posted = if style == 9 {
            at - self.rng.between(1, 999) as i64
        } else {
            at
        };
        let executed = template.place && self.rng.chance(40);
        let executed = executed.then(|| at - self.rng.between(2, 50) as i64 * HOUR);
        self.rows.push(Row {
            number: self.base + self.rows.len() as u64,
            template,
            posted: Some(posted),
            executed,
            cents: if template.incoming { cents } else { -cents },
            offset_minutes: if style == 5 || style == 6 {
                self.calendar.offset_minutes(posted)
            } else {
                0
            },
            millis,
            pending: false,
            place: self.rng.between(0, AUSTRALIA.places.len() as u64 - 1) as u8,
        });
    }

    /// Moves two rows to each recent clock change in Sydney: to the last second before it and the
    /// first second after it.
    fn move_to_clock_changes(&mut self) {
        if self.rows.len() < 200 {
            return;
        }
        for change in self.calendar.clock_changes(4) {
            let near = self.rows.iter_mut().filter(|row| {
                row.template.place
                    && row
                        .posted
                        .is_some_and(|at| (at - change).abs() <= 48 * HOUR)
            });
            for (row, at) in near.take(2).zip([change - SECOND, change]) {
                row.posted = Some(at);
                row.executed = None;
                row.offset_minutes = self.calendar.offset_minutes(at);
            }
        }
    }

    fn execution_only(&mut self) {
        let purchases = self.rows.iter_mut().filter(|row| row.template.place);
        for row in purchases.skip(3).step_by(40).take(5) {
            row.executed = row.posted.take();
        }
    }

    /// Adds card purchases that have not settled; they have no time
    /// (docs/providers/fiskil.md#rows).
    fn pending(&mut self, count: u32) {
        let spending = AUSTRALIA.lists.spending();
        for index in 0..count as usize {
            self.push(&spending[index * 3 % spending.len()], 0);
            if let Some(row) = self.rows.last_mut() {
                (row.posted, row.executed, row.pending) = (None, None, true);
            }
        }
    }
}
