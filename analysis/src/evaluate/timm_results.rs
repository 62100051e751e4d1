//! The rows of a `timm` result file.

use std::collections::HashSet;

use super::timm_file_name::TimmFileName;

/// Rows of one file that are read.
const MOST_ROWS: usize = 20_000;
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

/// Rows that were left out, and why.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeftOut(pub Vec<(String, usize)>);

impl LeftOut {
    /// Counts one.
    pub fn count(&mut self, why: &str) {
        match self.0.iter_mut().find(|(reason, _)| reason == why) {
            Some((_, count)) => *count += 1,
            None => self.0.push((why.to_owned(), 1)),
        }
    }
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
    let mut reader =
        csv::ReaderBuilder::new().flexible(true).trim(csv::Trim::All).from_reader(bytes);
    let header = reader.byte_headers().map_err(|error| error.to_string())?.clone();
    let mode = if name.train { "train" } else { "infer" };
    let column = |what: &str| {
        let full = format!("{mode}_{what}");
        let place = |wanted: &str| header.iter().position(|title| title == wanted.as_bytes());
        place(&full).or_else(|| place(what)).ok_or_else(|| format!("it has no column {full}"))
    };
    let model = header
        .iter()
        .position(|title| title == b"model")
        .ok_or_else(|| "it has no column model".to_owned())?;
    let (size, batch, time) = (column("img_size")?, column("batch_size")?, column("step_time")?);
    let mut left_out = LeftOut::default();
    let mut seen = HashSet::new();
    let mut rows = Vec::new();
    let mut record = csv::ByteRecord::new();
    for read in 0.. {
        match reader.read_byte_record(&mut record) {
            Ok(false) => break,
            Ok(true) => {}
            Err(error) => {
                left_out.count(&format!("the rest of the file: {error}"));
                break;
            }
        }
        if read >= MOST_ROWS {
            left_out.count(&format!("what follows after {MOST_ROWS} rows"));
            break;
        }
        let field = |index: usize| record.get(index).and_then(|field| str::from_utf8(field).ok());
        let row =
            field(model).filter(|name| is_model(name)).ok_or("no model's name").and_then(|model| {
                Ok(TimmRow {
                    model: model.to_owned(),
                    size: within(field(size), LARGEST_SIZE).ok_or("no image size")?,
                    batch: within(field(batch), LARGEST_BATCH).ok_or("no batch size")?,
                    step_milliseconds: milliseconds(field(time)).ok_or("no step time")?,
                })
            });
        match row {
            Ok(row) if seen.insert((row.model.clone(), row.size)) => rows.push(row),
            Ok(_) => left_out.count("a second row of a model at that size"),
            Err(why) => left_out.count(why),
        }
    }
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

pub(super) fn milliseconds(field: Option<&str>) -> Option<f64> {
    let number = field?.parse::<f64>().ok()?;
    (number.is_finite() && number > 0.0).then_some(number)
}
