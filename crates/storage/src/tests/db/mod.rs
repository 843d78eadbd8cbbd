mod open;
mod statement;
