//! Reads a folder of measurements: `timm` result files, NeuSight's transformers and their
//! configurations. Missing and unreadable files are reported.

use std::collections::BTreeMap;

use super::csv_rows::LeftOut;
use super::lambda_results::{LambdaRow, LambdaTables};
use super::list_request::Config;
use super::neusight_models::{self, NeusightRow};
use super::timm_file_name::TimmFileName;
use super::timm_results::{self, TimmResults};

/// The folder of `timm` result files.
pub const TIMM: &str = "timm";
/// NeuSight's transformers.
pub const NEUSIGHT_MODELS: &str = "neusight/models.csv";
/// The configurations of NeuSight's transformers.
pub const NEUSIGHT_CONFIGS: &str = "neusight/model-configs";

/// The folder of training throughput tables.
pub const LAMBDA: &str = "lambda";

/// A file of the folder, or the reason why it could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// The path relative to the folder, with slashes:
    /// `timm/infer-amp-nchw-pt240-cu124-rtx3090.csv`.
    pub path: String,
    /// The bytes of the file.
    pub contents: Result<Vec<u8>, String>,
}

/// The measurements in a folder.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GroundTruth {
    /// `timm` result files.
    pub timm: Vec<TimmResults>,
    /// Rows of `neusight/models.csv`.
    pub transformers: Vec<NeusightRow>,
    /// Rows of `lambda/`.
    pub lambda: Vec<LambdaRow>,
    /// The transformers' configurations, by name.
    pub configs: BTreeMap<String, Config>,
    /// Missing and unreadable files and rows, as text.
    pub problems: Vec<String>,
}

impl GroundTruth {
    /// Reads the measurements in the files.
    pub fn read(files: &[File]) -> GroundTruth {
        let mut truth = GroundTruth::default();
        let mut saw_models = false;
        let mut tables = LambdaTables::default();
        for file in files {
            let bytes = match &file.contents {
                Ok(bytes) => bytes,
                Err(why) => {
                    truth.problems.push(format!("{}: {why}", file.path));
                    saw_models |= file.path == NEUSIGHT_MODELS;
                    continue;
                }
            };
            let (folder, name) = file.path.rsplit_once('/').unwrap_or(("", &file.path));
            if file.path == NEUSIGHT_MODELS {
                saw_models = true;
                match neusight_models::read(bytes) {
                    Ok((rows, left_out)) => {
                        truth.transformers = rows;
                        truth.note(&file.path, &left_out);
                    }
                    Err(why) => truth.problems.push(format!("{}: {why}", file.path)),
                }
            } else if folder == NEUSIGHT_CONFIGS {
                match (name.strip_suffix(".json"), Config::parse(bytes)) {
                    (Some(model), Some(config)) => {
                        truth.configs.insert(model.to_owned(), config);
                    }
                    _ => truth.problems.push(format!("{}: it is no JSON object", file.path)),
                }
            } else if folder == TIMM {
                truth.read_timm(&file.path, name, bytes);
            } else if folder == LAMBDA {
                match tables.read(name, bytes) {
                    Ok(left_out) => truth.note(&file.path, &left_out),
                    Err(why) => truth.problems.push(format!("{}: {why}", file.path)),
                }
            }
        }
        truth.lambda = tables.rows();
        if truth.timm.is_empty() {
            truth.problems.push(format!("{TIMM}: there is no result file"));
        }
        if !saw_models {
            truth.problems.push(format!("{NEUSIGHT_MODELS}: not found"));
        }
        truth
    }

    fn read_timm(&mut self, path: &str, name: &str, bytes: &[u8]) {
        let Some(parsed) = TimmFileName::parse(name) else {
            let why = "its name does not say whether it is inference or training, and on which GPU";
            self.problems.push(format!("{path}: {why}"));
            return;
        };
        match timm_results::read(name, parsed, bytes) {
            Ok((results, left_out)) => {
                self.note(path, &left_out);
                self.timm.push(results);
            }
            Err(why) => self.problems.push(format!("{path}: {why}")),
        }
    }

    fn note(&mut self, path: &str, left_out: &LeftOut) {
        for (why, count) in &left_out.0 {
            let rows = if *count == 1 { "row" } else { "rows" };
            self.problems.push(format!("{path}: {count} {rows} left out: {why}"));
        }
    }
}
