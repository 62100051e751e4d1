//! Compares predictions with published measurements.
//!
//! A folder of measurements ([`ground_truth`]) is evaluated by [`questions`]. Each question creates
//! cases, compares the prediction of each case with its measurement, and also shows trivial
//! predictions for the same cases ([`trivial`]). A case keeps its measurement private ([`case`]),
//! so that the code that predicts cannot see it.

pub mod benchmark_facts;
pub mod case;
pub mod conformal;
pub mod csv_rows;
pub mod device_name;
pub mod error_statistics;
pub mod ground_truth;
pub mod lambda_results;
pub mod list_request;
pub mod neusight_models;
pub mod questions;
pub mod report;
pub mod sample;
pub mod timm_file_name;
pub mod timm_results;
pub mod trivial;
