mod changes;
mod keys;
