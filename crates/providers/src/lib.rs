//! The outside world in: one adapter a provider behind one small trait.
