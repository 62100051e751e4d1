//! Measures the time of inlay hints, code lenses and a hover after an edit of a 10,000-line file
//! whose profile has a cost on every possible line. `cargo bench -p ridgeline-analysis --bench
//! editing` prints percentiles; the goal is 5 ms at the 99th percentile.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a benchmark reads files and the clock"
)]

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use ridgeline_analysis::present::cost_map::CostMap;
use ridgeline_analysis::present::hints::{HintOptions, hints};
use ridgeline_analysis::present::hover::{HoverContext, hover};
use ridgeline_analysis::present::lenses::{LensOptions, lenses};
use ridgeline_analysis::profile::{
    FileFacts, FileId, LineCost, MemoryByKind, ModuleCost, ModuleId, OperatorCost, PhaseTimes,
    Profile,
};
use ridgeline_analysis::python::{LineMap, SourceIndex, TextEdit, TrainingScript, fingerprint};

const LINES: usize = 10_000;
const EDITS: usize = 2_000;
/// The total number of operators, spread evenly over the lines with a cost.
const OPERATORS: usize = 100_000;

fn main() {
    let text = source();
    let profile = profile(&text);
    let mut index = SourceIndex::new(text.as_str());
    let first = measure("parse anew", 20, |_| {
        std::hint::black_box(SourceIndex::new(text.as_str()));
    });
    let mut costs = CostMap::build(&profile, FileId(0), &index);
    println!(
        "{} lines, {} statements, {} costs; first parse {first:?}",
        index.lines().count(),
        index.statements().len(),
        costs.statements.len()
    );
    let edit = measure("edit", EDITS, |at| index.edit(&[keystroke(&index, at)]));
    measure("line map", EDITS / 4, |_| {
        let old = &profile.files[0].fingerprint;
        std::hint::black_box(LineMap::new(old, index.lines().checksums()));
    });
    let build = measure("costs", EDITS / 4, |_| {
        costs = CostMap::build(&profile, FileId(0), &index);
    });
    let full_range = 0..index.text().len();
    let options = HintOptions::default();
    let training = TrainingScript::default();
    let hint = measure("hints of the whole file", EDITS / 4, |_| {
        std::hint::black_box(hints(&profile, &costs, &index, full_range.clone(), &options));
    });
    let lens = measure("lenses", EDITS / 4, |_| {
        let options = LensOptions::default();
        std::hint::black_box(lenses(Some((&profile, &costs)), &index, || &training, &options));
    });
    let hovered = measure("hover", EDITS / 4, |at| {
        let offset = index.lines().start_of((at * 37 % LINES) as u32) + 9;
        std::hint::black_box(hover(&profile, HoverContext::default(), &costs, &index, offset));
    });
    let all = measure("an edit, then all of them", EDITS, |at| {
        index.edit(&[keystroke(&index, at)]);
        costs = CostMap::build(&profile, FileId(0), &index);
        let full_range = 0..index.text().len();
        std::hint::black_box(hints(&profile, &costs, &index, full_range, &options));
        let shown = Some((&profile, &costs));
        std::hint::black_box(lenses(shown, &index, || &training, &LensOptions::default()));
        let offset = index.lines().start_of((at * 37 % LINES) as u32) + 9;
        std::hint::black_box(hover(&profile, HoverContext::default(), &costs, &index, offset));
    });
    std::hint::black_box((edit, build, hint, lens, hovered, all));
}

/// Returns the edit of keystroke `at`. The keystrokes type a statement below a line, then the same
/// statement below another line, and so on.
fn keystroke(index: &SourceIndex, at: usize) -> TextEdit {
    const STATEMENT: &str = "\n        h = self.block(h, mask=[None, 1])";
    let line = (at / STATEMENT.len() * 1_310 % LINES) as u32 + 9;
    let key = at % STATEMENT.len();
    // The part typed so far ends `key` bytes after the original end of the line.
    let end = index.lines().trimmed(index.text(), line).end;
    let place = if key == 0 { end } else { (end + key).min(index.text().len()) };
    TextEdit { range: place..place, text: STATEMENT[key..=key].to_owned() }
}

fn measure(name: &str, times: usize, mut work: impl FnMut(usize)) -> Duration {
    let mut times_taken: Vec<Duration> = (0..times)
        .map(|at| {
            let start = Instant::now();
            work(at);
            start.elapsed()
        })
        .collect();
    times_taken.sort_unstable();
    let at = |share: f64| times_taken[((times_taken.len() - 1) as f64 * share) as usize];
    println!(
        "{name:>26}: median {:>9.3?}  99% {:>9.3?}  most {:>9.3?}",
        at(0.5),
        at(0.99),
        at(1.0)
    );
    at(0.99)
}

/// Returns the source of many similar, realistic modules.
fn source() -> String {
    let mut text = String::from("import torch\nfrom torch import nn\n\n");
    let mut number = 0;
    while text.lines().count() + 20 < LINES {
        number += 1;
        let _ = write!(
            text,
            "class Block{number}(nn.Module):\n    \"\"\"A residual block.\"\"\"\n\n    def __init__(self, width: int, hidden: int = {number}) -> None:\n        super().__init__()\n        self.norm = nn.LayerNorm(width)\n        self.mlp = nn.Sequential(\n            nn.Linear(width, hidden),\n            nn.GELU(),\n            nn.Linear(hidden, width),\n        )\n\n    def forward(self, x, mask=None):\n        # The residual stream.\n        h = self.norm(x)\n        if mask is not None:\n            h = h * mask[:, None, :].to(h.dtype)\n        h = self.mlp(h)\n        return x + h\n\n\n"
        );
    }
    text
}

fn profile(text: &str) -> Profile {
    let mut profile = Profile::default();
    let lines: Vec<LineCost> = text
        .lines()
        .enumerate()
        .filter(|(_, line)| line.starts_with("        ") && !line.contains('#'))
        .map(|(at, _)| LineCost { line: at as u32 + 1, scope: "Block.forward".into(), ..cost(at) })
        .collect();
    let each = OPERATORS / lines.len().max(1);
    println!("{} costly lines, {each} operators each", lines.len());
    for (at, line) in text.lines().enumerate().filter(|(_, line)| line.contains("nn.")) {
        profile.modules.push(ModuleCost {
            path: format!("blocks.{at}"),
            type_name: line.trim().chars().take(12).collect(),
            definition: vec![(FileId(0), at as u32 + 1)],
            total_time: PhaseTimes { forward: 2e4, backward: 4e4, ..PhaseTimes::default() },
            calls: 1.0,
            ..ModuleCost::default()
        });
    }
    profile.files.push(FileFacts { path: "model.py".into(), fingerprint: fingerprint(text) });
    profile.lines.push(
        lines
            .into_iter()
            .map(|mut line| {
                line.operators = vec![
                    OperatorCost {
                        name: "aten::linear".into(),
                        calls: 1.0,
                        time_ns: 1e4,
                        inputs: "[32, 64, 512] float".into(),
                        ..OperatorCost::default()
                    };
                    each
                ];
                line.modules = vec![ModuleId(line.line % 100)];
                line
            })
            .collect(),
    );
    profile.iteration.time_ns = 1e9;
    profile.iteration.batch_size = Some(32);
    profile.iteration.loop_line = Some((FileId(0), 5_000));
    profile.memory.peak_bytes = 1 << 34;
    profile
}

fn cost(at: usize) -> LineCost {
    // One line in twenty is expensive enough for a hint: most of a long file rarely runs.
    let factor = if at.is_multiple_of(20) { 1e3 } else { 1.0 };
    let time =
        PhaseTimes { forward: 4e3 * factor, backward: 8e3 * factor, ..PhaseTimes::default() };
    let memory = MemoryByKind { activations: (factor * 4e5) as u64, ..MemoryByKind::default() };
    LineCost {
        self_time: time,
        total_time: time,
        calls: 1.0,
        self_memory: memory,
        total_memory: memory,
        ..LineCost::default()
    }
}
