//! Predictions of an iteration with another batch size, on another GPU, or after an edit that has
//! not run.
//!
//! A prediction is always a [`Range`](ridgeline_operators::range::Range), never a single number.
//! [`device_comparison`] predicts an iteration on every GPU of the table, by [`wave_scaling`] if it
//! ran on a GPU. [`live`] updates a profile for the current text while the user types.
//!
//! It does not know how to make a program faster (`optimize`), nor how to display a prediction.

pub mod batch_size;
pub mod device_comparison;
pub mod gpu_batches;
pub mod live;
pub mod measured_rates;
pub mod other_device;
pub mod replay;
pub mod step_scaling;
pub mod wave_scaling;
