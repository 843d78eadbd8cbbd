mod random;
mod sealer;
mod store;
