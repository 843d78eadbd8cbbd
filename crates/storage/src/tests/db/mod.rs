mod batches;
mod open;
mod service_lock;
mod statement;
mod time_limits;
