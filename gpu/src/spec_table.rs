//! Peak rates of known GPUs by name, each with its source: `spec_table.json`.

use std::sync::LazyLock;

use ridgeline_analysis::profile::Roof;
use serde::Deserialize;

/// What the makers say of one GPU. Rates are dense; `None` where the GPU lacks it or it is unknown.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Spec {
    /// The model with its form and memory: `H200-SXM5-141GB`.
    pub name: String,
    /// The names that its driver gives it.
    pub aliases: Vec<String>,
    /// `NVIDIA` or `AMD`.
    pub vendor: String,
    /// Compute capability (`9.0`) or AMD's target (`gfx942`).
    pub architecture: String,
    /// Streaming multiprocessors or compute units.
    pub multiprocessors: u32,
    /// Memory in units of 1e9 bytes, as sold.
    pub memory_gb: f64,
    /// L2 cache in units of 1e6 bytes, as sold.
    pub l2_mb: Option<f64>,
    /// The boost clock in MHz.
    pub boost_clock_mhz: Option<f64>,
    /// Of device memory, in 1e9 bytes per second.
    pub bandwidth_gb_per_s: f64,
    /// FP32 outside tensor cores, in 1e12 operations per second.
    pub fp32_tflops: Option<f64>,
    /// TF32 on tensor cores.
    pub tf32_tflops: Option<f64>,
    /// FP16 with FP32 accumulation on tensor cores.
    pub fp16_tflops: Option<f64>,
    /// BF16 on tensor cores.
    pub bf16_tflops: Option<f64>,
    /// FP8 on tensor cores.
    pub fp8_tflops: Option<f64>,
    /// Where the row comes from.
    pub source: String,
    /// What it was compared with, if anything.
    pub verified_by: Option<String>,
}

impl Spec {
    /// Its roofline.
    pub fn roof(&self) -> Roof {
        let tera = |rate: Option<f64>| rate.map(|rate| rate * 1e12);
        Roof {
            fp32_flops: tera(self.fp32_tflops),
            tf32_flops: tera(self.tf32_tflops),
            fp16_flops: tera(self.fp16_tflops),
            bandwidth: Some(self.bandwidth_gb_per_s * 1e9),
        }
    }
}

/// The roof of a device by the name that torch, the driver or a trace gives it; `None` where it is
/// not in the table.
pub fn roof(device_name: &str) -> Option<Roof> {
    spec(device_name).map(Spec::roof)
}

/// The row of a device by the name that torch, the driver or a trace gives it.
///
/// Names have to agree in every word but the maker's, since one word more is another GPU: `RTX 3080`
/// and `RTX 3080 Ti`, `RTX 4090` and `RTX 4090 Laptop GPU`, `A100-SXM4-40GB` and a slice of it.
pub fn spec(device_name: &str) -> Option<&'static Spec> {
    let wanted = words_of(device_name);
    if wanted.is_empty() {
        return None;
    }
    TABLE.iter().find(|spec| {
        words_of(&spec.name) == wanted || spec.aliases.iter().any(|name| words_of(name) == wanted)
    })
}

/// A name is looked up at this length at most; no real one comes near.
const LONGEST_NAME: usize = 200;

/// Drivers before 2021 left the maker out, and wrote `Tesla` where they now write `NVIDIA`.
fn words_of(name: &str) -> Vec<String> {
    if name.len() > LONGEST_NAME {
        return Vec::new();
    }
    name.split(|c: char| !c.is_ascii_alphanumeric())
        .map(str::to_ascii_lowercase)
        .filter(|word| !matches!(word.as_str(), "" | "nvidia" | "tesla" | "amd"))
        .collect()
}

#[derive(Deserialize)]
struct Table {
    gpus: Vec<Spec>,
}

static TABLE: LazyLock<Vec<Spec>> = LazyLock::new(|| {
    let table = serde_json::from_str::<Table>(include_str!("spec_table.json"));
    // A table that cannot be read is the fault of a change to it, which the tests show.
    table.map(|table| table.gpus).unwrap_or_default()
});

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(device_name: &str, expected: Option<&str>) {
        assert_eq!(spec(device_name).map(|spec| spec.name.as_str()), expected);
    }

    #[test]
    fn names_as_torch_and_traces_give_them() {
        check("NVIDIA H200", Some("H200-SXM5-141GB"));
        check("Tesla V100-SXM2-16GB", Some("V100-SXM2-16GB"));
        check("Tesla V100-DGXS-32GB", Some("V100-SXM2-32GB"));
        check("NVIDIA A100-PG509-200", Some("A100-SXM4-40GB"));
        check("NVIDIA H100 80GB HBM3", Some("H100-SXM5-80GB"));
        check("NVIDIA B200", Some("B200-SXM6-180GB"));
        check("AMD Instinct MI300X", Some("MI300X"));
    }

    #[test]
    fn names_of_older_drivers() {
        check("GeForce RTX 2080 Ti", Some("RTX2080Ti"));
        check("A100-SXM4-40GB", Some("A100-SXM4-40GB"));
    }

    #[test]
    fn another_gpu_with_almost_the_same_name_is_unknown() {
        check("NVIDIA GeForce RTX 3080 Ti", None);
        check("NVIDIA GeForce RTX 4090 Laptop GPU", None);
        check("NVIDIA A100-SXM4-40GB MIG 1g.5gb", None);
        check("NVIDIA A100", None);
        check("NVIDIA", None);
        check("", None);
        check("AMD EPYC 7B13", None);
        check(&"H200".repeat(1000), None);
    }

    #[test]
    fn every_row_is_found_by_each_of_its_names_alone() {
        assert_eq!(TABLE.len(), 45);
        for row in TABLE.iter() {
            for name in row.aliases.iter().chain([&row.name]) {
                check(name, Some(&row.name));
            }
        }
    }

    #[test]
    fn rates_are_plausible_and_have_a_source() {
        for row in TABLE.iter() {
            let roof = row.roof();
            assert!(!row.source.is_empty(), "{}", row.name);
            assert!((1e11..1e13).contains(&roof.bandwidth.unwrap()), "{}", row.name);
            assert!((1e12..1e15).contains(&roof.fp32_flops.unwrap()), "{}", row.name);
            assert!(roof.tf32_flops <= roof.fp16_flops, "{}", row.name);
        }
    }

    #[test]
    fn the_roof_is_in_operations_and_bytes_per_second() {
        let roof = roof("NVIDIA H200").unwrap();
        assert_eq!(roof.bandwidth, Some(4.8e12));
        assert_eq!(roof.fp32_flops.map(f64::round), Some(66.9e12));
    }
}
