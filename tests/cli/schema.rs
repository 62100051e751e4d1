//! Checks the output of `--json` against the published schemas.

use serde_json::Value;

use crate::sandbox::repository;

/// Checks a document against `docs/schema/NAME.schema.json`: every written key is described, every
/// required key is written, and every value has a listed type.
#[track_caller]
pub(super) fn validate(document: &Value, name: &str) {
    let file = repository().join("docs/schema").join(format!("{name}.schema.json"));
    let text = std::fs::read_to_string(&file).expect("the schema is published");
    let schema: Value = serde_json::from_str(&text).expect("a schema is JSON");
    if let Err(wrong) = check(document, &schema, &schema, name) {
        panic!("{wrong}");
    }
}

fn check(value: &Value, schema: &Value, root: &Value, path: &str) -> Result<(), String> {
    if let Some(pointer) = schema["$ref"].as_str() {
        let definition = root.pointer(pointer.trim_start_matches('#')).ok_or(pointer)?;
        return check(value, definition, root, path);
    }
    if let Some(choices) = schema["oneOf"].as_array() {
        let fits = choices.iter().any(|choice| check(value, choice, root, path).is_ok());
        return if fits { Ok(()) } else { Err(format!("{path}: {value} fits no choice")) };
    }
    if !schema["const"].is_null() {
        let same = schema["const"] == *value;
        return if same { Ok(()) } else { Err(format!("{path}: {value}")) };
    }
    if !has_type(value, &schema["type"]) {
        return Err(format!("{path}: {value} is not of type {}", schema["type"]));
    }
    match value {
        Value::Object(entries) => {
            for key in schema["required"].as_array().into_iter().flatten() {
                let key = key.as_str().unwrap_or_default();
                if !entries.contains_key(key) {
                    return Err(format!("{path}.{key} is not written"));
                }
            }
            for (key, entry) in entries {
                let described = schema["properties"]
                    .get(key)
                    .ok_or_else(|| format!("{path}.{key} is not described"))?;
                check(entry, described, root, &format!("{path}.{key}"))?;
            }
            Ok(())
        }
        Value::Array(entries) => entries.iter().enumerate().try_for_each(|(index, entry)| {
            check(entry, &schema["items"], root, &format!("{path}[{index}]"))
        }),
        _ => Ok(()),
    }
}

fn has_type(value: &Value, types: &Value) -> bool {
    let is = |name: &Value| match name.as_str() {
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("integer") => value.is_u64() || value.is_i64(),
        Some("number") => value.is_number(),
        Some("string") => value.is_string(),
        Some("boolean") => value.is_boolean(),
        Some("null") => value.is_null(),
        _ => false,
    };
    match types {
        Value::Array(types) => types.iter().any(is),
        one => is(one),
    }
}

#[test]
#[should_panic(expected = "profile.device is not written")]
fn a_missing_key_is_found() {
    validate(&serde_json::json!({"schema": 1}), "profile");
}
