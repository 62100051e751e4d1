//! The report: one HTML page that needs nothing else, no script and no network.

use std::fmt::Write as _;

use super::lenses::{headline, kinds, peak};
use super::page::{clean, count, quantity, shorten};
use super::share::{share_of, share_of_peak, share_of_whole};
use crate::profile::{FileId, LineCost, ModuleCost, ModuleId, Phase, Profile, Provenance};
use crate::source::{CostMap, SourceIndex};
use crate::units;

/// So many of each are listed; the page stays one that a browser opens at once.
const LINES: usize = 25;
const KERNELS: usize = 25;
const MODULES: usize = 400;
const SOURCE_LINES: u32 = 20_000;
const LINE_CHARACTERS: usize = 400;

/// Nothing is loaded and nothing runs; only the style on the page itself counts.
const POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";

const STYLE: &str = "
:root{color-scheme:light dark;--text:#1b1f24;--quiet:#656d76;--page:#fff;--card:#f6f8fa;--edge:#d0d7de;--time:#c2571a;--memory:#1a6fb5;--heat:194,87,26}
@media(prefers-color-scheme:dark){:root{--text:#e6edf3;--quiet:#8d96a0;--page:#0d1117;--card:#161b22;--edge:#30363d;--time:#f0883e;--memory:#58a6ff;--heat:240,136,62}}
*{box-sizing:border-box}
body{margin:0 auto;padding:1.5rem 1rem 4rem;max-width:70rem;background:var(--page);color:var(--text);font:16px/1.5 system-ui,sans-serif}
h1{font-size:1.4rem;margin:0 0 .25rem;overflow-wrap:anywhere}h2{font-size:1.1rem;margin:2.5rem 0 .5rem}h3{font-size:.95rem;margin:1.5rem 0 .5rem;overflow-wrap:anywhere}
.head{font-size:1.25rem;font-weight:600}.quiet{color:var(--quiet)}p{margin:.25rem 0}
.scroll{overflow-x:auto;border:1px solid var(--edge);border-radius:6px}
table{border-collapse:collapse;width:100%;font-size:.875rem}td,th{padding:.2rem .6rem;text-align:left;vertical-align:baseline}th{font-weight:500;color:var(--quiet)}
.n{text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums}
tbody tr:nth-child(even){background:var(--card)}
.bar{display:block;height:.6rem;min-width:1px;border-radius:2px;background:var(--time)}.bar.m{background:var(--memory)}.wide{width:45%}.w{white-space:nowrap}
code,pre,.src{font-family:ui-monospace,Menlo,Consolas,monospace;font-size:.8125rem}code{white-space:nowrap}.long code{white-space:normal;overflow-wrap:anywhere}
.src td{padding:0 .6rem;white-space:pre}.src tbody tr:nth-child(even){background:none}.src .l{color:var(--quiet);text-align:right;user-select:none}
details>summary{cursor:pointer}ul{padding-left:1.25rem}li{overflow-wrap:anywhere}
@media(max-width:480px){body{padding:1rem .75rem}.wide{width:30%}td,th{padding:.2rem .4rem}}
";

/// The page, for a profile and the texts of its files (same index as `profile.files`; nothing where
/// the text is not at hand).
pub fn html(profile: &Profile, texts: &[Option<&str>], title: &str) -> String {
    let mut page = Page { profile, html: String::new() };
    page.start(title);
    page.phases();
    page.memory();
    page.lines();
    page.sources(texts);
    page.modules();
    page.kernels();
    page.notes();
    page.html.push_str("</main>\n</body>\n</html>\n");
    page.html
}

struct Page<'a> {
    profile: &'a Profile,
    html: String,
}

impl Page<'_> {
    fn start(&mut self, title: &str) {
        let title = text(title);
        let _ = write!(
            self.html,
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <title>{title} – Ridgeline</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n<h1>{title}</h1>\n"
        );
        let profile = self.profile;
        let headline = headline(profile, Provenance::Measured);
        let headline = if headline.is_empty() { "No iteration was measured" } else { &headline };
        let mut about = vec![match profile.device.name.as_str() {
            "" => "unknown device".to_owned(),
            name => name.to_owned(),
        }];
        if !profile.torch_version.is_empty() {
            about.push(format!("PyTorch {}", profile.torch_version));
        }
        if let Some(batch) = profile.iteration.batch_size {
            about.push(format!("batch of {batch}"));
        }
        let timed = profile.iteration.timed_ns.len();
        if timed > 1 {
            about.push(format!("median of {timed} iterations"));
        }
        let _ = write!(
            self.html,
            "<p class=\"head\">{}</p>\n<p class=\"quiet\">{}</p>\n",
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
            "<tr><td>{}</td><td class=\"n\">{amount}</td><td class=\"n\">{}</td><td class=\"wide\"><span class=\"bar {class}\" style=\"width:{:.1}%\"></span></td></tr>",
            text(name),
            text(&units::percent(share)),
            share * 100.0
        );
    }

    fn phases(&mut self) {
        let profile = self.profile;
        if profile.iteration.time_ns.is_nan() || profile.iteration.time_ns <= 0.0 {
            return;
        }
        self.section("Time of an iteration");
        self.html.push_str("<div class=\"scroll\"><table><tbody>\n");
        for phase in Phase::ALL {
            let time = profile.iteration.phases.get(phase);
            if time > 0.0 {
                let share = share_of_whole(time, profile);
                self.bar_row(phase.name(), &units::duration(time), share, "");
            }
        }
        self.html.push_str("</tbody></table></div>\n");
        for part in profile.untracked.iter().filter(|part| part.time_ns > 0.0).take(LINES) {
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
        self.section(&format!("Memory at the peak: {}", peak(profile)));
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
        self.section("Costliest lines");
        self.html.push_str("<div class=\"scroll\"><table><thead><tr><th class=\"n\">itself</th><th class=\"n\">share</th><th>line</th><th>function</th><th>memory</th></tr></thead><tbody>\n");
        for (file, line) in lines.into_iter().take(LINES) {
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

    fn sources(&mut self, texts: &[Option<&str>]) {
        let mut is_first = true;
        for (at, source) in texts.iter().enumerate() {
            let has_costs = self.profile.lines.get(at).is_some_and(|lines| !lines.is_empty());
            let (Some(source), Ok(file), true) = (source, u32::try_from(at), has_costs) else {
                continue;
            };
            if is_first {
                self.section("Source");
                is_first = false;
            }
            self.source(FileId(file), source);
        }
    }

    fn source(&mut self, file: FileId, source: &str) {
        let profile = self.profile;
        let index = SourceIndex::new(source);
        let costs = CostMap::build(profile, file, &index);
        let path = profile.files.get(file.0 as usize).map_or("?", |file| file.path.as_str());
        let _ = write!(
            self.html,
            "<h3>{}</h3>\n<div class=\"scroll\"><table class=\"src\"><thead><tr><th class=\"n\">time</th><th class=\"n\">share</th><th class=\"n\">memory</th><th></th><th></th></tr></thead><tbody>\n",
            text(&shorten(path, 200))
        );
        let lines = index.lines();
        for line in 1..=lines.count().min(SOURCE_LINES) {
            let statement = costs.statement_on_line(line).filter(|cost| cost.first_line == line);
            let made = costs.definition_on_line(line).filter(|cost| cost.first_line == line);
            let of_statement =
                statement.map(|cost| (cost.total_time.total(), cost.total_memory, cost.provenance));
            let of_made = made.map(|cost| (cost.total_time.total(), cost.memory, cost.provenance));
            let shown = match (of_statement, of_made) {
                (Some(statement), Some(made)) if made.0 > statement.0 => Some(made),
                (statement, made) => statement.or(made),
            };
            let (mut time, mut share, mut memory, mut heat, mut title) =
                (String::new(), String::new(), String::new(), 0.0, String::new());
            if let Some((time_ns, bytes, provenance)) = shown {
                let of_whole = share_of_whole(time_ns, profile);
                if of_whole >= 0.0005 {
                    let mark = match provenance {
                        Provenance::Measured => "",
                        Provenance::Estimated => "~",
                        Provenance::Stale => "was ",
                    };
                    time = format!("{mark}{}", units::duration(time_ns));
                    share = units::percent(of_whole);
                    heat = of_whole * 0.45;
                }
                if share_of_peak(bytes.total(), profile) >= 0.0005 {
                    memory = units::bytes(bytes.total() as f64);
                    title = kinds(&bytes);
                }
            }
            let start = lines.start_of(line);
            let code = index.text().get(start..lines.trimmed(index.text(), line).end);
            let code: String = code.unwrap_or_default().chars().take(LINE_CHARACTERS).collect();
            let _ = writeln!(
                self.html,
                "<tr id=\"f{}l{line}\"{}><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\" title=\"{}\">{memory}</td><td class=\"l\">{line}</td><td>{}</td></tr>",
                file.0,
                if heat > 0.002 {
                    format!(" style=\"background:rgba(var(--heat),{heat:.3})\"")
                } else {
                    String::new()
                },
                text(&time),
                text(&share),
                text(&title),
                text(&code.replace('\t', "    ")),
            );
        }
        self.html.push_str("</tbody></table></div>\n");
        if lines.count() > SOURCE_LINES {
            self.html.push_str("<p class=\"quiet\">The rest of the file is left out.</p>\n");
        }
    }

    /// A table in the order of the tree, indented by depth; a nested list of a deep model would not
    /// fit 400 pixels.
    fn modules(&mut self) {
        let modules = &self.profile.modules;
        if modules.is_empty() {
            return;
        }
        self.section("Modules");
        self.html.push_str("<div class=\"scroll\"><table><thead><tr><th>module</th><th class=\"n\">time</th><th class=\"n\">share</th><th class=\"n\">memory</th><th class=\"n\">parameters</th><th class=\"n\">calls</th></tr></thead><tbody>\n");
        for (depth, module) in in_tree_order(modules).into_iter().take(MODULES) {
            let path = match module.path.as_str() {
                "" => "the model",
                path => path.rsplit('.').next().unwrap_or(path),
            };
            let time = module.total_time.total();
            let memory = module.memory.total();
            let _ = writeln!(
                self.html,
                "<tr><td style=\"padding-left:{}em\" title=\"{}\"><code>{}</code> <span class=\"quiet\">{}</span></td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td></tr>",
                0.6 + 1.2 * depth.min(8) as f64,
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
        if modules.len() > MODULES {
            let left_out = modules.len() - MODULES;
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
            let _ = writeln!(self.html, "<p>The GPU was at work {} of the time.</p>", text(&busy));
        }
        self.html.push_str("<div class=\"scroll\"><table><thead><tr><th class=\"n\">time</th><th class=\"n\">share</th><th class=\"n\">launches</th><th class=\"n\">occupancy</th><th>kernel</th></tr></thead><tbody>\n");
        for kernel in profile.kernels.iter().take(KERNELS) {
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
        self.section("How far to trust this");
        self.html.push_str("<ul>\n");
        if profile.coverage.time > 0.0 {
            let _ = writeln!(
                self.html,
                "<li>{} of operator time and {} of activations reached a line.</li>",
                text(&units::percent(profile.coverage.time)),
                text(&units::percent(profile.coverage.memory)),
            );
        }
        for note in profile.notes.iter().take(LINES) {
            let _ = writeln!(self.html, "<li>{}</li>", text(&shorten(note, 1_000)));
        }
        self.html.push_str(
            "<li>Times are of one median iteration without a profiler; memory is what was alive at its peak.</li>\n</ul>\n",
        );
    }
}

/// Each module behind its parent, with its depth. Without recursion: a model may be deep.
fn in_tree_order(modules: &[ModuleCost]) -> Vec<(usize, &ModuleCost)> {
    let mut children: Vec<Vec<usize>> = vec![Vec::new(); modules.len()];
    let mut waiting: Vec<(usize, usize)> = Vec::new();
    for (at, module) in modules.iter().enumerate() {
        // Parents come before children; one that does not is shown at the top, and no circle forms.
        match module.parent.map(|ModuleId(parent)| parent as usize).filter(|&parent| parent < at) {
            Some(parent) => children[parent].push(at),
            None => waiting.push((0, at)),
        }
    }
    waiting.reverse();
    let mut ordered = Vec::new();
    while let Some((depth, at)) = waiting.pop() {
        ordered.push((depth, &modules[at]));
        waiting.extend(children[at].iter().rev().map(|&child| (depth + 1, child)));
    }
    ordered
}

/// As text within an element or a quoted attribute.
fn text(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in clean(text).chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            letter => escaped.push(letter),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::present::fixture::{TRAIN, profile};

    #[test]
    fn the_page_has_what_there_is() {
        let (source, profile) = profile(TRAIN);
        let page = html(&profile, &[Some(&source)], "demo");
        for part in [
            "320 samples/s · 100 ms · peak 120 MB / 23.7 GB",
            "forward",
            "activations",
            "train.py:8",
            "x = torch.relu(self.conv(x))",
            "Conv2d",
            "98% of operator time",
            POLICY,
            "prefers-color-scheme:dark",
        ] {
            assert!(page.contains(part), "{part} is missing");
        }
        assert_eq!(page.matches("<tr").count(), page.matches("</tr>").count());
        assert!(!page.contains("<script") && !page.contains("http:") && !page.contains("https:"));
    }

    #[test]
    fn everything_from_outside_is_escaped() {
        let (_, mut profile) = profile(TRAIN);
        let evil = "</style><script>alert('\"&')</script>";
        profile.files[0].path = evil.into();
        profile.device.name = evil.into();
        profile.torch_version = evil.into();
        profile.notes = vec![evil.into()];
        profile.modules[1].path = evil.into();
        profile.modules[1].type_name = evil.into();
        profile.lines[0][0].scope = evil.into();
        profile.files[0].fingerprint.clear();
        let source = format!("{evil}\n").repeat(12);
        let page = html(&profile, &[Some(&source)], evil);
        assert!(page.contains("&lt;script&gt;"));
        assert!(!page.contains("<script"));
        assert_eq!(page.matches("</style>").count(), 1);
    }

    #[test]
    fn an_empty_profile_is_a_page_too() {
        let page = html(&Profile::default(), &[], "");
        assert!(page.contains("No iteration was measured") && page.ends_with("</html>\n"));
    }

    #[test]
    fn modules_follow_their_parents() {
        let module = |path: &str, parent: Option<u32>| ModuleCost {
            path: path.into(),
            parent: parent.map(ModuleId),
            ..ModuleCost::default()
        };
        // The last two name parents that cannot be.
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
