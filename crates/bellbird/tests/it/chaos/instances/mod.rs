//! Several instances of the program over one PostgreSQL, with and without Valkey.

mod postgres_and_valkey;
mod postgres_fail_over;
mod postgres_network;
mod postgres_pooler;
mod postgres_roles;
