//! Several instances of the program over one PostgreSQL and one Valkey.

mod postgres_and_valkey;
