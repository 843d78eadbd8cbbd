mod sealer;
mod store;
