//! Programs of others: webhook receivers with the Standard Webhooks libraries, the programs of
//! docs/recipes, and clients of providers. Also the app of examples/app, in a browser, and a mail
//! server. They need Node.js and Python.

mod example_app;
mod mail;
mod official;
mod receivers;
mod recipes;
