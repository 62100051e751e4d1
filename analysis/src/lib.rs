//! What a recording of a training loop costs, by line of source.
//!
//! This crate is pure: bytes and text go in, values come out. It knows no LSP, no file system, no
//! clock, no process and no device; `tests/purity.rs` holds that.
//!
//! The way through it: [`recording`] reads what one run left behind, [`attribution`] joins every
//! operator to the user's lines and modules and gives a [`profile::Profile`], [`source`] knows
//! today's text and carries costs onto it, [`present`] turns both into what a person reads.

pub mod attribution;
pub mod compare;
pub mod diagnose;
pub mod evaluate;
pub mod metrics;
pub mod predict;
pub mod present;
pub mod printable;
pub mod profile;
pub mod ranks;
pub mod recording;
pub mod source;
pub mod units;
pub mod whatif;
