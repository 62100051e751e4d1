//! The terminal page of `ridgeline analyze` for a trace recorded elsewhere.

use std::fmt::Write as _;

use anstyle::Style as Paint;

use super::{GpuSummary, IterationSummary, LineSummary, TraceSummary};
use crate::bottleneck;
use crate::iteration_times::range;
use crate::terminal::Style;
use ridgeline_base::printable::one_line;
use ridgeline_base::units::{bytes, duration, percent};

/// Formats a trace: device, iteration, GPU activity, and at most `top` of its kernels, operators
/// and lines.
pub fn page(summary: &TraceSummary, top: usize, style: Style) -> String {
    let mut page = Page { text: String::new(), style };
    page.device(summary);
    page.iteration(summary);
    page.bottleneck(summary);
    if let Some(gpu) = &summary.gpu {
        page.gpu(gpu);
    }
    page.counters(summary);
    page.kernels(summary, top);
    page.operators(summary, top);
    page.lines(summary, top);
    page.memory(summary);
    page.notes(summary);
    page.text
}

struct Page {
    text: String,
    style: Style,
}

/// A host that takes less than this share of the iteration runs ahead of the GPU.
const HOST_AHEAD: f64 = 0.98;

/// `median of 3 profiler steps, 102 ms to 130 ms, on the host`.
fn about_time(iteration: &IterationSummary, time_ms: f64) -> String {
    let found = iteration.found_by.unwrap_or("steps");
    let mut about = match iteration.iterations {
        1 => format!("1 {}", found.strip_suffix('s').unwrap_or(found)),
        count => format!("median of {count} {found}"),
    };
    let times = [iteration.shortest_ms, iteration.longest_ms];
    let times: Vec<f64> = times.into_iter().flatten().map(|time_ms| time_ms * 1e6).collect();
    if let Some(range) = range(&times, time_ms * 1e6).filter(|_| iteration.iterations > 1) {
        about += &format!(", {range}");
    }
    match iteration.host_ms.filter(|host_ms| *host_ms < HOST_AHEAD * time_ms) {
        Some(host_ms) => {
            about + &format!(", on the GPU; the host takes {}", duration(host_ms * 1e6))
        }
        None => about + ", on the host",
    }
}

/// Width of a column of numbers, in characters.
const NUMBER: usize = 10;
/// Width of the names to the left of facts, in characters.
const LABEL: usize = 23;

impl Page {
    fn device(&mut self, summary: &TraceSummary) {
        let device = &summary.device;
        let mut facts = vec![one_line(&device.name, self.style.width / 2)];
        if facts.first().is_some_and(|name| name == "unknown") {
            facts = vec![match device.kind {
                "unknown" => "unknown device".to_owned(),
                kind => format!("unknown device ({kind})"),
            }];
        }
        if device.kind == "rocm" {
            facts.extend(device.multiprocessors.map(|count| format!("{count} compute units")));
        } else {
            facts.extend(device.multiprocessors.map(|count| format!("{count} multiprocessors")));
            let capability = device.capability;
            facts.extend(
                capability.map(|(major, minor)| format!("compute capability {major}.{minor}")),
            );
        }
        if let (Some(rank), Some(size)) = (summary.trace.rank, summary.trace.world_size) {
            facts.push(format!("rank {rank} of {size}"));
        }
        let heading = self.heading();
        self.line(&format!("{heading}{}{heading:#}", facts.join(" · ")));
    }

    fn iteration(&mut self, summary: &TraceSummary) {
        let iteration = &summary.iteration;
        let Some(time_ms) = iteration.time_ms else { return };
        self.title("Iteration");
        self.fact("time", time_ms * 1e6, None, &about_time(iteration, time_ms));
        for (name, part_ms) in [
            ("forward", iteration.forward_ms),
            ("backward", iteration.backward_ms),
            ("optimizer", iteration.optimizer_ms),
            ("data", iteration.data_ms),
            ("other", iteration.other_ms),
        ] {
            if let Some(part_ms) = part_ms.filter(|part_ms| *part_ms > 0.0) {
                self.fact(&format!("  {name}"), part_ms * 1e6, share(part_ms, time_ms), "");
            }
        }
    }

    fn bottleneck(&mut self, summary: &TraceSummary) {
        let Some(found) = &summary.bottleneck else { return };
        self.title(match summary.iteration.found_by {
            Some(_) => "Bottleneck",
            None => "Bottleneck of the trace, treated as one iteration",
        });
        self.line(&one_line(&found.text, self.style.width.max(240)));
        const MIN_SHARE: f64 = 0.01;
        let mut has_rows = false;
        for entry in found.savings.iter().filter(|entry| entry.at_most_share >= MIN_SHARE) {
            if !has_rows {
                let faint = self.faint();
                self.line(&format!("{faint}{}{faint:#}", bottleneck::SAVINGS_NOTE));
                has_rows = true;
            }
            let operators = entry.operators.iter().map(|one| one_line(&one.name, 30));
            let operators = operators.collect::<Vec<_>>().join(", ");
            self.fact(entry.label, entry.at_most_ms * 1e6, Some(entry.at_most_share), &operators);
        }
        let facts = summary.utilization.iter().flat_map(|explained| &explained.facts);
        let facts: Vec<&str> = facts.map(String::as_str).collect();
        if !facts.is_empty() {
            let faint = self.faint();
            self.line(&format!("{faint}{}{faint:#}", facts.join(" · ")));
        }
    }

    fn gpu(&mut self, gpu: &GpuSummary) {
        self.title("GPU");
        let span = gpu.span_ns as f64;
        let share_of_span = |part_ns: u64| share(part_ns as f64, span);
        self.fact("span", span, None, "from the first to the last activity");
        self.fact("busy", gpu.busy_ns as f64, share_of_span(gpu.busy_ns), "");
        for (name, part_ns) in [
            ("  computing", gpu.compute_ns),
            ("  communicating", gpu.communication_ns),
            ("    exposed", gpu.exposed_communication_ns),
            ("  copying", gpu.memory_ns),
        ] {
            if part_ns > 0 {
                self.fact(name, part_ns as f64, share_of_span(part_ns), "");
            }
        }
        self.fact("idle", gpu.idle_ns as f64, share_of_span(gpu.idle_ns), "");
        let launches = format!("sum of {}", counted(gpu.kernels, "kernel", "kernels"));
        self.fact("kernels", gpu.kernel_ns as f64, None, &launches);
        if gpu.leaked > 0 {
            let text = counted(gpu.leaked, "activity", "activities");
            let text = format!("{text} from before the recording");
            self.fact("leaked in", gpu.leaked_ns as f64, None, &text);
        }
        if let Some(delay) = &gpu.launch_to_start {
            let p95 = duration_or_negative(delay.p95_ns);
            let median = duration_or_negative(delay.p50_ns);
            self.line(&format!(
                "{:<LABEL$} {median:>NUMBER$}          median; 95% within {p95}",
                "launch to start"
            ));
        }
        if let Some(overhead) = &gpu.launch_overhead {
            let text = counted(overhead.launches, "launch", "launches");
            let median = duration(overhead.median_ns as f64);
            let shorter = match overhead.shorter_kernels {
                0 => String::new(),
                text => {
                    let text = counted(text, "kernel", "kernels");
                    format!("; {text} shorter than their launch")
                }
            };
            let long = match overhead.long_launches {
                0 => String::new(),
                long => {
                    format!("; {long} of at least 1 ms: {}", duration(overhead.long_ns as f64))
                }
            };
            let about = format!("of the host in {text}, median {median}{long}{shorter}");
            self.fact("launching", overhead.host_ns as f64, None, &about);
        }
        if gpu.streams.len() > 1 {
            const MAX_ROWS: usize = 8;
            let has_devices = gpu
                .streams
                .iter()
                .any(|one| Some(one.device) != gpu.streams.first().map(|first| first.device));
            for stream in gpu.streams.iter().take(MAX_ROWS) {
                let number = |number: Option<i64>| number.map_or("?".into(), |n| n.to_string());
                let device = match has_devices {
                    true => format!("GPU {} ", number(stream.device)),
                    false => String::new(),
                };
                let name = format!("  {device}stream {}", number(stream.stream));
                let text = counted(stream.activities, "activity", "activities");
                let share = share_of_span(stream.busy_ns);
                self.fact(&one_line(&name, LABEL), stream.busy_ns as f64, share, &text);
            }
            self.left_out(gpu.streams.len(), MAX_ROWS, "streams");
        }
    }

    /// Writes hardware counters, under a heading of their own.
    fn counters(&mut self, summary: &TraceSummary) {
        let Some(counters) = &summary.counters else { return };
        self.title("Hardware counters (CUPTI)");
        let mut fact = |name: &str, counted: Option<f64>| {
            let counted = counted.map_or_else(|| "not read".to_owned(), quantity);
            self.line(&format!("{name:<26} {counted:>16}"));
        };
        fact("kernels", Some(counters.ranges as f64));
        fact("FLOP outside tensor cores", counters.flops);
        fact("tensor core instructions", counters.tensor_instructions);
    }

    fn kernels(&mut self, summary: &TraceSummary, top: usize) {
        if summary.kernels.is_empty() || top == 0 {
            return;
        }
        let all: f64 = summary.kernels.iter().map(|kernel| kernel.total_ns as f64).sum();
        self.title("Kernels, copies and fills");
        self.header(&["time", "share", "calls", "occupancy"], "name");
        for kernel in summary.kernels.iter().take(top) {
            let total = kernel.total_ns as f64;
            let occupancy = kernel.occupancy.map_or(String::new(), percent);
            let share = share(total, all).map_or(String::new(), percent);
            self.row(&[duration(total), share, grouped(kernel.calls), occupancy], &kernel.name);
        }
        self.left_out(summary.kernels.len(), top, "names");
    }

    fn operators(&mut self, summary: &TraceSummary, top: usize) {
        if summary.operators.is_empty() || top == 0 {
            return;
        }
        self.title("Operators");
        let on_device = summary.gpu.is_some();
        if on_device {
            self.header(&["GPU", "host", "calls"], "name");
        } else {
            self.header(&["time", "calls"], "name");
        }
        for operator in summary.operators.iter().take(top) {
            let host = duration(operator.self_ns as f64);
            let calls = grouped(operator.calls);
            if on_device {
                let device = duration(operator.device_ns as f64);
                self.row(&[device, host, calls], &operator.name);
            } else {
                self.row(&[host, calls], &operator.name);
            }
        }
        self.left_out(summary.operators.len(), top, "names");
    }

    fn lines(&mut self, summary: &TraceSummary, top: usize) {
        if summary.lines.is_empty() || top == 0 {
            return;
        }
        self.title("Lines");
        let on_device = summary.gpu.is_some();
        if on_device {
            self.header(&["host", "with calls", "GPU"], "place");
        } else {
            self.header(&["time", "with calls"], "place");
        }
        // The longest total times are those of the outermost lines, which is no information. So
        // sort by self time.
        let mut lines: Vec<&LineSummary> = summary.lines.iter().collect();
        lines.sort_by(|a, b| b.self_ms.total_cmp(&a.self_ms));
        for line in lines.iter().take(top) {
            let self_time = duration(line.self_ms * 1e6);
            let all = duration(line.total_ms * 1e6);
            let place = format!("{}:{} {}", line.file, line.line, line.scope);
            if on_device {
                self.row(&[self_time, all, duration(line.device_ms * 1e6)], &place);
            } else {
                self.row(&[self_time, all], &place);
            }
        }
        self.left_out(summary.lines.len(), top, "places");
    }

    fn memory(&mut self, summary: &TraceSummary) {
        let memory = &summary.memory;
        let Some(peak) = memory.peak_bytes else { return };
        self.title("Memory");
        let capacity = memory.capacity_bytes.map(|capacity| bytes(capacity as f64));
        let capacity_text = capacity.map_or(String::new(), |capacity| format!(" / {capacity}"));
        let peak = bytes(peak as f64);
        self.line(&format!("{:<LABEL$} {peak:>NUMBER$}{capacity_text}", "peak"));
    }

    fn notes(&mut self, summary: &TraceSummary) {
        if !summary.notes.is_empty() {
            self.blank_line();
        }
        for note in &summary.notes {
            self.line(&format!("note: {}", one_line(note, self.style.width.max(240))));
        }
    }

    fn title(&mut self, title: &str) {
        self.blank_line();
        let heading = self.heading();
        self.line(&format!("{heading}{title}{heading:#}"));
    }

    fn fact(&mut self, name: &str, time_ns: f64, share: Option<f64>, what: &str) {
        let share = share.map_or(String::new(), percent);
        let faint = self.faint();
        let what =
            if what.is_empty() { String::new() } else { format!("   {faint}{what}{faint:#}") };
        let time = duration(time_ns);
        let text = format!("{name:<LABEL$} {time:>NUMBER$} {share:>6}");
        self.line(&format!("{}{what}", if what.is_empty() { text.trim_end() } else { &text }));
    }

    fn header(&mut self, columns: &[&str], last: &str) {
        let faint = self.faint();
        let columns: String = columns.iter().map(|column| format!("{column:>NUMBER$} ")).collect();
        self.line(&format!("{faint}{columns} {last}{faint:#}"));
    }

    fn row(&mut self, columns: &[String], name: &str) {
        let left: String = columns.iter().map(|column| format!("{column:>NUMBER$} ")).collect();
        let room = self.style.width.saturating_sub(left.chars().count() + 1).max(20);
        self.line(&format!("{left} {}", one_line(name, room)));
    }

    fn left_out(&mut self, all: usize, shown: usize, what: &str) {
        if let Some(more) = all.checked_sub(shown).filter(|more| *more > 0) {
            let faint = self.faint();
            let indent = " ".repeat(NUMBER + 1);
            self.line(&format!("{indent}{faint}and {more} more {what}{faint:#}"));
        }
    }

    fn line(&mut self, text: &str) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.text, "{text}");
    }

    fn blank_line(&mut self) {
        self.text.push('\n');
    }

    fn heading(&self) -> Paint {
        if self.style.color { Paint::new().bold() } else { Paint::new() }
    }

    fn faint(&self) -> Paint {
        if self.style.color { Paint::new().dimmed() } else { Paint::new() }
    }
}

fn share(part: f64, whole: f64) -> Option<f64> {
    (whole > 0.0).then(|| part / whole)
}

fn duration_or_negative(nanoseconds: i64) -> String {
    let text = duration(nanoseconds.unsigned_abs() as f64);
    if nanoseconds < 0 { format!("-{text}") } else { text }
}

fn counted(number: u64, one: &str, many: &str) -> String {
    format!("{} {}", grouped(number), if number == 1 { one } else { many })
}

/// Formats a rounded quantity: `1.2 billion`.
fn quantity(value: f64) -> String {
    crate::page::quantity(value as u64)
}

/// Formats a number with thousands separators: `22,290`.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests;
