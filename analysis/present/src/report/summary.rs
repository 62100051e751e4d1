//! The content of the panel as headings and tables, for browsers without scripts.

use std::collections::HashMap;
use std::fmt::Write as _;

use super::{style, text};
use crate::headline::{headline, peak};
use crate::lenses::kinds;
use crate::page::{count, quantity};
use crate::panel::memory_explanation;
use crate::share::{share_of, share_of_peak, share_of_whole};
use crate::{bottleneck, explained, iteration_times};
use ridgeline_base::printable::shorten;
use ridgeline_base::units;
use ridgeline_profile::{LineCost, ModuleCost, ModuleId, Phase, Profile, Provenance};

/// The maximum numbers of rows, so that browsers open the page quickly.
const MAX_LINES: usize = 25;
const MAX_KERNELS: usize = 25;
const MAX_MODULES: usize = 400;

/// Returns the headline, phases, memory, the most expensive lines, modules and kernels, and notes
/// on their accuracy.
pub(super) fn summary(profile: &Profile, title: &str) -> String {
    let mut page = Page { profile, html: String::new() };
    page.start(title);
    page.bottleneck();
    page.phases();
    page.memory();
    page.lines();
    page.modules();
    page.kernels();
    page.notes();
    page.html
}

struct Page<'a> {
    profile: &'a Profile,
    html: String,
}

impl Page<'_> {
    fn start(&mut self, title: &str) {
        let profile = self.profile;
        let headline = headline(profile, Provenance::Measured);
        let headline = if headline.is_empty() { "No iteration was measured" } else { &headline };
        let mut about = vec![match &*profile.device.display_name() {
            "" => "unknown device".to_owned(),
            name => name.to_owned(),
        }];
        if !profile.torch_version.is_empty() {
            about.push(format!("PyTorch {}", profile.torch_version));
        }
        about.extend(iteration_times::batch(&profile.iteration));
        about.extend(iteration_times::spread(profile));
        let _ = write!(
            self.html,
            "<h1>{}</h1>\n<p class=\"head\">{}</p>\n<p class=\"quiet\">{}</p>\n",
            text(title),
            text(headline),
            text(&about.join(" · "))
        );
    }

    fn section(&mut self, title: &str) {
        let _ = writeln!(self.html, "<h2>{}</h2>", text(title));
    }

    fn bar_row(&mut self, name: &str, amount: &str, share: f64, class: &str) {
        let _ = writeln!(
            self.html,
            "<tr><td>{}</td><td class=\"n\">{amount}</td><td class=\"n\">{}</td><td class=\"wide\"><span class=\"bar {class} {}\"></span></td></tr>",
            text(name),
            text(&units::percent(share)),
            style::width(share)
        );
    }

    fn bottleneck(&mut self) {
        let profile = self.profile;
        let Some(found) = &profile.bottleneck else { return };
        self.section("Bottleneck");
        let verdict = bottleneck::verdict(found, profile);
        let _ = writeln!(self.html, "<p>{}</p>", text(&verdict));
        self.html.push_str("<div class=\"scroll\"><table><tbody>\n");
        for saving in bottleneck::shown_savings(found) {
            let label = bottleneck::label(saving.cause, found.gpu_busy.is_some());
            self.bar_row(label, &units::duration(saving.time_ns), saving.share, "");
        }
        self.html.push_str("</tbody></table></div>\n");
        let _ = writeln!(self.html, "<p class=\"quiet\">{}</p>", text(bottleneck::SAVINGS_NOTE));
        let Some(metrics) = &profile.metrics else { return };
        let elapsed_ns = metrics.iteration_ns;
        let facts = explained::facts(&metrics.whole, elapsed_ns, profile, metrics.on_gpu);
        let _ = writeln!(self.html, "<p class=\"quiet\">{}</p>", text(&facts.join(" · ")));
    }

    fn phases(&mut self) {
        let profile = self.profile;
        if profile.iteration.time_ns.is_nan() || profile.iteration.time_ns <= 0.0 {
            return;
        }
        self.section("Time per iteration");
        self.html.push_str("<div class=\"scroll\"><table><tbody>\n");
        for phase in Phase::ALL {
            let time = profile.iteration.phases.get(phase);
            if time > 0.0 {
                let share = share_of_whole(time, profile);
                self.bar_row(phase.name(), &units::duration(time), share, "");
            }
        }
        self.html.push_str("</tbody></table></div>\n");
        for part in profile.untracked.iter().filter(|part| part.time_ns > 0.0).take(MAX_LINES) {
            let _ = writeln!(
                self.html,
                "<p class=\"quiet\">In no line: {} {} · {}</p>",
                text(&part.name),
                units::duration(part.time_ns),
                text(&units::percent(share_of_whole(part.time_ns, profile)))
            );
        }
    }

    fn memory(&mut self) {
        let profile = self.profile;
        if profile.memory.peak_bytes == 0 {
            return;
        }
        self.section(&format!("Peak memory: {}", peak(profile)));
        let explanation = memory_explanation(profile).unwrap_or_default();
        let _ = writeln!(self.html, "<p>{}</p>", text(&explanation));
        self.html.push_str("<div class=\"scroll\"><table><tbody>\n");
        for (kind, bytes) in profile.memory.at_peak.named() {
            if bytes > 0 {
                let share = share_of_peak(bytes, profile);
                self.bar_row(kind, &units::bytes(bytes as f64), share, "m");
            }
        }
        self.html.push_str("</tbody></table></div>\n");
    }

    fn lines(&mut self) {
        let profile = self.profile;
        let mut lines: Vec<(usize, &LineCost)> = profile
            .lines
            .iter()
            .enumerate()
            .flat_map(|(file, lines)| lines.iter().map(move |line| (file, line)))
            .filter(|(_, line)| share_of_whole(line.self_time.total(), profile) >= 0.001)
            .collect();
        if lines.is_empty() {
            return;
        }
        lines.sort_by(|(_, a), (_, b)| b.self_time.total().total_cmp(&a.self_time.total()));
        self.section("Most expensive lines");
        self.html.push_str("<div class=\"scroll\"><table><thead><tr><th class=\"n\">itself</th><th class=\"n\">share</th><th>line</th><th>function</th><th>memory</th></tr></thead><tbody>\n");
        for (file, line) in lines.into_iter().take(MAX_LINES) {
            let path = profile.files.get(file).map_or("?", |file| file.path.as_str());
            let time = line.self_time.total();
            let holds_much = share_of_peak(line.self_memory.total(), profile) >= 0.001;
            let memory = if holds_much { kinds(&line.self_memory) } else { String::new() };
            let _ = writeln!(
                self.html,
                "<tr><td class=\"n\">{}</td><td class=\"n\">{}</td><td><a href=\"#f{file}l{}\">{}:{}</a></td><td><code>{}</code></td><td class=\"w\">{}</td></tr>",
                units::duration(time),
                text(&units::percent(share_of_whole(time, profile))),
                line.line,
                text(&shorten(path, 100)),
                line.line,
                text(&shorten(&line.scope, 100)),
                text(&memory),
            );
        }
        self.html.push_str("</tbody></table></div>\n");
    }

    /// Writes a table in tree order, indented by depth; a nested list of a deep model would not fit
    /// 400 pixels.
    fn modules(&mut self) {
        let modules = &self.profile.modules;
        if modules.is_empty() {
            return;
        }
        self.section("Modules");
        self.html.push_str("<div class=\"scroll\"><table><thead><tr><th>module</th><th class=\"n\">time</th><th class=\"n\">share</th><th class=\"n\">memory</th><th class=\"n\">parameters</th><th class=\"n\">calls</th></tr></thead><tbody>\n");
        for (depth, module) in in_tree_order(modules).into_iter().take(MAX_MODULES) {
            let path = match module.path.as_str() {
                "" => "the model",
                path => path.rsplit('.').next().unwrap_or(path),
            };
            let time = module.total_time.total();
            let memory = module.memory.total();
            let _ = writeln!(
                self.html,
                "<tr><td class=\"{}\" title=\"{}\"><code>{}</code> <span class=\"quiet\">{}</span></td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td></tr>",
                style::depth(depth),
                text(&shorten(&module.path, 300)),
                text(&shorten(path, 60)),
                text(&shorten(&module.type_name, 60)),
                units::duration(time),
                text(&units::percent(share_of_whole(time, self.profile))),
                if memory > 0 { units::bytes(memory as f64) } else { String::new() },
                if module.parameters > 0 { quantity(module.parameters) } else { String::new() },
                count(module.calls),
            );
        }
        self.html.push_str("</tbody></table></div>\n");
        if modules.len() > MAX_MODULES {
            let left_out = modules.len() - MAX_MODULES;
            let _ = writeln!(self.html, "<p class=\"quiet\">And {left_out} more.</p>");
        }
    }

    fn kernels(&mut self) {
        let profile = self.profile;
        if profile.kernels.is_empty() {
            return;
        }
        self.section("Kernels");
        if let Some(gpu) = profile.gpu.filter(|gpu| gpu.span_ns > 0) {
            let busy = units::percent(share_of(gpu.busy_ns as f64, gpu.span_ns as f64));
            let _ = writeln!(self.html, "<p>GPU busy {}.</p>", text(&busy));
        }
        self.html.push_str("<div class=\"scroll\"><table><thead><tr><th class=\"n\">time</th><th class=\"n\">share</th><th class=\"n\">launches</th><th class=\"n\">occupancy</th><th>kernel</th></tr></thead><tbody>\n");
        for kernel in profile.kernels.iter().take(MAX_KERNELS) {
            let _ = writeln!(
                self.html,
                "<tr><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"long\"><code>{}</code></td></tr>",
                units::duration(kernel.time_ns),
                text(&units::percent(share_of_whole(kernel.time_ns, profile))),
                count(kernel.calls),
                text(&kernel.occupancy.map_or_else(String::new, units::percent)),
                text(&shorten(&kernel.name, 200)),
            );
        }
        self.html.push_str("</tbody></table></div>\n");
    }

    fn notes(&mut self) {
        let profile = self.profile;
        self.section("About this recording");
        self.html.push_str("<ul>\n");
        if profile.coverage.time > 0.0 {
            let _ = writeln!(
                self.html,
                "<li>{} of op time and {} of activations attributed to your code.</li>",
                text(&units::percent(profile.coverage.time)),
                text(&units::percent(profile.coverage.memory)),
            );
        }
        for note in profile.notes.iter().take(MAX_LINES) {
            let _ = writeln!(self.html, "<li>{}</li>", text(&shorten(note, 1_000)));
        }
        self.html.push_str(
            "<li>Times are from the median iteration without a profiler; memory is what was allocated at the peak.</li>\n</ul>\n",
        );
    }
}

/// Returns each module after its parent, with its depth. Not recursive, because models may be deep.
fn in_tree_order(modules: &[ModuleCost]) -> Vec<(usize, &ModuleCost)> {
    let mut children: HashMap<usize, Vec<(usize, &ModuleCost)>> = HashMap::new();
    let mut stack: Vec<(usize, usize, &ModuleCost)> = Vec::new();
    for (at, module) in modules.iter().enumerate() {
        // Parents come before children. A module with a later parent becomes a root, so there are
        // no cycles.
        match module.parent.map(|ModuleId(parent)| parent as usize).filter(|&parent| parent < at) {
            Some(parent) => children.entry(parent).or_default().push((at, module)),
            None => stack.push((0, at, module)),
        }
    }
    stack.reverse();
    let mut ordered = Vec::new();
    while let Some((depth, at, module)) = stack.pop() {
        ordered.push((depth, module));
        let inner = children.remove(&at).unwrap_or_default();
        stack.extend(inner.into_iter().rev().map(|(at, module)| (depth + 1, at, module)));
    }
    ordered
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_follow_their_parents() {
        let module = |path: &str, parent: Option<u32>| ModuleCost {
            path: path.into(),
            parent: parent.map(ModuleId),
            ..ModuleCost::default()
        };
        // The last two have invalid parents.
        let modules = [
            module("", None),
            module("a", Some(0)),
            module("b", Some(0)),
            module("a.x", Some(1)),
            module("c", Some(4)),
            module("d", Some(99)),
        ];
        let order: Vec<(usize, &str)> = in_tree_order(&modules)
            .into_iter()
            .map(|(depth, module)| (depth, module.path.as_str()))
            .collect();
        assert_eq!(order, [(0, ""), (1, "a"), (2, "a.x"), (1, "b"), (0, "c"), (0, "d")]);
    }
}
