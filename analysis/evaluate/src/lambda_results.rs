//! The tables of `lambda/`: training throughput and batch sizes of eight models, in FP32 and in
//! FP16 mixed precision, on one and several GPUs.

use std::collections::BTreeMap;

use super::csv_rows::LeftOut;

const MAX_ROWS: usize = 5_000;
const MAX_COLUMNS: usize = 100;
const MAX_FIELD: usize = 100;
const MAX_GPUS: u32 = 4_096;
/// Columns that are not models.
const MACHINE_COLUMNS: [&str; 4] = ["name_gpu", "num_gpu", "watt", "price"];

/// One model trained on one machine.
#[derive(Clone, Debug, PartialEq)]
pub struct LambdaRow {
    /// The name of the machine in the table: `LambdaCloud 2x V100 16GB`.
    pub machine: String,
    /// The owner or vendor, if the name of a machine with several GPUs states it: `LambdaCloud`,
    /// `Dell`, `1CC`.
    pub owner: String,
    /// The GPU: `V100 16GB`. For machines with one GPU it includes the owner.
    pub gpu: String,
    /// The number of GPUs.
    pub gpus: u32,
    /// The power of each GPU in watts, if the table has it.
    pub watts: Option<f64>,
    /// The name of the model in the table.
    pub model: String,
    /// Whether it is FP16 mixed precision rather than FP32.
    pub half: bool,
    /// Samples per step over all GPUs.
    pub batch: u32,
    /// Throughput in the model's units (images, sequences, tokens) per second.
    pub per_second: f64,
}

/// The four tables.
#[derive(Clone, Debug, Default)]
pub struct LambdaTables {
    /// Units per second by machine, GPUs, model and precision.
    throughput: BTreeMap<Key, f64>,
    batch: BTreeMap<Key, f64>,
    /// Total power of all GPUs of a machine.
    watts: BTreeMap<String, f64>,
}

type Key = (String, u32, String, bool);

impl LambdaTables {
    /// Reads one table, which `name` identifies. Rows that do not parse are counted.
    ///
    /// # Errors
    /// If the name is none of the four, or a column is missing.
    pub fn read(&mut self, name: &str, bytes: &[u8]) -> Result<LeftOut, String> {
        let stem = name.strip_suffix(".csv").unwrap_or(name);
        let half = match stem.rsplit('-').next() {
            Some("fp16") => true,
            Some("fp32") => false,
            _ => return Err("its name does not say whether it is FP32 or FP16".to_owned()),
        };
        let target = if stem.contains("throughput") {
            &mut self.throughput
        } else if stem.contains("batch-size") {
            &mut self.batch
        } else {
            return Err("its name says neither throughput nor batch size".to_owned());
        };
        let mut reader =
            csv::ReaderBuilder::new().flexible(true).trim(csv::Trim::All).from_reader(bytes);
        let header = reader.headers().map_err(|error| error.to_string())?.clone();
        let column = |wanted: &str| {
            let place = header.iter().position(|title| title == wanted);
            place.ok_or_else(|| format!("it has no column {wanted}"))
        };
        let (machine, gpus) = (column("name_gpu")?, column("num_gpu")?);
        let watt = column("watt").ok();
        let mut left_out = LeftOut::default();
        for (read, record) in reader.records().enumerate() {
            let Ok(record) = record else {
                left_out.count("a row that is no text");
                continue;
            };
            if read >= MAX_ROWS {
                left_out.count("a row beyond the limit");
                continue;
            }
            let name =
                record.get(machine).filter(|name| !name.is_empty() && name.len() <= MAX_FIELD);
            let count =
                record.get(gpus).and_then(|text| text.parse::<f64>().ok()).filter(|count| {
                    count.fract() == 0.0 && (1.0..=f64::from(MAX_GPUS)).contains(count)
                });
            let (Some(name), Some(count)) = (name, count) else {
                left_out.count("no machine");
                continue;
            };
            let watts = watt.and_then(|at| record.get(at)?.parse::<f64>().ok());
            if let Some(watts) = watts.filter(|watts| watts.is_finite() && *watts > 0.0) {
                self.watts.insert(name.to_owned(), watts);
            }
            for (title, field) in header.iter().zip(&record).take(MAX_COLUMNS) {
                if MACHINE_COLUMNS.contains(&title) || title.len() > MAX_FIELD || field.is_empty() {
                    continue;
                }
                match field.parse::<f64>() {
                    Ok(value) if value.is_finite() && value > 0.0 => {
                        let key = (name.to_owned(), count as u32, title.to_owned(), half);
                        target.insert(key, value);
                    }
                    // A model that did not fit or did not run.
                    Ok(0.0) => {}
                    _ => left_out.count("a field that is no number"),
                }
            }
        }
        Ok(left_out)
    }

    /// Returns the entries with both a throughput and a batch size.
    pub fn rows(&self) -> Vec<LambdaRow> {
        let both = self.throughput.iter().filter_map(|(key, per_second)| {
            let batch = *self.batch.get(key)?;
            let is_valid = batch.fract() == 0.0 && batch <= f64::from(u32::MAX);
            is_valid.then(|| {
                let (machine, gpus, model, half) = key.clone();
                let (owner, gpu) = owner_and_gpu(&machine);
                LambdaRow {
                    owner: owner.to_owned(),
                    gpu: gpu.to_owned(),
                    watts: self.watts.get(&machine).map(|watts| watts / f64::from(gpus)),
                    machine,
                    gpus,
                    model,
                    half,
                    batch: batch as u32,
                    per_second: *per_second,
                }
            })
        });
        both.collect()
    }
}

impl LambdaRow {
    /// Returns the GPU with its owner, as the table names a machine with one such GPU.
    pub fn owned_gpu(&self) -> String {
        format!("{} {}", self.owner, self.gpu).trim_start().to_owned()
    }
}

/// Splits `LambdaCloud 2x V100 16GB` into `LambdaCloud` and `V100 16GB`, and `4x A100 80GB SXM4`
/// into an empty owner and `A100 80GB SXM4`. A name without a count is entirely the GPU.
fn owner_and_gpu(machine: &str) -> (&str, &str) {
    // The PCIe generation is not part of the GPU's name.
    let machine = machine.trim_end_matches(" Gen5").trim_end_matches(" Gen4");
    let mut word_at = 0;
    for word in machine.split_inclusive([' ', '_']) {
        let digits = word.bytes().take_while(u8::is_ascii_digit).count();
        let after_count = word.get(digits..).and_then(|rest| rest.strip_prefix('x'));
        // `4x A100` and `4xV100`, but not `4xyz`.
        let counts = |rest: &str| {
            let rest = rest.trim();
            rest.is_empty() || rest.bytes().any(|byte| byte.is_ascii_digit())
        };
        if digits > 0 && after_count.is_some_and(counts) {
            let owner = machine.get(..word_at).unwrap_or_default();
            let gpu = machine.get(word_at + digits + 1..).unwrap_or_default();
            return (owner.trim_end_matches([' ', '_']), gpu.trim_start_matches([' ', '_']));
        }
        word_at += word.len();
    }
    ("", machine)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device_name::named;
    use ridgeline_devices::device_table::DeviceTable;

    #[test]
    fn machine_names_contain_the_gpu() {
        for (machine, device) in [
            ("Quadro RTX 8000", "QuadroRTX8000"),
            ("LambdaCloud V100 16GB", "V100-PCIe-16GB"),
            ("LambdaCloud 4xV100 16GB", "V100-PCIe-16GB"),
            ("2x RTX 3090", "RTX3090"),
            ("LambdaCloud A100 40GB PCIe", "A100-PCIe-40GB"),
            ("8x A100 80GB SXM4", "A100-SXM4-80GB"),
            ("H100 80GB PCIe Gen5", "H100-PCIe-80GB"),
            ("LambdaCloud H100 80GB PCIe Gen5", "H100-PCIe-80GB"),
            ("Dell 4x H100 80GB SXM5", "H100-SXM5-80GB"),
            ("1CC 8x H100 80GB SXM5", "H100-SXM5-80GB"),
            ("1CC H100 80GB SXM5", "H100-SXM5-80GB"),
            ("SMC_2xH100_80GB_SXM5", "H100-SXM5-80GB"),
            ("8x RTX 6000 Ada", "RTX6000Ada"),
        ] {
            let (_, gpu) = owner_and_gpu(machine);
            let found = named(gpu, DeviceTable::shipped()).map(|named| named.device.name.as_str());
            assert_eq!(found, Some(device), "{machine}: {gpu}");
        }
    }

    #[test]
    fn the_owner_is_before_the_count() {
        for (machine, owner, gpu) in [
            ("Dell 4x H100 80GB SXM5", "Dell", "H100 80GB SXM5"),
            ("1CC 8x H100 80GB SXM5", "1CC", "H100 80GB SXM5"),
            ("LambdaCloud 4xV100 16GB", "LambdaCloud", "V100 16GB"),
            ("2x RTX 3090", "", "RTX 3090"),
            ("1CC H100 80GB SXM5", "", "1CC H100 80GB SXM5"),
            ("8x", "", ""),
            ("", "", ""),
            ("\u{e9}2x \u{e9}", "", "\u{e9}2x \u{e9}"),
        ] {
            assert_eq!(owner_and_gpu(machine), (owner, gpu), "{machine}");
        }
    }

    #[test]
    fn a_row_has_a_batch_size_and_a_throughput() {
        let mut tables = LambdaTables::default();
        let throughput = b"name_gpu,num_gpu,watt,price,ssd,ncf\nRTX 3090,1.0,350,1,144.0,0\n";
        let batch = b"name_gpu,num_gpu,watt,price,ssd,ncf\nRTX 3090,1,350,1,80,9\n,,,\n";
        tables.read("train-throughput-fp32.csv", throughput).expect("it is read");
        let left_out = tables.read("train-batch-size-fp32.csv", batch).expect("it is read");
        assert_eq!(left_out.0, [("no machine".to_owned(), 1)]);
        let rows = tables.rows();
        assert_eq!(rows.len(), 1);
        assert_eq!((rows[0].model.as_str(), rows[0].batch, rows[0].half), ("ssd", 80, false));
        assert_eq!((rows[0].per_second, rows[0].watts), (144.0, Some(350.0)));
        assert!(tables.read("notes.csv", b"").is_err());
    }
}
