mod keys;
mod setup_tokens;
mod user;
