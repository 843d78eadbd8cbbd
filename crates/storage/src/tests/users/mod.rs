mod keys;
mod user;
