//! Code lenses: a line of text above a line of code.

use std::ops::Range;

use super::headline::{headline, told};
use super::hints::encloses_everything;
use super::share::{share, share_of_peak};
use crate::cost_map::CostMap;
use ridgeline_base::units;
use ridgeline_profile::{MemoryByKind, Profile, Provenance};
use ridgeline_python::{SourceIndex, TrainingScript};

/// The command of the lens that starts a run.
pub const PROFILE_COMMAND: &str = "ridgeline.profile";
/// The command of the lens that opens the panel.
pub const OPEN_PANEL_COMMAND: &str = "ridgeline.openPanel";

/// A text above a line, and what a click on it does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lens {
    /// The line that it stands above, counted from 1.
    pub line: u32,
    /// Bytes of the line's code.
    pub span: Range<usize>,
    /// `activations 86 MB · weights 9 MB`.
    pub title: String,
    /// The command of a click; nothing where it only tells.
    pub command: Option<&'static str>,
    /// Where the numbers come from.
    pub provenance: Provenance,
}

/// What is shown.
#[derive(Clone, Debug, PartialEq)]
pub struct LensOptions {
    /// Lines that hold less than this share of the peak, 0 to 1, have no lens.
    pub min_memory_share: f64,
    /// Functions and classes under this share of the iteration, 0 to 1, have no lens.
    pub min_scope_share: f64,
    /// Memory of lines.
    pub memory: bool,
    /// Totals of functions and classes.
    pub scopes: bool,
    /// Throughput and memory at the training loop.
    pub headline: bool,
    /// "profile".
    pub profile: bool,
    /// "open panel"; only where there is a panel.
    pub panel: bool,
    /// One lens for a line at the most, for editors that show only one: texts are joined.
    pub one_a_line: bool,
}

impl Default for LensOptions {
    fn default() -> LensOptions {
        LensOptions {
            min_memory_share: 0.05,
            min_scope_share: 0.01,
            memory: true,
            scopes: true,
            headline: true,
            profile: true,
            panel: false,
            one_a_line: false,
        }
    }
}

/// A lens names this many kinds of memory at the most.
const KINDS: usize = 3;

/// The lenses of one file, by place. Without a profile, only the "profile" lens, where the text
/// trains a model; `training` judges it, and is asked only where that matters.
pub fn lenses<'a>(
    profile: Option<(&Profile, &CostMap)>,
    index: &SourceIndex,
    training: impl FnOnce() -> &'a TrainingScript,
    options: &LensOptions,
) -> Vec<Lens> {
    let mut found = Found { index, lenses: Vec::new() };
    let mut loop_line = None;
    if let Some((profile, costs)) = profile {
        if let Some(training) = &costs.training_loop {
            loop_line = Some(training.first_line);
            if options.headline {
                let command = options.profile.then_some(PROFILE_COMMAND);
                let title = headline(profile, training.provenance);
                found.add(training.first_line, title, command, training.provenance);
            }
        }
        if options.scopes {
            found.scopes(profile, costs, options);
        }
        if options.memory {
            found.memory(profile, costs, options);
        }
    }
    if loop_line.is_none() && (options.profile || options.panel) {
        let training = training();
        let is_likely = training.score >= TrainingScript::LIKELY;
        loop_line = training.loop_line.or(training.main_line).filter(|_| is_likely);
    }
    if let Some(line) = loop_line {
        if options.profile {
            found.add(line, "profile".to_owned(), Some(PROFILE_COMMAND), Provenance::Measured);
        }
        if options.panel {
            found.add(
                line,
                "open panel".to_owned(),
                Some(OPEN_PANEL_COMMAND),
                Provenance::Measured,
            );
        }
    }
    let mut lenses = found.lenses;
    lenses.sort_by_key(|lens| lens.line);
    if options.one_a_line {
        lenses.dedup_by(|next, kept| {
            let same = next.line == kept.line;
            // "profile" is what a click on the headline does already.
            if same && next.command.is_none() {
                kept.title = format!("{} · {}", kept.title, next.title);
                kept.provenance = kept.provenance.max(next.provenance);
            }
            same
        });
    }
    lenses
}

struct Found<'a> {
    index: &'a SourceIndex,
    lenses: Vec<Lens>,
}

impl Found<'_> {
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
            let memory = share_of_peak(cost.total_memory.total(), profile);
            let mut parts = Vec::new();
            if share >= options.min_scope_share {
                let time = units::duration(cost.total_time.total());
                parts.push(format!("{time} · {}", units::percent(share)));
            }
            // A function that takes no time, `__init__` above all, only repeats its class's memory.
            if memory >= options.min_memory_share && (cost.is_class || !parts.is_empty()) {
                let bytes = units::bytes(cost.total_memory.total() as f64);
                parts.push(format!("{bytes} of peak memory"));
            }
            let title = parts.join(" · ");
            self.add(cost.line, told(title, cost.provenance), None, cost.provenance);
        }
    }

    /// What a line holds: where it made modules, what those own and made; else what it made.
    fn memory(&mut self, profile: &Profile, costs: &CostMap, options: &LensOptions) {
        let holds_much = |memory: &MemoryByKind| {
            share_of_peak(memory.total(), profile) >= options.min_memory_share
        };
        for cost in costs.definitions.iter().filter(|cost| holds_much(&cost.memory)) {
            let title = told(kinds(&cost.memory), cost.provenance);
            self.add(cost.first_line, title, None, cost.provenance);
        }
        for cost in costs.statements.iter().filter(|cost| holds_much(&cost.total_memory)) {
            let is_known = costs
                .definition_on_line(cost.first_line)
                .is_some_and(|cost| holds_much(&cost.memory));
            if is_known || encloses_everything(profile, costs, cost) {
                continue;
            }
            let title = told(kinds(&cost.total_memory), cost.provenance);
            self.add(cost.first_line, title, None, cost.provenance);
        }
    }
}

/// `activations 86 MB · weights 9 MB`: the largest kinds, without those that hardly count.
pub(super) fn kinds(memory: &MemoryByKind) -> String {
    let total = memory.total();
    let mut named: Vec<(&str, u64)> =
        memory.named().into_iter().filter(|(_, bytes)| *bytes > 0).collect();
    named.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
    named
        .into_iter()
        .filter(|(_, bytes)| *bytes >= total / 50)
        .take(KINDS)
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
    use ridgeline_python::training_script;

    fn check(options: &LensOptions, expected: Expect) {
        let (profile, costs, index) = costs(TRAIN, None);
        let training = TrainingScript::default();
        let found = lenses(Some((&profile, &costs)), &index, || &training, options);
        expected.assert_eq(&shown(&found, &index));
    }

    fn shown(lenses: &[Lens], index: &SourceIndex) -> String {
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
            &LensOptions::default(),
            expect![[r#"
                ‹85 ms · 85% · 99 MB of peak memory›  class Net(nn.Module):
                ‹activations 80 MB · weights 8.0 MB›  self.conv = nn.Conv2d(3, 64, 7)
                ‹60 ms · 60% · 84 MB of peak memory›  def forward(self, x):
                ‹activations 80 MB›  x = torch.relu(self.conv(x))
                ‹93.2 ms · 93% · 90 MB of peak memory›  def train(model, loader, optimizer):
                ‹320 samples/s · 100 ms · peak 120 MB / 23.7 GB› [ridgeline.profile]  for x, y in loader:
                ‹profile› [ridgeline.profile]  for x, y in loader:
                ‹activations 90 MB›  loss = F.cross_entropy(model(x), y)
                ‹93.2 ms · 93% · 99 MB of peak memory›  def main():
                ‹activations 90 MB · weights 9.0 MB›  model = Net()
            "#]],
        );
    }

    #[test]
    fn one_for_each_line() {
        check(
            &LensOptions { one_a_line: true, panel: true, ..LensOptions::default() },
            expect![[r#"
                ‹85 ms · 85% · 99 MB of peak memory›  class Net(nn.Module):
                ‹activations 80 MB · weights 8.0 MB›  self.conv = nn.Conv2d(3, 64, 7)
                ‹60 ms · 60% · 84 MB of peak memory›  def forward(self, x):
                ‹activations 80 MB›  x = torch.relu(self.conv(x))
                ‹93.2 ms · 93% · 90 MB of peak memory›  def train(model, loader, optimizer):
                ‹320 samples/s · 100 ms · peak 120 MB / 23.7 GB› [ridgeline.profile]  for x, y in loader:
                ‹activations 90 MB›  loss = F.cross_entropy(model(x), y)
                ‹93.2 ms · 93% · 99 MB of peak memory›  def main():
                ‹activations 90 MB · weights 9.0 MB›  model = Net()
            "#]],
        );
    }

    #[test]
    fn only_what_is_wanted() {
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
    fn before_the_first_run() {
        let text = "import torch\nfor x in loader:\n    f(x).backward()\n    optimizer.step()\n";
        let index = SourceIndex::new(text);
        let training = training_script(&index);
        let found = lenses(None, &index, || &training, &LensOptions::default());
        expect![[r#"
            ‹profile› [ridgeline.profile]  for x in loader:
        "#]]
        .assert_eq(&shown(&found, &index));
    }

    #[test]
    fn nothing_where_nothing_trains() {
        let index = SourceIndex::new("print(1)\n");
        let training = training_script(&index);
        let found = lenses(None, &index, || &training, &LensOptions::default());
        assert_eq!(found, []);
    }
}
