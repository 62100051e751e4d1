//! [`Utilization`]: how well a part of an iteration uses its device.
//! `attribution::metrics::utilization` computes it from the iteration's graph.

use super::Roof;

/// An amount of work, and the time that kernels (on a CPU: operators) took for it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MeasuredWork {
    /// Floating-point operations, or the minimum number of bytes that have to be moved.
    pub amount: f64,
    pub time_ns: f64,
}

impl MeasuredWork {
    fn add(&mut self, other: &MeasuredWork) {
        self.amount += other.amount;
        self.time_ns += other.time_ns;
    }

    /// Returns the share of a peak rate (per second) reached while the work ran, or `None` if
    /// nothing ran.
    pub fn of_peak(&self, peak: Option<f64>) -> Option<f64> {
        let peak = peak.filter(|peak| *peak > 0.0)?;
        let share = self.amount / (self.time_ns / 1e9) / peak;
        (self.time_ns > 0.0 && self.amount > 0.0 && share.is_finite()).then_some(share)
    }
}

/// Copies in one direction between host and GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CopyTotals {
    /// Number of copies.
    pub calls: f64,
    /// Total size.
    pub bytes: f64,
    pub time_ns: f64,
}

impl CopyTotals {
    fn add(&mut self, other: &CopyTotals) {
        self.calls += other.calls;
        self.bytes += other.bytes;
        self.time_ns += other.time_ns;
    }
}

/// The work of a part of one iteration. Times are nanoseconds of one iteration without the
/// profiler, except launch times.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Utilization {
    /// GPU busy time. When several kernels run concurrently, the time is divided among them, so the
    /// parts add up to the total busy time of the GPU.
    pub busy_ns: f64,
    /// Sum of the full durations of compute kernels.
    pub kernel_ns: f64,
    /// FP32 outside of tensor cores. Includes the arithmetic of element-wise kernels of any type.
    pub fp32: MeasuredWork,
    /// FP32 matrix multiplications in TF32.
    pub tf32: MeasuredWork,
    /// FP16 and BF16 matrix multiplications.
    pub half: MeasuredWork,
    /// The minimum number of bytes that operators have to move.
    pub moved: MeasuredWork,
    /// Kernel time of matrix multiplications on tensor cores.
    pub tensor_core_ns: f64,
    /// Kernel time of matrix multiplications without tensor cores.
    pub other_matmul_ns: f64,
    /// Kernel time of matrix multiplications whose names do not reveal whether they use tensor
    /// cores.
    pub unknown_matmul_ns: f64,
    /// Sum of occupancy times duration over the kernels whose occupancy is known.
    pub occupied_ns: f64,
    /// Sum of the durations of the kernels whose occupancy is known.
    pub occupancy_known_ns: f64,
    /// Number of launched kernels, copies and fills.
    pub launches: f64,
    /// Host time in launch calls, as recorded, without long ones.
    pub launch_ns: f64,
    /// Number of launches of a millisecond or more, which wait or load kernel code.
    pub long_launches: f64,
    /// Host time in operators, launches included.
    pub operator_ns: f64,
    /// Host time in synchronization calls after the GPU is done.
    pub wait_ns: f64,
    /// Copies from the host to the GPU.
    pub to_device: CopyTotals,
    /// Copies from the GPU to the host.
    pub to_host: CopyTotals,
    /// Time of communication kernels. On CPU ranks also the time in which the loop's thread waits
    /// for a collective, and for the whole iteration the time of collectives that overlap with its
    /// operators.
    pub communication_ns: f64,
    /// The part of `communication_ns` in which nothing computed.
    pub exposed_communication_ns: f64,
}

impl Utilization {
    /// Returns the share, 0 to 1, of matrix-multiplication time on tensor cores. Returns `None` if
    /// there are no matrix multiplications, or if the kernel names do not reveal it for more than
    /// 20% of their time.
    pub fn tensor_cores(&self) -> Option<f64> {
        const MAX_UNKNOWN_SHARE: f64 = 0.2;
        let known = self.tensor_core_ns + self.other_matmul_ns;
        let all = known + self.unknown_matmul_ns;
        let is_known = all > 0.0 && self.unknown_matmul_ns <= MAX_UNKNOWN_SHARE * all;
        is_known.then(|| self.tensor_core_ns / known)
    }

    /// Returns the time-weighted mean occupancy, 0 to 1, of the kernels whose occupancy is known.
    pub fn occupancy(&self) -> Option<f64> {
        (self.occupancy_known_ns > 0.0).then(|| self.occupied_ns / self.occupancy_known_ns)
    }

    /// Returns the reached share of the device's peak rate for `FP32`, `TF32` and `FP16` while
    /// their operators run.
    pub fn of_peaks(&self, roof: Option<&Roof>) -> [(&'static str, Option<f64>); 3] {
        let roof = roof.copied().unwrap_or_default();
        [
            ("FP32", self.fp32.of_peak(roof.fp32_flops)),
            ("TF32", self.tf32.of_peak(roof.tf32_flops)),
            ("FP16", self.half.of_peak(roof.fp16_flops)),
        ]
    }

    /// Returns the reached share of memory bandwidth while the operators run.
    pub fn of_bandwidth(&self, roof: Option<&Roof>) -> Option<f64> {
        self.moved.of_peak(roof?.bandwidth)
    }

    /// Adds the work of another part.
    pub fn add(&mut self, other: &Utilization) {
        self.busy_ns += other.busy_ns;
        self.kernel_ns += other.kernel_ns;
        self.fp32.add(&other.fp32);
        self.tf32.add(&other.tf32);
        self.half.add(&other.half);
        self.moved.add(&other.moved);
        self.tensor_core_ns += other.tensor_core_ns;
        self.other_matmul_ns += other.other_matmul_ns;
        self.unknown_matmul_ns += other.unknown_matmul_ns;
        self.occupied_ns += other.occupied_ns;
        self.occupancy_known_ns += other.occupancy_known_ns;
        self.launches += other.launches;
        self.launch_ns += other.launch_ns;
        self.long_launches += other.long_launches;
        self.operator_ns += other.operator_ns;
        self.wait_ns += other.wait_ns;
        self.to_device.add(&other.to_device);
        self.to_host.add(&other.to_host);
        self.communication_ns += other.communication_ns;
        self.exposed_communication_ns += other.exposed_communication_ns;
    }
}

/// The whole iteration and its parts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metrics {
    /// Iteration time in nanoseconds.
    pub iteration_ns: f64,
    /// Whether the iteration ran on a GPU.
    pub on_gpu: bool,
    /// The whole iteration.
    pub whole: Utilization,
    /// By phase, in the order of [`Phase::ALL`](super::Phase::ALL).
    pub phases: [Utilization; 5],
}
