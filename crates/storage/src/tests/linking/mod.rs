mod cleanup;
mod consent_sessions;
mod links;
mod provider_events;
mod provider_users;
