mod emails;
mod identities;
mod keys;
mod sessions;
mod setup_tokens;
mod user;
