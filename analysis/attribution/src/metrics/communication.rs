//! The exposed part of the communication between GPUs.

use ridgeline_base::intervals::union_ns;

/// Communication between GPUs, in nanoseconds; overlapping kernels count once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Communication {
    /// Time in which at least one kernel communicated.
    pub total_ns: u64,
    /// The part of it in which no kernel computed.
    pub exposed_ns: u64,
}

impl Communication {
    /// Computes it from the intervals in which kernels communicated and computed.
    pub fn of(communicating: Vec<(i64, i64)>, computing: Vec<(i64, i64)>) -> Communication {
        let compute_ns = union_ns(computing.clone());
        let mut both = computing;
        both.extend(&communicating);
        Communication {
            total_ns: union_ns(communicating),
            exposed_ns: union_ns(both).saturating_sub(compute_ns),
        }
    }

    /// Returns the nanoseconds of communication in which a kernel computed.
    pub fn hidden_ns(&self) -> u64 {
        self.total_ns.saturating_sub(self.exposed_ns)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn communication_during_computation_is_hidden() {
        let found = Communication::of(vec![(0, 10), (20, 40), (30, 50)], vec![(5, 25), (45, 46)]);
        assert_eq!(found, Communication { total_ns: 40, exposed_ns: 29 });
        assert_eq!(found.hidden_ns(), 11);
        assert_eq!(Communication::of(vec![], vec![(0, 5)]), Communication::default());
    }

    proptest! {
        #[test]
        fn communication_counts_each_moment_once(
            communicating in prop::collection::vec((0i64..100, 0i64..30), 0..20),
            computing in prop::collection::vec((0i64..100, 0i64..30), 0..20),
        ) {
            let intervals = |of: Vec<(i64, i64)>| -> Vec<(i64, i64)> {
                of.into_iter().map(|(start, length)| (start, start + length)).collect()
            };
            let (communicating, computing) = (intervals(communicating), intervals(computing));
            let at = |of: &[(i64, i64)], moment| of.iter().any(|(a, b)| (*a..*b).contains(&moment));
            let count = |wanted: &dyn Fn(i64) -> bool| (0..200).filter(|it| wanted(*it)).count();
            let total = count(&|moment| at(&communicating, moment));
            let exposed = count(&|moment| at(&communicating, moment) && !at(&computing, moment));
            let found = Communication::of(communicating.clone(), computing.clone());
            prop_assert_eq!(found.total_ns, total as u64);
            prop_assert_eq!(found.exposed_ns, exposed as u64);
        }
    }
}
