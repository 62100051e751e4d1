//! Curves of programs that are made up, whose true time and peak are known at every batch.

use proptest::prelude::*;

use super::*;

/// A program: what stays, what grows, and a second moment of the iteration that grows faster.
#[derive(Clone, Copy, Debug)]
struct Program {
    stays: u64,
    grows: u64,
    /// At another moment: what stays there and what grows.
    other: (u64, u64),
    fixed_ns: f64,
    sample_ns: f64,
}

const CONVOLUTIONS: Program = Program {
    stays: 300_000_000,
    grows: 7_000_000,
    other: (350_000_000, 5_000_000),
    fixed_ns: 2e8,
    sample_ns: 2e7,
};

impl Program {
    fn peak(&self, batch: u64) -> u64 {
        (self.stays + self.grows * batch).max(self.other.0 + self.other.1 * batch)
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
                weights: self.stays,
                activations: self.peak(batch) - self.stays,
                ..MemoryByKind::default()
            },
        }
    }

    fn estimate(&self, batch: u64) -> Estimate {
        // Fake tensors miss a hundredth.
        Estimate { batch, peak_bytes: self.peak(batch) / 100 * 99, cost_ns: None }
    }

    fn largest(&self, capacity: u64) -> u64 {
        (1..100_000).take_while(|batch| self.peak(*batch) <= capacity).last().unwrap_or(0)
    }

    /// Six rounds, in which the machine becomes slower and slower.
    fn run_side_by_side(
        &self,
        evidence: &mut Evidence,
        current: u64,
        smaller: Option<u64>,
        larger: Option<u64>,
    ) {
        let batches: Vec<u64> = [Some(current), smaller, larger].into_iter().flatten().collect();
        let round = |number: u32| -> Round {
            let slower = 1.0 + 0.1 * f64::from(number);
            batches.iter().map(|batch| (*batch, slower * self.time(*batch))).collect()
        };
        evidence.in_turns.push((0..6).map(round).collect());
        evidence.runs.extend(batches.iter().map(|batch| self.run(*batch)));
    }

    /// Answers questions until there are none.
    fn explore(&self, current: u64, bounds: &Bounds) -> (Evidence, Vec<Question>) {
        let mut evidence = Evidence { runs: vec![self.run(current)], ..Evidence::default() };
        let mut asked = Vec::new();
        while let Some(question) = next_question(&evidence, current, bounds) {
            let times = asked.iter().filter(|asked| **asked == question).count();
            let most = match question {
                Question::Run(batch) if batch == current => usize::MAX,
                Question::Run(_) => 2,
                Question::Estimate(_) => 1,
                Question::SideBySide { .. } => 6,
            };
            assert!(times < most, "{question:?} was asked {times} times before");
            asked.push(question);
            assert!(asked.len() < 100);
            match question {
                Question::Run(batch) => evidence.runs.push(self.run(batch)),
                Question::Estimate(batch) => evidence.estimates.push(self.estimate(batch)),
                Question::SideBySide { smaller, larger } => {
                    self.run_side_by_side(&mut evidence, current, smaller, larger);
                }
            }
        }
        (evidence, asked)
    }
}

fn everything(bytes: u64) -> Bounds {
    let capacity = Some(Capacity { bytes, taken: 0 });
    Bounds { capacity, estimates: true, runs: true, side_by_side: false }
}

#[track_caller]
fn close(predicted: Option<ridgeline_operators::range::Range>, truth: f64, share: f64) {
    let predicted = predicted.expect("is predicted");
    let error = (predicted.value / truth - 1.0).abs();
    assert!(error <= share, "{predicted:?} is {error} from {truth}");
    assert!(predicted.low <= predicted.value && predicted.value <= predicted.high);
    assert!(predicted.low <= truth && truth <= predicted.high, "{truth} is not in {predicted:?}");
}

#[test]
fn time_and_peak_of_half_and_double() {
    let program = CONVOLUTIONS;
    let (evidence, _) = program.explore(32, &everything(4_000_000_000));
    let curve = Curve::fit(&evidence).unwrap();
    for batch in [16, 64] {
        // The median iteration takes a twentieth more than the quickest.
        close(curve.time_ns(batch), program.time(batch) * 1.05, 0.01);
        close(curve.peak_bytes(batch), program.peak(batch) as f64, 0.003);
    }
    let rate = curve.samples_per_second(64).unwrap();
    assert!((rate.value - 64e9 / (program.time(64) * 1.05)).abs() < 1.0);
}

#[test]
fn runs_alone_are_enough_for_a_curve() {
    let program = CONVOLUTIONS;
    let bounds = Bounds { estimates: false, ..everything(4_000_000_000) };
    let (evidence, asked) = program.explore(32, &bounds);
    assert_eq!(asked, [32, 16, 32, 64, 32, 16, 32, 64, 32].map(Question::Run));
    let curve = Curve::fit(&evidence).unwrap();
    close(curve.peak_bytes(64), program.peak(64) as f64, 0.01);
    close(curve.time_ns(64), program.time(64) * 1.05, 0.01);
}

#[test]
fn the_largest_is_exact_where_the_peak_moves() {
    // Up to a batch of 500 the optimizer's step is the peak, which hardly grows.
    let program =
        Program { stays: 1_000_000, grows: 2_000, other: (1_900_000, 200), ..CONVOLUTIONS };
    let capacity = 3_000_000;
    let truth = program.largest(capacity);
    let (evidence, asked) = program.explore(32, &everything(capacity));
    let curve = Curve::fit(&evidence).unwrap();
    let largest = curve.largest(Capacity { bytes: capacity, taken: 0 }).unwrap();
    assert!(largest.value.abs_diff(truth) <= 1, "{largest:?}, {truth}, {asked:?}");
    assert!(largest.low <= truth && truth <= largest.high);
}

#[test]
fn a_machine_that_becomes_slower_changes_nothing() {
    let bounds = everything(u64::MAX);
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
fn side_by_side_nothing_else_is_run() {
    let program = CONVOLUTIONS;
    let bounds = Bounds { side_by_side: true, ..everything(4_000_000_000) };
    let (evidence, asked) = program.explore(32, &bounds);
    let ran: Vec<&Question> =
        asked.iter().filter(|question| !matches!(question, Question::Estimate(_))).collect();
    let question = Question::SideBySide { smaller: Some(16), larger: Some(64) };
    // Three runs that agree are enough.
    assert_eq!(ran, [&question; 3]);
    let curve = Curve::fit(&evidence).unwrap();
    for batch in [16, 32, 64] {
        close(curve.time_ns(batch), program.time(batch) * 1.05, 0.01);
        close(curve.peak_bytes(batch), program.peak(batch) as f64, 0.003);
    }
}

#[test]
fn what_does_not_fit_at_once_is_run_one_after_another() {
    let program = CONVOLUTIONS;
    let bounds = Bounds { side_by_side: true, ..everything(program.peak(64) * 2) };
    let (evidence, asked) = program.explore(32, &bounds);
    assert!(asked.contains(&Question::Run(64)), "{asked:?}");
    assert!(evidence.in_turns.is_empty());
    // So is what could not run side by side.
    let mut evidence = Evidence { runs: vec![program.run(32)], ..Evidence::default() };
    let bounds = Bounds { side_by_side: true, ..everything(4_000_000_000) };
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
fn a_curve_that_bends_goes_where_the_runs_are() {
    // From 40 samples on they do not fit into a cache: each takes twice as long.
    let time = |batch: u64| 1e8 + 1e7 * (batch.min(40) + 2 * batch.saturating_sub(40)) as f64;
    let mut evidence = Evidence::default();
    for batch in [32, 16, 64, 48, 24] {
        evidence.runs.push(Run { timed_ns: vec![time(batch)], ..CONVOLUTIONS.run(batch) });
    }
    let curve = Curve::fit(&evidence).unwrap();
    for batch in [16, 32, 48, 64] {
        close(curve.time_ns(batch), time(batch), 0.03);
    }
}

#[test]
fn nothing_is_run_that_may_not_fit() {
    let program = CONVOLUTIONS;
    // 40 samples fit and 48 do not.
    let capacity = program.peak(44);
    let (_, asked) = program.explore(32, &everything(capacity));
    let ran: Vec<&Question> =
        asked.iter().filter(|question| matches!(question, Question::Run(_))).collect();
    assert_eq!(
        ran,
        [32, 16, 32, 40, 32, 16, 32, 40, 32].map(Question::Run).iter().collect::<Vec<_>>()
    );
    // Nobody knows what fits: nothing larger is run.
    let unknown = Bounds { capacity: None, ..everything(0) };
    let (_, asked) = program.explore(32, &unknown);
    assert!(asked.iter().all(|question| !matches!(question, Question::Run(33..))), "{asked:?}");
}

#[test]
fn what_failed_is_not_asked_again() {
    let program = CONVOLUTIONS;
    let mut evidence = Evidence { runs: vec![program.run(32)], ..Evidence::default() };
    let bounds = everything(4_000_000_000);
    let mut asked = 0;
    while let Some(question) = next_question(&evidence, 32, &bounds) {
        assert!(!evidence.failed(question));
        evidence.failed.push(Failed { question, reason: "no".to_owned() });
        asked += 1;
    }
    // One estimate that fails says that all do; three runs that fail are enough.
    assert_eq!(asked, 4, "{:?}", evidence.failed);
    assert_eq!(Curve::fit(&evidence).unwrap().time_ns(64), None);
}

#[test]
fn one_run_tells_the_peak_of_others_by_what_it_held() {
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
fn the_kinks_of_estimates_count_where_they_explain_the_runs() {
    // Waves: the work comes in steps of 32.
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
    close(curve.time_ns(64), 1e6 + steps(64), 0.01);
    close(curve.time_ns(65), 1e6 + steps(65), 0.01);
}

#[test]
fn throughput_saturates_or_never() {
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
    // All of it is fixed: as many as fit.
    assert_eq!(fit(1e9, 1e3).saturation(Some(100)), None);
    // None of it is fixed.
    assert_eq!(fit(0.0, 1e6).saturation(Some(100)).unwrap().value, 1);
    assert_eq!(fit(0.0, 1e6).saturation(Some(1)).unwrap().value, 1);
}

#[test]
fn nothing_fits_and_everything_fits() {
    let program = CONVOLUTIONS;
    let runs = vec![program.run(8), program.run(12)];
    let curve = Curve::fit(&Evidence { runs, ..Evidence::default() }).unwrap();
    let of = |bytes, taken| curve.largest(Capacity { bytes, taken }).map(|whole| whole.value);
    assert_eq!(of(100, 0), Some(0));
    assert_eq!(of(350_000_000 + 100 * 5_000_000, 0), Some(100));
    assert_eq!(of(u64::MAX, 0), None);
    assert_eq!(of(u64::MAX, u64::MAX), Some(0));
    // A peak that does not grow has no largest batch.
    let flat = Program { grows: 0, other: (0, 0), ..program };
    let runs = vec![flat.run(8), flat.run(12)];
    let curve = Curve::fit(&Evidence { runs, ..Evidence::default() }).unwrap();
    assert_eq!(curve.largest(Capacity { bytes: 400_000_000, taken: 0 }), None);
}

#[test]
fn points_are_few_and_hold_what_matters() {
    let program = CONVOLUTIONS;
    let (evidence, _) = program.explore(32, &everything(4_000_000_000));
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
    assert_eq!(next_question(&Evidence::default(), 0, &everything(1)), None);
}

proptest! {
    /// Whatever recordings say, nothing panics and ranges are in order.
    #[test]
    fn strange_evidence(
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
        let _ = next_question(&evidence, current, &everything(bytes));
        if let Ok(curve) = Curve::fit(&evidence) {
            let capacity = Some(Capacity { bytes, taken: 0 });
            for point in curve.points(current, capacity) {
                for range in [point.time_ns, point.peak_bytes, point.samples_per_second].into_iter().flatten() {
                    prop_assert!(range.low <= range.value && range.value <= range.high, "{range:?}");
                }
            }
        }
    }

    /// Any program's largest batch is found to within one.
    #[test]
    fn any_largest(
        stays in 1_000_000u64..1_000_000_000,
        grows in 1_000u64..10_000_000,
        more in 0u64..500_000_000,
        flatter in 1u64..100,
        current in 1u64..300,
        times in 1.05f64..20.0,
    ) {
        let program = Program { stays, grows, other: (stays + more, grows / flatter), fixed_ns: 1e6, sample_ns: 1e6 };
        let capacity = (program.peak(current) as f64 * times) as u64;
        let truth = program.largest(capacity);
        prop_assume!(truth < 60 * current);
        let (evidence, _) = program.explore(current, &everything(capacity));
        let largest = Curve::fit(&evidence).unwrap().largest(Capacity { bytes: capacity, taken: 0 }).unwrap();
        prop_assert!(largest.value.abs_diff(truth) <= 1, "{largest:?} and not {truth}");
    }
}
