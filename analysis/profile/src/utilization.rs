//! [`Utilization`]: what a part of an iteration gets out of its device.
//! `metrics::utilization` makes it of the iteration's graph.

use super::Roof;

/// An amount of work, and how long kernels (on a CPU: operators) took for it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Done {
    /// Floating-point operations, or bytes that have to move at the least.
    pub amount: f64,
    /// Nanoseconds.
    pub time_ns: f64,
}

impl Done {
    fn add(&mut self, other: &Done) {
        self.amount += other.amount;
        self.time_ns += other.time_ns;
    }

    /// Of a peak rate per second, while it ran; nothing where nothing of it ran.
    pub fn of_peak(&self, peak: Option<f64>) -> Option<f64> {
        let peak = peak.filter(|peak| *peak > 0.0)?;
        let share = self.amount / (self.time_ns / 1e9) / peak;
        (self.time_ns > 0.0 && self.amount > 0.0 && share.is_finite()).then_some(share)
    }
}

/// Copies in one direction between host and GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Copied {
    /// How many.
    pub calls: f64,
    /// Of all of them.
    pub bytes: f64,
    /// Nanoseconds.
    pub time_ns: f64,
}

impl Copied {
    fn add(&mut self, other: &Copied) {
        self.calls += other.calls;
        self.bytes += other.bytes;
        self.time_ns += other.time_ns;
    }
}

/// What a part of one iteration does. Times are nanoseconds of one iteration without a profiler, except
/// those of launches.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Utilization {
    /// The GPU was at work for it. A moment at which several kernels run is divided among them, so
    /// that the parts add up to the time that the GPU was at work at all.
    pub busy_ns: f64,
    /// Kernels that compute, each at its full length.
    pub kernel_ns: f64,
    /// FP32 outside tensor cores, the arithmetic of element-wise kernels of any type among it.
    pub fp32: Done,
    /// Products of FP32 numbers in TF32.
    pub tf32: Done,
    /// Products of FP16 and BF16 numbers.
    pub half: Done,
    /// Bytes that operators have to move at the least.
    pub moved: Done,
    /// Kernels of products on tensor cores.
    pub tensor_core_ns: f64,
    /// Kernels of products beside them.
    pub other_product_ns: f64,
    /// Kernels of products whose names do not say.
    pub unknown_product_ns: f64,
    /// Occupancy times time, of the kernels whose occupancy is known, and their time.
    pub occupied_ns: f64,
    /// See `occupied_ns`.
    pub occupancy_known_ns: f64,
    /// Kernels, copies and fills that were started.
    pub launches: f64,
    /// The host within the calls that start them, as recorded.
    pub launch_ns: f64,
    /// The host within operators, what they launch included.
    pub operator_ns: f64,
    /// The host in calls that wait for the GPU, what they take after it is done.
    pub wait_ns: f64,
    /// From host to GPU.
    pub to_device: Copied,
    /// From GPU to host.
    pub to_host: Copied,
    /// Kernels that communicate. Of ranks on processors the loop's thread waiting for an exchange, and of
    /// the whole iteration those beside its operators, too.
    pub communication_ns: f64,
    /// Of that, while nothing computed.
    pub exposed_communication_ns: f64,
}

impl Utilization {
    /// The share, 0 to 1, of the time of its products that ran on tensor cores; nothing where there
    /// are no products, or too many of them do not say.
    pub fn tensor_cores(&self) -> Option<f64> {
        const MOST_UNKNOWN: f64 = 0.2;
        let known = self.tensor_core_ns + self.other_product_ns;
        let all = known + self.unknown_product_ns;
        let is_known = all > 0.0 && self.unknown_product_ns <= MOST_UNKNOWN * all;
        is_known.then(|| self.tensor_core_ns / known)
    }

    /// The mean over its kernels' time, 0 to 1, of those whose occupancy is known.
    pub fn occupancy(&self) -> Option<f64> {
        (self.occupancy_known_ns > 0.0).then(|| self.occupied_ns / self.occupancy_known_ns)
    }

    /// What is reached of the device's peak for each type while its operators run: `FP32`, `TF32`,
    /// `FP16`.
    pub fn of_peaks(&self, roof: Option<&Roof>) -> [(&'static str, Option<f64>); 3] {
        let roof = roof.copied().unwrap_or_default();
        [
            ("FP32", self.fp32.of_peak(roof.fp32_flops)),
            ("TF32", self.tf32.of_peak(roof.tf32_flops)),
            ("FP16", self.half.of_peak(roof.fp16_flops)),
        ]
    }

    /// What is reached of the memory's bandwidth while its operators run.
    pub fn of_bandwidth(&self, roof: Option<&Roof>) -> Option<f64> {
        self.moved.of_peak(roof?.bandwidth)
    }

    /// Adds another part's.
    pub fn add(&mut self, other: &Utilization) {
        self.busy_ns += other.busy_ns;
        self.kernel_ns += other.kernel_ns;
        self.fp32.add(&other.fp32);
        self.tf32.add(&other.tf32);
        self.half.add(&other.half);
        self.moved.add(&other.moved);
        self.tensor_core_ns += other.tensor_core_ns;
        self.other_product_ns += other.other_product_ns;
        self.unknown_product_ns += other.unknown_product_ns;
        self.occupied_ns += other.occupied_ns;
        self.occupancy_known_ns += other.occupancy_known_ns;
        self.launches += other.launches;
        self.launch_ns += other.launch_ns;
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
    /// Nanoseconds of the iteration that it is about.
    pub iteration_ns: f64,
    /// Whether a GPU ran it.
    pub on_gpu: bool,
    /// All of it.
    pub whole: Utilization,
    /// In the order of [`Phase::ALL`](super::Phase::ALL).
    pub phases: [Utilization; 5],
}
