//! The rows of NeuSight's `models.csv`: transformers on data-center GPUs.

use super::csv_rows::{CsvFile, LeftOut};

const MAX_FIELD: usize = 100;
const MAX_SEQUENCE: u32 = 1 << 20;
const MAX_BATCH: u32 = 1 << 16;

/// One measured transformer.
#[derive(Clone, Debug, PartialEq)]
pub struct NeusightRow {
    /// The GPU's name in the driver.
    pub gpu: String,
    /// The name of the configuration.
    pub model: String,
    /// Whether it is forward and backward rather than only forward.
    pub train: bool,
    /// Tokens per sequence.
    pub sequence: u32,
    /// Sequences per step.
    pub batch: u32,
    /// How it is fused or distributed; empty if it is neither.
    pub variant: String,
    /// Time of forward and backward together.
    pub iteration_milliseconds: f64,
    /// Time of forward. `None` if it is not listed separately.
    pub forward_milliseconds: Option<f64>,
    /// Time of backward. `None` if it is not listed separately, or there is none.
    pub backward_milliseconds: Option<f64>,
}

/// Reads the rows. Those that do not parse are counted.
///
/// # Errors
/// If a column is missing, so that no row can be read.
pub fn read(bytes: &[u8]) -> Result<(Vec<NeusightRow>, LeftOut), String> {
    let csv = CsvFile::open(bytes)?;
    let (gpu, model, mode) = (csv.needed("gpu")?, csv.needed("model")?, csv.needed("mode")?);
    let (sequence, batch) = (csv.needed("sequence_length")?, csv.needed("batch_size")?);
    let iteration = csv.needed("iteration_ms")?;
    let (variant, forward, backward) =
        (csv.column("variant"), csv.column("forward_ms"), csv.column("backward_ms"));
    Ok(csv.rows(|fields| {
        let text = |column| fields.text(column).filter(|text| text.len() <= MAX_FIELD);
        let name = |column| text(column).filter(|text| !text.is_empty()).map(str::to_owned);
        let positive = |column, largest: u32| {
            text(column)?.parse::<u32>().ok().filter(|number| (1..=largest).contains(number))
        };
        Ok(NeusightRow {
            gpu: name(gpu).ok_or("no GPU")?,
            model: name(model).ok_or("no model's name")?,
            train: match text(mode) {
                Some("train") => true,
                Some("inf" | "infer" | "inference") => false,
                _ => return Err("neither training nor inference"),
            },
            sequence: positive(sequence, MAX_SEQUENCE).ok_or("no sequence length")?,
            batch: positive(batch, MAX_BATCH).ok_or("no batch size")?,
            variant: variant.and_then(text).unwrap_or_default().to_owned(),
            iteration_milliseconds: fields.milliseconds(iteration).ok_or("no iteration time")?,
            forward_milliseconds: forward.and_then(|column| fields.milliseconds(column)),
            backward_milliseconds: backward.and_then(|column| fields.milliseconds(column)),
        })
    }))
}
