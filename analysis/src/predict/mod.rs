//! What a program would cost elsewhere, otherwise or before it ran: predictions.
//!
//! A prediction is a [`Range`], never a number alone. [`operator`] is one operator with its shapes
//! and types, from a recording or from the list that an estimate leaves behind ([`op_list`]);
//! [`op_cost`] says what it costs on a device. [`device_table`] holds the devices that it can be
//! for. [`device_comparison`] puts an iteration on all of them, by [`wave_scaling`] where it ran on a
//! GPU.

pub mod batch_size;
pub mod device_comparison;
pub mod device_row;
pub mod device_spec;
pub mod device_table;
pub mod live;
pub mod measured_rates;
pub mod op_cost;
pub mod op_list;
pub mod operator;
pub mod other_device;
pub mod product_kernel;
pub mod recorded_step;
pub mod replay;
pub mod step_cost;
pub mod step_scaling;
mod trace_operator;
pub mod wave_scaling;

use serde::Serialize;

/// An estimate with its limits: at least four of five measured values lie between `low` and `high`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Range {
    /// The lower limit.
    pub low: f64,
    /// The likeliest value.
    pub value: f64,
    /// The upper limit.
    pub high: f64,
}

impl Range {
    /// A value that is known exactly.
    pub fn exact(value: f64) -> Range {
        Range { low: value, value, high: value }
    }

    /// A value that may be off by a factor: 1.2 means from a sixth less to a fifth more.
    pub fn within_factor(value: f64, factor: f64) -> Range {
        let factor = factor.max(1.0);
        Range { low: value / factor, value, high: value * factor }
    }

    /// The sum of two estimates that err together, which is the careful assumption.
    pub fn plus(self, other: Range) -> Range {
        Range {
            low: self.low + other.low,
            value: self.value + other.value,
            high: self.high + other.high,
        }
    }

    /// So many of it.
    pub fn times(self, count: f64) -> Range {
        Range { low: self.low * count, value: self.value * count, high: self.high * count }
    }
}
