//! Programs of others: webhook receivers with the Standard Webhooks libraries, and the programs of docs/recipes. Also
//! the app of examples/app, in a browser. They need Node.js and Python.

mod example_app;
mod receivers;
mod recipes;
