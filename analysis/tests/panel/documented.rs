//! Checks that `docs/panel.md` and `docs/whatif.md` describe every key of the panel's documents.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ridgeline_analysis::attribution::ranks::{rank_cost, side_by_side};
use ridgeline_analysis::attribution::{attribute, recorded_step};
use ridgeline_analysis::devices::device_table::DeviceTable;
use ridgeline_analysis::predict::device_comparison::{Comparison, ComparisonInput, compare};
use ridgeline_analysis::present::timeline::{MAX_SPANS, timeline};
use ridgeline_analysis::profile::utilization::Utilization;
use ridgeline_analysis::profile::{KernelCost, Profile, Roof, Untracked};
use serde_json::Value;

use super::{panel, panel_with};
use crate::recorded::{recording, root};

/// Returns the profile of a recording and its predictions for other devices, computed as in the
/// server.
fn predicted_profile(name: &str) -> (Profile, Option<Comparison>) {
    let recording = recording(&root().join("tests/recordings").join(name));
    let profile = attribute(&recording).expect("a profile");
    let step = recorded_step(&recording, &profile);
    let devices = compare(ComparisonInput::Recorded(&step), DeviceTable::shipped());
    (profile, devices)
}

/// Parses the example under a heading of `docs/panel.md`, without its comments.
fn example(heading: &str) -> Value {
    let page = std::fs::read_to_string(root().join("docs/panel.md")).expect("the page");
    example_in(&page, heading)
}

/// Parses the example under a heading of any page.
fn example_in(page: &str, heading: &str) -> Value {
    let section = page.split(heading).nth(1).expect("the section");
    let block = section.split("```jsonc\n").nth(1).and_then(|rest| rest.split("```").next());
    let without_comments: String = block
        .expect("an example")
        .lines()
        .map(|line| line.split_once("//").map_or(line, |(code, _)| code))
        .collect();
    serde_json::from_str(&without_comments).expect("an example that is JSON")
}

/// Collects every key of a document with the types of its values, such as `recording.files[].path:
/// string`.
fn keys(value: &Value, path: &str, found: &mut BTreeMap<String, BTreeSet<&'static str>>) {
    let kind = match value {
        Value::Null => None,
        Value::Bool(_) => Some("bool"),
        Value::Number(_) => Some("number"),
        Value::String(_) => Some("string"),
        Value::Array(_) => Some("list"),
        Value::Object(_) => Some("object"),
    };
    found.entry(path.to_owned()).or_default().extend(kind);
    match value {
        Value::Array(values) => {
            values.iter().for_each(|value| keys(value, &format!("{path}[]"), found));
        }
        Value::Object(values) => {
            values.iter().for_each(|(key, value)| keys(value, &format!("{path}.{key}"), found));
        }
        _ => {}
    }
}

/// Checks that the example has the same keys and types. A null matches any type.
#[track_caller]
fn assert_described(document: &Value, example: &Value) {
    let (mut written, mut described) = (BTreeMap::new(), BTreeMap::new());
    keys(document, "", &mut written);
    keys(example, "", &mut described);
    let missing: Vec<_> = written.keys().filter(|key| !described.contains_key(*key)).collect();
    assert!(missing.is_empty(), "the page does not describe {missing:?}");
    let stale: Vec<_> = described.keys().filter(|key| !written.contains_key(*key)).collect();
    assert!(stale.is_empty(), "the page describes {stale:?}, which the document does not have");
    for (key, kinds) in &written {
        let other = &described[key];
        let agree = kinds.is_empty() || other.is_empty() || kinds == other;
        assert!(agree, "{key} is {kinds:?} in the document and {other:?} on the page");
    }
}

/// Returns a profile in which every optional part is present.
fn full_profile() -> Profile {
    let mut profile =
        attribute(&recording(&root().join("tests/recordings/conv-cpu"))).expect("one");
    let roof = Roof { fp32_flops: Some(1e12), bandwidth: Some(1e11), ..Roof::default() };
    profile.device.roof = Some(roof);
    profile.kernels.push(KernelCost { occupancy: Some(0.5), ..KernelCost::default() });
    profile.notes.push("a note".to_owned());
    profile.untracked.push(Untracked::default());
    let matmuls = Utilization { kernel_ns: 1.0, tensor_core_ns: 1.0, ..Utilization::default() };
    for module in &mut profile.modules {
        module.utilization = Some(matmuls);
    }
    let mut slow = rank_cost(1, &profile);
    slow.exchange_ns = Some((2e6, 1e6));
    slow.lines.values_mut().for_each(|line| line.total_ns *= 2.0);
    profile.ranks = side_by_side(2, vec![rank_cost(0, &profile), slow]).map(Arc::new);
    profile
}

#[test]
fn the_page_describes_the_document() {
    let mut document = panel(&full_profile(), &[]);
    let what_ifs = document["what_ifs"].take();
    assert_described(&document, &example("## The document"));
    let page = std::fs::read_to_string(root().join("docs/whatif.md")).expect("the page");
    assert_described(&what_ifs, &example_in(&page, "## In the panel"));
}

#[test]
fn the_page_describes_the_predictions_for_other_devices() {
    let page = std::fs::read_to_string(root().join("docs/panel.md")).expect("the page");
    let section = page.split("### Predictions").nth(1).expect("the section");
    let block = section.split("```jsonc\n").nth(1).and_then(|rest| rest.split("```").next());
    let without_comments: String = block
        .expect("an example")
        .lines()
        .map(|line| line.split_once("//").map_or(line, |(code, _)| code))
        .collect();
    let example: Value = serde_json::from_str(&format!("{{{without_comments}}}")).expect("JSON");
    let example = &example["predictions"]["devices"];
    let (profile, comparison) = predicted_profile("conv-cpu");
    let document = panel_with(&profile, &[], comparison.as_ref());
    let devices = &document["predictions"]["devices"];
    let keys = |value: &Value| -> BTreeSet<String> {
        value.as_object().expect("an object").keys().cloned().collect()
    };
    assert_eq!(keys(devices), keys(example));
    assert_eq!(keys(&devices["rows"][0]), keys(&example["rows"][0]));
    let range: BTreeSet<String> = ["low", "value", "high"].map(str::to_owned).into();
    assert_eq!(keys(&devices["rows"][0]["time_ns"]), range);
}

#[test]
fn the_page_describes_the_timeline() {
    let recording = recording(&root().join("tests/recordings/conv-cpu"));
    let timeline = serde_json::to_value(timeline(&recording, 7, MAX_SPANS)).expect("JSON");
    assert_described(&timeline, &example("## The timeline's document"));
}
