//! The rows of NeuSight's `models.csv`: transformers on data-centre GPUs.

use super::timm_results::{LeftOut, milliseconds};

const MOST_ROWS: usize = 20_000;
const LONGEST_FIELD: usize = 100;
const LONGEST_SEQUENCE: u32 = 1 << 20;
const LARGEST_BATCH: u32 = 1 << 16;

/// One measured transformer.
#[derive(Clone, Debug, PartialEq)]
pub struct NeusightRow {
    /// The GPU by its driver's name.
    pub gpu: String,
    /// The name of its configuration.
    pub model: String,
    /// Forward and backward; else forward alone.
    pub train: bool,
    /// Tokens in a sequence.
    pub sequence: u32,
    /// Sequences in a step.
    pub batch: u32,
    /// Fused or distributed, and how; empty where it is neither.
    pub variant: String,
    /// Forward and backward together.
    pub iteration_milliseconds: f64,
    /// `None` where it is not told apart.
    pub forward_milliseconds: Option<f64>,
    /// `None` where it is not told apart, or there is none.
    pub backward_milliseconds: Option<f64>,
}

/// Reads the rows; what does not parse is counted.
///
/// # Errors
/// Where a column is missing, so that no row can be read.
pub fn read(bytes: &[u8]) -> Result<(Vec<NeusightRow>, LeftOut), String> {
    let mut reader =
        csv::ReaderBuilder::new().flexible(true).trim(csv::Trim::All).from_reader(bytes);
    let header = reader.byte_headers().map_err(|error| error.to_string())?.clone();
    let column = |wanted: &str| header.iter().position(|title| title == wanted.as_bytes());
    let needed = |wanted: &str| column(wanted).ok_or_else(|| format!("it has no column {wanted}"));
    let (gpu, model, mode) = (needed("gpu")?, needed("model")?, needed("mode")?);
    let (sequence, batch) = (needed("sequence_length")?, needed("batch_size")?);
    let iteration = needed("iteration_ms")?;
    let (variant, forward, backward) =
        (column("variant"), column("forward_ms"), column("backward_ms"));
    let mut left_out = LeftOut::default();
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
        let field = |index: usize| {
            let text = str::from_utf8(record.get(index)?).ok()?;
            (text.len() <= LONGEST_FIELD).then_some(text)
        };
        let name = |index: usize| field(index).filter(|text| !text.is_empty()).map(str::to_owned);
        let whole = |index: usize, largest: u32| {
            field(index)?.parse::<u32>().ok().filter(|number| (1..=largest).contains(number))
        };
        let row = (|| {
            Ok(NeusightRow {
                gpu: name(gpu).ok_or("no GPU")?,
                model: name(model).ok_or("no model's name")?,
                train: match field(mode) {
                    Some("train") => true,
                    Some("inf" | "infer" | "inference") => false,
                    _ => return Err("neither training nor inference"),
                },
                sequence: whole(sequence, LONGEST_SEQUENCE).ok_or("no sequence length")?,
                batch: whole(batch, LARGEST_BATCH).ok_or("no batch size")?,
                variant: variant.and_then(field).unwrap_or_default().to_owned(),
                iteration_milliseconds: milliseconds(field(iteration))
                    .ok_or("no iteration time")?,
                forward_milliseconds: forward.and_then(|index| milliseconds(field(index))),
                backward_milliseconds: backward.and_then(|index| milliseconds(field(index))),
            })
        })();
        match row {
            Ok(row) => rows.push(row),
            Err(why) => left_out.count(why),
        }
    }
    Ok((rows, left_out))
}
