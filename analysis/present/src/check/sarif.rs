//! SARIF 2.1.0 (OASIS), as GitHub's code scanning reads it: broken budgets are errors, findings are
//! warnings and notes.

use serde_json::{Value, json};

use super::sarif_rule::rule;
use super::{fingerprint, message, ordinal, path};
use ridgeline_compare::check::{Check, Location, Status};

const SCHEMA: &str =
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json";
/// The maximum number of results: GitHub shows 5,000 per run.
const MAX_RESULTS: usize = 5000;

/// A result before it is serialized.
struct Alert<'a> {
    rule: &'a str,
    level: &'static str,
    message: String,
    at: &'a Location,
}

/// Returns the SARIF log of a check. `prefix` is prepended to every path.
pub fn sarif(check: &Check, prefix: &str, version: &str) -> Value {
    let broken = check.items.iter().filter(|item| item.status == Status::Broken);
    let broken = broken.map(|item| Alert {
        rule: &item.name,
        level: "error",
        message: message(&item.message),
        at: &item.at,
    });
    let findings = check.findings.iter().map(|finding| Alert {
        rule: &finding.rule,
        level: if finding.severity == "warning" { "warning" } else { "note" },
        message: message(&finding.message),
        at: &finding.at,
    });
    let alerts: Vec<Alert<'_>> = broken.chain(findings).take(MAX_RESULTS).collect();
    let mut rules: Vec<&str> = alerts.iter().map(|one| one.rule).collect();
    rules.sort_unstable();
    rules.dedup();
    let results: Vec<Value> =
        (0..alerts.len()).filter_map(|at| result(&alerts, at, &rules, prefix)).collect();
    let rules: Vec<Value> = rules.iter().map(|id| rule(id)).collect();
    // 3.20.21: conditions encountered while the tool ran, which are not results.
    let notifications: Vec<Value> = check
        .error
        .iter()
        .map(|error| json!({"level": "error", "message": {"text": message(error)}}))
        .collect();
    json!({
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [{
            "tool": {"driver": {"name": "Ridgeline", "semanticVersion": version, "rules": rules}},
            "invocations": [{
                "executionSuccessful": check.error.is_none(),
                "toolExecutionNotifications": notifications,
            }],
            "columnKind": "unicodeCodePoints",
            "results": results,
        }],
    })
}

fn result(alerts: &[Alert<'_>], at: usize, rules: &[&str], prefix: &str) -> Option<Value> {
    let (before, one) = (alerts.get(..at)?, alerts.get(at)?);
    let ordinal = ordinal(before.iter().map(|other| (other.rule, other.at)), (one.rule, one.at));
    // GitHub hides results without a location, so use the project's root for them.
    let file = if one.at.file.is_empty() { "." } else { &one.at.file };
    Some(json!({
        "ruleId": one.rule,
        "ruleIndex": rules.iter().position(|rule| *rule == one.rule)?,
        "level": one.level,
        "message": {"text": one.message},
        "locations": [{"physicalLocation": {
            "artifactLocation": {"uri": uri(&path(prefix, file))},
            "region": {"startLine": one.at.line.max(1)},
        }}],
        "partialFingerprints": {"ridgeline/v1": fingerprint(one.rule, one.at, ordinal)},
    }))
}

/// Percent-encodes a path as a relative reference (RFC 3986).
fn uri(path: &str) -> String {
    let mut uri = String::with_capacity(path.len());
    for byte in path.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                uri.push(char::from(byte));
            }
            byte => uri += &format!("%{byte:02X}"),
        }
    }
    uri
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::tests::check_with_special_characters;

    /// Checks what section 3 of the standard requires of the parts written here.
    #[track_caller]
    fn assert_valid(log: &Value) {
        assert_eq!(log["version"], "2.1.0");
        for run in log["runs"].as_array().expect("3.13.4: runs") {
            let driver = &run["tool"]["driver"];
            assert!(driver["name"].is_string(), "3.19.8");
            let rules = driver["rules"].as_array().expect("rules");
            for rule in rules {
                assert!(rule["id"].is_string() && rule["shortDescription"]["text"].is_string());
                let help = &rule["help"];
                assert!(help.is_null() || help["text"].is_string(), "3.11.8: {help}");
            }
            let invocations = run["invocations"].as_array().expect("3.14.11");
            for invocation in invocations {
                assert!(invocation["executionSuccessful"].is_boolean(), "3.20.14");
                for notification in
                    invocation["toolExecutionNotifications"].as_array().expect("3.20.21")
                {
                    assert!(notification["message"]["text"].is_string(), "3.58.5");
                }
            }
            let ids: std::collections::HashSet<_> = rules.iter().map(|rule| &rule["id"]).collect();
            assert_eq!(ids.len(), rules.len(), "3.19.23: unique rules");
            for result in run["results"].as_array().expect("results") {
                assert!(result["message"]["text"].is_string(), "3.27.11: {result}");
                let levels = ["none", "note", "warning", "error"];
                assert!(levels.contains(&result["level"].as_str().expect("3.27.10")), "{result}");
                let rule = result["ruleIndex"].as_u64().expect("3.27.6") as usize;
                assert_eq!(rules[rule]["id"], result["ruleId"]);
                let place = &result["locations"][0]["physicalLocation"];
                assert!(place["region"]["startLine"].as_u64().is_some_and(|line| line > 0));
                let uri = place["artifactLocation"]["uri"].as_str().expect("3.4.3");
                let allowed = |c: char| c.is_ascii_alphanumeric() || "-._~/%".contains(c);
                assert!(uri.chars().all(allowed) && !uri.starts_with('/'), "{uri}");
                let fingerprints = result["partialFingerprints"].as_object().expect("3.27.17");
                assert!(fingerprints.values().all(Value::is_string));
            }
        }
    }

    #[test]
    fn a_log_conforms_to_the_standard() {
        let log = sarif(&check_with_special_characters(), "ml", "1.2.3");
        assert_valid(&log);
        let results = log["runs"][0]["results"].as_array().expect("results");
        let levels: Vec<_> = results.iter().map(|result| &result["level"]).collect();
        assert_eq!(levels, ["error", "warning", "note", "note"]);
        let uri = &results[0]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"];
        assert_eq!(uri, "ml/src/a%20b%26c.py");
        // Two findings of one rule in one file have different fingerprints.
        assert_ne!(results[1]["partialFingerprints"], results[2]["partialFingerprints"]);
        assert_valid(&sarif(&Check::default(), "", "1.2.3"));
    }

    #[test]
    fn a_failed_program_becomes_a_notification() {
        let done = sarif(&check_with_special_characters(), "", "1.2.3");
        assert_eq!(done["runs"][0]["invocations"][0]["executionSuccessful"], true);
        let log = sarif(&Check::failed("a.py:3: ValueError: x"), "", "1.2.3");
        assert_valid(&log);
        assert_eq!(log["runs"][0]["results"], json!([]));
        assert_eq!(
            log["runs"][0]["invocations"],
            json!([{
                "executionSuccessful": false,
                "toolExecutionNotifications":
                    [{"level": "error", "message": {"text": "a.py:3: ValueError: x"}}],
            }])
        );
    }
}
