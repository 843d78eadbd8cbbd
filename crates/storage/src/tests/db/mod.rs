mod open;
mod statement;
mod time_limits;
