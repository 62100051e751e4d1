//! The result of an evaluation: tables as text, and JSON with every case.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anstyle::Style;
use serde::Serialize;

use super::case::CaseResult;
use super::error_statistics::{ErrorStatistics, error_statistics};
use super::questions::{Question, TargetErrors};
use super::trivial::{self, Guess};
use ridgeline_base::printable::printable;

/// The result of an evaluation.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The version of the format.
    pub version: u32,
    /// The versions used for lists: `{"torch": "2.4.0", "timm": "1.0.9"}`; null if there are no
    /// lists.
    pub lister: Option<BTreeMap<String, Option<String>>>,
    /// The sample of cases; null if all were used.
    pub sample: Option<Sample>,
    /// Files and rows that could not be read.
    pub problems: Vec<String>,
    /// The questions.
    pub questions: Vec<Answer>,
}

/// The choice of cases.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Sample {
    /// The maximum number of cases of each question.
    pub cases: usize,
    /// The seed of the choice.
    pub seed: u64,
}

/// The result of one question.
#[derive(Debug, Serialize)]
pub struct Answer {
    /// The short name of the question.
    pub id: &'static str,
    /// The question as text.
    pub title: &'static str,
    /// The errors to reach.
    pub bar: TargetErrors,
    /// Groups of cases; if there are several, the first has all cases.
    pub groups: Vec<Group>,
    /// Cases without a prediction, by reason.
    pub not_answered: Vec<Reason>,
    /// Rows that are not cases, by reason.
    pub passed_over: Vec<Reason>,
    /// Every case.
    pub cases: Vec<CaseRow>,
}

/// A group of cases.
#[derive(Debug, Serialize)]
pub struct Group {
    /// What they have in common.
    pub name: String,
    /// The errors of our predictions; null if there are none.
    pub ours: Option<ErrorStatistics>,
    /// The share of measurements in the predicted range.
    pub in_range: Option<f64>,
    /// The trivial predictions for the same cases.
    pub trivial: Vec<Trivial>,
}

/// A trivial prediction.
#[derive(Debug, Serialize)]
pub struct Trivial {
    /// The method.
    pub name: &'static str,
    /// Its errors.
    pub errors: ErrorStatistics,
}

/// A reason and its number of cases.
#[derive(Debug, Serialize)]
pub struct Reason {
    /// The reason as text.
    pub why: String,
    /// The number of cases or rows.
    pub count: usize,
    /// The names of some cases.
    pub examples: Vec<String>,
}

/// One case, in milliseconds.
#[derive(Debug, Serialize)]
pub struct CaseRow {
    /// The name of the case.
    pub label: String,
    /// The group of the case.
    pub group: String,
    /// The measured time.
    pub measured_ms: f64,
    /// The predicted range; null if there is no prediction.
    pub predicted_ms: Option<ridgeline_operators::range::Range>,
    /// |predicted / measured - 1|.
    pub error: Option<f64>,
}

/// The maximum number of examples for each reason.
const MAX_EXAMPLES: usize = 5;

impl Answer {
    /// Creates the result of a question from its judged cases.
    pub fn new(
        question: &dyn Question,
        judged: &[CaseResult],
        passed_over: Vec<(String, usize)>,
    ) -> Answer {
        let mut by_group: BTreeMap<&str, Vec<&CaseResult>> = BTreeMap::new();
        let mut reasons: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for case in judged {
            by_group.entry(&case.group).or_default().push(case);
            if let Err(unanswered) = &case.outcome {
                let example = format!("{} ({})", case.label, unanswered.detail);
                reasons.entry(unanswered.reason.clone()).or_default().push(example);
            }
        }
        let mut groups = Vec::new();
        let whole_iterations: Vec<&CaseResult> =
            judged.iter().filter(|case| !case.group.ends_with(" alone")).collect();
        if by_group.len() > 1 {
            groups.push(Group::new("all", &whole_iterations));
        }
        groups.extend(by_group.iter().map(|(name, cases)| Group::new(name, cases)));
        Answer {
            id: question.id(),
            title: question.title(),
            bar: question.bar(),
            groups,
            not_answered: reasons
                .into_iter()
                .map(|(why, mut names)| {
                    let count = names.len();
                    names.truncate(MAX_EXAMPLES);
                    Reason { why, count, examples: names }
                })
                .collect(),
            passed_over: passed_over
                .into_iter()
                .map(|(why, count)| Reason { why, count, examples: Vec::new() })
                .collect(),
            cases: judged.iter().map(CaseRow::new).collect(),
        }
    }
}

impl Group {
    fn new(name: &str, cases: &[&CaseResult]) -> Group {
        let errors: Vec<f64> = cases.iter().filter_map(|case| case.error()).collect();
        let ranges: Vec<bool> = cases.iter().filter_map(|case| case.in_range()).collect();
        let inside = ranges.iter().filter(|inside| **inside).count();
        let mut kinds: Vec<(&Guess, Vec<(f64, f64)>)> = Vec::new();
        for case in cases {
            let Ok(prediction) = &case.outcome else { continue };
            for guess in &prediction.trivial {
                let pair = (guess.value, case.measured_milliseconds);
                match kinds.iter_mut().find(|(kind, _)| kind.name == guess.name) {
                    Some((_, pairs)) => pairs.push(pair),
                    None => kinds.push((guess, vec![pair])),
                }
            }
        }
        Group {
            name: name.to_owned(),
            ours: error_statistics(&errors),
            in_range: (!ranges.is_empty()).then(|| inside as f64 / ranges.len() as f64),
            trivial: kinds
                .into_iter()
                .filter_map(|(kind, pairs)| {
                    let errors = trivial::judge(&pairs, kind.fitted)?;
                    Some(Trivial { name: kind.name, errors })
                })
                .collect(),
        }
    }
}

impl CaseRow {
    fn new(case: &CaseResult) -> CaseRow {
        CaseRow {
            label: case.label.clone(),
            group: case.group.clone(),
            measured_ms: case.measured_milliseconds,
            predicted_ms: case.outcome.as_ref().ok().map(|prediction| prediction.milliseconds),
            error: case.error(),
        }
    }
}

impl Report {
    /// Formats the report. `heading` is the style of headings.
    pub fn text(&self, heading: Style) -> String {
        let mut text = String::new();
        for problem in &self.problems {
            line(&mut text, format_args!("{}", printable(problem)));
        }
        if !self.problems.is_empty() {
            text.push('\n');
        }
        for answer in &self.questions {
            answer.write(&mut text, heading);
        }
        text
    }
}

impl Answer {
    fn write(&self, text: &mut String, heading: Style) {
        line(text, format_args!("{heading}{}{heading:#}", self.title));
        if self.groups.is_empty() {
            line(text, format_args!("  no case in this folder"));
        } else {
            let columns = ("cases", "mean", "median", "90%", "in range");
            line(
                text,
                format_args!(
                    "  {:<46} {:>6} {:>7} {:>7} {:>7} {:>9}",
                    "", columns.0, columns.1, columns.2, columns.3, columns.4
                ),
            );
        }
        for group in &self.groups {
            group.write(text, self.groups.len() > 1);
        }
        let bar = self.bar;
        let median = bar.median.map(|median| format!(", median {}", percent(median)));
        line(
            text,
            format_args!(
                "  to reach: mean {}{}; to aim at: {}",
                percent(bar.mean),
                median.unwrap_or_default(),
                percent(bar.aim)
            ),
        );
        for reason in &self.not_answered {
            let names = reason.examples.iter().map(|name| printable(name)).collect::<Vec<_>>();
            let more = if reason.count > names.len() { ", …" } else { "" };
            let why = printable(&reason.why);
            line(
                text,
                format_args!(
                    "  not answered: {} ({why}): {}{more}",
                    reason.count,
                    names.join("; ")
                ),
            );
        }
        for reason in &self.passed_over {
            let why = printable(&reason.why);
            line(text, format_args!("  no case of: {} rows ({why})", reason.count));
        }
        text.push('\n');
    }
}

impl Group {
    fn write(&self, text: &mut String, named: bool) {
        if named {
            line(text, format_args!("  {}", printable(&self.name)));
        }
        let Some(ours) = &self.ours else {
            line(text, format_args!("    no case was answered"));
            return;
        };
        row(text, "Ridgeline", ours, self.in_range);
        for trivial in &self.trivial {
            row(text, trivial.name, &trivial.errors, None);
        }
    }
}

fn row(text: &mut String, name: &str, errors: &ErrorStatistics, in_range: Option<f64>) {
    let range = in_range.map_or_else(String::new, percent);
    line(
        text,
        format_args!(
            "    {name:<44} {:>6} {:>7} {:>7} {:>7} {range:>9}",
            errors.cases,
            percent(errors.mean),
            percent(errors.median),
            percent(errors.p90)
        ),
    );
}

fn percent(share: f64) -> String {
    format!("{:.1}%", share * 100.0)
}

fn line(text: &mut String, content: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{content}");
}
