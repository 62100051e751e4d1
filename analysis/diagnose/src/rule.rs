//! [`Rule`]: detects one kind of problem that makes training slow or wastes memory.

use super::evidence::Evidence;
use super::finding::Finding;
use ridgeline_optimize::rewrite::program::Program;

pub(crate) trait Rule: Sync {
    /// The rule's name, also used to suppress it: `hidden-sync`. Its page in `docs/findings` has
    /// this name.
    fn name(&self) -> &'static str;

    /// The title in a list of all rules: `Synchronization in the training loop`.
    fn title(&self) -> &'static str;

    /// Finds problems in a measured iteration.
    fn measured(&self, _evidence: &Evidence<'_>) -> Vec<Finding> {
        Vec::new()
    }

    /// Finds problems in the source text. These are shown while the user types, so a rule reports
    /// only what is certain to be a problem, in code that runs.
    fn unmeasured(&self, _program: &Program<'_>) -> Vec<Finding> {
        Vec::new()
    }

    /// Whether the problem makes results wrong or lets memory grow until it runs out. Such a
    /// finding is a warning, whatever its cost.
    fn affects_correctness(&self) -> bool {
        false
    }

    /// Whether a measurement that finds nothing at a line overrides the source-text finding there,
    /// even if the line did not run.
    fn measurement_decides(&self) -> bool {
        true
    }
}
