//! Which script is the training run.
