//! Fixtures for the tests of this crate.

use std::sync::Arc;

use ridgeline_compare::fixture::profile;
use ridgeline_profile::utilization::{MeasuredWork, Metrics, Utilization};
use ridgeline_profile::{ExpressionCost, ExpressionRange, FileId, Phase, Profile};
use ridgeline_python::SourceIndex;

use crate::cost_map::CostMap;

/// Adds the expressions of the line `x = torch.relu(self.conv(x))`.
pub(crate) fn add_expressions(profile: &mut Profile) {
    let line = profile.lines.iter_mut().flatten().find(|line| line.line == 8).expect("the line");
    let expression = |column, end_column, share: f64| {
        let mut total_time = line.total_time;
        for phase in Phase::ALL {
            *total_time.get_mut(phase) *= share;
        }
        let range = ExpressionRange { line: 8, column, end_line: 8, end_column };
        ExpressionCost { range, total_time, calls: 1.0 }
    };
    line.expressions = vec![expression(4, 28, 0.2), expression(15, 27, 0.75)];
}

/// Adds utilization to a profile: of the iteration, its forward and backward pass, the most
/// expensive lines, the model and its most expensive layer.
pub(crate) fn add_utilization(profile: &mut Profile, on_gpu: bool) {
    let part = |busy_ns: f64| match on_gpu {
        false => Utilization { operator_ns: 0.8 * busy_ns, ..Utilization::default() },
        true => Utilization {
            busy_ns: 0.8 * busy_ns,
            kernel_ns: 0.8 * busy_ns,
            fp32: MeasuredWork { amount: 0.03 * busy_ns * 1e6, time_ns: busy_ns },
            moved: MeasuredWork { amount: 0.001 * busy_ns * 1e6, time_ns: busy_ns },
            tensor_core_ns: 0.5 * busy_ns,
            occupied_ns: 0.5 * busy_ns,
            occupancy_known_ns: 0.8 * busy_ns,
            launches: 12.0,
            launch_ns: 0.01 * busy_ns,
            ..Utilization::default()
        },
    };
    let mut metrics =
        Metrics { iteration_ns: 100e6, on_gpu, whole: part(90e6), ..Metrics::default() };
    metrics.phases[Phase::Forward as usize] = part(25e6);
    metrics.phases[Phase::Backward as usize] = part(40e6);
    profile.metrics = Some(Arc::new(metrics));
    for line in profile.lines.iter_mut().flatten().filter(|line| [8, 16, 17].contains(&line.line)) {
        line.utilization = Some(part(line.self_time.total()));
    }
    for module in profile.modules.iter_mut().take(2) {
        module.utilization = Some(part(module.passes_ns()));
    }
}

/// Builds the profile of `marked` and maps it to `today`, or to the text that ran.
pub(crate) fn costs(marked: &str, today: Option<&str>) -> (Profile, CostMap, SourceIndex) {
    let (text, profile) = profile(marked);
    let index = SourceIndex::new(today.unwrap_or(&text));
    let costs = CostMap::build(&profile, FileId(0), &index);
    (profile, costs, index)
}
