//! Remembers before which day an account has no rows, so that windows of the far past need no provider call.
//!
//! Firefly III asks for an account from 1970 on, in pieces of 44 days. One read of all that is older than a year shows
//! whether there is anything. If there is, the time before it is halved, so about ten reads find the first row.

use jiff::civil::Date;

use super::posted::{between, days_until};

/// Windows that end later are read as they are: they mostly have rows.
const RECENT_DAYS: i64 = 365;
/// A window this close to the first known row is read as it is.
const CLOSE_DAYS: i64 = 60;

/// What is known about an account, as days in the user's timezone.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Known {
    /// No row has an earlier day.
    first: Option<Date>,
    /// A row has this day.
    row: Option<Date>,
}

/// How to answer a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Plan {
    /// It has no rows.
    Empty,
    /// Read first whether there is any row up to this day.
    Probe(Date),
    Read,
}

impl Known {
    /// `last` is the last day of the window.
    pub(super) fn plan(&self, last: Option<Date>, today: Date) -> Plan {
        let Some(last) = last else { return Plan::Read };
        if self.first.is_some_and(|first| last < first) {
            return Plan::Empty;
        }
        if days_until(last, today) <= RECENT_DAYS {
            return Plan::Read;
        }
        match self.row {
            Some(row) if days_until(last, row) <= CLOSE_DAYS => Plan::Read,
            Some(row) => Plan::Probe(between(last, row)),
            None => {
                let year_ago = today.saturating_sub(jiff::Span::new().days(RECENT_DAYS));
                Plan::Probe(year_ago.max(last))
            }
        }
    }

    /// After a probe: `newest` is the day of the newest row up to `to`.
    pub(super) fn learn(self, to: Date, newest: Option<Date>) -> Self {
        match newest {
            Some(newest) => Self { row: Some(newest), ..self },
            None => Self { first: Some(to.tomorrow().unwrap_or(to).max(self.first.unwrap_or(to))), ..self },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn day(text: &str) -> Date {
        text.parse().unwrap()
    }

    /// Asks for all windows from 1970 on, as Firefly III does. Returns the calls of probes and of windows.
    fn ask_from_1970(oldest: Option<Date>, newest: Date) -> (u32, u32) {
        let today = day("2026-11-20");
        let newest_until = |to: Date| oldest.filter(|oldest| *oldest <= to).map(|_| newest.min(to));
        let (mut known, mut first) = (Known::default(), day("1970-01-01"));
        let (mut probes, mut reads) = (0, 0);
        while first <= today {
            let last = first.saturating_add(jiff::Span::new().days(43));
            let mut plan = known.plan(Some(last), today);
            if let Plan::Probe(to) = plan {
                probes += 1;
                assert!(to >= last, "an empty probe answers the window");
                known = known.learn(to, newest_until(to));
                plan = if newest_until(to).is_none() { Plan::Empty } else { Plan::Read };
            }
            match plan {
                Plan::Empty => assert!(oldest.is_none_or(|oldest| last < oldest), "no row is lost"),
                _ => reads += 1,
            }
            first = last.tomorrow().unwrap();
        }
        (probes, reads)
    }

    #[test]
    fn windows_of_the_far_past_need_few_reads() {
        let newest = day("2026-11-19");
        // Nothing older than a year: one probe answers all but the last 10 of 473 windows.
        let (probes, reads) = ask_from_1970(Some(day("2026-03-01")), newest);
        assert_eq!((probes, reads), (1, 10));
        let (probes, reads) = ask_from_1970(None, newest);
        assert_eq!((probes, reads), (1, 10));
        // Three years of rows are 25 windows.
        let (probes, reads) = ask_from_1970(Some(day("2023-11-20")), newest);
        assert!(probes <= 25 && reads <= 60, "{probes} {reads}");
    }

    #[test]
    fn recent_and_open_windows_are_read() {
        let (known, today) = (Known::default(), day("2026-11-20"));
        assert_eq!(known.plan(None, today), Plan::Read);
        assert_eq!(known.plan(Some(day("2027-01-01")), today), Plan::Read);
        assert_eq!(known.plan(Some(day("2025-11-20")), today), Plan::Read);
        assert_eq!(known.plan(Some(day("2025-11-19")), today), Plan::Probe(day("2025-11-20")));
        let known = known.learn(day("2025-11-20"), None);
        assert_eq!(known.plan(Some(day("2025-11-20")), today), Plan::Empty);
        assert_eq!(known.plan(Some(day("2025-11-21")), today), Plan::Read);
    }
}
