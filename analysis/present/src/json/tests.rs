use super::*;
use ridgeline_diagnose::finding::{Cost, SourceLine};
use ridgeline_profile::{
    CallerCost, DeviceTime, ExpressionCost, ExpressionRange, FileFacts, FileId, InstanceCost,
    IterationCost, LineCost, ModuleId, OperatorCost,
};
use serde_json::Value;

fn profile() -> Profile {
    let line = |line, self_ns| LineCost {
        line,
        self_time: ridgeline_profile::PhaseTimes { forward: self_ns, ..Default::default() },
        total_time: ridgeline_profile::PhaseTimes { forward: self_ns, ..Default::default() },
        calls: 2.0,
        device_time: Some(DeviceTime::default()),
        modules: vec![ModuleId(0), ModuleId(7)],
        operators: vec![OperatorCost::default()],
        callers: vec![CallerCost::default(); 2],
        instances: vec![InstanceCost { module: ModuleId(0), time_ns: 1e6 }],
        expressions: vec![ExpressionCost {
            range: ExpressionRange { line, column: 0, end_line: line, end_column: 4 },
            ..ExpressionCost::default()
        }],
        ..LineCost::default()
    };
    Profile {
        iteration: IterationCost {
            time_ns: 10e6,
            batch_size: Some(32),
            loop_line: Some((FileId(0), 1)),
            ..IterationCost::default()
        },
        files: vec![FileFacts { path: "train.py".to_owned(), fingerprint: vec![] }],
        lines: vec![vec![line(1, 1.5e6), line(2, 2e6), line(4, 3e6)]],
        modules: vec![ModuleCost { definition: vec![(FileId(0), 4)], ..ModuleCost::default() }],
        untracked: vec![ridgeline_profile::Untracked::default()],
        gpu: Some(GpuActivity::default()),
        ..Profile::default()
    }
}

/// Checks a value against a schema, for the parts of JSON Schema that this schema uses: every key
/// that is written is described, and every required key is written.
fn check_value(value: &Value, schema: &Value, root: &Value, path: &str) {
    if let Some(name) = schema["$ref"].as_str() {
        let definition = &root["$defs"][name.trim_start_matches("#/$defs/")];
        return check_value(value, definition, root, path);
    }
    if let Some(choices) = schema["oneOf"].as_array() {
        let choice = choices.iter().find(|choice| (choice["type"] == "null") == value.is_null());
        return check_value(value, choice.expect("a choice"), root, path);
    }
    match value {
        Value::Object(entries) => {
            for (key, value) in entries {
                let described = &schema["properties"][key];
                assert!(!described.is_null(), "{path}.{key} is not described");
                check_value(value, described, root, &format!("{path}.{key}"));
            }
            for key in schema["required"].as_array().into_iter().flatten() {
                let key = key.as_str().expect("a key");
                assert!(entries.contains_key(key), "{path}.{key} is not written");
            }
        }
        Value::Array(entries) => {
            for (index, entry) in entries.iter().enumerate() {
                check_value(entry, &schema["items"], root, &format!("{path}[{index}]"));
            }
        }
        _ => {
            let has_type = |name: &str| match name {
                "integer" => value.is_u64() || value.is_i64(),
                "number" => value.is_number(),
                "string" => value.is_string(),
                "boolean" => value.is_boolean(),
                "null" => value.is_null(),
                _ => false,
            };
            let fits = match &schema["type"] {
                Value::String(name) => has_type(name),
                Value::Array(names) => names.iter().filter_map(Value::as_str).any(has_type),
                _ => schema["const"] == *value,
            };
            assert!(fits, "{path}: {value} is not {schema}");
        }
    }
}

#[track_caller]
fn check_schema(document: &Document) {
    let schema = include_str!("../../../../docs/schema/profile.schema.json");
    let schema: Value = serde_json::from_str(schema).expect("a schema");
    let value = serde_json::to_value(document).expect("a document");
    check_value(&value, &schema, &schema, "");
}

#[test]
fn documents_conform_to_the_schema() {
    check_schema(&document(&profile(), &[]));
    check_schema(&document(&profile(), &[Some("a(b(c))\n  d.e()\n\n\tf(g(h))\n")]));
    check_schema(&document(&Profile::default(), &[]));
    let finding = Finding {
        related: vec![(SourceLine::default(), "here".to_owned())],
        cost: Some(Cost::time(2.0)),
        ..Finding::default()
    };
    let found = document(&profile(), &[]).with_findings(Ok(&[finding]), &profile());
    check_schema(&found);
    let kernel = KernelTotal { name: "gemm".to_owned(), calls: 1, total_ns: 2 };
    check_schema(&analysis_document(&profile(), &[], vec![kernel]));
}

#[test]
fn memory_is_split_by_time_of_allocation() {
    let mut profile = profile();
    profile.memory.by_age = MemoryByAge { before: 5, phases: [0, 7, 1, 0, 0] };
    let value = serde_json::to_value(document(&profile, &[])).expect("a document");
    let expected = serde_json::json!({"before": 5, "data": 0, "forward": 7, "backward": 1,
                                          "optimizer": 0, "other": 0});
    assert_eq!(value["memory"]["made"], expected);
}

#[test]
fn an_analysis_always_has_gpu_activity() {
    let document = analysis_document(&Profile::default(), &[], vec![]);
    let value = serde_json::to_value(document).expect("a document");
    assert_eq!(value["gpu"]["busy_ns"], 0);
    assert_eq!(value["kernels"], Value::Array(vec![]));
}

#[test]
fn unavailable_findings_are_null() {
    let document = document(&profile(), &[]).with_findings(Err("no graph"), &profile());
    let value = serde_json::to_value(document).expect("a document");
    assert_eq!(value["findings"], Value::Null);
    let notes = value["notes"].as_array().expect("notes");
    assert_eq!(notes.last(), Some(&"Findings are not available: no graph".into()));
}

#[test]
fn lines_of_one_statement_are_one_entry() {
    let text = "loss = model(\n    batch,\n)\nstep()\n";
    let value = serde_json::to_value(document(&profile(), &[Some(text)])).expect("it");
    let lines = value["lines"].as_array().expect("lines");
    let places: Vec<_> =
        lines.iter().map(|line| (line["line"].as_u64(), line["end_line"].as_u64())).collect();
    assert_eq!(places, [(Some(1), Some(3)), (Some(4), Some(4))]);
    assert_eq!(lines[0]["self_ms"], 3.5);
    assert_eq!(lines[0]["calls"], 2.0);
    assert_eq!(lines[0]["modules"], serde_json::json!([""]));
}

#[test]
fn lines_are_not_merged_if_the_text_changed() {
    let mut profile = profile();
    profile.files[0].fingerprint = fingerprint("something else");
    let text = "loss = model(\n    batch,\n)\nstep()\n";
    let value = serde_json::to_value(document(&profile, &[Some(text)])).expect("it");
    assert_eq!(value["lines"].as_array().map(Vec::len), Some(3));
}

#[test]
fn numbers_are_finite_and_rounded_to_nanoseconds() {
    assert_eq!(milliseconds(1_234_567.89), 1.234_568);
    assert_eq!(milliseconds(f64::NAN), 0.0);
}
