//! Reads a `timm` result file.

use std::collections::HashSet;

use super::csv_rows::{CsvFile, LeftOut};
use super::timm_file_name::TimmFileName;

/// Maximum length of a model name.
const MAX_NAME: usize = 120;
const MAX_SIZE: u32 = 8_192;
const MAX_BATCH: u32 = 1 << 20;

/// A result file: how the models were run, and their times.
#[derive(Clone, Debug, PartialEq)]
pub struct TimmResults {
    /// The name of the file.
    pub file: String,
    /// The parsed name.
    pub name: TimmFileName,
    /// The rows in file order.
    pub rows: Vec<TimmRow>,
}

/// One model at one size.
#[derive(Clone, Debug, PartialEq)]
pub struct TimmRow {
    /// The model's name in the package.
    pub model: String,
    /// Image size along one side, in pixels.
    pub size: u32,
    /// Images per step.
    pub batch: u32,
    /// Measured time of one step.
    pub step_milliseconds: f64,
}

/// Reads the rows. Those that do not parse are counted.
///
/// # Errors
/// If a column is missing, so that no row can be read.
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
            size: within(fields.text(size), MAX_SIZE).ok_or("no image size")?,
            batch: within(fields.text(batch), MAX_BATCH).ok_or("no batch size")?,
            step_milliseconds: fields.milliseconds(time).ok_or("no step time")?,
        };
        let is_new = seen.insert((row.model.clone(), row.size));
        is_new.then_some(row).ok_or("a second row of a model at that size")
    });
    Ok((TimmResults { file: file.to_owned(), name, rows }, left_out))
}

/// Returns whether a name is one of the package: others (`hf-hub:…`, paths) would be downloaded
/// from elsewhere.
fn is_model(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-');
    !name.is_empty() && name.len() <= MAX_NAME && name.bytes().all(plain)
}

fn within(field: Option<&str>, largest: u32) -> Option<u32> {
    let number = field?.parse::<f64>().ok()?;
    (number.fract() == 0.0 && number >= 1.0 && number <= f64::from(largest))
        .then_some(number as u32)
}
