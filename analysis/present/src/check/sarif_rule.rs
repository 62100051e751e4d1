//! What a code host shows of a rule beside an alert: what it is, why it matters, how to mend it.
//!
//! Of a finding that is its page. The page's own links lead into folders that are not there, so their
//! words alone are kept.

use serde_json::{Value, json};

use ridgeline_diagnose::pages::page;

/// Characters of a description that GitHub takes.
const DESCRIPTION: usize = 1024;

/// The questions of a check: the beginning of their names, what a failure means, and what is asked.
const QUESTIONS: [(&str, &str, &str); 5] = [
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
    let question = QUESTIONS.iter().find(|(name, ..)| id.starts_with(name));
    let about = page(id)
        .map(About::of_page)
        .or_else(|| question.map(|(_, title, asked)| About::of_question(title, asked)));
    let Some(about) = about else {
        return json!({"id": id, "shortDescription": {"text": id}});
    };
    json!({
        "id": id,
        "shortDescription": {"text": about.title},
        "fullDescription": {"text": about.description},
        "help": {"text": plain(&about.page), "markdown": about.page},
    })
}

struct About {
    title: String,
    description: String,
    /// Markdown.
    page: String,
}

impl About {
    /// The first paragraph of a page says what it is about, and another one why that costs something.
    fn of_page(page: &str) -> About {
        let (heading, body) = page.split_once('\n').unwrap_or((page, ""));
        let title = heading.split_once(": ").map_or(heading, |(_, title)| title);
        let body = without_links(body.trim());
        let mut paragraphs = body.split("\n\n");
        let what = paragraphs.next().unwrap_or_default();
        let why = paragraphs.find_map(|text| text.strip_prefix("**Why it matters.** "));
        let described = [Some(what), why].into_iter().flatten().collect::<Vec<_>>().join(" ");
        let described: String = plain(&described).replace('\n', " ");
        About {
            title: title.to_owned(),
            description: described.chars().take(DESCRIPTION).collect(),
            page: body,
        }
    }

    fn of_question(title: &str, asked: &str) -> About {
        About { title: title.to_owned(), description: plain(asked), page: asked.to_owned() }
    }
}

/// Markdown without links: `[panel](../panel.md)` becomes `panel`.
fn without_links(markdown: &str) -> String {
    let mut text = String::with_capacity(markdown.len());
    let mut rest = markdown;
    while let Some((before, after)) = rest.split_once("](") {
        let Some(((before, words), (_, after))) =
            before.rsplit_once('[').zip(after.split_once(')'))
        else {
            break;
        };
        text.extend([before, words]);
        rest = after;
    }
    text + rest
}

/// Markdown as a text that is read as it stands.
fn plain(markdown: &str) -> String {
    let lines = markdown.lines().filter(|line| !line.starts_with("```"));
    lines.collect::<Vec<_>>().join("\n").replace("**", "")
}

#[cfg(test)]
mod tests {
    use super::*;
    use ridgeline_diagnose::rules;

    #[test]
    fn every_rule_is_described_within_what_code_hosts_take() {
        let questions = ["time-budget", "memory-budget", "time-regression", "memory-regression"];
        let questions = questions.into_iter().chain(["findings-warning", "findings-hint"]);
        for id in rules().into_iter().map(|(rule, _)| rule).chain(questions) {
            let rule = rule(id);
            for part in ["shortDescription", "fullDescription"] {
                let text = rule[part]["text"].as_str().unwrap_or_default();
                let length = text.chars().count();
                assert!(
                    length > 10 && length < DESCRIPTION && !text.contains('\n'),
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
    fn a_rule_says_what_its_page_says() {
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
    fn links_become_their_words() {
        assert_eq!(
            without_links("a [b](c.md) [d\ne](../f.md#g), `x[0]` (h)"),
            "a b d\ne, `x[0]` (h)"
        );
        assert_eq!(without_links("](a) [b](c"), "](a) [b](c");
    }
}
