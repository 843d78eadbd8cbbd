//! The providers pretended, on their real wire protocols. Depends on nothing of ours.
