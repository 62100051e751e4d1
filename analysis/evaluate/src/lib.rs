//! Predictions judged by what others measured.
//!
//! A folder of measurements ([`ground_truth`]) is asked [`questions`]; each makes cases, a case's
//! prediction is compared with its measurement, and beside it stand the trivial answers to the same
//! cases ([`trivial`]). A case keeps its measurement to itself ([`case`]): what predicts is made
//! without it and cannot look.

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
