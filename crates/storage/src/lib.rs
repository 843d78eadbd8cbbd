//! The only crate with SQL: users, keys, connections, accounts, sealed secrets, on SQLite and PostgreSQL.
