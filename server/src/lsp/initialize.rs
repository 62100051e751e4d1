//! Removes the parts of `initialize` that the protocol's types cannot read, such as a value that a
//! newer version of the protocol has added. Otherwise one of them would refuse the whole session:
//! VS Code sends the trace level `compact`, which is not in the specification.

use serde::Deserialize;
use serde_json::{Value, json};
use tower_lsp::ls_types::InitializeParams;

/// Returns the readable parts of the parameters. Parameters that are no object stay as they are,
/// and are refused.
pub(crate) fn readable(params: Value) -> Value {
    if !params.is_object() {
        return params;
    }
    let mut kept = match is_readable(&params) {
        true => params,
        false => {
            tracing::warn!("ignored the parts of `initialize` that are not in the protocol");
            keep(params, &is_readable).unwrap_or_else(|| json!({}))
        }
    };
    if let Some(fields) = kept.as_object_mut() {
        fields.entry("capabilities").or_insert_with(|| json!({}));
    }
    kept
}

fn is_readable(params: &Value) -> bool {
    let mut params = params.clone();
    if let Some(fields) = params.as_object_mut() {
        // Required, and absent while another field is tried.
        fields.entry("capabilities").or_insert_with(|| json!({}));
    }
    InitializeParams::deserialize(params).is_ok()
}

/// Returns the value if it is readable, otherwise its readable elements or fields.
fn keep(value: Value, is_readable: &dyn Fn(&Value) -> bool) -> Option<Value> {
    if is_readable(&value) {
        return Some(value);
    }
    let rest = match value {
        Value::Array(items) => {
            let item = |item| keep(item, &|item| is_readable(&json!([item])));
            Value::Array(items.into_iter().filter_map(item).collect())
        }
        Value::Object(fields) => {
            let field = |(key, value): (String, Value)| {
                let value = keep(value, &|value| is_readable(&json!({ key.as_str(): value })))?;
                Some((key, value))
            };
            Value::Object(fields.into_iter().filter_map(field).collect())
        }
        _ => return None,
    };
    is_readable(&rest).then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(params: Value, expected: Value) {
        assert_eq!(readable(params), expected);
    }

    #[test]
    fn unknown_values_are_removed() {
        check(
            json!({"capabilities": {}, "trace": "compact", "rootUri": 5, "processId": "x", "locale": "de"}),
            json!({"capabilities": {}, "locale": "de"}),
        );
        check(
            json!({"capabilities": null, "trace": "off"}),
            json!({"capabilities": {}, "trace": "off"}),
        );
        check(json!({}), json!({"capabilities": {}}));
    }

    #[test]
    fn the_rest_of_a_capability_is_kept() {
        check(
            json!({"capabilities": {
                "textDocument": {"hover": {"contentFormat": ["html", "markdown"]}, "codeLens": 1},
                "general": {"positionEncodings": ["utf-8", 3]},
            }}),
            json!({"capabilities": {
                "textDocument": {"hover": {"contentFormat": ["markdown"]}},
                "general": {"positionEncodings": ["utf-8"]},
            }}),
        );
    }

    #[test]
    fn a_bad_folder_does_not_hide_the_others() {
        check(
            json!({"capabilities": {}, "workspaceFolders": [
                {"uri": "file:///w", "name": "w"}, {"uri": "file:///x", "name": 3}, null,
            ]}),
            json!({"capabilities": {}, "workspaceFolders": [{"uri": "file:///w", "name": "w"}]}),
        );
    }

    #[test]
    fn no_object_is_refused_later() {
        check(json!([1]), json!([1]));
    }
}
