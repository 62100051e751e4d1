//! A model whose operators are to be listed, as the lister is asked for it
//! (`gpu/agent/ridgeline_agent/models/list_models.py`).

use serde::Serialize;

/// One step of one model.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum ListRequest {
    /// A model of the `timm` package, under autocast to FP16.
    Timm {
        /// The package's name for it.
        model: String,
        /// Pixels along one side of its images.
        size: u32,
        /// Images.
        batch: u32,
        /// Forward, loss, backward and SGD; else forward alone.
        train: bool,
        /// Whether images and weights are in the layout `channels_last`.
        channels_last: bool,
        /// Whether the torch that was measured had fused attention.
        fused_attention: bool,
        /// Whether its optimizer took lists of parameters.
        foreach: bool,
        /// Whether its `zero_grad()` kept the gradients.
        keeps_gradients: bool,
    },
    /// A transformer by its `config.json`, in FP32 with attention in steps.
    Transformer {
        /// The name of the configuration.
        model: String,
        /// The configuration, parsed.
        config: Config,
        /// Tokens in a sequence.
        sequence: u32,
        /// Sequences.
        batch: u32,
        /// Forward, loss and backward; else forward alone.
        train: bool,
    },
    /// A training step of a model of the tables of `lambda/`.
    Benchmark {
        /// The table's name for it.
        model: String,
        /// Samples.
        batch: u32,
        /// FP16 mixed precision; else FP32.
        half: bool,
    },
}

/// A JSON object, kept as its text so that it can be compared and hashed.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Config(String);

impl Config {
    /// `None` where the text is no JSON object.
    pub fn parse(text: &[u8]) -> Option<Config> {
        let object = serde_json::from_slice::<serde_json::Map<String, serde_json::Value>>(text);
        Some(Config(serde_json::to_string(&object.ok()?).ok()?))
    }
}

impl Serialize for Config {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let object = serde_json::from_str::<serde_json::Value>(&self.0);
        object.map_err(serde::ser::Error::custom)?.serialize(serializer)
    }
}

impl ListRequest {
    /// A name that a person reads, below a folder of lists: what the fits of coefficients read
    /// (`infer/resnet50-224-b256.json`). Two requests that differ in more than it says share it.
    pub fn file_name(&self) -> String {
        match self {
            ListRequest::Timm { model, size, batch, train, channels_last, .. } => {
                let folder = if *train { "train" } else { "infer" };
                let layout = if *channels_last { "-nhwc" } else { "" };
                format!("{folder}/{}-{size}-b{batch}{layout}.json", plain(model))
            }
            ListRequest::Transformer { model, sequence, batch, train, .. } => {
                let mode = if *train { "train" } else { "inf" };
                format!("neusight/{}-{mode}-s{sequence}-b{batch}.json", plain(model))
            }
            ListRequest::Benchmark { model, batch, half } => {
                let precision = if *half { "fp16" } else { "fp32" };
                format!("lambda/{}-b{batch}-{precision}.json", plain(model))
            }
        }
    }

    /// Whether the `timm` package is needed to answer it.
    pub fn needs_timm(&self) -> bool {
        matches!(self, ListRequest::Timm { .. })
    }
}

/// A part of a file's name: the names of models come from files that anybody wrote.
fn plain(name: &str) -> String {
    let allowed = |letter: &char| letter.is_ascii_alphanumeric() || "_.-".contains(*letter);
    name.chars().filter(allowed).take(120).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_name_stays_in_its_folder() {
        let request = ListRequest::Transformer {
            model: "../../etc/\u{0}passwd\u{1F600}".to_owned(),
            config: Config::parse(b"{}").expect("an object"),
            sequence: 16,
            batch: 2,
            train: false,
        };
        assert_eq!(request.file_name(), "neusight/....etcpasswd-inf-s16-b2.json");
    }

    #[test]
    fn a_request_is_what_the_lister_reads() {
        let config = Config::parse(br#"{"b": 1, "a": [2]}"#).expect("an object");
        let request = ListRequest::Transformer {
            model: "tiny".to_owned(),
            config,
            sequence: 16,
            batch: 2,
            train: true,
        };
        let json = serde_json::to_string(&request).expect("JSON");
        assert_eq!(
            json,
            r#"{"kind":"transformer","model":"tiny","config":{"a":[2],"b":1},"sequence":16,"batch":2,"train":true}"#
        );
        for text in [&b"[]"[..], b"", b"{", b"null"] {
            assert_eq!(Config::parse(text), None);
        }
    }
}
