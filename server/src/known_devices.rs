//! The devices to predict for: the built-in table, and what a project adds to it. Invalid entries
//! are skipped with a note.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use ridgeline_analysis::devices::device_row::DeviceRow;
use ridgeline_analysis::devices::device_spec::DeviceSpec;
use ridgeline_analysis::devices::device_table::{DeviceTable, MAX_ADDED};

use crate::config::{self, Devices};

/// The maximum size in bytes of a description of one GPU, which is a page of text.
const MAX_FILE_BYTES: u64 = 64 << 10;

/// Returns the devices of the project at `root`, and notes for the user about skipped entries.
pub(crate) fn of_project(root: &Path) -> (DeviceTable, Vec<String>) {
    match config::load(root) {
        Ok(loaded) => with(root, &loaded.config.devices),
        Err(error) => {
            let note = format!("the project's own GPUs and prices are ignored: {error}");
            (DeviceTable::shipped().clone(), vec![note])
        }
    }
}

/// Returns the built-in devices, with those of a configuration in the folder `root`.
fn with(root: &Path, devices: &Devices) -> (DeviceTable, Vec<String>) {
    let mut table = DeviceTable::shipped().clone();
    let mut notes = Vec::new();
    if devices.files.len() > MAX_ADDED {
        notes.push(format!("devices.files: more than {MAX_ADDED} GPUs; the rest is ignored"));
    }
    for file in devices.files.iter().take(MAX_ADDED) {
        let path = file.as_path();
        let read = config::inside(root, path).and_then(|full| read(&full));
        match read {
            Ok(device) => {
                table.add(device);
            }
            Err(why) => {
                notes.push(format!("{} is ignored: {why}", path.display()));
            }
        }
    }
    for (name, price) in &devices.prices {
        if let Err(unknown) = table.set_price(name, price.price().clone()) {
            notes.push(format!("devices.prices: {unknown}"));
        }
    }
    (table, notes)
}

/// Reads the description of a GPU.
///
/// # Errors
/// What is wrong with the file, and at which key.
pub(crate) fn read(path: &Path) -> Result<DeviceSpec, String> {
    // Opening a named pipe would block forever.
    if !path.metadata().map_err(|error| format!("cannot be read: {error}"))?.is_file() {
        return Err("not a regular file".to_owned());
    }
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(|error| format!("cannot be read: {error}"))?;
    file.take(MAX_FILE_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| format!("cannot be read: {error}"))?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err("too large to describe one GPU".to_owned());
    }
    let text = String::from_utf8(bytes).map_err(|_| "not UTF-8".to_owned())?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    let row = parse(text)?;
    row.into_spec().map_err(|bad| bad.to_string())
}

fn parse(text: &str) -> Result<DeviceRow, String> {
    let describe = |key: &str, error: &toml::de::Error| {
        let line = error.span().map(|span| {
            let before = text.as_bytes().get(..span.start).unwrap_or(text.as_bytes());
            let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
            format!("line {line}: ")
        });
        let key = if matches!(key, "" | ".") { String::new() } else { format!("`{key}`, ") };
        let message: String = error.message().chars().take(500).collect();
        format!("{key}{}{message}", line.unwrap_or_default())
    };
    let deserializer = toml::Deserializer::parse(text).map_err(|error| describe("", &error))?;
    serde_path_to_error::deserialize(deserializer)
        .map_err(|error| describe(&error.path().to_string(), error.inner()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: &str = "name = \"Ours\"\narchitecture = \"8.6\"\nmultiprocessors = 80\n\
                        memory_gb = 12\nbandwidth_gb_per_s = 912\nfp32_tflops = 34.1\n";

    fn project(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a temporary folder");
        for (name, text) in files {
            std::fs::write(folder.path().join(name), text).expect("written");
        }
        folder
    }

    /// Checks the note for a project whose only GPU is this file.
    #[track_caller]
    fn check(file: &str, reason: &str) {
        let config = "[devices]\nfiles = [\"ours.toml\"]\n";
        let folder = project(&[("ridgeline.toml", config), ("ours.toml", file)]);
        let (table, notes) = of_project(folder.path());
        assert_eq!(notes, [format!("ours.toml is ignored: {reason}")]);
        assert_eq!(table, *DeviceTable::shipped());
    }

    #[test]
    fn projects_can_add_gpus_and_prices() {
        let config = "[devices]\nfiles = [\"ours.toml\"]\n[devices.prices]\nOurs = 0.2\nT4 = 0.1\n";
        let folder = project(&[("ridgeline.toml", config), ("ours.toml", OURS)]);
        let (table, notes) = of_project(folder.path());
        assert!(notes.is_empty(), "{notes:?}");
        let price = |name: &str| table.find(name).unwrap().price.clone().unwrap().usd_per_hour;
        assert_eq!((price("Ours"), price("Tesla T4")), (0.2, 0.1));
    }

    #[test]
    fn invalid_files_are_ignored_and_the_key_is_named() {
        check(&OURS.replace("= 80", "= 0"), "`multiprocessors`: must be a number from 1 to 4096");
        check(&OURS.replace("34.1", "nan"), "`fp32_tflops`: must be a number from 0.01 to 1000000");
        check(&OURS.replace("name = \"Ours\"\n", ""), "line 1: missing field `name`");
        check(&format!("{OURS}teraflops = 3\n"), &unknown_field());
        check(&"#".repeat(100_000), "too large to describe one GPU");
        check(
            &format!("x = {}", "[".repeat(20_000)),
            "line 1: cannot recurse further; max recursion depth met",
        );
    }

    fn unknown_field() -> String {
        "`teraflops`, line 7: unknown field `teraflops`, expected one of `name`, `aliases`, `vendor`, `architecture`, `multiprocessors`, `memory_gb`, `l2_mb`, `base_clock_mhz`, `boost_clock_mhz`, `bandwidth_gb_per_s`, `fp32_tflops`, `tf32_tflops`, `fp16_tflops`, `bf16_tflops`, `fp8_tflops`, `tdp_w`, `price`, `source`, `verified_by`, `note`".to_owned()
    }

    #[test]
    fn a_price_of_an_unknown_gpu_suggests_names() {
        let folder = project(&[("ridgeline.toml", "[devices.prices]\n\"RTX 4091\" = 1\n")]);
        let (_, notes) = of_project(folder.path());
        let [note] = &notes[..] else { panic!("{notes:?}") };
        assert!(note.contains("RTX 4091") && note.contains("RTX4090"), "{note}");
    }

    #[test]
    fn a_broken_configuration_leaves_the_built_in_table() {
        let folder = project(&[("ridgeline.toml", "devices = 3\n")]);
        let (table, notes) = of_project(folder.path());
        assert_eq!(table, *DeviceTable::shipped());
        assert!(notes[0].contains("ridgeline.toml:1"), "{notes:?}");
    }
}
