//! Parses and classifies the events of the file.
//!
//! Field names are those of Kineto's `output_json.cpp` from 2021 to today. A value that an event
//! lacks, or has as `"inf"`, `"N/A"` or null, is unknown; it does not make the event invalid.

use super::chrome_trace_json::{Scanner, Stop, Token};
use super::copies::kind_of_kernel;
use super::trace::{ActivityKind, HardwareCounters};

/// An event's members, borrowed from the file.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Event<'a> {
    pub(super) phase: Token<'a>,
    pub(super) category: Token<'a>,
    pub(super) name: Token<'a>,
    pub(super) process: Token<'a>,
    pub(super) thread: Token<'a>,
    pub(super) time: Token<'a>,
    pub(super) duration: Token<'a>,
    pub(super) arguments: Arguments<'a>,
}

/// The members of an event's `args` that are read.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Arguments<'a> {
    pub(super) sequence: Token<'a>,
    pub(super) forward_thread: Token<'a>,
    pub(super) input_dims: Token<'a>,
    pub(super) input_types: Token<'a>,
    pub(super) concrete_inputs: Token<'a>,
    pub(super) call_stack: Token<'a>,
    pub(super) correlation: Token<'a>,
    pub(super) device: Token<'a>,
    pub(super) stream: Token<'a>,
    pub(super) registers: Token<'a>,
    pub(super) shared_memory: Token<'a>,
    pub(super) grid: Token<'a>,
    pub(super) block: Token<'a>,
    pub(super) occupancy: Token<'a>,
    pub(super) copied_bytes: Token<'a>,
    pub(super) graph_node: Token<'a>,
    pub(super) address: Token<'a>,
    pub(super) allocated_bytes: Token<'a>,
    pub(super) device_type: Token<'a>,
    pub(super) device_id: Token<'a>,
    pub(super) total_allocated: Token<'a>,
    pub(super) name: Token<'a>,
    pub(super) counters: HardwareCounters,
}

impl<'a> Event<'a> {
    /// Reads one event into this one, which must be empty: it is large, and moving it is slow. If a
    /// key occurs twice, the last one counts.
    pub(super) fn read(&mut self, scanner: &mut Scanner<'a>) -> Result<(), Stop> {
        let mut has_arguments = false;
        scanner.object(|key, scanner| {
            let slot = match key {
                b"ph" => &mut self.phase,
                b"cat" => &mut self.category,
                b"name" => &mut self.name,
                b"pid" => &mut self.process,
                b"tid" => &mut self.thread,
                b"ts" => &mut self.time,
                b"dur" => &mut self.duration,
                b"args" => {
                    if std::mem::replace(&mut has_arguments, true) {
                        self.arguments = Arguments::default();
                    }
                    return self.arguments.read(scanner);
                }
                _ => return scanner.skip(),
            };
            *slot = scanner.value()?;
            Ok(())
        })
    }
}

impl<'a> Arguments<'a> {
    fn read(&mut self, scanner: &mut Scanner<'a>) -> Result<(), Stop> {
        if scanner.peek()? != b'{' {
            return scanner.skip();
        }
        scanner.object(|key, scanner| {
            let Some(slot) = self.slot(key) else {
                if !key.starts_with(b"sm") {
                    return scanner.skip();
                }
                let value = scanner.value()?;
                add_metric(&mut self.counters, key, value);
                return Ok(());
            };
            *slot = scanner.value()?;
            Ok(())
        })
    }

    fn slot(&mut self, key: &[u8]) -> Option<&mut Token<'a>> {
        Some(match key {
            b"Sequence number" => &mut self.sequence,
            b"Fwd thread id" => &mut self.forward_thread,
            b"Input Dims" => &mut self.input_dims,
            b"Input type" => &mut self.input_types,
            b"Concrete Inputs" => &mut self.concrete_inputs,
            b"Call stack" => &mut self.call_stack,
            b"correlation" => &mut self.correlation,
            b"device" => &mut self.device,
            b"stream" => &mut self.stream,
            b"registers per thread" => &mut self.registers,
            b"shared memory" => &mut self.shared_memory,
            b"grid" => &mut self.grid,
            b"block" => &mut self.block,
            b"est. achieved occupancy %" => &mut self.occupancy,
            b"bytes" => &mut self.copied_bytes,
            b"graph node id" => &mut self.graph_node,
            b"Addr" => &mut self.address,
            b"Bytes" => &mut self.allocated_bytes,
            b"Device Type" => &mut self.device_type,
            b"Device Id" => &mut self.device_id,
            b"Total Allocated" => &mut self.total_allocated,
            b"name" => &mut self.name,
            _ => return None,
        })
    }
}

/// Adds the value of a CUPTI metric. A fused multiply-add counts as two operations.
fn add_metric(counters: &mut HardwareCounters, metric: &[u8], value: Token<'_>) {
    let text = value.number().and_then(|number| std::str::from_utf8(number).ok());
    let value: Option<f64> = text.and_then(|text| text.parse().ok());
    let Some(value) = value.filter(|value| value.is_finite() && *value >= 0.0) else { return };
    const INSTRUCTIONS: &[u8] = b"smsp__sass_thread_inst_executed_op_";
    if metric == b"sm__inst_executed_pipe_tensor.sum" {
        *counters.tensor_instructions.get_or_insert(0.0) += value;
    } else if let Some(instruction) = metric.strip_prefix(INSTRUCTIONS) {
        let operations = match instruction.strip_suffix(b"_pred_on.sum") {
            Some(b"dadd" | b"dmul" | b"hadd" | b"hmul" | b"fadd" | b"fmul") => 1.0,
            Some(b"dfma" | b"hfma" | b"ffma") => 2.0,
            _ => return,
        };
        *counters.flops.get_or_insert(0.0) += operations * value;
    }
}

/// The class of an event, from its phase, category and name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    Operator,
    Annotation,
    RuntimeCall,
    Activity(ActivityKind),
    PythonFrame,
    Memory,
    Instant,
    /// Counters of CUPTI's range profiler for one kernel or range.
    Counters,
    ProcessName,
    /// Flow arrows, synchronization, profiler overhead: not stored.
    Other,
}

pub(super) fn classify(event: &Event<'_>) -> Class {
    let category = event.category.plain().unwrap_or_default();
    let name = event.name.plain().unwrap_or_default();
    match (event.phase.plain().unwrap_or_default(), category) {
        // Traces of 2021 have annotations among the operators.
        (b"X", b"cpu_op" | b"Operator" | b"hpu_op") if is_annotation(name) => Class::Annotation,
        (b"X", b"cpu_op" | b"Operator" | b"hpu_op") => Class::Operator,
        (b"X", b"user_annotation") => Class::Annotation,
        (
            b"X",
            b"cuda_runtime"
            | b"cuda_driver"
            | b"Runtime"
            | b"xpu_runtime"
            | b"xpu_driver"
            | b"privateuse1_runtime"
            | b"privateuse1_driver"
            | b"mtia_runtime",
        ) => Class::RuntimeCall,
        (b"X", b"kernel" | b"Kernel") => Class::Activity(kind_of_kernel(name)),
        (b"X", b"gpu_memcpy" | b"Memcpy") => Class::Activity(ActivityKind::Memcpy),
        (b"X", b"gpu_memset" | b"Memset") => Class::Activity(ActivityKind::Memset),
        (b"X", b"python_function") => Class::PythonFrame,
        (b"X", b"cuda_profiler_range") => Class::Counters,
        (b"i" | b"I", _) if name == b"[memory]" => Class::Memory,
        (b"i" | b"I", _) => Class::Instant,
        (b"M", _) if name == b"process_name" => Class::ProcessName,
        _ => Class::Other,
    }
}

fn is_annotation(name: &[u8]) -> bool {
    [&b"ProfilerStep#"[..], b"Optimizer.step#", b"Optimizer.zero_grad#", b"enumerate(DataLoader)#"]
        .iter()
        .any(|prefix| name.starts_with(prefix))
}
