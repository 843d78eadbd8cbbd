mod emails;
mod identities;
mod key_reads;
mod keys;
mod sessions;
mod setup_tokens;
mod user;
