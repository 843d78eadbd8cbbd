//! The public JSON API.
