//! Scaling of profiled iterations, and slow iterations.

use super::*;
use ridgeline_recording::observed::FastLines;

#[test]
fn a_profiled_iteration_is_scaled_to_an_unprofiled_one() {
    let mut recording = recording(operators(), LOOP, 800);
    if let Some(manifest) = &mut recording.manifest {
        manifest.iterations.timed_ns = vec![390, 400, 9000];
    }
    let profile = attribute(&recording).expect("a profile");
    assert!((profile.iteration.time_ns - 400.0).abs() < 1e-9);
    assert_conserved(&profile);
}

#[test]
fn several_iterations_give_a_typical_one() {
    let mut trace = TraceBuilder::new();
    trace.op("aten::mm", 10, 20);
    trace.op("aten::mm", 110, 40);
    let records: Records<'_> = &[
        (0, PUSH, 0, 1),
        (0, LINE, 0, 30),
        (50, LINE, 0, 31),
        (100, LINE, 0, 30),
        (160, LINE, 0, 31),
    ];
    let mut recording = recording(trace, records, 0);
    if let Some(manifest) = &mut recording.manifest {
        manifest.iterations.profiled = vec![(0, 100), (100, 200)];
        manifest.iterations.timed_ns = vec![];
    }
    let profile = attribute(&recording).expect("a profile");
    expect![[r#"
        30: other 56 | total other 56
        31: other 44 | total other 44
    "#]]
    .assert_eq(&render_lines(&profile));
    assert!(profile.notes.iter().any(|note| note.contains("without the profiler")));
    // Of two iterations, the faster one is typical for each line.
    let samples = profile.lines[0].iter().map(|line| {
        let own = line.samples.iter().map(|sample| sample.own_ns.round());
        own.collect::<Vec<_>>()
    });
    assert_eq!(samples.collect::<Vec<_>>(), [[56.0, 67.0], [56.0, 44.0]]);
}

/// Three iterations: line 30 runs in each for 100 ns, and line 31 also runs in the last for 700 ns.
fn with_an_evaluation(profiled: &[(i64, i64)]) -> Recording {
    let records: Records<'_> =
        &[(0, PUSH, 0, 1), (0, LINE, 0, 30), (300, LINE, 0, 31), (1000, LINE, 0, 30)];
    let mut trace = TraceBuilder::new();
    [10, 110, 210].iter().for_each(|&start| {
        trace.op("aten::mm", start, 50);
    });
    trace.op("aten::mm", 400, 500);
    let mut recording = recording(trace, records, 0);
    if let Some(manifest) = &mut recording.manifest {
        let iterations = &mut manifest.iterations;
        iterations.profiled = profiled.to_vec();
        iterations.measured = Some(0);
        iterations.timed_ns = vec![100, 100, 800, 100, 100, 800, 100];
        iterations.slow = vec![2, 5];
        iterations.period = Some(3);
    }
    recording
}

#[test]
fn lines_of_whole_periods_add_up_to_the_mean() {
    let recording = with_an_evaluation(&[(0, 100), (100, 200), (200, 1000)]);
    let profile = attribute(&recording).expect("a profile");
    let slow = profile.iteration.slow.clone().expect("one is slow");
    assert_eq!((slow.typical_ns, slow.slow_ns, slow.count, slow.of), (100.0, 800.0, 2, 7));
    assert!((slow.mean_ns - 2000.0 / 6.0).abs() < 1e-9, "{slow:?}");
    let lines: Vec<_> = slow.lines.iter().map(|one| (one.file, one.line)).collect();
    assert_eq!((lines, slow.are_whole_periods), (vec![(FileId(0), 31)], true));
    assert!((profile.iteration.time_ns - slow.mean_ns).abs() < 1e-9);
    expect![[r#"
        30: other 100 | total other 100
        31: other 233 | total other 233
    "#]]
    .assert_eq(&render_lines(&profile));
    // The last six of seven iterations are two periods.
    let periods = profile.iteration.comparable_times();
    assert!(periods.iter().all(|time_ns| (time_ns - slow.mean_ns).abs() < 1e-9), "{periods:?}");
    let graph = step_graph::step_graph(&recording, &profile).expect("a graph");
    assert!((graph.measured_ns - 100.0).abs() < 1e-9);
}

#[test]
fn without_whole_periods_lines_add_up_to_a_typical_iteration() {
    let recording = with_an_evaluation(&[(0, 100), (200, 1000)]);
    let profile = attribute(&recording).expect("a profile");
    let slow = profile.iteration.slow.clone().expect("one is slow");
    assert_eq!((slow.lines, slow.are_whole_periods), (Vec::new(), false));
    assert!((profile.iteration.time_ns - 100.0).abs() < 1e-9);
    assert!(profile.iteration.samples_per_second().is_none());
    // The slow profiled iteration does not count.
    expect![[r#"
        30: other 100 | total other 100
    "#]]
    .assert_eq(&render_lines(&profile));
}

#[test]
fn invalid_slow_iterations_are_harmless() {
    for (slow, period) in [
        (vec![0, 1, 2, 3, 4, 5, 6], Some(3)),
        (vec![usize::MAX, 2, 5], Some(u32::MAX)),
        (vec![2, 5], Some(0)),
        (vec![2, 5], Some(1)),
        (vec![0, 1], None),
    ] {
        let mut recording = with_an_evaluation(&[(0, 100), (100, 200), (200, 1000)]);
        if let Some(manifest) = &mut recording.manifest {
            manifest.iterations.slow = slow;
            manifest.iterations.period = period;
        }
        let profile = attribute(&recording).expect("a profile");
        assert!(profile.iteration.time_ns > 0.0);
        assert_conserved(&profile);
    }
}

#[test]
fn fast_lines_have_the_time_that_they_took_without_being_recorded() {
    // Lines 2 and 3 are a loop of 400 executions with events of 10 ns. Line 4 runs once.
    let mut records = vec![(0, PUSH, 0, 1)];
    for at in 0..200 {
        records.extend([(1_000 + 20 * at, LINE, 0, 2), (1_010 + 20 * at, LINE, 0, 3)]);
    }
    records.push((5_000, LINE, 0, 4));
    let mut recording = recording(TraceBuilder::new(), &records, 10_000);
    let of_lines = |recording: &Recording, lines: [u32; 2]| -> f64 {
        let profile = attribute(recording).expect("a profile");
        assert_conserved(&profile);
        let costs = profile.lines.iter().flatten().filter(|cost| lines.contains(&cost.line));
        costs.map(|cost| cost.self_time.total()).sum()
    };
    let manifest = recording.manifest.as_mut().expect("a manifest");
    manifest.iterations.timed_ns = vec![8_000];
    let at = [2, 3].map(|line| Location { file: 0, line }).to_vec();
    manifest.observed.fast_lines = vec![FastLines { at, share: 0.25 }];
    assert_eq!(of_lines(&recording, [2, 3]).round(), 2_000.0);
    assert_eq!(of_lines(&recording, [1, 4]).round(), 6_000.0);
    let manifest = recording.manifest.as_mut().expect("a manifest");
    manifest.observed.fast_lines.clear();
    let without = of_lines(&recording, [2, 3]);
    assert_ne!(without.round(), 2_000.0);
    // An impossible share is ignored.
    let at = [2, 9].map(|line| Location { file: 0, line }).to_vec();
    let manifest = recording.manifest.as_mut().expect("a manifest");
    manifest.observed.fast_lines = vec![FastLines { at, share: 2.0 }];
    assert_eq!(of_lines(&recording, [2, 3]), without);
}
