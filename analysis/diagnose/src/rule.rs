//! [`Rule`]: one thing that makes training slow or large.

use super::evidence::Evidence;
use super::finding::Finding;
use ridgeline_optimize::rewrite::program::Program;

/// One rule. Each is a file in [`rules`](super::rules) and has a page in `docs/findings`.
pub(crate) trait Rule: Sync {
    /// What it is called, where it is silenced, too: `hidden-sync`. Its page has this name.
    fn name(&self) -> &'static str;

    /// What a person reads in a list of all rules: `Waiting for the GPU within the loop`.
    fn title(&self) -> &'static str;

    /// What a measured iteration shows.
    fn measured(&self, _evidence: &Evidence<'_>) -> Vec<Finding> {
        Vec::new()
    }

    /// What the text alone shows. It is shown while a person types, so only what is certain to be a
    /// fault in code that runs.
    fn unmeasured(&self, _program: &Program<'_>) -> Vec<Finding> {
        Vec::new()
    }

    /// Whether the fault makes results wrong or lets memory grow until it runs out. Such a finding is a
    /// warning, whatever it costs.
    fn affects_correctness(&self) -> bool {
        false
    }

    /// Whether a measurement that finds nothing at a line shows that the text's finding there is none,
    /// also where the line did not run.
    fn measurement_decides(&self) -> bool {
        true
    }
}
