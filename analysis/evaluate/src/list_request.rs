//! A request for the operator list of a model, in the format of the lister
//! (`gpu/agent/ridgeline_agent/models/list_models.py`).

use serde::Serialize;

/// One step of one model.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum ListRequest {
    /// A model of the `timm` package, under autocast to FP16.
    Timm {
        /// The model's name in the package.
        model: String,
        /// Image size along one side, in pixels.
        size: u32,
        /// Images per step.
        batch: u32,
        /// Whether it is forward, loss, backward and SGD rather than only forward.
        train: bool,
        /// Whether images and weights use the `channels_last` memory format.
        channels_last: bool,
        /// Whether the measured torch version had fused attention.
        fused_attention: bool,
        /// Whether its optimizer had a foreach implementation.
        foreach: bool,
        /// Whether its `zero_grad()` kept the gradients allocated.
        keeps_gradients: bool,
    },
    /// A transformer by its `config.json`, in FP32 with unfused attention.
    Transformer {
        /// The name of the configuration.
        model: String,
        /// The configuration, parsed.
        config: Config,
        /// Tokens per sequence.
        sequence: u32,
        /// Sequences per step.
        batch: u32,
        /// Whether it is forward, loss and backward rather than only forward.
        train: bool,
    },
    /// A training step of a model in the tables of `lambda/`.
    Benchmark {
        /// The model's name in the tables.
        model: String,
        /// Samples per step.
        batch: u32,
        /// Whether it is FP16 mixed precision rather than FP32.
        half: bool,
    },
}

/// A JSON object, stored as text so that it can be compared and hashed.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Config(String);

impl Config {
    /// Returns `None` if the text is not a JSON object.
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
    /// Returns a readable file name within a folder of lists, which the fits of coefficients read
    /// (`infer/resnet50-224-b256.json`). Requests that differ only in other fields share a name.
    pub fn file_name(&self) -> String {
        match self {
            ListRequest::Timm { model, size, batch, train, channels_last, .. } => {
                let folder = if *train { "train" } else { "infer" };
                let layout = if *channels_last { "-nhwc" } else { "" };
                format!("{folder}/{}-{size}-b{batch}{layout}.json", sanitized(model))
            }
            ListRequest::Transformer { model, sequence, batch, train, .. } => {
                let mode = if *train { "train" } else { "inf" };
                format!("neusight/{}-{mode}-s{sequence}-b{batch}.json", sanitized(model))
            }
            ListRequest::Benchmark { model, batch, half } => {
                let precision = if *half { "fp16" } else { "fp32" };
                format!("lambda/{}-b{batch}-{precision}.json", sanitized(model))
            }
        }
    }

    /// Returns whether the request needs the `timm` package.
    pub fn needs_timm(&self) -> bool {
        matches!(self, ListRequest::Timm { .. })
    }
}

/// Sanitizes a part of a file name, because names of models come from untrusted files.
fn sanitized(name: &str) -> String {
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
    fn requests_have_the_format_of_the_lister() {
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
