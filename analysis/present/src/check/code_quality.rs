//! GitLab's code quality report: the fields of a Code Climate issue that GitLab reads.

use serde_json::{Value, json};

use super::{fingerprint, message, ordinal, path};
use ridgeline_compare::check::{Check, Location, Status};

/// Broken budgets and findings in GitLab's format. `prefix` is prepended to every path.
pub fn code_quality(check: &Check, prefix: &str) -> Value {
    let broken = check.items.iter().filter(|item| item.status == Status::Broken);
    let broken = broken.map(|item| (item.name.as_str(), "critical", &item.message, &item.at));
    let findings = check.findings.iter().map(|finding| {
        let severity = match finding.severity {
            "warning" => "major",
            "information" => "minor",
            _ => "info",
        };
        (finding.rule.as_str(), severity, &finding.message, &finding.at)
    });
    let nowhere = Location::default();
    let error = check.error.iter().map(|error| ("program", "blocker", error, &nowhere));
    let entries: Vec<(&str, &str, &String, &Location)> =
        error.chain(broken).chain(findings).collect();
    let issues = entries.iter().enumerate().map(|(at, (name, severity, text, place))| {
        let before = entries.iter().take(at).map(|(name, _, _, at)| (*name, *at));
        json!({
            "description": message(text),
            "check_name": name,
            "fingerprint": fingerprint(name, place, ordinal(before, (name, place))),
            "severity": severity,
            "location": {
                "path": path(prefix, if place.file.is_empty() { "." } else { &place.file }),
                "lines": {"begin": place.line.max(1)},
            },
        })
    });
    Value::Array(issues.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::tests::check_with_special_characters;

    /// Checks the fields that GitLab's code quality documentation requires.
    #[test]
    fn issues_have_the_fields_gitlab_requires() {
        let report = code_quality(&check_with_special_characters(), "");
        let issues = report.as_array().expect("an array");
        assert_eq!(issues.len(), 4);
        let severities = ["info", "minor", "major", "critical", "blocker"];
        let mut fingerprints = std::collections::HashSet::new();
        for issue in issues {
            assert!(issue["description"].is_string() && issue["check_name"].is_string());
            assert!(severities.contains(&issue["severity"].as_str().expect("a severity")));
            assert!(issue["location"]["path"].is_string());
            assert!(issue["location"]["lines"]["begin"].as_u64().is_some_and(|line| line > 0));
            assert!(
                fingerprints
                    .insert(issue["fingerprint"].as_str().expect("a fingerprint").to_owned())
            );
        }
        assert_eq!(code_quality(&Check::default(), ""), json!([]));
        let failed = code_quality(&Check::failed("it raised"), "");
        assert_eq!(
            (&failed[0]["severity"], &failed[0]["description"]),
            (&json!("blocker"), &json!("it raised"))
        );
    }
}
