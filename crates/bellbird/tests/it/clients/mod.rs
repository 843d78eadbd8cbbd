//! Programs of others: webhook receivers with the Standard Webhooks libraries, and the programs of
//! docs/recipes. Also the app of examples/app, in a browser, and a mail server. They need Node.js
//! and Python.

mod example_app;
mod mail;
mod receivers;
mod recipes;
