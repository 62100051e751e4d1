//! `python-loop`: a `for` over time steps or samples that runs the same small operators again and again,
//! where one call could take all of them.

use crate::diagnose::evidence::Evidence;
use crate::diagnose::finding::{Cost, Finding};
use crate::diagnose::loops::{self, loops};
use crate::diagnose::rounds::{Rounds, rounds};
use crate::diagnose::rule::Rule;

/// A smaller share of the iteration is not worth other code.
const LEAST: f64 = 0.03;
/// Fewer rounds are a loop over heads or scales.
const FEWEST: f64 = 8.0;

pub(super) struct PythonLoop;

impl Rule for PythonLoop {
    fn name(&self) -> &'static str {
        "python-loop"
    }

    fn title(&self) -> &'static str {
        "Python loops over time steps or samples"
    }

    fn measured(&self, evidence: &Evidence<'_>) -> Vec<Finding> {
        let loops = loops(evidence.program).into_iter();
        let found = loops.filter(|one| one.rounds != loops::Rounds::Parameters).filter_map(|one| {
            let rounds = rounds(evidence, &one, FEWEST, true)?;
            let is_worth = evidence.share(rounds.saved_ns) >= LEAST;
            is_worth.then(|| finding(evidence, &rounds, one.rounds))
        });
        found.collect()
    }
}

fn finding(evidence: &Evidence<'_>, found: &Rounds, kind: loops::Rounds) -> Finding {
    let instead = match kind {
        loops::Rounds::Cell => {
            "All inputs of the cell are there before the loop: `nn.LSTM`, `nn.GRU` or `nn.RNN` takes all \
             steps in one call, and with `num_layers` those of cells one on the other."
        }
        _ => {
            "No round needs what another one made, so that the same operators can take all of them at \
             once, with one dimension more."
        }
    };
    Finding {
        rule: "python-loop",
        at: evidence.place(found.at.0, found.at.1),
        message: format!(
            "A Python loop runs the same operators {:.0} times, where one call could do all of it",
            found.trips
        ),
        why: format!("Each round pays for Python and for its calls anew. {instead}"),
        cost: Some(Cost::time(found.saved_ns).predicted()),
        ..Finding::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnose::harness::{Case, operator};
    use crate::profile::Phase;

    const TEXT: &str = "import torch\nfrom torch import nn\n\n\
        def score(x, w):\n\
        \x20   total = 0\n\
        \x20   for t in range(x.shape[1]):\n\
        \x20       row = x[:, t]\n\
        \x20       total = total + (row * w).sum()\n\
        \x20   return total\n\n\
        score(1, 2)\n";

    /// 64 rounds, `same` of them with the same shapes, beside other work.
    fn example(rounds: u32, same: bool, other_us: f64) -> Case {
        let mut example = Case::new(TEXT)
            .times(5, 1.0)
            .times(6, f64::from(rounds) + 1.0)
            .times(7, f64::from(rounds))
            .times(8, f64::from(rounds))
            .call(9, Phase::Forward, &operator("add", &[&[1], &[1], &[1]]), other_us);
        for round in 0..rounds {
            let rows = if same { 32 } else { u64::from(round) + 2 };
            let shape: &[u64] = &[rows, 16];
            example = example
                .gap(8, Phase::Forward, 2.0)
                .call(8, Phase::Forward, &operator("mul", &[shape, shape, shape]), 5.0)
                .call(8, Phase::Forward, &operator("sum", &[shape, &[]]), 5.0);
        }
        example
    }

    #[test]
    fn a_loop_over_time_steps() {
        let found = example(64, true, 10.0).measured(&PythonLoop);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].at.line, 6);
        let cost = found[0].cost.expect("a cost");
        // Of 64 rounds of 12 µs one is left, and of all of them 0.82 µs to move what they work on.
        assert!(cost.is_predicted && (cost.time_ns - 63.0 * 11.18e3).abs() < 1e3, "{cost:?}");
    }

    #[test]
    fn a_comprehension_has_its_rounds_on_one_line() {
        let text = "import torch\n\ndef f(x):\n    w = x.mean()\n    \
            y = torch.stack([(x[:, t] * w).relu() for t in range(64)])\n    return y\n\nf(1)\n";
        let found = |rounds: u32| {
            let shape: &[u64] = &[32, 16];
            let mut case = Case::new(text).times(4, 1.0).times(5, 1.0);
            for _ in 0..rounds {
                case = case
                    .gap(5, Phase::Forward, 2.0)
                    .call(5, Phase::Forward, &operator("mul", &[shape, shape, shape]), 5.0)
                    .call(5, Phase::Forward, &operator("relu", &[shape, shape]), 5.0);
            }
            case.call(5, Phase::Forward, &operator("stack", &[shape, shape]), 9.0)
                .measured(&PythonLoop)
        };
        let many = found(64);
        assert_eq!((many.len(), many[0].at.line), (1, 5));
        assert!(many[0].message.contains("64 times"), "{}", many[0].message);
        assert_eq!(found(4), []);
    }

    #[test]
    fn a_layer_that_ran_in_the_place_of_a_cell_tells_what_it_saves() {
        let text = "import torch\nfrom torch import nn\n\nclass Net(nn.Module):\n    \
            def __init__(self):\n        self.cell = nn.GRUCell(16, 16)\n    \
            def forward(self, x, h):\n        y = x.mean()\n        \
            for t in range(64):\n            h = self.cell(x[:, t], h)\n        return h\n\nNet()(1, 2)\n";
        let shape: &[u64] = &[32, 16];
        let weights: &[u64] = &[48, 16];
        let cell = operator("gru_cell", &[shape, shape, weights, weights, shape]);
        let mut case = Case::new(text).times(8, 1.0).times(9, 65.0).times(10, 64.0);
        for _ in 0..64 {
            case = case.gap(10, Phase::Forward, 10.0).call(10, Phase::Forward, &cell, 90.0);
        }
        let cost = |case: &Case| case.measured(&PythonLoop).first().and_then(|one| one.cost);
        case.probes.cells = [(0, 0.25)].into();
        let saved = cost(&case).expect("a cost").time_ns;
        assert!((saved - 0.75 * 64.0 * 100e3).abs() < 1e3, "{saved}");
        // The layer takes as long.
        case.probes.cells = [(0, 0.99)].into();
        assert_eq!(cost(&case), None);
    }

    #[test]
    fn few_rounds_other_shapes_and_little_time_are_no_fault() {
        assert!(example(4, true, 10.0).measured(&PythonLoop).is_empty());
        assert!(example(64, false, 10.0).measured(&PythonLoop).is_empty());
        assert!(example(64, true, 1e6).measured(&PythonLoop).is_empty());
    }

    #[test]
    fn what_other_functions_do_in_it_is_not_looked_into() {
        let mut calls_others = example(64, true, 10.0);
        for cost in &mut calls_others.profile.lines[0] {
            cost.self_time.forward = 1e5;
            cost.total_time.forward = 1e6;
        }
        assert!(calls_others.measured(&PythonLoop).is_empty());
    }
}
