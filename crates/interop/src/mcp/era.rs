//! The two eras of the protocol. Pure.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Era {
    /// 2026-07-28.
    Modern,
    /// 2025-11-25 and 2025-06-18.
    Legacy,
}
