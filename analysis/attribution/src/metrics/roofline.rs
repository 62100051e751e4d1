//! How close an operator comes to the device's peak: Williams, Waterman and Patterson, "Roofline:
//! an insightful visual performance model", CACM 2009.
//!
//! The attainable rate is `min(peak FLOP/s, intensity * bandwidth)`, where intensity is operations
//! per byte. The two meet at the ridge.

use ridgeline_profile::{OperatorCost, Roof};

/// What limits an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// Arithmetic: right of the ridge.
    Compute,
    /// Memory: left of the ridge.
    Memory,
}

/// The rates that an operator reaches.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Achieved {
    /// Floating-point operations per second.
    pub flops_per_second: Option<f64>,
    /// Bytes per second, of the minimum that has to be moved.
    pub bytes_per_second: Option<f64>,
    /// What limits it on this device.
    pub bound: Option<Bound>,
    /// The share, 0 to 1, of the attainable rate at this intensity.
    pub share_of_roof: Option<f64>,
}

/// Computes the rates that an operator reaches, relative to the device's roofline if it is known.
pub fn achieved(operator: &OperatorCost, roof: Option<&Roof>) -> Achieved {
    let seconds = operator.time_ns / 1e9;
    if seconds <= 0.0 {
        return Achieved::default();
    }
    let flops_per_second = operator.flops.map(|flops| flops / seconds);
    let bytes_per_second = operator.bytes.map(|bytes| bytes / seconds);
    let mut achieved =
        Achieved { flops_per_second, bytes_per_second, bound: None, share_of_roof: None };
    let (Some(flops), Some(bytes), Some(roof)) = (operator.flops, operator.bytes, roof) else {
        return achieved;
    };
    let (Some(peak), Some(bandwidth)) = (Arithmetic::of(operator).peak(roof), roof.bandwidth)
    else {
        return achieved;
    };
    if peak <= 0.0 || bandwidth <= 0.0 {
        return achieved;
    }
    let (compute, memory) = (flops / peak, bytes / bandwidth);
    achieved.bound = Some(if compute > memory { Bound::Compute } else { Bound::Memory });
    achieved.share_of_roof = Some(compute.max(memory) / seconds);
    achieved
}

/// The type of an operator's arithmetic, which selects its peak rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arithmetic {
    /// FP32 outside tensor cores.
    Fp32,
    /// FP32 on tensor cores.
    Tf32,
    /// FP16 and BF16.
    Half,
}

impl Arithmetic {
    /// Returns the type that an operator computes in. FP32 runs on tensor cores if a kernel's name
    /// says so, as libraries name TF32 kernels.
    pub fn of(operator: &OperatorCost) -> Arithmetic {
        let inputs = operator.inputs.as_str();
        if inputs.contains("Half") || inputs.contains("BFloat16") {
            return Arithmetic::Half;
        }
        let tensor_cores = operator.kernels.iter().any(|kernel| {
            let name = kernel.name.to_ascii_lowercase();
            ["tf32", "s1688", "tensorop"].iter().any(|mark| name.contains(mark))
        });
        if tensor_cores { Arithmetic::Tf32 } else { Arithmetic::Fp32 }
    }

    /// Returns its name: `FP32`, `TF32` or `FP16`.
    pub fn name(self) -> &'static str {
        match self {
            Arithmetic::Fp32 => "FP32",
            Arithmetic::Tf32 => "TF32",
            Arithmetic::Half => "FP16",
        }
    }

    /// Returns its peak rate in operations per second.
    pub fn peak(self, roof: &Roof) -> Option<f64> {
        let peak = match self {
            Arithmetic::Fp32 => roof.fp32_flops,
            Arithmetic::Tf32 => roof.tf32_flops.or(roof.fp32_flops),
            Arithmetic::Half => roof.fp16_flops,
        };
        peak.filter(|peak| peak.is_finite() && *peak > 0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ridgeline_profile::KernelCost;

    fn operator(flops: f64, bytes: f64, inputs: &str) -> OperatorCost {
        OperatorCost {
            time_ns: 1e6,
            flops: Some(flops),
            bytes: Some(bytes),
            inputs: inputs.to_owned(),
            ..OperatorCost::default()
        }
    }

    const ROOF: Roof = Roof {
        fp32_flops: Some(10e12),
        tf32_flops: Some(80e12),
        fp16_flops: Some(160e12),
        bandwidth: Some(1e12),
    };

    #[track_caller]
    fn check(operator: &OperatorCost, bound: Bound, share: f64) {
        let achieved = achieved(operator, Some(&ROOF));
        assert_eq!(achieved.bound, Some(bound));
        let found = achieved.share_of_roof.expect("a share");
        assert!((found - share).abs() < 1e-9, "{found}");
    }

    #[test]
    fn the_ridge_separates_compute_from_memory() {
        check(&operator(5e9, 1e8, "[8] float"), Bound::Compute, 0.5);
        check(&operator(1e8, 5e8, "[8] float"), Bound::Memory, 0.5);
    }

    #[test]
    fn the_type_selects_the_peak() {
        check(&operator(80e9, 1e6, "[8] c10::Half"), Bound::Compute, 0.5);
        let mut matmul = operator(40e9, 1e6, "[8] float");
        matmul.kernels = vec![KernelCost {
            name: "ampere_sgemm_tf32_128x64".to_owned(),
            ..KernelCost::default()
        }];
        check(&matmul, Bound::Compute, 0.5);
    }

    #[test]
    fn without_a_roof_there_are_only_rates() {
        let achieved = achieved(&operator(5e9, 1e8, ""), None);
        assert_eq!(achieved.flops_per_second, Some(5e12));
        assert_eq!(achieved.bytes_per_second, Some(1e11));
        assert_eq!((achieved.bound, achieved.share_of_roof), (None, None));
    }

    #[test]
    fn without_time_there_is_no_rate() {
        assert_eq!(super::achieved(&OperatorCost::default(), Some(&ROOF)), Achieved::default());
    }
}
