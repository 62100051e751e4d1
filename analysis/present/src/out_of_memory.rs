//! The report of a GPU that ran out of memory: usage by kind and by line, and what to try.

use serde::Serialize;

use super::failure::FailureFrame;
use ridgeline_base::units;
use ridgeline_recording::manifest;

/// The usage of a GPU's memory when an allocation failed. Unknown values are `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct OutOfMemory {
    /// `cuda:0`.
    pub device: Option<String>,
    /// The rank, if there are several: `rank 1`.
    pub rank: Option<String>,
    /// Bytes that could not be allocated.
    pub requested_bytes: Option<u64>,
    /// Bytes of device memory.
    pub capacity_bytes: Option<u64>,
    /// Bytes that the program may use by its own limit.
    pub limit_bytes: Option<u64>,
    /// Free bytes.
    pub free_bytes: Option<u64>,
    /// Bytes used by other processes.
    pub other_processes_bytes: Option<u64>,
    /// Bytes that this process uses outside PyTorch: CUDA context, cuBLAS, NCCL.
    pub outside_pytorch_bytes: Option<u64>,
    /// Bytes reserved by PyTorch's allocator.
    pub reserved_bytes: Option<u64>,
    /// Reserved bytes that are allocated.
    pub allocated_bytes: Option<u64>,
    /// Reserved bytes that belong to CUDA graphs.
    pub graph_pool_bytes: Option<u64>,
    /// Whether the allocator used expandable segments.
    pub expandable_segments: Option<bool>,
    /// `forward`, `backward` or `optimizer`.
    pub phase: Option<String>,
    /// Samples in the last batch.
    pub batch_size: Option<u64>,
    /// The allocated memory by kind, largest first.
    pub held: Vec<HeldKind>,
}

/// Memory of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct HeldKind {
    /// The name in the recording: `activation`.
    pub kind: String,
    pub bytes: u64,
    /// The lines that allocated it, if known, largest first.
    pub lines: Vec<HeldLine>,
}

/// Memory that one line allocated.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct HeldLine {
    /// Relative to the project's root.
    pub path: String,
    /// Counted from 1.
    pub line: u32,
    pub bytes: u64,
}

/// The maximum number of lines listed for one kind.
const MAX_LINES: usize = 3;
/// Kinds below this share of the allocated memory are not listed.
const MIN_KIND_SHARE: f64 = 0.005;
/// Lines below this share of their kind are not listed.
const MIN_LINE_SHARE: f64 = 0.02;
/// The maximum number of suggestions.
const MAX_ADVICE: usize = 3;
/// From this share of device memory on, memory that the program does not use is mentioned.
const LARGE_SHARE: f64 = 0.05;

impl OutOfMemory {
    /// Converts the entry of a manifest and resolves the paths of its files.
    pub fn of(recorded: &manifest::OutOfMemory, files: &[manifest::SourceFile]) -> OutOfMemory {
        let path = |file: u32| Some(files.get(usize::try_from(file).ok()?)?.path.clone());
        let line = |line: &manifest::HeldLine| {
            Some(HeldLine { path: path(line.file)?, line: line.line, bytes: line.bytes })
        };
        let kind = |kind: &manifest::HeldKind| HeldKind {
            kind: kind.kind.clone(),
            bytes: kind.bytes,
            lines: kind.lines.iter().filter_map(line).collect(),
        };
        let used = match (recorded.capacity_bytes, recorded.free_bytes) {
            (Some(capacity), Some(free)) => capacity.checked_sub(free),
            _ => None,
        };
        OutOfMemory {
            device: recorded.device.clone(),
            rank: None,
            requested_bytes: recorded.requested_bytes,
            capacity_bytes: recorded.capacity_bytes,
            limit_bytes: recorded.limit_bytes,
            free_bytes: recorded.free_bytes,
            other_processes_bytes: used
                .zip(recorded.process_bytes)
                // The value of this process comes from a message in which it is rounded.
                .map(|(used, process)| used.saturating_sub(process)),
            outside_pytorch_bytes: recorded
                .process_bytes
                .zip(recorded.reserved_bytes)
                .map(|(process, reserved)| process.saturating_sub(reserved)),
            reserved_bytes: recorded.reserved_bytes,
            allocated_bytes: recorded.allocated_bytes,
            graph_pool_bytes: recorded.graph_pool_bytes,
            expandable_segments: recorded.expandable_segments,
            phase: recorded.phase.clone(),
            batch_size: recorded.batch_size,
            held: recorded.held.iter().map(kind).collect(),
        }
    }

    /// `Out of memory: tried to allocate 2.5 GB, 0.3 GB of 85 GB free`
    pub fn headline(&self) -> String {
        let device = self.device.as_deref().filter(|&device| device != "cuda:0");
        let place = self.rank.as_deref().or(device);
        let place = place.map(|place| format!(" on {place}")).unwrap_or_default();
        let mut text = format!("Out of memory{place}");
        if let Some(requested) = self.requested_bytes {
            text += &format!(": tried to allocate {}", bytes(requested));
        }
        if let Some((limit, capacity)) = self.own_limit() {
            text += &format!(
                ", above the program's own limit of {} of {}",
                bytes(limit),
                bytes(capacity)
            );
            return text;
        }
        match (self.free_bytes, self.capacity_bytes) {
            (Some(free), Some(capacity)) => {
                text += &format!(", {} of {} free", bytes(free), bytes(capacity));
            }
            (None, Some(capacity)) => text += &format!(" on a GPU with {}", bytes(capacity)),
            _ => {}
        }
        text
    }

    /// The lines below the headline: the memory usage, and what to try.
    pub fn details(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if !self.held.is_empty() {
            lines.push(self.opening());
        }
        lines.extend(
            self.held.iter().filter(|kind| self.is_worth_showing(kind)).map(|kind| {
                format!("  {} {}{}", name(&kind.kind), bytes(kind.bytes), places(kind))
            }),
        );
        if let Some(unused) = self.fragmented() {
            lines.push(format!(
                "Reserved by PyTorch but not allocated: {} (fragmentation)",
                bytes(unused)
            ));
        }
        if let Some(pools) = self.graph_pool_bytes.filter(|&pools| self.is_large(pools)) {
            lines.push(format!("Reserved for CUDA graphs: {}", bytes(pools)));
        }
        if let Some(outside) = self.outside_pytorch_bytes.filter(|&outside| self.is_large(outside))
        {
            lines.push(format!(
                "Used by this process outside PyTorch's allocator (CUDA context, libraries): {}",
                bytes(outside)
            ));
        }
        if let Some(others) = self.large_other_processes() {
            lines.push(format!("Used by other processes on this GPU: {}", bytes(others)));
        }
        let advice = self.advice();
        if !advice.is_empty() {
            lines.push(format!("Try: {}", advice.join("; ")));
        }
        lines
    }

    /// The lines that hold most memory, each with its label.
    pub fn places(&self) -> Vec<(FailureFrame, String)> {
        let mut all: Vec<(&HeldLine, &str)> = self
            .held
            .iter()
            .filter(|kind| self.is_worth_showing(kind))
            .flat_map(|kind| kind.lines.iter().map(|line| (line, name(&kind.kind))))
            .filter(|(line, _)| line.bytes as f64 >= MIN_KIND_SHARE * self.total() as f64)
            .collect();
        all.sort_by_key(|(line, _)| std::cmp::Reverse(line.bytes));
        all.truncate(MAX_LINES + 2);
        let frame = |line: &HeldLine| FailureFrame {
            path: line.path.clone(),
            line: line.line,
            name: String::new(),
        };
        all.into_iter()
            .map(|(line, name)| (frame(line), format!("holds {} of {name}", bytes(line.bytes))))
            .collect()
    }

    fn opening(&self) -> String {
        let during = match self.phase.as_deref() {
            Some("forward") => " in the forward pass",
            Some("backward") => " in the backward pass",
            Some("optimizer") => " in the optimizer step",
            _ => "",
        };
        let batch = self.batch_size.map(|size| format!(" (batch size {size})")).unwrap_or_default();
        format!("PyTorch has allocated {}{during}{batch}:", bytes(self.total()))
    }

    fn total(&self) -> u64 {
        self.held.iter().fold(0, |sum, kind| kind.bytes.saturating_add(sum))
    }

    fn is_worth_showing(&self, kind: &HeldKind) -> bool {
        kind.bytes > 0 && kind.bytes as f64 >= MIN_KIND_SHARE * self.total() as f64
    }

    fn is_large(&self, bytes: u64) -> bool {
        self.capacity_bytes.is_some_and(|capacity| bytes as f64 >= LARGE_SHARE * capacity as f64)
    }

    fn bytes_of(&self, kinds: &[&str]) -> u64 {
        let wanted = self.held.iter().filter(|held| kinds.contains(&held.kind.as_str()));
        wanted.fold(0, |sum, held| held.bytes.saturating_add(sum))
    }

    fn share(&self, kinds: &[&str]) -> f64 {
        match self.total() {
            0 => 0.0,
            total => self.bytes_of(kinds) as f64 / total as f64,
        }
    }

    /// Reserved memory that the allocator cannot use, because it is fragmented.
    fn fragmented(&self) -> Option<u64> {
        let unused = self.reserved_bytes?.checked_sub(self.allocated_bytes?)?;
        let would_fit = self.requested_bytes.is_some_and(|requested| unused >= requested);
        (would_fit && self.is_large(unused)).then_some(unused)
    }

    /// The program's own limit and the capacity, if the limit is lower.
    fn own_limit(&self) -> Option<(u64, u64)> {
        self.limit_bytes.zip(self.capacity_bytes).filter(|(limit, capacity)| limit < capacity)
    }

    fn large_other_processes(&self) -> Option<u64> {
        self.other_processes_bytes.filter(|&others| self.is_large(others))
    }

    fn largest_line(&self, kind: &str) -> Option<String> {
        let line = self.held.iter().find(|held| held.kind == kind)?.lines.first()?;
        Some(format!("{}:{}", line.path, line.line))
    }

    fn advice(&self) -> Vec<String> {
        let mut advice = Vec::new();
        let limit = self.limit_bytes.or(self.capacity_bytes);
        if let (Some(requested), Some(limit)) = (self.requested_bytes, limit)
            && requested > limit
        {
            advice.push(
                "check the sizes at this line: this tensor is larger than the GPU memory"
                    .to_owned(),
            );
        }
        if self.own_limit().is_some() {
            advice.push("raise `torch.cuda.set_per_process_memory_fraction`".to_owned());
        }
        if self.large_other_processes().is_some() {
            advice.push("end the other processes (`nvidia-smi` lists them)".to_owned());
        }
        if self.fragmented().is_some() && self.expandable_segments == Some(false) {
            advice.push("set `PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True`".to_owned());
        }
        if self.phase.as_deref() == Some("optimizer") && self.share(&["temporary"]) >= 0.1 {
            advice.push(
                "pass `fused=True` or `foreach=False` to the optimizer: the foreach implementation \
                needs temporary memory"
                    .to_owned(),
            );
        }
        if self.share(&["activation", "batch", "temporary"]) >= 0.4 {
            advice.push("a smaller batch size, with gradient accumulation".to_owned());
        }
        if self.share(&["activation"]) >= 0.4 {
            let around = self.largest_line("activation");
            let around = around.map(|line| format!(" around {line}")).unwrap_or_default();
            advice.push(format!("activation checkpointing (`torch.utils.checkpoint`){around}"));
        }
        if self.share(&["optimizer_state"]) >= 0.25 {
            advice.push(
                "an optimizer with less state (8-bit Adam, Adafactor), or FSDP over several GPUs"
                    .to_owned(),
            );
        } else if self.share(&["weight", "gradient", "optimizer_state"]) >= 0.6 {
            advice.push("weights in bfloat16, or FSDP over several GPUs".to_owned());
        }
        if self.share(&["other"]) >= 0.3 {
            let at = self.largest_line("other");
            let at = at.map(|line| format!(" ({line})")).unwrap_or_default();
            advice.push(format!(
                "free tensors that are no longer needed, and keep data on the CPU{at}"
            ));
        }
        if self.share(&["awaiting_free"]) >= 0.1 {
            advice.push(
                "synchronize the side stream more often: tensors passed to `record_stream` are \
                freed only when its work is done"
                    .to_owned(),
            );
        }
        advice.truncate(MAX_ADVICE);
        advice
    }
}

/// The name of a kind in profiles ([`ridgeline_profile::MemoryByKind::named`]).
fn name(kind: &str) -> &str {
    match kind {
        "weight" => "weights",
        "buffer" => "buffers",
        "gradient" => "gradients",
        "optimizer_state" => "optimizer state",
        "activation" => "activations",
        "batch" => "batch",
        "temporary" => "temporaries",
        "awaiting_free" => "freed tensors still in use by another stream",
        "unattributed" => "not attributed",
        _ => "other tensors",
    }
}

/// ` (train.py:33 18 GB, train.py:20 9 GB, …)`; empty for weights and what belongs to them, which
/// all come from the line that creates the model.
fn places(kind: &HeldKind) -> String {
    let is_of_model =
        matches!(kind.kind.as_str(), "weight" | "buffer" | "gradient" | "optimizer_state");
    let large = |line: &&HeldLine| line.bytes as f64 >= MIN_LINE_SHARE * kind.bytes as f64;
    let lines: Vec<&HeldLine> = kind.lines.iter().filter(large).collect();
    if lines.is_empty() || is_of_model {
        return String::new();
    }
    if let [only] = lines[..]
        && only.bytes == kind.bytes
    {
        return format!(" ({}:{})", only.path, only.line);
    }
    let shown: Vec<String> = lines
        .iter()
        .take(MAX_LINES)
        .map(|line| format!("{}:{} {}", line.path, line.line, bytes(line.bytes)))
        .collect();
    let more = if lines.len() > MAX_LINES { ", …" } else { "" };
    format!(" ({}{more})", shown.join(", "))
}

fn bytes(bytes: u64) -> String {
    units::bytes(bytes as f64)
}

#[cfg(test)]
mod tests;
