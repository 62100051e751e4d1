//! The summary of a profile in the terminal.

use anstyle::Style as Ansi;
use unicode_width::UnicodeWidthStr;

use super::{BOLD, CALM, FAINT, HOT, MAX_WIDTH, MIN_WIDTH, Style, WARM, bar};
use crate::headline::{headline, moment_of_peak, peak};
use crate::lenses::kinds;
use crate::share::{gpu_busy, share_of_peak, share_of_whole};
use crate::{bottleneck, explained, iteration_times};
use ridgeline_base::printable::{clean, shorten};
use ridgeline_base::units;
use ridgeline_profile::{BUSY_NOTE, LineCost, ModuleCost, Phase, Profile, Provenance};

/// The maximum number of lines, of modules and of kernels in a summary.
const MAX_ROWS: usize = 8;

/// The beginnings of notes that belong beside the headline: without the agent's note that the iterations are those of
/// an evaluation, the throughput reads as that of training, and no number is right on a busy machine.
const ABOUT_ALL_NUMBERS: [&str; 2] = ["not training: ", BUSY_NOTE];
/// The maximum length of a note, in characters.
const MAX_NOTE: usize = 400;

/// Formats the headline, phases, memory, the most expensive lines and modules, and notes.
pub fn summary(profile: &Profile, style: Style) -> String {
    let mut page = Summary { profile, style, text: String::new() };
    page.headline();
    page.bottleneck();
    page.phases();
    page.ranks();
    page.memory();
    page.lines();
    page.modules();
    page.kernels();
    page.notes();
    page.text
}

struct Summary<'a> {
    profile: &'a Profile,
    style: Style,
    text: String,
}

impl Summary<'_> {
    fn line(&mut self, text: &str) {
        self.text.push_str(text.trim_end());
        self.text.push('\n');
    }

    fn section(&mut self, title: &str, about: &str) {
        let title = self.style.paint(BOLD, title);
        let about = if about.is_empty() { String::new() } else { format!("  {}", clean(about)) };
        self.text.push('\n');
        self.line(&format!("{title}{about}"));
    }

    fn headline(&mut self) {
        let profile = self.profile;
        let headline = headline(profile, Provenance::Measured);
        if headline.is_empty() {
            self.line("No iteration was measured.");
        } else {
            self.line(&self.style.paint(BOLD, &headline));
        }
        let mut about = vec![match &*profile.device.display_name() {
            "" => "unknown device".to_owned(),
            name => clean(name),
        }];
        if !profile.torch_version.is_empty() {
            about.push(format!("PyTorch {}", clean(&profile.torch_version)));
        }
        about.extend(iteration_times::batch(&profile.iteration));
        self.line(&self.style.paint(FAINT, &about.join(" · ")));
        if let Some(spread) = iteration_times::spread(profile) {
            let look = if profile.iteration.slow.is_some() { WARM } else { FAINT };
            self.line(&self.style.paint(look, &clean(&spread)));
        }
        for note in profile.notes.iter().filter(|note| is_about_all_numbers(note)) {
            self.line(&self.style.paint(WARM, &shorten(&clean(note), MAX_NOTE)));
        }
    }

    /// `  forward    31 ms   30% ███▌`
    fn bar_line(&mut self, name: &str, amount: &str, share: f64, look: Ansi) {
        let percent = units::percent(share);
        let width = self.style.width.clamp(MIN_WIDTH, MAX_WIDTH);
        let bar = bar(share, width.saturating_sub(43).min(40));
        let text = format!("  {name:<23}{amount:>9}{percent:>7} {}", self.style.paint(look, &bar));
        self.line(&text);
    }

    /// Writes the verdict with the savings, and the device utilization.
    fn bottleneck(&mut self) {
        let profile = self.profile;
        if let Some(found) = &profile.bottleneck {
            let scope =
                if profile.iteration.slow.is_some() { "in a typical iteration, " } else { "" };
            self.section("Bottleneck", &format!("{scope}{}", bottleneck::SAVINGS_NOTE));
            self.line(&format!("  {}", bottleneck::verdict(found, profile)));
            for saving in bottleneck::shown_savings(found) {
                let label = bottleneck::label(saving.cause, found.gpu_busy.is_some());
                self.bar_line(label, &units::duration(saving.time_ns), saving.share, HOT);
            }
        }
        let Some(metrics) = &profile.metrics else { return };
        let on_gpu = metrics.on_gpu;
        let facts = explained::facts(&metrics.whole, metrics.iteration_ns, profile, on_gpu);
        self.facts("  ", &facts);
        for phase in Phase::ALL {
            let facts = explained::of_phase(phase, profile);
            self.facts(&format!("  {:<10}", phase.name()), &facts);
        }
    }

    /// Writes facts after a name, wrapped to the width of the terminal.
    fn facts(&mut self, name: &str, facts: &[String]) {
        let columns = self.style.width.clamp(MIN_WIDTH, MAX_WIDTH);
        let mut row = name.to_owned();
        let mut has_fact = false;
        for fact in facts {
            if has_fact && row.width() + 3 + fact.width() > columns {
                self.line(&self.style.faint(&row));
                row = " ".repeat(name.width());
                has_fact = false;
            }
            row += if has_fact { " · " } else { "" };
            row += fact;
            has_fact = true;
        }
        if has_fact {
            self.line(&self.style.faint(&row));
        }
    }

    fn ranks(&mut self) {
        let Some(ranks) = self.profile.ranks.as_deref() else { return };
        let about = format!("{} ranks; everything below is for rank 0", ranks.world_size);
        self.section("Ranks", &about);
        for row in crate::ranks::rows(ranks) {
            self.line(&row);
        }
    }

    fn phases(&mut self) {
        let iteration = &self.profile.iteration;
        if iteration.time_ns.is_nan() || iteration.time_ns <= 0.0 {
            return;
        }
        self.section("Time per iteration", "");
        for phase in Phase::ALL {
            let time = iteration.phases.get(phase);
            if time > 0.0 {
                let share = share_of_whole(time, self.profile);
                self.bar_line(phase.name(), &units::duration(time), share, WARM);
            }
        }
        for part in &self.profile.untracked {
            if share_of_whole(part.time_ns, self.profile) >= 0.005 {
                let share = units::percent(share_of_whole(part.time_ns, self.profile));
                let name = shorten(&clean(&part.name), 60);
                let time = units::duration(part.time_ns);
                self.line(
                    &self.style.paint(FAINT, &format!("  not attributed: {name} {time} ({share})")),
                );
            }
        }
    }

    fn memory(&mut self) {
        let memory = &self.profile.memory;
        if memory.peak_bytes == 0 {
            return;
        }
        let (peak, moment) = (peak(self.profile), moment_of_peak(self.profile));
        self.section("Peak memory", &format!("{peak}{moment}"));
        for (kind, bytes) in memory.at_peak.named() {
            if bytes > 0 {
                let share = share_of_peak(bytes, self.profile);
                self.bar_line(kind, &units::bytes(bytes as f64), share, CALM);
            }
        }
        if let Some(phases) = explained::allocation_phases(self.profile) {
            self.line(&self.style.faint(&format!("  allocated: {phases}")));
        }
    }

    fn lines(&mut self) {
        let mut lines: Vec<(usize, &LineCost)> = self
            .profile
            .lines
            .iter()
            .enumerate()
            .flat_map(|(file, lines)| lines.iter().map(move |line| (file, line)))
            .filter(|(_, line)| line.self_time.total() > 0.0)
            .collect();
        if lines.is_empty() {
            return;
        }
        lines.sort_by(|(_, a), (_, b)| b.self_time.total().total_cmp(&a.self_time.total()));
        self.section("Most expensive lines", "");
        for (file, line) in lines.into_iter().take(MAX_ROWS) {
            let path = self.profile.files.get(file).map_or("?", |file| file.path.as_str());
            let place = format!("{}:{}", shorten(&clean(path), 40), line.line);
            let memory = line.self_memory.total();
            let mut parts = vec![place];
            if !line.scope.is_empty() {
                parts.push(self.style.paint(FAINT, &shorten(&clean(&line.scope), 40)));
            }
            if share_of_peak(memory, self.profile) >= 0.01 {
                parts.push(kinds(&line.self_memory));
            }
            let self_ns = line.self_time.total();
            let facts = explained::of_part(line.utilization.as_ref(), self_ns, self.profile);
            self.cost(self_ns, &parts.join("  "), &facts);
        }
    }

    /// Writes a row with its facts: a single fact on the same line, several below.
    fn cost(&mut self, time_ns: f64, what: &str, facts: &[String]) {
        let share = units::percent(share_of_whole(time_ns, self.profile));
        let fact_text = match facts {
            [fact] => format!("  {}", self.style.faint(fact)),
            _ => String::new(),
        };
        self.line(&format!("  {:>9}{share:>7}  {what}{fact_text}", units::duration(time_ns)));
        if facts.len() > 1 {
            self.facts(&" ".repeat(12), facts);
        }
    }

    /// Writes the modules by self time: a module with children may itself run most operators, such
    /// as `nn.MultiheadAttention` or a layer written with `torch.nn.functional`.
    fn modules(&mut self) {
        let all = &self.profile.modules;
        let mut has_children = vec![false; all.len()];
        for module in all {
            let parent = module.parent.and_then(|parent| has_children.get_mut(parent.0 as usize));
            if let Some(parent) = parent {
                *parent = true;
            }
        }
        let mut modules: Vec<(&ModuleCost, bool)> = all
            .iter()
            .zip(has_children)
            .filter(|(module, _)| module.self_time.total() > 0.0)
            .collect();
        if modules.is_empty() {
            return;
        }
        modules.sort_by(|(a, _), (b, _)| b.self_time.total().total_cmp(&a.self_time.total()));
        let trains = self.profile.iteration.phases.get(Phase::Backward) > 0.0;
        let what = if trains { "self time, with backward pass and update" } else { "self time" };
        self.section("Most expensive layers", what);
        for (module, has_children) in modules.into_iter().take(MAX_ROWS) {
            let path = if module.path.is_empty() { "the model" } else { &module.path };
            let type_name = self.style.paint(FAINT, &shorten(&clean(&module.type_name), 30));
            let what = format!("{}  {type_name}", shorten(&clean(path), 48));
            // The utilization of a module includes its children.
            let known = (!has_children).then_some(module);
            let facts = explained::of_modules(known.into_iter(), self.profile);
            self.cost(module.self_time.total(), &what, &facts);
        }
    }

    fn kernels(&mut self) {
        let Some(busy) = gpu_busy(self.profile).map(units::percent) else { return };
        self.section("Most expensive kernels", &format!("GPU busy {busy}"));
        let width = self.style.width.clamp(MIN_WIDTH, MAX_WIDTH).saturating_sub(40).max(20);
        for kernel in self.profile.kernels.iter().take(MAX_ROWS) {
            let occupancy = kernel
                .occupancy
                .map_or_else(String::new, |share| format!("  {} occupancy", units::percent(share)));
            let what = format!("{}{occupancy}", shorten(&clean(&kernel.name), width));
            self.cost(kernel.time_ns, &what, &[]);
        }
    }

    fn notes(&mut self) {
        if self.profile.notes.is_empty() && self.profile.coverage.time <= 0.0 {
            return;
        }
        self.section("Notes", "");
        let coverage = self.profile.coverage;
        if coverage.time > 0.0 {
            let (time, memory) = (units::percent(coverage.time), units::percent(coverage.memory));
            self.line(&format!(
                "  {time} of op time and {memory} of activations attributed to your code"
            ));
        }
        for note in self.profile.notes.iter().filter(|note| !is_about_all_numbers(note)) {
            self.line(&format!("  {}", shorten(&clean(note), MAX_NOTE)));
        }
    }
}

fn is_about_all_numbers(note: &str) -> bool {
    ABOUT_ALL_NUMBERS.iter().any(|beginning| note.starts_with(beginning))
}
