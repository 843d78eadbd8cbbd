//! Programs of others: webhook receivers with the Standard Webhooks libraries, the programs of docs/recipes, and the app
//! of examples/app. They need Node.js and Python, and the app needs a browser.

mod example_app;
mod receivers;
mod recipes;
