//! Programs of others: webhook receivers with the Standard Webhooks libraries, and the programs of docs/recipes. They
//! need Node.js and Python.

mod receivers;
mod recipes;
