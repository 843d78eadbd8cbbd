//! Answers a question about live data: whose account, ask the provider, cut the window.
