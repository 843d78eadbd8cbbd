//! Timestamps plus and minus a duration, without an error to handle.

use jiff::{SignedDuration, Timestamp};

/// The sum stops at the first or the last timestamp.
///
/// `Timestamp::saturating_add` returns an error, because it also takes calendar units. A duration
/// has none.
pub trait TimestampExt {
    #[must_use]
    fn plus(self, duration: impl TryInto<SignedDuration>) -> Self;
    #[must_use]
    fn minus(self, duration: impl TryInto<SignedDuration>) -> Self;
}

impl TimestampExt for Timestamp {
    fn plus(self, duration: impl TryInto<SignedDuration>) -> Self {
        self.saturating_add(duration.try_into().unwrap_or(SignedDuration::MAX))
            .unwrap_or(self)
    }

    fn minus(self, duration: impl TryInto<SignedDuration>) -> Self {
        self.saturating_sub(duration.try_into().unwrap_or(SignedDuration::MAX))
            .unwrap_or(self)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn sums_stop_at_the_ends() {
        let now = Timestamp::from_second(1_000).unwrap();
        assert_eq!(now.plus(Duration::from_secs(5)).as_second(), 1_005);
        assert_eq!(now.minus(SignedDuration::from_secs(5)).as_second(), 995);
        assert_eq!(now.minus(SignedDuration::from_secs(-5)).as_second(), 1_005);
        assert_eq!(
            (now.plus(Duration::MAX), now.minus(Duration::MAX)),
            (Timestamp::MAX, Timestamp::MIN)
        );
    }
}
