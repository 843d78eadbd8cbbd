//! The first page of a service that starts for the first time.

mod chromium;
