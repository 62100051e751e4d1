//! The rows of a `timm` result file.

use std::collections::HashSet;

use super::csv_rows::{CsvFile, LeftOut};
use super::timm_file_name::TimmFileName;

/// Longer ones are no model's.
const LONGEST_NAME: usize = 120;
const LARGEST_SIZE: u32 = 8_192;
const LARGEST_BATCH: u32 = 1 << 20;

/// A file of results: how its models were run, and how long each took.
#[derive(Clone, Debug, PartialEq)]
pub struct TimmResults {
    /// The file's name.
    pub file: String,
    /// What its name says.
    pub name: TimmFileName,
    /// In the file's order.
    pub rows: Vec<TimmRow>,
}

/// One model at one size.
#[derive(Clone, Debug, PartialEq)]
pub struct TimmRow {
    /// The package's name for it.
    pub model: String,
    /// Pixels along one side of its images.
    pub size: u32,
    /// Images in a step.
    pub batch: u32,
    /// What was measured: one step.
    pub step_milliseconds: f64,
}

/// Reads the rows; what does not parse is counted.
///
/// # Errors
/// Where a column is missing, so that no row can be read.
pub fn read(
    file: &str,
    name: TimmFileName,
    bytes: &[u8],
) -> Result<(TimmResults, LeftOut), String> {
    let csv = CsvFile::open(bytes)?;
    let mode = if name.train { "train" } else { "infer" };
    let column = |what: &str| {
        let full = format!("{mode}_{what}");
        csv.column(&full)
            .or_else(|| csv.column(what))
            .ok_or_else(|| format!("it has no column {full}"))
    };
    let model = csv.needed("model")?;
    let (size, batch, time) = (column("img_size")?, column("batch_size")?, column("step_time")?);
    let mut seen = HashSet::new();
    let (rows, left_out) = csv.rows(|fields| {
        let row = TimmRow {
            model: fields
                .text(model)
                .filter(|name| is_model(name))
                .ok_or("no model's name")?
                .to_owned(),
            size: within(fields.text(size), LARGEST_SIZE).ok_or("no image size")?,
            batch: within(fields.text(batch), LARGEST_BATCH).ok_or("no batch size")?,
            step_milliseconds: fields.milliseconds(time).ok_or("no step time")?,
        };
        let is_new = seen.insert((row.model.clone(), row.size));
        is_new.then_some(row).ok_or("a second row of a model at that size")
    });
    Ok((TimmResults { file: file.to_owned(), name, rows }, left_out))
}

/// Names of the package alone: others (`hf-hub:…`, paths) would be fetched from elsewhere.
fn is_model(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-');
    !name.is_empty() && name.len() <= LONGEST_NAME && name.bytes().all(plain)
}

fn within(field: Option<&str>, largest: u32) -> Option<u32> {
    let number = field?.parse::<f64>().ok()?;
    (number.fract() == 0.0 && number >= 1.0 && number <= f64::from(largest))
        .then_some(number as u32)
}
