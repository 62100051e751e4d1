//! Parses the name of a `timm` result file: `infer-amp-nchw-pt240-cu124-rtx3090-dynamo.csv`.

/// How the models of a file were run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimmFileName {
    /// Whether it is training rather than inference.
    pub train: bool,
    /// The compute type: `amp`, `fp32`, …
    pub precision: String,
    /// Whether it uses the `channels_last` memory format (`nhwc`).
    pub channels_last: bool,
    /// Whether it uses `torch.compile`.
    pub compiled: bool,
    /// The torch version; `None` if the name does not state it.
    pub torch: Option<Version>,
    /// The CUDA version; `None` if the name does not state it.
    pub cuda: Option<Version>,
    /// The remaining words: the GPU, as written by the author of the measurement.
    pub gpu: String,
}

/// Major, minor, patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(pub u32, pub u32, pub u32);

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}.{}", self.0, self.1, self.2)
    }
}

impl Version {
    /// Returns a number that grows by one with each minor release, for distances between versions.
    pub fn releases(self) -> f64 {
        // torch went from 1.13 to 2.0; CUDA from 11.8 to 12.0.
        f64::from(self.0) * 10.0 + f64::from(self.1) + f64::from(self.2) / 10.0
    }
}

impl TimmFileName {
    /// Parses a file name with words in any order. `None` if no word states inference or training,
    /// or no word is left for the GPU.
    pub fn parse(name: &str) -> Option<TimmFileName> {
        const MAX_LENGTH: usize = 200;
        if name.len() > MAX_LENGTH {
            return None;
        }
        let stem = name.strip_suffix(".csv")?.to_ascii_lowercase();
        let mut mode = None;
        let mut found = TimmFileName {
            train: false,
            precision: "fp32".to_owned(),
            channels_last: false,
            compiled: false,
            torch: None,
            cuda: None,
            gpu: String::new(),
        };
        let mut gpu = Vec::new();
        for word in stem.split(['-', '_', ' ']).filter(|word| !word.is_empty()) {
            match word {
                "benchmark" | "results" | "eager" => {}
                "infer" | "inference" => mode = Some(false),
                "train" | "training" => mode = Some(true),
                "amp" | "fp16" | "bf16" | "fp32" | "float16" | "bfloat16" | "float32" | "tf32" => {
                    found.precision = word.to_owned();
                }
                "nchw" | "contiguous" => found.channels_last = false,
                "nhwc" | "channelslast" => found.channels_last = true,
                "dynamo" | "inductor" | "compile" | "compiled" => found.compiled = true,
                _ => {
                    let torch = word.strip_prefix("pt").or_else(|| word.strip_prefix("torch"));
                    if let Some(version) = torch.and_then(torch_version) {
                        found.torch = Some(version);
                    } else if let Some(version) = word.strip_prefix("cu").and_then(cuda_version) {
                        found.cuda = Some(version);
                    } else {
                        gpu.push(word);
                    }
                }
            }
        }
        found.train = mode?;
        found.gpu = gpu.join("-");
        (!found.gpu.is_empty()).then_some(found)
    }

    /// Returns whether the models of both were run in the same way, except for versions and GPU.
    pub fn runs_like(&self, other: &TimmFileName) -> bool {
        self.train == other.train
            && self.precision == other.precision
            && self.channels_last == other.channels_last
            && self.compiled == other.compiled
    }

    /// Returns the distance between the versions of torch and of CUDA. An unknown version is far
    /// from all others.
    pub fn version_distance(&self, other: &TimmFileName) -> (f64, f64) {
        let distance = |one: Option<Version>, two: Option<Version>| match (one, two) {
            (Some(one), Some(two)) => (one.releases() - two.releases()).abs(),
            (None, None) => 0.0,
            _ => f64::MAX,
        };
        (distance(self.torch, other.torch), distance(self.cuda, other.cuda))
    }
}

/// Parses a torch version: `112` is 1.12, `240` is 2.4.0, `2100` is 2.10.0, because torch 1 had
/// two-digit minor versions.
fn torch_version(digits: &str) -> Option<Version> {
    let parts: Vec<&str> = digits.split('.').collect();
    if parts.len() > 1 {
        let number = |index: usize| parts.get(index).map_or(Some(0), |part| part.parse().ok());
        return Some(Version(number(0)?, number(1)?, number(2)?));
    }
    let (major, rest) = first_digit(digits)?;
    let (minor, patch) = match rest.len() {
        0 => ("0", "0"),
        1 => (rest, "0"),
        2 if major == 1 => (rest, "0"),
        2 => rest.split_at(1),
        3 => rest.split_at(2),
        _ => return None,
    };
    Some(Version(major, minor.parse().ok()?, patch.parse().ok()?))
}

/// Parses a CUDA version: `124` is 12.4.
fn cuda_version(digits: &str) -> Option<Version> {
    let digits = digits.replace('.', "");
    if digits.len() != 3 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let (major, minor) = digits.split_at(2);
    Some(Version(major.parse().ok()?, minor.parse().ok()?, 0))
}

fn first_digit(digits: &str) -> Option<(u32, &str)> {
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let (first, rest) = digits.split_at(1);
    Some((first.parse().ok()?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(name: &str) -> TimmFileName {
        TimmFileName::parse(name).expect("it parses")
    }

    #[test]
    fn current_names_are_parsed() {
        let name = parsed("infer-amp-nchw-pt240-cu124-rtx4090-dynamo.csv");
        assert_eq!(
            name,
            TimmFileName {
                train: false,
                precision: "amp".to_owned(),
                channels_last: false,
                compiled: true,
                torch: Some(Version(2, 4, 0)),
                cuda: Some(Version(12, 4, 0)),
                gpu: "rtx4090".to_owned(),
            }
        );
        let name = parsed("train-amp-nhwc-pt112-cu113-rtx3090.csv");
        assert!(name.train && name.channels_last && !name.compiled);
        assert_eq!(name.torch, Some(Version(1, 12, 0)));
        assert_eq!(parsed("benchmark-infer-amp-nchw-pt2100-cu130-5090.csv").gpu, "5090");
        assert_eq!(
            parsed("infer-amp-nchw-pt291-cu128-rtx-pro6000-maxq.csv").gpu,
            "rtx-pro6000-maxq"
        );
    }

    #[test]
    fn words_may_come_in_any_order_and_versions_may_be_missing() {
        let name = parsed("A100_train_fp32.csv");
        assert_eq!((name.gpu.as_str(), name.torch, name.cuda), ("a100", None, None));
        assert_eq!(parsed("infer-a100-pt2.4.1-cu12.4.csv").torch, Some(Version(2, 4, 1)));
    }

    #[test]
    fn other_files_are_not_results() {
        for name in
            ["notes.csv", "infer-amp.csv", "train.txt", "", ".csv", "model_metadata-in1k.csv"]
        {
            assert_eq!(TimmFileName::parse(name), None, "{name}");
        }
        assert_eq!(TimmFileName::parse(&format!("infer-{}.csv", "x".repeat(500))), None);
    }

    #[test]
    fn invalid_versions_are_part_of_the_gpu_name() {
        assert_eq!(parsed("infer-amp-pt99999-cuda-x.csv").gpu, "pt99999-cuda-x");
    }

    #[test]
    fn version_distance_is_in_releases() {
        let wanted = parsed("infer-amp-nchw-pt291-cu128-5090.csv");
        let near = parsed("infer-amp-nchw-pt291-cu128-4090.csv");
        let far = parsed("infer-amp-nchw-pt240-cu124-rtx4090.csv");
        assert!(wanted.version_distance(&near) < wanted.version_distance(&far));
        assert!(wanted.runs_like(&far));
        assert!(!wanted.runs_like(&parsed("infer-amp-nchw-pt291-cu128-4090-dynamo.csv")));
    }
}
