//! The kind of device that a trace was recorded on, and why a trace may lack the device's activities.

use super::trace::{DeviceProperties, Trace};

impl Trace {
    /// Returns the number of the GPU whose activity comes first.
    pub fn used_device(&self) -> Option<i64> {
        self.activities.iter().find_map(|activity| self.details(activity).device)
    }

    /// Returns the properties of that GPU. Without activities, those that all GPUs of the machine
    /// have in common, if one of them ran the operators.
    pub fn used_properties(&self) -> Option<&DeviceProperties> {
        match self.used_device() {
            Some(number) => self.device(number),
            None => self.common_device().filter(|_| self.device_kind() != "cpu"),
        }
    }

    /// `cuda`, `rocm`, `cpu`, or `unknown` for another accelerator.
    pub fn device_kind(&self) -> &'static str {
        if self.activities.is_empty() && self.missing_activities().is_none() {
            return "cpu";
        }
        let calls = |prefix| calls(self, |name| name.starts_with(prefix));
        let known =
            self.used_device().map_or_else(|| self.common_device(), |number| self.device(number));
        if known.is_some_and(DeviceProperties::is_amd) || calls("hip") {
            return "rocm";
        }
        let is_cuda = !self.activities.is_empty()
            || self.counters.is_some()
            || known.is_some()
            || calls("cu");
        if is_cuda { "cuda" } else { "unknown" }
    }

    /// Returns why there are no activities although an accelerator ran operators, as a clause.
    /// Returns `None` if there are activities, or a CPU ran the operators.
    pub fn missing_activities(&self) -> Option<String> {
        if !self.activities.is_empty() {
            return None;
        }
        let why = if let Some(bytes) = self.truncated_at {
            return Some(format!(
                "the file is truncated after {bytes} bytes of JSON, and PyTorch writes kernels last"
            ));
        } else if self.counters.is_some() {
            "the profiler records no kernels while it reads hardware counters"
        } else if has_other_accelerator(self) {
            "Ridgeline cannot read the activities of this accelerator, only those of CUDA, ROCm \
            and XPU"
        } else if calls(self, is_launch) {
            "the profiler recorded launches, but no kernels. Another profiler may have been using \
            the GPU"
        } else if allocates_on_gpu(self) || communicates_between_gpus(self) {
            "the profiler may have run without `ProfilerActivity.CUDA`"
        } else {
            return None;
        };
        Some(why.to_owned())
    }

    /// Returns a note on a truncated file.
    pub fn truncation_note(&self) -> Option<String> {
        let bytes = self.truncated_at?;
        Some(format!(
            "the file is truncated after {bytes} bytes of JSON: everything before that is counted. \
            PyTorch writes kernels last, so kernels may be missing"
        ))
    }
}

fn calls(trace: &Trace, is_wanted: impl Fn(&str) -> bool) -> bool {
    trace.runtime_calls.iter().any(|call| is_wanted(trace.text(call.name)))
}

/// Other calls, such as `cudaDeviceSynchronize`, also occur in the profile of a CPU run.
fn is_launch(call: &str) -> bool {
    call.contains("LaunchKernel") || call.contains("GraphLaunch")
}

/// Whether the trace is from an accelerator with its own runtime or its own profiler, such as MTIA
/// and Ascend.
fn has_other_accelerator(trace: &Trace) -> bool {
    // `INVALID` is Kineto's name for a call of CUDA that it does not know.
    const KNOWN: [&str; 5] = ["cu", "hip", "ze", "ur", "INVALID"];
    let is_other = |name: &str| !KNOWN.iter().any(|known| name.starts_with(known));
    let mut processes = trace.process_names.iter().map(|(_, name)| trace.text(*name));
    calls(trace, is_other)
        || processes.any(|name| name == "Ascend Hardware" || name.starts_with("MTIA "))
}

fn allocates_on_gpu(trace: &Trace) -> bool {
    trace.memory.iter().any(|event| event.device_type.is_some_and(|kind| kind != 0))
}

/// Whether the process group communicates only between accelerators. `cpu:gloo,cuda:nccl` is the
/// default and says nothing.
fn communicates_between_gpus(trace: &Trace) -> bool {
    let backend = trace.distributed.as_ref().and_then(|distributed| distributed.backend.as_deref());
    backend.is_some_and(|backend| {
        ["nccl", "hccl"].iter().any(|name| backend.contains(name)) && !backend.contains("gloo")
    })
}

#[cfg(test)]
mod tests {
    use crate::chrome_trace::Options;
    use crate::trace::Trace;

    const OPERATOR: &str = r#"{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 1, "dur": 9}"#;

    fn trace(header: &str, events: &str) -> Trace {
        let json = format!(r#"{{{header}"traceEvents": [{OPERATOR}{events}]}}"#);
        Trace::read(json.as_bytes(), &Options::default()).expect("a trace")
    }

    fn call(category: &str, name: &str) -> String {
        format!(
            r#", {{"ph": "X", "cat": "{category}", "name": "{name}", "pid": 1, "tid": 1, "ts": 2, "dur": 1}}"#
        )
    }

    /// Checks the kind of device, and the reason for missing activities.
    #[track_caller]
    fn check(trace: &Trace, kind: &str, why: Option<&str>) {
        assert_eq!(trace.device_kind(), kind);
        let found = trace.missing_activities();
        match why {
            Some(why) => {
                assert!(found.as_deref().is_some_and(|text| text.contains(why)), "{found:?}")
            }
            None => assert_eq!(found, None),
        }
    }

    #[test]
    fn an_accelerator_without_activities_is_not_a_cpu() {
        let launch = call("cuda_runtime", "cudaLaunchKernel");
        check(&trace("", &launch), "cuda", Some("recorded launches"));
        check(&trace("", &call("cuda_runtime", "hipLaunchKernel")), "rocm", Some("launches"));
        check(&trace("", &call("mtia_runtime", "runFunction")), "unknown", Some("cannot read"));
        let memory = r#", {"ph": "i", "name": "[memory]", "pid": 1, "tid": 1, "ts": 2, "args":
            {"Bytes": 512, "Device Type": 1, "Device Id": 0}}"#;
        check(&trace("", memory), "unknown", Some("ProfilerActivity.CUDA"));
        let group = r#""distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 2}, "#;
        check(&trace(group, ""), "unknown", Some("ProfilerActivity.CUDA"));
        let ascend = r#", {"ph": "M", "name": "process_name", "pid": 2,
            "args": {"name": "Ascend Hardware"}}"#;
        check(&trace("", ascend), "unknown", Some("cannot read"));
    }

    #[test]
    fn a_cpu_run_on_a_machine_with_a_gpu_is_a_cpu_run() {
        let machine = r#""deviceProperties": [{"id": 0, "name": "NVIDIA H100"}], "#;
        let found = trace(machine, &call("cuda_runtime", "cudaDeviceSynchronize"));
        check(&found, "cpu", None);
        assert_eq!(found.used_properties(), None);
        let group = r#""distributedInfo": {"backend": "cpu:gloo,cuda:nccl", "rank": 0}, "#;
        check(&trace(group, ""), "cpu", None);
    }

    #[test]
    fn a_truncated_trace_does_not_show_what_the_gpu_did() {
        let json = format!(
            r#"{{"deviceProperties": [{{"id": 0, "name": "NVIDIA H100"}}], "traceEvents": [{OPERATOR},"#
        );
        let found = Trace::read(json.as_bytes(), &Options::default()).expect("a trace");
        check(&found, "cuda", Some("is truncated after"));
        let name = found.used_properties().map(|device| device.name.as_str());
        assert_eq!(name, Some("NVIDIA H100"));
    }

    #[test]
    fn one_entry_or_equal_entries_describe_every_gpu() {
        let kernel = r#", {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 2, "tid": 7, "ts": 3,
            "dur": 4, "args": {"device": 9, "stream": 7}}"#;
        let name = |devices: &str| {
            let found = trace(&format!(r#""deviceProperties": [{devices}], "#), kernel);
            found.used_properties().map(|device| device.name.clone())
        };
        // ROCm's activities have the number of the HSA agent.
        let first = r#"{"id": 0, "name": "AMD Instinct MI300X"}"#;
        let second = r#"{"id": 1, "name": "AMD Instinct MI300X"}"#;
        let other = r#"{"id": 1, "name": "AMD Instinct MI210"}"#;
        assert_eq!(name(first).as_deref(), Some("AMD Instinct MI300X"));
        assert_eq!(name(&format!("{first}, {second}")).as_deref(), Some("AMD Instinct MI300X"));
        assert_eq!(name(&format!("{first}, {other}")), None);
    }
}
