//! What this machine made of single operators, kept in the cache by what they are, PyTorch's version,
//! its settings and the device, so that each is run once.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::hash::Hasher as _;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use ridgeline_analysis::optimize::probe_list::ProbeList;
use ridgeline_analysis::optimize::study::Subject;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::store::{Store, StoreError, create_private, write_atomic};

/// The version of the file.
const VERSION: u32 = 2;
/// A file with more is begun anew: a program has some dozens.
const MOST_ENTRIES: usize = 4096;
/// Nothing of ours is larger, in bytes.
const READ_LIMIT: u64 = 8 << 20;

/// What is known of one device: the answers by what was asked, as JSON.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Known {
    version: u32,
    answers: BTreeMap<String, Value>,
}

/// Where answers of a device are kept: of the same PyTorch, set in the same way.
pub(super) fn file_of(store: &Store, subject: &Subject, list: &ProbeList) -> PathBuf {
    let profile = &subject.profile;
    let mut hasher = fnv::FnvHasher::default();
    let settings = list.request.get("settings").unwrap_or(&Value::Null).to_string();
    for part in [&*profile.device.display_name(), &profile.torch_version, &settings] {
        hasher.write(part.as_bytes());
        hasher.write_u8(0);
    }
    store.cache().join("probes").join(format!("{:016x}.json", hasher.finish()))
}

/// The bytes of a file; none where it is not there, or larger than any of ours.
pub(super) fn read_bounded(file: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    let is_ours =
        fs::metadata(file).is_ok_and(|facts| facts.is_file() && facts.len() <= READ_LIMIT);
    if is_ours && let Ok(file) = File::open(file) {
        let read = file.take(READ_LIMIT).read_to_end(&mut bytes);
        read.inspect_err(|why| tracing::warn!("probes cannot be read: {why}")).ok();
    }
    bytes
}

const LISTS: [&str; 3] = ["operators", "optimizers", "cells"];
/// Of what is asked, the ways in which it is to be run.
const WAYS: &str = "variants";

/// What is asked about, in whichever ways.
fn without_ways(asked: &Value) -> String {
    let mut asked = asked.clone();
    if let Some(fields) = asked.as_object_mut() {
        fields.remove(WAYS);
    }
    asked.to_string()
}

fn list<'a>(of: &'a Value, key: &str) -> &'a [Value] {
    of.get(key).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

impl Known {
    /// Reads a file; one that is damaged is as good as none.
    pub(super) fn read(file: &Path) -> Known {
        let known = serde_json::from_slice::<Known>(&read_bounded(file)).unwrap_or_default();
        let is_usable = known.version == VERSION && known.answers.len() <= MOST_ENTRIES;
        if is_usable { known } else { Known { version: VERSION, ..Known::default() } }
    }

    /// Writes it to a file.
    ///
    /// # Errors
    /// When the folder cannot be made or the file not be written.
    pub(super) fn keep(&self, file: &Path) -> Result<(), StoreError> {
        if let Some(folder) = file.parent() {
            create_private(folder)?;
        }
        let bytes = serde_json::to_vec(self).map_err(|error| StoreError::at(file, error.into()))?;
        write_atomic(file, &bytes)
    }

    /// The request for what is not known, in all the ways that are asked for: a ratio needs both of its
    /// sides from one measurement. Nothing where all is known.
    pub(super) fn missing(&self, request: &Value) -> Option<Value> {
        let mut missing = request.clone();
        for key in LISTS {
            let unknown = list(request, key).iter().filter(|asked| !self.knows(asked));
            let unknown = unknown.cloned().collect();
            if let Some(lists) = missing.as_object_mut() {
                lists.insert(key.to_owned(), unknown);
            }
        }
        let is_asked = LISTS.iter().any(|key| !list(&missing, key).is_empty());
        is_asked.then_some(missing)
    }

    fn knows(&self, asked: &Value) -> bool {
        let known = self.answers.get(&without_ways(asked));
        let mut ways = list(asked, WAYS).iter().filter_map(Value::as_str);
        known.is_some_and(|known| ways.all(|way| known.get(way).is_some()))
    }

    /// What of it is asked for.
    pub(super) fn only(&self, request: &Value) -> Known {
        let asked = LISTS.iter().flat_map(|key| list(request, key)).map(without_ways);
        let answers = asked.filter_map(|asked| self.answers.get_key_value(&asked));
        let answers = answers.map(|(asked, answer)| (asked.clone(), answer.clone())).collect();
        Known { version: VERSION, answers }
    }

    /// Takes in what was answered. What time was up for is asked again another time.
    pub(super) fn learn(&mut self, asked: &Value, answer: &Value) {
        for key in LISTS {
            for (asked, answer) in list(asked, key).iter().zip(list(answer, key)) {
                let is_told = answer.as_object().is_some_and(|told| told.len() > 1);
                if is_told && self.answers.len() < MOST_ENTRIES {
                    self.answers.insert(without_ways(asked), answer.clone());
                }
            }
        }
    }

    /// What is known of what is asked, as the agent would answer it.
    pub(super) fn answer(&self, request: &Value) -> Value {
        let of = |key: &str| -> Vec<Value> {
            let asked = list(request, key).iter();
            let known = |asked: &Value| self.answers.get(&without_ways(asked)).cloned();
            asked.map(|asked| known(asked).unwrap_or(json!({}))).collect()
        };
        let lists = LISTS.map(|key| (key.to_owned(), of(key).into()));
        Value::Object([("version".to_owned(), json!(1))].into_iter().chain(lists).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(names: &[&str]) -> Value {
        let operators: Vec<Value> =
            names.iter().map(|name| json!({"name": name, "inputs": [1]})).collect();
        json!({"operators": operators, "optimizers": [], "cells": []})
    }

    #[test]
    fn what_is_known_is_not_asked_again() {
        let mut known = Known::default();
        let first = request(&["aten::mm", "aten::relu"]);
        assert_eq!(known.missing(&first), Some(first.clone()));
        // Time was up for the second.
        known.learn(&first, &json!({"operators": [{"name": "aten::mm", "same": 5.0}, {}]}));
        let second = request(&["aten::relu", "aten::mm", "aten::add"]);
        assert_eq!(known.missing(&second), Some(request(&["aten::relu", "aten::add"])));
        let answer = known.answer(&second);
        assert_eq!(answer["operators"], json!([{}, {"name": "aten::mm", "same": 5.0}, {}]));
        assert_eq!(known.missing(&request(&["aten::mm"])), None);
    }

    #[test]
    fn what_is_known_in_other_ways_is_asked_again() {
        let asked = |ways: &[&str]| {
            let one = json!({"name": "aten::mm", "inputs": [1], "variants": ways});
            json!({"operators": [one], "optimizers": [], "cells": []})
        };
        let mut known = Known::default();
        let both = asked(&["same", "bfloat16"]);
        known.learn(
            &both,
            &json!({"operators": [{"name": "aten::mm", "same": 5, "bfloat16": null}]}),
        );
        assert_eq!(known.missing(&both), None);
        assert_eq!(known.missing(&asked(&["same"])), None);
        let other = asked(&["same", "channels_last"]);
        assert_eq!(known.missing(&other), Some(other.clone()));
        assert_eq!(known.only(&both).answer(&both), known.answer(&both));
        assert!(known.only(&request(&["aten::add"])).answers.is_empty());
    }

    #[test]
    fn a_damaged_file_is_as_good_as_none() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let file = folder.path().join("probes").join("a.json");
        assert!(Known::read(&file).answers.is_empty());
        let mut known = Known { version: VERSION, ..Known::default() };
        let asked = request(&["aten::mm"]);
        known.learn(&asked, &json!({"operators": [{"name": "aten::mm", "same": 5.0}]}));
        known.keep(&file).expect("written");
        assert_eq!(Known::read(&file).missing(&asked), None);
        for damaged in [&b"{"[..], b"[]", br#"{"version": 9, "answers": {}}"#] {
            fs::write(&file, damaged).expect("written");
            assert!(Known::read(&file).answers.is_empty());
        }
        // An answer that makes no sense is none.
        known.learn(&asked, &json!({"operators": 7}));
        known.learn(&asked, &Value::Null);
    }
}
