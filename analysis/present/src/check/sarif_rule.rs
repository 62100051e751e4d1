//! The description of a rule that a code host shows next to an alert: what it is, why it matters,
//! how to fix it.
//!
//! For a finding, this is its documentation page. The page's relative links would not resolve
//! there, so only their text is kept.

use serde_json::{Value, json};

use ridgeline_diagnose::pages::page;

/// Maximum length of a description on GitHub, in characters.
const MAX_DESCRIPTION: usize = 1024;

/// The checks that are not findings: prefix of the name, title, and what is compared.
const CHECKS: [(&str, &str, &str); 5] = [
    (
        "time-budget",
        "Iteration time over budget",
        "Compares the median of the timed iterations with `--max-time`, or `max_time` under \
        `[check]` in `ridgeline.toml`. Reported at the training loop.",
    ),
    (
        "memory-budget",
        "Peak memory over budget",
        "Compares the peak memory of an iteration with `--max-memory`, or `max_memory` under \
        `[check]` in `ridgeline.toml`. Reported at the training loop.",
    ),
    (
        "time-regression",
        "Iterations slower than the baseline",
        "Compares the timed iterations with those of the baseline (Mann-Whitney U test). Reported \
        if they are slower beyond noise and by more than `--max-regression` in two runs, at the \
        line that slowed down most.",
    ),
    (
        "memory-regression",
        "Peak memory above the baseline",
        "Compares the peak memory of an iteration with the baseline. Reported if it grew by more \
        than `--max-regression`, at the line that grew most.",
    ),
    (
        "findings-",
        "Too many findings",
        "Counts findings of a measured run by severity and compares them with `--max-findings`, or \
        `max_findings` under `[check]` in `ridgeline.toml`. Reported at the most expensive finding.",
    ),
];

/// The `reportingDescriptor` of a rule (3.49).
pub(super) fn rule(id: &str) -> Value {
    let check = CHECKS.iter().find(|(name, ..)| id.starts_with(name));
    let description = page(id)
        .map(Description::of_page)
        .or_else(|| check.map(|(_, title, text)| Description::of_check(title, text)));
    let Some(description) = description else {
        return json!({"id": id, "shortDescription": {"text": id}});
    };
    json!({
        "id": id,
        "shortDescription": {"text": description.title},
        "fullDescription": {"text": description.summary},
        "help": {"text": plain(&description.page), "markdown": description.page},
    })
}

struct Description {
    title: String,
    summary: String,
    /// Markdown.
    page: String,
}

impl Description {
    /// Builds the description from the first paragraph, which states the problem, and the one on
    /// why it matters.
    fn of_page(page: &str) -> Description {
        let (heading, body) = page.split_once('\n').unwrap_or((page, ""));
        let title = heading.split_once(": ").map_or(heading, |(_, title)| title);
        let body = without_links(body.trim());
        let mut paragraphs = body.split("\n\n");
        let what = paragraphs.next().unwrap_or_default();
        let why = paragraphs.find_map(|text| text.strip_prefix("**Why it matters.** "));
        let summary = [Some(what), why].into_iter().flatten().collect::<Vec<_>>().join(" ");
        let summary: String = plain(&summary).replace('\n', " ");
        Description {
            title: title.to_owned(),
            summary: summary.chars().take(MAX_DESCRIPTION).collect(),
            page: body,
        }
    }

    fn of_check(title: &str, text: &str) -> Description {
        Description { title: title.to_owned(), summary: plain(text), page: text.to_owned() }
    }
}

/// Replaces links by their text: `[panel](../panel.md)` becomes `panel`.
fn without_links(markdown: &str) -> String {
    let mut text = String::with_capacity(markdown.len());
    let mut rest = markdown;
    while let Some((before, after)) = rest.split_once("](") {
        let Some(((before, text_of_link), (_, after))) =
            before.rsplit_once('[').zip(after.split_once(')'))
        else {
            break;
        };
        text.extend([before, text_of_link]);
        rest = after;
    }
    text + rest
}

/// Converts Markdown to plain text.
fn plain(markdown: &str) -> String {
    let lines = markdown.lines().filter(|line| !line.starts_with("```"));
    lines.collect::<Vec<_>>().join("\n").replace("**", "")
}

#[cfg(test)]
mod tests {
    use super::*;
    use ridgeline_diagnose::rules;

    #[test]
    fn every_description_is_within_github_limits() {
        let checks = ["time-budget", "memory-budget", "time-regression", "memory-regression"];
        let checks = checks.into_iter().chain(["findings-warning", "findings-hint"]);
        for id in rules().into_iter().map(|(rule, _)| rule).chain(checks) {
            let rule = rule(id);
            for part in ["shortDescription", "fullDescription"] {
                let text = rule[part]["text"].as_str().unwrap_or_default();
                let length = text.chars().count();
                assert!(
                    length > 10 && length < MAX_DESCRIPTION && !text.contains('\n'),
                    "{id}: {text}"
                );
            }
            let help = |part: &str| rule["help"][part].as_str().unwrap_or_default().to_owned();
            let (text, markdown) = (help("text"), help("markdown"));
            assert!(!markdown.contains("](") && !markdown.starts_with('#'), "{id}: {markdown}");
            assert!(
                markdown.len() > 40 && !text.contains("**") && !text.contains("```"),
                "{id}: {text}"
            );
        }
    }

    #[test]
    fn a_rule_quotes_its_page() {
        let rule = rule("hidden-sync");
        assert_eq!(rule["shortDescription"]["text"], "Synchronization in the training loop");
        let described = rule["fullDescription"]["text"].as_str().expect("a text");
        assert!(described.starts_with(
            "A line of the loop reads a value that the GPU has not computed yet. The host"
        ));
        let help = |part: &str| rule["help"][part].as_str().unwrap_or_default().to_owned();
        assert!(help("markdown").contains("**How to fix it.** Accumulate `loss.detach()`"));
        assert!(help("text").contains("\nHow to fix it. Accumulate `loss.detach()`"));
        assert!(help("text").contains("covered by loader-not-pinned and\nblocking-copy."));
        assert_eq!(super::rule("unheard-of")["help"], Value::Null);
    }

    #[test]
    fn links_become_their_text() {
        assert_eq!(
            without_links("a [b](c.md) [d\ne](../f.md#g), `x[0]` (h)"),
            "a b d\ne, `x[0]` (h)"
        );
        assert_eq!(without_links("](a) [b](c"), "](a) [b](c");
    }
}
