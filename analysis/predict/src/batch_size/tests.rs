//! Curves of synthetic programs, whose true time and peak are known at every batch.

use proptest::prelude::*;

use super::*;

/// A program with constant and growing memory, and a second moment of the iteration that grows at
/// another rate.
#[derive(Clone, Copy, Debug)]
struct Program {
    constant: u64,
    per_sample: u64,
    /// Constant and growing memory at the other moment.
    other: (u64, u64),
    fixed_ns: f64,
    sample_ns: f64,
}

const CONVOLUTIONS: Program = Program {
    constant: 300_000_000,
    per_sample: 7_000_000,
    other: (350_000_000, 5_000_000),
    fixed_ns: 2e8,
    sample_ns: 2e7,
};

impl Program {
    fn peak(&self, batch: u64) -> u64 {
        (self.constant + self.per_sample * batch).max(self.other.0 + self.other.1 * batch)
    }

    fn time(&self, batch: u64) -> f64 {
        self.fixed_ns + self.sample_ns * batch as f64
    }

    fn run(&self, batch: u64) -> Run {
        let time = self.time(batch);
        Run {
            batch,
            samples: batch,
            timed_ns: vec![time * 1.05, time, time * 1.3],
            peak_bytes: Some(self.peak(batch)),
            at_peak: MemoryByKind {
                weights: self.constant,
                activations: self.peak(batch) - self.constant,
                ..MemoryByKind::default()
            },
        }
    }

    fn estimate(&self, batch: u64) -> Estimate {
        // Fake tensors miss 1%.
        Estimate { batch, peak_bytes: self.peak(batch) / 100 * 99, cost_ns: None }
    }

    fn largest(&self, capacity: u64) -> u64 {
        (1..100_000).take_while(|batch| self.peak(*batch) <= capacity).last().unwrap_or(0)
    }

    /// Runs six rounds on a machine that becomes slower and slower.
    fn run_in_turns(
        &self,
        evidence: &mut Evidence,
        current: u64,
        smaller: Option<u64>,
        larger: Option<u64>,
    ) {
        let batches: Vec<u64> = [Some(current), smaller, larger].into_iter().flatten().collect();
        let round = |number: u32| -> Round {
            let slowdown = 1.0 + 0.1 * f64::from(number);
            batches.iter().map(|batch| (*batch, slowdown * self.time(*batch))).collect()
        };
        evidence.in_turns.push((0..6).map(round).collect());
        evidence.runs.extend(batches.iter().map(|batch| self.run(*batch)));
    }

    /// Answers questions until there are none left.
    fn explore(&self, current: u64, bounds: &Bounds) -> (Evidence, Vec<Question>) {
        let mut evidence = Evidence { runs: vec![self.run(current)], ..Evidence::default() };
        let mut questions = Vec::new();
        while let Some(question) = next_question(&evidence, current, bounds) {
            let times = questions.iter().filter(|questions| **questions == question).count();
            let max_times = match question {
                Question::Run(batch) if batch == current => usize::MAX,
                Question::Run(_) => 2,
                Question::Estimate(_) => 1,
                Question::SideBySide { .. } => 6,
            };
            assert!(times < max_times, "{question:?} was asked {times} times before");
            questions.push(question);
            assert!(questions.len() < 100);
            match question {
                Question::Run(batch) => evidence.runs.push(self.run(batch)),
                Question::Estimate(batch) => evidence.estimates.push(self.estimate(batch)),
                Question::SideBySide { smaller, larger } => {
                    self.run_in_turns(&mut evidence, current, smaller, larger);
                }
            }
        }
        (evidence, questions)
    }
}

fn all_allowed(bytes: u64) -> Bounds {
    let capacity = Some(Capacity { bytes, taken: 0 });
    Bounds { capacity, estimates: true, runs: true, side_by_side: false }
}

#[track_caller]
fn assert_close(predicted: Option<ridgeline_operators::range::Range>, truth: f64, share: f64) {
    let predicted = predicted.expect("is predicted");
    let error = (predicted.value / truth - 1.0).abs();
    assert!(error <= share, "{predicted:?} is {error} from {truth}");
    assert!(predicted.low <= predicted.value && predicted.value <= predicted.high);
    assert!(predicted.low <= truth && truth <= predicted.high, "{truth} is not in {predicted:?}");
}

#[test]
fn time_and_peak_of_half_and_double() {
    let program = CONVOLUTIONS;
    let (evidence, _) = program.explore(32, &all_allowed(4_000_000_000));
    let curve = Curve::fit(&evidence).unwrap();
    for batch in [16, 64] {
        // The median iteration takes 5% more than the fastest.
        assert_close(curve.time_ns(batch), program.time(batch) * 1.05, 0.01);
        assert_close(curve.peak_bytes(batch), program.peak(batch) as f64, 0.003);
    }
    let rate = curve.samples_per_second(64).unwrap();
    assert!((rate.value - 64e9 / (program.time(64) * 1.05)).abs() < 1.0);
}

#[test]
fn runs_without_estimates_give_a_curve() {
    let program = CONVOLUTIONS;
    let bounds = Bounds { estimates: false, ..all_allowed(4_000_000_000) };
    let (evidence, questions) = program.explore(32, &bounds);
    assert_eq!(questions, [32, 16, 32, 64, 32, 16, 32, 64, 32].map(Question::Run));
    let curve = Curve::fit(&evidence).unwrap();
    assert_close(curve.peak_bytes(64), program.peak(64) as f64, 0.01);
    assert_close(curve.time_ns(64), program.time(64) * 1.05, 0.01);
}

#[test]
fn the_largest_is_exact_if_the_peak_moves() {
    // Up to batch size 500 the peak is in the optimizer step, which hardly grows.
    let program =
        Program { constant: 1_000_000, per_sample: 2_000, other: (1_900_000, 200), ..CONVOLUTIONS };
    let capacity = 3_000_000;
    let truth = program.largest(capacity);
    let (evidence, questions) = program.explore(32, &all_allowed(capacity));
    let curve = Curve::fit(&evidence).unwrap();
    let largest = curve.largest(Capacity { bytes: capacity, taken: 0 }).unwrap();
    assert!(largest.value.abs_diff(truth) <= 1, "{largest:?}, {truth}, {questions:?}");
    assert!(largest.low <= truth && truth <= largest.high);
}

#[test]
fn a_machine_that_becomes_slower_is_corrected_for() {
    let bounds = all_allowed(u64::MAX);
    let mut evidence = Evidence { runs: vec![CONVOLUTIONS.run(32)], ..Evidence::default() };
    let mut slower = 1.0;
    while let Some(question) = next_question(&evidence, 32, &bounds) {
        match question {
            Question::Run(batch) => {
                slower *= 1.05;
                let mut run = CONVOLUTIONS.run(batch);
                run.timed_ns.iter_mut().for_each(|time| *time *= slower);
                evidence.runs.push(run);
            }
            Question::Estimate(batch) => evidence.estimates.push(CONVOLUTIONS.estimate(batch)),
            Question::SideBySide { .. } => panic!("nothing can run side by side here"),
        }
    }
    assert!(slower > 1.4, "{slower}");
    let curve = Curve::fit(&evidence).unwrap();
    let at = |batch: u64| curve.time_ns(batch).unwrap().value;
    for batch in [16, 64] {
        let ratio = at(batch) / at(32);
        let true_ratio = CONVOLUTIONS.time(batch) / CONVOLUTIONS.time(32);
        assert!((ratio / true_ratio - 1.0).abs() < 0.02, "{batch}: {ratio}, not {true_ratio}");
    }
}

#[test]
fn runs_in_turns_replace_separate_runs() {
    let program = CONVOLUTIONS;
    let bounds = Bounds { side_by_side: true, ..all_allowed(4_000_000_000) };
    let (evidence, questions) = program.explore(32, &bounds);
    let ran: Vec<&Question> =
        questions.iter().filter(|question| !matches!(question, Question::Estimate(_))).collect();
    let question = Question::SideBySide { smaller: Some(16), larger: Some(64) };
    // Three consistent runs are enough.
    assert_eq!(ran, [&question; 3]);
    let curve = Curve::fit(&evidence).unwrap();
    for batch in [16, 32, 64] {
        assert_close(curve.time_ns(batch), program.time(batch) * 1.05, 0.01);
        assert_close(curve.peak_bytes(batch), program.peak(batch) as f64, 0.003);
    }
}

#[test]
fn batches_that_do_not_fit_together_run_separately() {
    let program = CONVOLUTIONS;
    let bounds = Bounds { side_by_side: true, ..all_allowed(program.peak(64) * 2) };
    let (evidence, questions) = program.explore(32, &bounds);
    assert!(questions.contains(&Question::Run(64)), "{questions:?}");
    assert!(evidence.in_turns.is_empty());
    // Batches whose run in turns failed run separately too.
    let mut evidence = Evidence { runs: vec![program.run(32)], ..Evidence::default() };
    let bounds = Bounds { side_by_side: true, ..all_allowed(4_000_000_000) };
    while let Some(question) = next_question(&evidence, 32, &bounds) {
        match question {
            Question::Estimate(batch) => evidence.estimates.push(program.estimate(batch)),
            Question::SideBySide { .. } => {
                evidence.failed.push(Failed { question, reason: "no".to_owned() });
            }
            Question::Run(batch) => {
                assert_eq!(evidence.failed.len(), 1);
                return assert_eq!(batch, 32);
            }
        }
    }
    panic!("nothing was run");
}

#[test]
fn a_bent_curve_follows_the_runs() {
    // Beyond 40 samples they do not fit the cache: each takes twice as long.
    let time = |batch: u64| 1e8 + 1e7 * (batch.min(40) + 2 * batch.saturating_sub(40)) as f64;
    let mut evidence = Evidence::default();
    for batch in [32, 16, 64, 48, 24] {
        evidence.runs.push(Run { timed_ns: vec![time(batch)], ..CONVOLUTIONS.run(batch) });
    }
    let curve = Curve::fit(&evidence).unwrap();
    for batch in [16, 32, 48, 64] {
        assert_close(curve.time_ns(batch), time(batch), 0.03);
    }
}

#[test]
fn batches_that_may_not_fit_are_not_run() {
    let program = CONVOLUTIONS;
    // 40 samples fit and 48 do not.
    let capacity = program.peak(44);
    let (_, questions) = program.explore(32, &all_allowed(capacity));
    let ran: Vec<&Question> =
        questions.iter().filter(|question| matches!(question, Question::Run(_))).collect();
    assert_eq!(
        ran,
        [32, 16, 32, 40, 32, 16, 32, 40, 32].map(Question::Run).iter().collect::<Vec<_>>()
    );
    // The capacity is unknown: nothing larger is run.
    let unknown = Bounds { capacity: None, ..all_allowed(0) };
    let (_, questions) = program.explore(32, &unknown);
    assert!(
        questions.iter().all(|question| !matches!(question, Question::Run(33..))),
        "{questions:?}"
    );
}

#[test]
fn failed_questions_are_not_repeated() {
    let program = CONVOLUTIONS;
    let mut evidence = Evidence { runs: vec![program.run(32)], ..Evidence::default() };
    let bounds = all_allowed(4_000_000_000);
    let mut questions = 0;
    while let Some(question) = next_question(&evidence, 32, &bounds) {
        assert!(!evidence.failed(question));
        evidence.failed.push(Failed { question, reason: "no".to_owned() });
        questions += 1;
    }
    // One failed estimate rules out all others; three failed runs are enough.
    assert_eq!(questions, 4, "{:?}", evidence.failed);
    assert_eq!(Curve::fit(&evidence).unwrap().time_ns(64), None);
}

#[test]
fn one_run_predicts_the_peak_by_kind() {
    let mut run = CONVOLUTIONS.run(10);
    run.at_peak =
        MemoryByKind { weights: 100, gradients: 100, activations: 500, ..Default::default() };
    run.peak_bytes = Some(700);
    let curve = Curve::fit(&Evidence { runs: vec![run], ..Evidence::default() }).unwrap();
    assert_eq!(curve.peak_bytes(20).unwrap().value, 1_200.0);
    assert_eq!(curve.peak_bytes(10).unwrap().value, 700.0);
    assert_eq!(curve.time_ns(20), None);
    assert_eq!(curve.saturation(None), None);
}

#[test]
fn accumulated_batches_are_more_samples() {
    let runs = [8, 12].map(|batch| Run { samples: 2 * batch, ..CONVOLUTIONS.run(batch) });
    let curve = Curve::fit(&Evidence { runs: runs.into(), ..Evidence::default() }).unwrap();
    let rate = curve.samples_per_second(8).unwrap().value;
    assert!((rate - 16e9 / (CONVOLUTIONS.time(8) * 1.05)).abs() < 1.0);
}

#[test]
fn kinks_of_estimates_are_used_if_they_explain_the_runs() {
    // Waves: the work grows in steps of 32.
    let steps = |batch: u64| batch.div_ceil(32) as f64 * 1e7;
    let run = |batch| Run { timed_ns: vec![1e6 + steps(batch)], ..CONVOLUTIONS.run(batch) };
    let estimate = |batch| Estimate { cost_ns: Some(steps(batch)), ..CONVOLUTIONS.estimate(batch) };
    let evidence = Evidence {
        runs: [32, 48, 24, 40].map(run).into(),
        in_turns: Vec::new(),
        estimates: [16, 24, 32, 40, 48, 64, 65, 96].map(estimate).into(),
        failed: Vec::new(),
    };
    let curve = Curve::fit(&evidence).unwrap();
    assert_close(curve.time_ns(64), 1e6 + steps(64), 0.01);
    assert_close(curve.time_ns(65), 1e6 + steps(65), 0.01);
}

#[test]
fn saturation_of_throughput() {
    let fit = |fixed_ns: f64, sample_ns: f64| {
        let program = Program { fixed_ns, sample_ns, ..CONVOLUTIONS };
        let runs = [8, 12, 6].map(|batch| program.run(batch));
        Curve::fit(&Evidence { runs: runs.into(), ..Evidence::default() }).unwrap()
    };
    // b / (10 + b) reaches 95% of 1000 / 1010 at 158.
    let curve = fit(1e7, 1e6);
    let saturation = curve.saturation(Some(1000)).unwrap();
    assert!((156..=162).contains(&saturation.value), "{saturation:?}");
    assert!(saturation.low <= saturation.value && saturation.value <= saturation.high);
    // All time is fixed: no saturation.
    assert_eq!(fit(1e9, 1e3).saturation(Some(100)), None);
    // No time is fixed.
    assert_eq!(fit(0.0, 1e6).saturation(Some(100)).unwrap().value, 1);
    assert_eq!(fit(0.0, 1e6).saturation(Some(1)).unwrap().value, 1);
}

#[test]
fn nothing_fits_and_everything_fits() {
    let program = CONVOLUTIONS;
    let runs = vec![program.run(8), program.run(12)];
    let curve = Curve::fit(&Evidence { runs, ..Evidence::default() }).unwrap();
    let largest_of =
        |bytes, taken| curve.largest(Capacity { bytes, taken }).map(|whole| whole.value);
    assert_eq!(largest_of(100, 0), Some(0));
    assert_eq!(largest_of(350_000_000 + 100 * 5_000_000, 0), Some(100));
    assert_eq!(largest_of(u64::MAX, 0), None);
    assert_eq!(largest_of(u64::MAX, u64::MAX), Some(0));
    // A peak that does not grow has no largest batch.
    let flat = Program { per_sample: 0, other: (0, 0), ..program };
    let runs = vec![flat.run(8), flat.run(12)];
    let curve = Curve::fit(&Evidence { runs, ..Evidence::default() }).unwrap();
    assert_eq!(curve.largest(Capacity { bytes: 400_000_000, taken: 0 }), None);
}

#[test]
fn points_are_limited_and_include_runs_and_the_largest() {
    let program = CONVOLUTIONS;
    let (evidence, _) = program.explore(32, &all_allowed(4_000_000_000));
    let capacity = Capacity { bytes: 4_000_000_000, taken: 0 };
    let curve = Curve::fit(&evidence).unwrap();
    let points = curve.points(32, Some(capacity));
    assert!(points.len() <= 64 && points.is_sorted_by_key(|point| point.batch));
    let measured: Vec<u64> =
        points.iter().filter(|point| point.measured).map(|point| point.batch).collect();
    assert_eq!(measured, [16, 32, 64]);
    let largest = curve.largest(capacity).unwrap().value;
    assert!(points.iter().any(|point| point.batch == largest && point.fits == Some(true)));
    assert!(points.iter().any(|point| point.fits == Some(false)));
}

#[test]
fn nothing_ran() {
    assert_eq!(Curve::fit(&Evidence::default()), Err(Unknown::NothingRan));
    assert_eq!(next_question(&Evidence::default(), 0, &all_allowed(1)), None);
}

proptest! {
    /// Arbitrary evidence does not panic, and ranges stay ordered.
    #[test]
    fn arbitrary_evidence(
        runs in prop::collection::vec((0u64..1 << 40, 0u64..5, prop::collection::vec(prop::num::f64::ANY, 0..4), any::<Option<u64>>()), 0..6),
        in_turns in prop::collection::vec(
            prop::collection::vec(prop::collection::vec((0u64..1 << 40, prop::num::f64::ANY), 0..4), 0..4),
            0..4,
        ),
        estimates in prop::collection::vec((0u64..1 << 40, any::<u64>(), any::<Option<f64>>()), 0..6),
        current in 0u64..1 << 40,
        bytes in any::<u64>(),
    ) {
        let evidence = Evidence {
            runs: runs.into_iter().map(|(batch, samples, timed_ns, peak_bytes)| Run { batch, samples, timed_ns, peak_bytes, at_peak: MemoryByKind::default() }).collect(),
            in_turns,
            estimates: estimates.into_iter().map(|(batch, peak_bytes, cost_ns)| Estimate { batch, peak_bytes, cost_ns }).collect(),
            failed: Vec::new(),
        };
        let _ = next_question(&evidence, current, &all_allowed(bytes));
        if let Ok(curve) = Curve::fit(&evidence) {
            let capacity = Some(Capacity { bytes, taken: 0 });
            for point in curve.points(current, capacity) {
                for range in [point.time_ns, point.peak_bytes, point.samples_per_second].into_iter().flatten() {
                    prop_assert!(range.low <= range.value && range.value <= range.high, "{range:?}");
                }
            }
        }
    }

    /// The largest batch of any program is found to within one.
    #[test]
    fn any_largest(
        constant in 1_000_000u64..1_000_000_000,
        per_sample in 1_000u64..10_000_000,
        more in 0u64..500_000_000,
        flatter in 1u64..100,
        current in 1u64..300,
        times in 1.05f64..20.0,
    ) {
        let program = Program { constant, per_sample, other: (constant + more, per_sample / flatter), fixed_ns: 1e6, sample_ns: 1e6 };
        let capacity = (program.peak(current) as f64 * times) as u64;
        let truth = program.largest(capacity);
        prop_assume!(truth < 60 * current);
        let (evidence, _) = program.explore(current, &all_allowed(capacity));
        let largest = Curve::fit(&evidence).unwrap().largest(Capacity { bytes: capacity, taken: 0 }).unwrap();
        prop_assert!(largest.value.abs_diff(truth) <= 1, "{largest:?} and not {truth}");
    }
}

#[test]
fn a_batch_far_beyond_the_current_one_is_not_suggested() {
    // Hardly any memory for a sample, and throughput that grows without a visible end.
    let program = Program { per_sample: 1_000, other: (0, 0), sample_ns: 0.1, ..CONVOLUTIONS };
    let (evidence, _) = program.explore(64, &all_allowed(20_000_000_000));
    let curve = Curve::fit(&evidence).unwrap();
    let suggested = |bytes| -> Vec<u64> {
        let capacity = Some(Capacity { bytes, taken: 0 });
        suggestions(Some(&curve), capacity, 64).iter().map(|one| one.batch).collect()
    };
    assert_eq!(suggested(20_000_000_000), [128, 32]);
    let near = suggested(301_000_000);
    assert!(near.len() == 3 && near[0] > 128, "{near:?}");
}
