//! Tests of the crate as a whole. Those of one module are beside it.

mod lab;
