//! `gpu-slowed`: a GPU that does not run at full speed: heat, power, its hardware, or other
//! processes (NVIDIA, "NVML: clocks event reasons").

use crate::evidence::Evidence;
use crate::finding::{Cost, Finding, SourceLine};
use crate::rule::Rule;
use ridgeline_base::statistics::quantile;
use ridgeline_base::units::{bytes, percent};
use ridgeline_profile::FileId;
use ridgeline_recording::observed::GpuState;

/// Heat and hardware limits are reported below this share of the maximum clock.
const MAX_CLOCK_SHARE: f64 = 0.93;
/// The power limit is reported below this share of the maximum clock. A large GPU under load is at
/// its power limit most of the time, somewhat below its maximum clock.
const MAX_CLOCK_SHARE_AT_POWER_LIMIT: f64 = 0.75;

pub(super) struct GpuSlowed;

impl Rule for GpuSlowed {
    fn name(&self) -> &'static str {
        "gpu-slowed"
    }

    fn title(&self) -> &'static str {
        "GPU throttled or shared with another process"
    }

    fn measured(&self, evidence: &Evidence<'_>) -> Vec<Finding> {
        let Some((state, at)) = state(evidence).filter(|_| evidence.on_gpu()) else {
            return Vec::new();
        };
        let limited = limited(evidence, state, &at);
        limited.into_iter().chain(shared(state, &at)).collect()
    }
}

/// The state of the GPU as NVML reported it, and the line of the training loop.
fn state<'a>(evidence: &Evidence<'a>) -> Option<(&'a GpuState, SourceLine)> {
    let manifest = evidence.manifest()?;
    let at = manifest.training_loop?;
    Some((manifest.observed.gpu.as_ref()?, evidence.place(FileId(at.file), at.line)))
}

fn limited(evidence: &Evidence<'_>, state: &GpuState, at: &SourceLine) -> Option<Finding> {
    let clocks: Vec<f64> = state.clock_mhz.iter().map(|mhz| f64::from(*mhz)).collect();
    let now = quantile(&clocks, 0.5)?;
    let highest = f64::from(state.highest_clock_mhz.filter(|mhz| *mhz > 0)?);
    let share = now / highest;
    let by = |reason: &str| state.limited_by.iter().any(|one| one == reason);
    let (reason, what) = if by("heat") && share < MAX_CLOCK_SHARE {
        ("Heat", "Check the cooling: airflow, dust and other cards in the case.")
    } else if by("hardware") && share < MAX_CLOCK_SHARE {
        (
            "A hardware limit",
            "The power supply or the cooling is insufficient: check `nvidia-smi -q -d PERFORMANCE`.",
        )
    } else if by("power") && share < MAX_CLOCK_SHARE_AT_POWER_LIMIT {
        ("The power limit", "Check `nvidia-smi -q -d POWER` for a lowered power limit.")
    } else {
        return None;
    };
    // Compute time grows as the clock drops.
    let busy = evidence.profile().gpu.map_or(0.0, |gpu| {
        if gpu.span_ns > 0 { gpu.busy_ns as f64 / gpu.span_ns as f64 } else { 0.0 }
    });
    let time_ns = evidence.iteration_ns() * busy * (1.0 - share);
    Some(Finding {
        rule: "gpu-slowed",
        at: at.clone(),
        message: format!("{reason} throttles the GPU to {} of its maximum clock", percent(share)),
        why: format!(
            "It ran at {now:.0} of {highest:.0} MHz while it was timed, and the driver reports \
            this reason. {what} All times shown are those of the throttled GPU."
        ),
        cost: (time_ns > 0.0).then(|| Cost::time(time_ns).predicted()),
        ..Finding::default()
    })
}

fn shared(state: &GpuState, at: &SourceLine) -> Option<Finding> {
    let others = state.other_processes.filter(|others| *others > 0)?;
    let processes = if others == 1 {
        "Another process is using".to_owned()
    } else {
        format!("{others} other processes are using")
    };
    let held = state.other_bytes.filter(|held| *held > 0);
    let held = held
        .map_or(String::new(), |held| format!(" They use {} of its memory.", bytes(held as f64)));
    Some(Finding {
        rule: "gpu-slowed",
        at: at.clone(),
        message: format!("{processes} the same GPU"),
        why: format!(
            "The GPU is time-sliced between processes, so times are longer than without them, and \
            vary.{held} How much slower is unknown."
        ),
        ..Finding::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::Case;
    use ridgeline_graph::graph::TaskKind;
    use ridgeline_profile::{GpuActivity, Phase};

    /// A GPU that is busy half of the time, at this clock of at most 2000 MHz, for this reason.
    fn clocked(mhz: u32, reason: &str) -> Case {
        let mut case = Case::new("for x in loader:  # loop\n    step(x)\n").on_gpu();
        case.host(TaskKind::HostGap, 10e6, Phase::Forward, None);
        case.manifest.training_loop = Some(case.location("loop"));
        let activity = GpuActivity { span_ns: 100, busy_ns: 50, ..GpuActivity::default() };
        case.profile.gpu = Some(activity);
        case.manifest.observed.gpu = Some(GpuState {
            clock_mhz: vec![mhz, mhz + 10, mhz - 10],
            highest_clock_mhz: Some(2000),
            limited_by: vec![reason.to_owned()],
            ..GpuState::default()
        });
        case
    }

    #[test]
    fn throttled_gpu_costs_its_clock_deficit() {
        let found = clocked(1600, "heat").finds(&GpuSlowed, "loop");
        assert!(found.message.starts_with("Heat throttles"), "{}", found.message);
        let cost = found.cost.expect("a cost");
        assert!((cost.time_ns - 1e6).abs() < 1.0 && cost.is_predicted, "{cost:?}");
        let found = clocked(1400, "power").finds(&GpuSlowed, "loop");
        assert!(found.message.starts_with("The power limit"), "{}", found.message);
    }

    #[test]
    fn gpu_at_its_power_limit_is_normal() {
        clocked(1700, "power").finds_nothing(&GpuSlowed);
        clocked(1950, "heat").finds_nothing(&GpuSlowed);
        clocked(1400, "idle").finds_nothing(&GpuSlowed);
        let mut unknown = clocked(1400, "heat");
        unknown.manifest.observed.gpu.as_mut().expect("a state").highest_clock_mhz = None;
        unknown.finds_nothing(&GpuSlowed);
    }

    #[test]
    fn other_processes_are_reported_without_a_cost() {
        let mut case = clocked(1950, "heat");
        let state = case.manifest.observed.gpu.as_mut().expect("a state");
        (state.other_processes, state.other_bytes) = (Some(1), Some(1_000_000_000));
        let found = case.finds(&GpuSlowed, "loop");
        assert_eq!(
            (found.cost, found.message.as_str()),
            (None, "Another process is using the same GPU")
        );
        case.manifest.observed.gpu.as_mut().expect("a state").other_processes = Some(0);
        case.finds_nothing(&GpuSlowed);
    }
}
