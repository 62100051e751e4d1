//! Builds a [`Trace`] from the events of the file.

use std::collections::HashMap;

use hashbrown::HashMap as FastMap;

use super::chrome_trace::{Options, TraceError};
use super::chrome_trace_events::{Class, Event, classify};
use super::chrome_trace_json::{Token, utf8};
use super::strings::{Interner, StringId};
use super::trace::{
    Activity, ActivityDetails, Annotation, DetailsId, Instant, MemoryEvent, Operator, PythonFrame,
    RuntimeCall, Thread, ThreadId, Trace,
};
use ridgeline_devices::occupancy::Launch;

/// Times outside of this range are invalid, so `base + start + duration` fits in an `i64`. 4e18 ns
/// after 1970 is in the year 2096.
const MAX_TIME_NS: i64 = 4_000_000_000_000_000_000;
const MAX_DURATION_NS: i64 = 1_000_000_000_000_000_000;

/// Estimates the memory of an event in bytes: its entry in the trace, and what summarizing the
/// trace allocates for it (`metrics`: places and phases of operators, links of launches, intervals
/// of activities).
fn bytes_of(class: Class) -> u64 {
    let bytes = match class {
        Class::Operator => size_of::<Operator>() + 24,
        Class::Annotation => size_of::<Annotation>(),
        Class::RuntimeCall => size_of::<RuntimeCall>() + 32,
        Class::Activity(_) => size_of::<Activity>() + 64,
        Class::PythonFrame => size_of::<PythonFrame>() + 96,
        Class::Memory => size_of::<MemoryEvent>(),
        Class::Instant => size_of::<Instant>(),
        Class::ProcessName => size_of::<(i64, StringId)>(),
        Class::Counters | Class::Other => 0,
    };
    bytes as u64
}

/// Bytes per string besides its text: its end, and its entry in the hash table.
const STRING_BYTES: usize = 20;

/// Builds a [`Trace`] event by event.
pub(super) struct Builder<'o> {
    options: &'o Options,
    trace: Trace,
    strings: Interner,
    thread_ids: HashMap<Thread, ThreadId>,
    details: FastMap<DetailsKey, DetailsId>,
    /// The thread of the previous event with the bytes of its process and thread: usually the next
    /// event has the same.
    last_thread: Option<(Vec<u8>, Vec<u8>, ThreadId)>,
    stored_events: u64,
    /// Memory of the events in bytes, see [`bytes_of`].
    memory_bytes: u64,
}

impl<'o> Builder<'o> {
    pub(super) fn new(options: &'o Options) -> Builder<'o> {
        Builder {
            options,
            trace: Trace::default(),
            strings: Interner::default(),
            thread_ids: HashMap::new(),
            details: FastMap::new(),
            last_thread: None,
            stored_events: 0,
            memory_bytes: 0,
        }
    }

    pub(super) fn trace_mut(&mut self) -> &mut Trace {
        &mut self.trace
    }

    /// Adds an event. Fails if a limit is exceeded.
    pub(super) fn add(&mut self, event: &Event<'_>) -> Result<(), TraceError> {
        let class = classify(event);
        if class == Class::Other || (class == Class::PythonFrame && !self.options.python_frames) {
            return Ok(());
        }
        if self.stored_events >= self.options.max_events {
            return Err(TraceError::TooMany { what: "events", limit: self.options.max_events });
        }
        self.stored_events += 1;
        let string_bytes = self.strings.text_bytes() + self.strings.len() * STRING_BYTES;
        self.memory_bytes += bytes_of(class);
        if self.memory_bytes + string_bytes as u64 > self.options.max_memory_bytes {
            let limit = self.options.max_memory_bytes;
            return Err(TraceError::TooMuchMemory { limit, events: self.stored_events });
        }
        if self.add_class(class, event)?.is_none() {
            self.trace.unusable_events += 1;
        }
        Ok(())
    }

    /// Adds an event of a class. Returns `None` if required members are missing.
    fn add_class(&mut self, class: Class, event: &Event<'_>) -> Result<Option<()>, TraceError> {
        let Some(name) = self.intern(event.name.text())? else { return Ok(None) };
        let arguments = &event.arguments;
        if class == Class::ProcessName {
            let process = event.process.signed();
            let process_name = self.intern(arguments.name.text())?;
            self.trace.process_names.extend(process.zip(process_name));
            return Ok(Some(()));
        }
        if class == Class::Counters {
            let counted = &arguments.counters;
            let counters = self.trace.counters.get_or_insert_default();
            counters.ranges += 1;
            let add = |sum: &mut Option<f64>, value: Option<f64>| {
                *sum = sum.zip(value).map(|(sum, value)| sum + value).or(*sum).or(value);
            };
            add(&mut counters.flops, counted.flops);
            add(&mut counters.tensor_instructions, counted.tensor_instructions);
            return Ok(Some(()));
        }
        let Some(start_ns) = time(event.time) else { return Ok(None) };
        if class == Class::Instant {
            self.trace.instants.push(Instant { name, time_ns: start_ns });
            return Ok(Some(()));
        }
        if class == Class::Memory {
            return self.add_memory(event, start_ns);
        }
        let Some(duration_ns) = duration(event.duration) else { return Ok(None) };
        self.trace.negative_durations += u64::from(duration_ns < 0);
        let duration_ns = duration_ns.max(0);
        if let Class::Activity(kind) = class {
            let Some(details) = self.details(details(event)) else { return Ok(None) };
            let correlation = arguments.correlation.unsigned().into();
            let activity = Activity { name, kind, start_ns, duration_ns, correlation, details };
            self.trace.activities.push(activity);
            return Ok(Some(()));
        }
        let Some(thread) = self.thread(event)? else { return Ok(None) };
        match class {
            Class::Operator => {
                let operator = Operator {
                    name,
                    thread,
                    start_ns,
                    duration_ns,
                    sequence: arguments.sequence.unsigned().into(),
                    forward_thread: arguments.forward_thread.unsigned().into(),
                    input_dims: self.intern_nested(arguments.input_dims)?,
                    input_types: self.intern_nested(arguments.input_types)?,
                    concrete_inputs: self.intern_nested(arguments.concrete_inputs)?,
                    call_stack: self.intern(arguments.call_stack.text())?,
                };
                self.trace.operators.push(operator);
            }
            Class::Annotation => {
                self.trace.annotations.push(Annotation { name, thread, start_ns, duration_ns });
            }
            Class::RuntimeCall => {
                let correlation = arguments.correlation.unsigned().into();
                let call = RuntimeCall { name, thread, start_ns, duration_ns, correlation };
                self.trace.runtime_calls.push(call);
            }
            _ => self.trace.python_frames.push(PythonFrame { name, thread, start_ns, duration_ns }),
        }
        Ok(Some(()))
    }

    fn add_memory(&mut self, event: &Event<'_>, time_ns: i64) -> Result<Option<()>, TraceError> {
        let arguments = &event.arguments;
        let Some(bytes) = arguments.allocated_bytes.signed() else { return Ok(None) };
        let Some(thread) = self.thread(event)? else { return Ok(None) };
        self.trace.memory.push(MemoryEvent {
            time_ns,
            thread,
            bytes,
            address: arguments.address.unsigned().into(),
            // Values that do not fit do not occur.
            device_type: arguments.device_type.signed().and_then(|kind| kind.try_into().ok()),
            device: arguments.device_id.signed().and_then(|device| device.try_into().ok()),
            total_allocated: arguments.total_allocated.signed().into(),
        });
        Ok(Some(()))
    }

    fn intern(
        &mut self,
        text: Option<std::borrow::Cow<'_, str>>,
    ) -> Result<Option<StringId>, TraceError> {
        let Some(text) = text else { return Ok(None) };
        let limit = self.options.max_string_bytes;
        let id = self.strings.intern(&text);
        if id.is_none() || self.strings.text_bytes() > limit {
            return Err(TraceError::TooMany { what: "bytes of names", limit: limit as u64 });
        }
        Ok(id)
    }

    /// Returns the id of these details, and stores them if they are new.
    fn details(&mut self, details: ActivityDetails) -> Option<DetailsId> {
        let key = DetailsKey::of(&details);
        if let Some(id) = self.details.get(&key) {
            return Some(*id);
        }
        let id = DetailsId(u32::try_from(self.trace.details.len()).ok()?);
        self.memory_bytes += DETAILS_BYTES;
        self.trace.details.push(details);
        self.details.insert(key, id);
        Some(id)
    }

    fn intern_nested(&mut self, token: Token<'_>) -> Result<Option<StringId>, TraceError> {
        self.intern(token.nested().map(utf8))
    }

    fn thread(&mut self, event: &Event<'_>) -> Result<Option<ThreadId>, TraceError> {
        let plain = event.process.number().zip(event.thread.number());
        if let (Some(plain), Some((process, thread, id))) = (plain, &self.last_thread)
            && plain == (process.as_slice(), thread.as_slice())
        {
            return Ok(Some(*id));
        }
        let (process, thread) = (event.process.label(), event.thread.label());
        let (Some(process), Some(thread)) = (self.intern(process)?, self.intern(thread)?) else {
            return Ok(None);
        };
        let thread = Thread { process, thread };
        let id = match self.thread_ids.get(&thread) {
            Some(id) => *id,
            None => {
                let Ok(number) = u32::try_from(self.trace.threads.len()) else { return Ok(None) };
                self.trace.threads.push(thread);
                self.thread_ids.insert(thread, ThreadId(number));
                ThreadId(number)
            }
        };
        self.last_thread = plain.map(|(process, thread)| (process.into(), thread.into(), id));
        Ok(Some(id))
    }

    /// Returns the trace, with the base time added and the events sorted.
    pub(super) fn finish(self, base_time_ns: Option<i64>) -> Trace {
        let mut trace = self.trace;
        trace.strings = self.strings.finish();
        let base = base_time_ns.filter(|base| (0..=MAX_TIME_NS).contains(base)).unwrap_or(0);
        trace.base_time_ns = base;
        trace.operators.iter_mut().for_each(|operator| operator.start_ns += base);
        trace.annotations.iter_mut().for_each(|annotation| annotation.start_ns += base);
        trace.runtime_calls.iter_mut().for_each(|call| call.start_ns += base);
        trace.activities.iter_mut().for_each(|activity| activity.start_ns += base);
        trace.memory.iter_mut().for_each(|event| event.time_ns += base);
        trace.python_frames.iter_mut().for_each(|frame| frame.start_ns += base);
        trace.instants.iter_mut().for_each(|instant| instant.time_ns += base);

        // The sort is stable: equal events stay in the order of the file, which is the order of
        // nesting.
        trace.operators.sort_by_key(|o| (o.thread, o.start_ns, -o.duration_ns));
        trace.annotations.sort_by_key(|a| (a.thread, a.start_ns, -a.duration_ns));
        trace.runtime_calls.sort_by_key(|c| (c.thread, c.start_ns, -c.duration_ns));
        trace.python_frames.sort_by_key(|f| (f.thread, f.start_ns, -f.duration_ns));
        trace.memory.sort_by_key(|event| event.time_ns);

        trace.operators.shrink_to_fit();
        trace.annotations.shrink_to_fit();
        trace.runtime_calls.shrink_to_fit();
        trace.activities.shrink_to_fit();
        trace.details.shrink_to_fit();
        trace.memory.shrink_to_fit();
        trace.python_frames.shrink_to_fit();
        trace
    }
}

/// Bytes per distinct details: the details, and their hash table entry, doubled because at least a
/// seventh of the table is empty.
const DETAILS_BYTES: u64 =
    (size_of::<ActivityDetails>() + 2 * size_of::<(DetailsKey, DetailsId)>()) as u64;

/// Activity details as a hash key: floats are compared by bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct DetailsKey {
    place: (Option<i64>, Option<i64>),
    numbers: (Option<u64>, Option<u64>),
    shape: (Option<[u32; 3]>, Option<[u32; 3]>),
    resources: (Option<u32>, Option<u32>, Option<u32>),
}

impl DetailsKey {
    fn of(details: &ActivityDetails) -> DetailsKey {
        let Launch { grid, block, registers, shared_memory_bytes, reported_occupancy_percent } =
            details.launch;
        let occupancy = reported_occupancy_percent.map(f32::to_bits);
        DetailsKey {
            place: (details.device, details.stream),
            numbers: (details.bytes, details.graph_node),
            shape: (grid, block),
            resources: (registers, shared_memory_bytes, occupancy),
        }
    }
}

fn details(event: &Event<'_>) -> ActivityDetails {
    let arguments = &event.arguments;
    ActivityDetails {
        device: arguments.device.signed().or_else(|| event.process.signed()),
        stream: arguments.stream.signed().or_else(|| stream_of_thread(event.thread)),
        bytes: arguments.copied_bytes.unsigned(),
        // It is 0 outside of CUDA graphs.
        graph_node: arguments.graph_node.unsigned().filter(|node| *node > 0),
        launch: Launch {
            grid: three(arguments.grid),
            block: three(arguments.block),
            registers: arguments.registers.unsigned().and_then(|count| count.try_into().ok()),
            shared_memory_bytes: arguments
                .shared_memory
                .unsigned()
                .and_then(|bytes| bytes.try_into().ok()),
            reported_occupancy_percent: arguments.occupancy.float(),
        },
    }
}

fn time(token: Token<'_>) -> Option<i64> {
    token.nanoseconds().filter(|time| (-MAX_TIME_NS..=MAX_TIME_NS).contains(time))
}

fn duration(token: Token<'_>) -> Option<i64> {
    token.nanoseconds().filter(|duration| *duration <= MAX_DURATION_NS)
}

/// Parses the stream from a GPU thread's name: `7` or `"stream 7"`.
fn stream_of_thread(token: Token<'_>) -> Option<i64> {
    token.signed().or_else(|| {
        std::str::from_utf8(token.plain()?.strip_prefix(b"stream ")?).ok()?.trim().parse().ok()
    })
}

/// Parses three numbers such as `[128, 1, 1]`.
fn three(token: Token<'_>) -> Option<[u32; 3]> {
    let text = std::str::from_utf8(token.nested()?).ok()?;
    let mut parts = text.strip_prefix('[')?.strip_suffix(']')?.split(',');
    let mut next = || parts.next()?.trim().parse().ok();
    let three = [next()?, next()?, next()?];
    parts.next().is_none().then_some(three)
}
