//! Code lenses: a line of text above a line of code.

use std::ops::Range;

use super::entry_statement::{entry_statement, loop_place};
use super::headline::{headline, with_provenance};
use super::share::{share, share_of_peak};
use crate::cost_map::CostMap;
use ridgeline_base::units;
use ridgeline_profile::{MemoryByKind, Profile, Provenance};
use ridgeline_python::{SourceIndex, TrainingScript};

/// The command of the lens that starts a run.
pub const PROFILE_COMMAND: &str = "ridgeline.profile";
/// The command of the lens that opens the panel.
pub const OPEN_PANEL_COMMAND: &str = "ridgeline.openPanel";

/// A text above a line, with the command that a click runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lens {
    /// The line below the lens, counted from 1.
    pub line: u32,
    /// Byte range of the line's code.
    pub span: Range<usize>,
    /// `activations 86 MB · weights 9 MB`.
    pub title: String,
    /// The command of a click. `None` if the lens is only text.
    pub command: Option<&'static str>,
    /// The origin of the numbers.
    pub provenance: Provenance,
}

/// Settings of lenses.
#[derive(Clone, Debug, PartialEq)]
pub struct LensOptions {
    /// Lines that hold less than this share of the peak, 0 to 1, have no lens.
    pub min_memory_share: f64,
    /// Lines that hold less than this share of the device's memory, 0 to 1, have no lens: a peak far
    /// below the capacity needs no attention.
    pub min_capacity_share: f64,
    /// Functions and classes below this share of the iteration, 0 to 1, have no lens.
    pub min_scope_share: f64,
    /// Whether the memory of lines is shown.
    pub memory: bool,
    /// Whether the totals of functions and classes are shown.
    pub scopes: bool,
    /// Whether throughput and memory are shown at the training loop.
    pub headline: bool,
    /// Whether the "profile" lens is shown.
    pub profile: bool,
    /// Whether the "open panel" lens is shown; requires a panel.
    pub panel: bool,
    /// Whether the lenses of a line are joined, for editors that show only one for each line.
    pub one_per_line: bool,
}

impl Default for LensOptions {
    fn default() -> LensOptions {
        LensOptions {
            min_memory_share: 0.05,
            min_capacity_share: 0.01,
            min_scope_share: 0.01,
            memory: true,
            scopes: true,
            headline: true,
            profile: true,
            panel: false,
            one_per_line: false,
        }
    }
}

/// The maximum number of kinds of memory in a lens.
const MAX_KINDS: usize = 3;

/// Returns the lenses of one file, in source order. Without a profile, only the "profile" lens, if
/// the text trains a model; `training` decides that and is called only if needed.
pub fn lenses<'a>(
    profile: Option<(&Profile, &CostMap)>,
    index: &SourceIndex,
    training: impl FnOnce() -> &'a TrainingScript,
    options: &LensOptions,
) -> Vec<Lens> {
    let mut builder = LensBuilder { index, lenses: Vec::new() };
    let mut loop_line = None;
    if let Some((profile, costs)) = profile {
        if let Some(training) = &costs.training_loop {
            loop_line = Some(training.first_line);
            if options.headline {
                let command = options.profile.then_some(PROFILE_COMMAND);
                let title = headline(profile, training.provenance);
                builder.add(training.first_line, title, command, training.provenance);
            }
        } else if let Some(entry) = entry_statement(profile, costs, index) {
            loop_line = Some(entry.first_line);
            if options.headline {
                let command = options.profile.then_some(PROFILE_COMMAND);
                let parts = [Some(headline(profile, entry.provenance)), loop_place(profile)];
                let parts: Vec<String> = parts.into_iter().flatten().collect();
                builder.add(entry.first_line, parts.join(" · "), command, entry.provenance);
            }
        }
        if options.scopes {
            builder.scopes(profile, costs, options);
        }
        if options.memory {
            builder.memory(profile, costs, options);
        }
    }
    if loop_line.is_none() && (options.profile || options.panel) {
        let training = training();
        let is_likely = training.score >= TrainingScript::LIKELY;
        loop_line = training.loop_line.or(training.main_line).filter(|_| is_likely);
    }
    if let Some(line) = loop_line {
        if options.profile {
            builder.add(line, "profile".to_owned(), Some(PROFILE_COMMAND), Provenance::Measured);
        }
        if options.panel {
            builder.add(
                line,
                "open panel".to_owned(),
                Some(OPEN_PANEL_COMMAND),
                Provenance::Measured,
            );
        }
    }
    let mut lenses = builder.lenses;
    lenses.sort_by_key(|lens| lens.line);
    if options.one_per_line {
        lenses.dedup_by(|next, first| {
            let same = next.line == first.line;
            // A click on the headline already runs "profile".
            if same && next.command.is_none() {
                first.title = format!("{} · {}", first.title, next.title);
                first.provenance = first.provenance.max(next.provenance);
            }
            same
        });
    }
    lenses
}

struct LensBuilder<'a> {
    index: &'a SourceIndex,
    lenses: Vec<Lens>,
}

impl LensBuilder<'_> {
    fn add(
        &mut self,
        line: u32,
        title: String,
        command: Option<&'static str>,
        provenance: Provenance,
    ) {
        let span = self.index.lines().trimmed(self.index.text(), line);
        if !title.is_empty() {
            self.lenses.push(Lens { line, span, title, command, provenance });
        }
    }

    fn scopes(&mut self, profile: &Profile, costs: &CostMap, options: &LensOptions) {
        for cost in &costs.scopes {
            let share = share(&cost.total_time, profile);
            let mut parts = Vec::new();
            if share >= options.min_scope_share {
                let time = units::duration(cost.total_time.total());
                parts.push(format!("{time} · {}", units::percent(share)));
            }
            // A function without time, typically `__init__`, would only repeat the memory of its
            // class.
            let is_own = cost.is_class || !parts.is_empty();
            if is_own && holds_much(&cost.total_memory, profile, options) {
                let bytes = units::bytes(cost.total_memory.total() as f64);
                parts.push(format!("{bytes} of peak memory"));
            }
            let title = parts.join(" · ");
            self.add(cost.line, with_provenance(title, cost.provenance), None, cost.provenance);
        }
    }

    /// Adds the memory that lines allocated themselves, so that no memory is shown twice.
    fn memory(&mut self, profile: &Profile, costs: &CostMap, options: &LensOptions) {
        for cost in &costs.statements {
            if holds_much(&cost.self_memory, profile, options) {
                let title = with_provenance(kinds(&cost.self_memory), cost.provenance);
                self.add(cost.first_line, title, None, cost.provenance);
            }
        }
    }
}

/// Whether memory is a large enough share of the peak, and of the device's memory if that is known.
fn holds_much(memory: &MemoryByKind, profile: &Profile, options: &LensOptions) -> bool {
    let bytes = memory.total();
    let capacity = profile.memory.capacity_bytes.map_or(0.0, |capacity| capacity as f64);
    share_of_peak(bytes, profile) >= options.min_memory_share
        && bytes as f64 >= options.min_capacity_share * capacity
}

/// `activations 86 MB · weights 9 MB`: the largest kinds, without negligible ones.
pub(super) fn kinds(memory: &MemoryByKind) -> String {
    let total = memory.total();
    let mut named: Vec<(&str, u64)> =
        memory.named().into_iter().filter(|(_, bytes)| *bytes > 0).collect();
    named.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
    named
        .into_iter()
        .filter(|(_, bytes)| *bytes >= total / 50)
        .take(MAX_KINDS)
        .map(|(name, bytes)| format!("{name} {}", units::bytes(bytes as f64)))
        .collect::<Vec<_>>()
        .join(" · ")
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;
    use crate::fixture::costs;
    use ridgeline_compare::fixture::TRAIN;
    use ridgeline_profile::{FileFacts, FileId};
    use ridgeline_python::training_script;

    fn check(options: &LensOptions, expected: Expect) {
        let (profile, costs, index) = costs(TRAIN, None);
        let training = TrainingScript::default();
        let found = lenses(Some((&profile, &costs)), &index, || &training, options);
        expected.assert_eq(&format_lenses(&found, &index));
    }

    fn format_lenses(lenses: &[Lens], index: &SourceIndex) -> String {
        lenses
            .iter()
            .map(|lens| {
                let command = lens.command.map_or(String::new(), |command| format!(" [{command}]"));
                format!("‹{}›{command}  {}\n", lens.title, &index.text()[lens.span.clone()])
            })
            .collect()
    }

    #[test]
    fn headline_memory_and_totals() {
        check(
            &LensOptions { min_capacity_share: 0.0, ..LensOptions::default() },
            expect![[r#"
                ‹85 ms · 85% · 99 MB of peak memory›  class Net(nn.Module):
                ‹60 ms · 60% · 84 MB of peak memory›  def forward(self, x):
                ‹activations 80 MB›  x = torch.relu(self.conv(x))
                ‹93.2 ms · 93% · 90 MB of peak memory›  def train(model, loader, optimizer):
                ‹320 samples/s · 100 ms · peak 120 MB / 23.7 GB› [ridgeline.profile]  for x, y in loader:
                ‹profile› [ridgeline.profile]  for x, y in loader:
                ‹93.2 ms · 93% · 99 MB of peak memory›  def main():
            "#]],
        );
    }

    #[test]
    fn one_lens_for_each_line() {
        check(
            &LensOptions { one_per_line: true, panel: true, ..LensOptions::default() },
            expect![[r#"
                ‹85 ms · 85%›  class Net(nn.Module):
                ‹60 ms · 60%›  def forward(self, x):
                ‹93.2 ms · 93%›  def train(model, loader, optimizer):
                ‹320 samples/s · 100 ms · peak 120 MB / 23.7 GB› [ridgeline.profile]  for x, y in loader:
                ‹93.2 ms · 93%›  def main():
            "#]],
        );
    }

    #[test]
    fn memory_far_below_the_capacity() {
        check(
            &LensOptions { profile: false, ..LensOptions::default() },
            expect![[r#"
            ‹85 ms · 85%›  class Net(nn.Module):
            ‹60 ms · 60%›  def forward(self, x):
            ‹93.2 ms · 93%›  def train(model, loader, optimizer):
            ‹320 samples/s · 100 ms · peak 120 MB / 23.7 GB›  for x, y in loader:
            ‹93.2 ms · 93%›  def main():
        "#]],
        );
    }

    #[test]
    fn only_enabled_lenses() {
        let options = LensOptions {
            memory: false,
            scopes: false,
            headline: false,
            panel: true,
            ..LensOptions::default()
        };
        check(
            &options,
            expect![[r#"
            ‹profile› [ridgeline.profile]  for x, y in loader:
            ‹open panel› [ridgeline.openPanel]  for x, y in loader:
        "#]],
        );
    }

    #[test]
    fn the_script_of_a_loop_in_another_file_has_the_headline() {
        let text = "fit(model)                             #= d8 f25 b40 o20.2 a90 w9 s0\n";
        let (mut profile, costs, index) = costs(text, None);
        let file = FileFacts { path: "engine.py".to_owned(), ..FileFacts::default() };
        profile.files.push(file);
        profile.iteration.loop_line = Some((FileId(1), 12));
        let training = TrainingScript::default();
        let options = LensOptions { panel: true, ..LensOptions::default() };
        let found = lenses(Some((&profile, &costs)), &index, || &training, &options);
        expect![[r#"
            ‹320 samples/s · 100 ms · peak 120 MB / 23.7 GB · loop at engine.py:12› [ridgeline.profile]  fit(model)
            ‹profile› [ridgeline.profile]  fit(model)
            ‹open panel› [ridgeline.openPanel]  fit(model)
        "#]].assert_eq(&format_lenses(&found, &index));
    }

    #[test]
    fn before_the_first_run() {
        let text = "import torch\nfor x in loader:\n    f(x).backward()\n    optimizer.step()\n";
        let index = SourceIndex::new(text);
        let training = training_script(&index);
        let found = lenses(None, &index, || &training, &LensOptions::default());
        expect![[r#"
            ‹profile› [ridgeline.profile]  for x in loader:
        "#]]
        .assert_eq(&format_lenses(&found, &index));
    }

    #[test]
    fn no_lens_if_the_script_does_not_train() {
        let index = SourceIndex::new("print(1)\n");
        let training = training_script(&index);
        let found = lenses(None, &index, || &training, &LensOptions::default());
        assert_eq!(found, []);
    }
}
