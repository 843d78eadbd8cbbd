mod emails;
mod identities;
mod key_reads;
mod keys;
mod own_data;
mod sessions;
mod setup_tokens;
mod user;
