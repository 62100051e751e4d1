//! Caches timings of single operators on this machine. They are stored by operator, PyTorch
//! version, its settings and the device, so that each is run once.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::hash::Hasher as _;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use ridgeline_analysis::optimize::probe_list::ProbeList;
use ridgeline_analysis::optimize::study::RecordedRun;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::store::{Store, StoreError, create_private, write_atomic};

const VERSION: u32 = 2;
/// The maximum number of entries; a larger file is ignored. A program has a few dozen.
const ENTRY_LIMIT: usize = 4096;
/// The maximum size in bytes of a file to read. We never write a larger one.
const READ_LIMIT: u64 = 8 << 20;

/// The known answers for one device, by request (as JSON).
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct KnownAnswers {
    version: u32,
    answers: BTreeMap<String, Value>,
}

/// Returns the file with the answers for a device, PyTorch version and settings.
pub(super) fn file_of(store: &Store, recorded_run: &RecordedRun, list: &ProbeList) -> PathBuf {
    let profile = &recorded_run.profile;
    let mut hasher = fnv::FnvHasher::default();
    let settings = list.request.get("settings").unwrap_or(&Value::Null).to_string();
    for part in [&*profile.device.display_name(), &profile.torch_version, &settings] {
        hasher.write(part.as_bytes());
        hasher.write_u8(0);
    }
    store.cache().join("probes").join(format!("{:016x}.json", hasher.finish()))
}

/// Reads the bytes of a file; empty if it does not exist or exceeds [`READ_LIMIT`].
pub(super) fn read_bounded(file: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    let is_readable =
        fs::metadata(file).is_ok_and(|facts| facts.is_file() && facts.len() <= READ_LIMIT);
    if is_readable && let Ok(file) = File::open(file) {
        let read = file.take(READ_LIMIT).read_to_end(&mut bytes);
        read.inspect_err(|why| tracing::warn!("probes cannot be read: {why}")).ok();
    }
    bytes
}

const LISTS: [&str; 3] = ["operators", "optimizers", "cells"];
/// The key of the variants in which a request is to be run.
const VARIANTS: &str = "variants";

/// Returns the key of a request: the request without its variants.
fn key(request: &Value) -> String {
    let mut request = request.clone();
    if let Some(fields) = request.as_object_mut() {
        fields.remove(VARIANTS);
    }
    request.to_string()
}

fn list<'a>(of: &'a Value, key: &str) -> &'a [Value] {
    of.get(key).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

impl KnownAnswers {
    /// Reads a file. A damaged file counts as empty.
    pub(super) fn read(file: &Path) -> KnownAnswers {
        let known = serde_json::from_slice::<KnownAnswers>(&read_bounded(file)).unwrap_or_default();
        let is_usable = known.version == VERSION && known.answers.len() <= ENTRY_LIMIT;
        if is_usable { known } else { KnownAnswers { version: VERSION, ..KnownAnswers::default() } }
    }

    /// Writes the answers to a file.
    ///
    /// # Errors
    /// If the folder cannot be created or the file cannot be written.
    pub(super) fn write(&self, file: &Path) -> Result<(), StoreError> {
        if let Some(folder) = file.parent() {
            create_private(folder)?;
        }
        let bytes = serde_json::to_vec(self).map_err(|error| StoreError::at(file, error.into()))?;
        write_atomic(file, &bytes)
    }

    /// Returns the part of the request without a known answer, with all requested variants: a ratio
    /// needs both sides from the same measurement. Returns `None` if everything is known.
    pub(super) fn missing(&self, request: &Value) -> Option<Value> {
        let mut missing = request.clone();
        for key in LISTS {
            let unknown = list(request, key).iter().filter(|one| !self.knows(one));
            let unknown = unknown.cloned().collect();
            if let Some(lists) = missing.as_object_mut() {
                lists.insert(key.to_owned(), unknown);
            }
        }
        let has_missing = LISTS.iter().any(|key| !list(&missing, key).is_empty());
        has_missing.then_some(missing)
    }

    fn knows(&self, request: &Value) -> bool {
        let known = self.answers.get(&key(request));
        let mut variants = list(request, VARIANTS).iter().filter_map(Value::as_str);
        known.is_some_and(|known| variants.all(|variant| known.get(variant).is_some()))
    }

    /// Returns the answers to this request only.
    pub(super) fn only(&self, request: &Value) -> KnownAnswers {
        let keys = LISTS.iter().flat_map(|name| list(request, name)).map(key);
        let answers = keys.filter_map(|key| self.answers.get_key_value(&key));
        let answers = answers.map(|(key, answer)| (key.clone(), answer.clone())).collect();
        KnownAnswers { version: VERSION, answers }
    }

    /// Adds answers. Requests that ran out of time have none, and are made again later.
    pub(super) fn add(&mut self, request: &Value, answer: &Value) {
        for name in LISTS {
            for (request, answer) in list(request, name).iter().zip(list(answer, name)) {
                let is_answered = answer.as_object().is_some_and(|fields| fields.len() > 1);
                if is_answered && self.answers.len() < ENTRY_LIMIT {
                    self.answers.insert(key(request), answer.clone());
                }
            }
        }
    }

    /// Returns the known answers to a request, in the form of the agent's answer.
    pub(super) fn answer(&self, request: &Value) -> Value {
        let answers = |name: &str| -> Vec<Value> {
            let requests = list(request, name).iter();
            let known = |request: &Value| self.answers.get(&key(request)).cloned();
            requests.map(|request| known(request).unwrap_or(json!({}))).collect()
        };
        let lists = LISTS.map(|name| (name.to_owned(), answers(name).into()));
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
    fn known_answers_are_not_requested_again() {
        let mut known = KnownAnswers::default();
        let first = request(&["aten::mm", "aten::relu"]);
        assert_eq!(known.missing(&first), Some(first.clone()));
        // Time ran out for the second.
        known.add(&first, &json!({"operators": [{"name": "aten::mm", "same": 5.0}, {}]}));
        let second = request(&["aten::relu", "aten::mm", "aten::add"]);
        assert_eq!(known.missing(&second), Some(request(&["aten::relu", "aten::add"])));
        let answer = known.answer(&second);
        assert_eq!(answer["operators"], json!([{}, {"name": "aten::mm", "same": 5.0}, {}]));
        assert_eq!(known.missing(&request(&["aten::mm"])), None);
    }

    #[test]
    fn new_variants_are_requested() {
        let request_of = |variants: &[&str]| {
            let one = json!({"name": "aten::mm", "inputs": [1], "variants": variants});
            json!({"operators": [one], "optimizers": [], "cells": []})
        };
        let mut known = KnownAnswers::default();
        let both = request_of(&["same", "bfloat16"]);
        known
            .add(&both, &json!({"operators": [{"name": "aten::mm", "same": 5, "bfloat16": null}]}));
        assert_eq!(known.missing(&both), None);
        assert_eq!(known.missing(&request_of(&["same"])), None);
        let other = request_of(&["same", "channels_last"]);
        assert_eq!(known.missing(&other), Some(other.clone()));
        assert_eq!(known.only(&both).answer(&both), known.answer(&both));
        assert!(known.only(&request(&["aten::add"])).answers.is_empty());
    }

    #[test]
    fn a_damaged_file_counts_as_empty() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let file = folder.path().join("probes").join("a.json");
        assert!(KnownAnswers::read(&file).answers.is_empty());
        let mut known = KnownAnswers { version: VERSION, ..KnownAnswers::default() };
        let request = request(&["aten::mm"]);
        known.add(&request, &json!({"operators": [{"name": "aten::mm", "same": 5.0}]}));
        known.write(&file).expect("written");
        assert_eq!(KnownAnswers::read(&file).missing(&request), None);
        for damaged in [&b"{"[..], b"[]", br#"{"version": 9, "answers": {}}"#] {
            fs::write(&file, damaged).expect("written");
            assert!(KnownAnswers::read(&file).answers.is_empty());
        }
        // Invalid answers are ignored.
        known.add(&request, &json!({"operators": 7}));
        known.add(&request, &Value::Null);
    }
}
