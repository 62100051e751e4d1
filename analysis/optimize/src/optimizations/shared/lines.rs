//! The lines that an optimization concerns.

use std::collections::HashMap;

use ridgeline_graph::calls::Call;
use ridgeline_graph::graph::Graph;
use ridgeline_profile::FileId;

/// The maximum number of lines reported. The others matter less.
const MAX_LINES: usize = 20;

/// Returns the lines of calls, most work first.
pub(crate) fn of_calls<'a>(
    graph: &Graph,
    calls: impl IntoIterator<Item = &'a Call>,
) -> Vec<(FileId, u32)> {
    let mut times: HashMap<(FileId, u32), f64> = HashMap::new();
    for call in calls {
        if let Some(line) = call.line {
            *times.entry(line).or_default() += call.work_ns(graph);
        }
    }
    let mut lines: Vec<((FileId, u32), f64)> = times.into_iter().collect();
    lines.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    lines.truncate(MAX_LINES);
    lines.into_iter().map(|(line, _)| line).collect()
}
