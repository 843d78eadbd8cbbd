mod changes;
mod first_start;
mod keys;
mod provider_settings;
