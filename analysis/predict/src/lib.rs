//! What an iteration would take with another batch size, on another GPU, or after an edit that has not
//! run: predictions.
//!
//! A prediction is a [`Range`](ridgeline_operators::range::Range), never a number alone.
//! [`device_comparison`] puts an iteration on every GPU of the table, by [`wave_scaling`] where it ran
//! on a GPU. [`live`] carries a profile onto the text as it is while someone types.
//!
//! It does not know how a program is made faster (`optimize`), nor how a prediction is shown.

pub mod batch_size;
pub mod device_comparison;
pub mod live;
pub mod measured_rates;
pub mod other_device;
pub mod replay;
pub mod step_scaling;
pub mod wave_scaling;
