mod emails;
mod keys;
mod sessions;
mod setup_tokens;
mod user;
