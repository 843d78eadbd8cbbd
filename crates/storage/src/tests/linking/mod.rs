mod cleanup;
mod link_sessions;
mod links;
mod provider_events;
mod provider_users;
