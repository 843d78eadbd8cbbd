//! The page that the console listener serves.
