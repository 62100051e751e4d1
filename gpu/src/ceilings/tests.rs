use super::*;

#[test]
fn statistics_are_the_median_and_deciles() {
    let samples: Vec<f64> = (0..=10).rev().map(f64::from).collect();
    let measured = RateStatistics::of(&samples).unwrap();
    assert_eq!((measured.low, measured.median, measured.high), (1.0, 5.0, 9.0));
    assert_eq!(measured.samples, 11);
}

#[test]
fn only_finite_samples_count() {
    assert_eq!(RateStatistics::of(&[]), None);
    assert_eq!(RateStatistics::of(&[f64::NAN, f64::INFINITY]), None);
    assert_eq!(RateStatistics::of(&[f64::NAN, 3.0]).unwrap().median, 3.0);
}

#[test]
fn copies_exceed_the_cache_and_fit_into_memory() {
    assert_eq!(copy_bytes(140 << 30, 60 << 20), 960 << 20);
    assert_eq!(copy_bytes(8 << 30, 4 << 20), 256 << 20);
    assert_eq!(copy_bytes(800 << 20, 60 << 20), 100 << 20);
    assert_eq!(copy_bytes(0, usize::MAX), 1 << 20);
}

#[test]
fn matrices_fit_into_a_quarter_of_the_memory() {
    assert_eq!(matmul_size(140 << 30, 2), 8192);
    assert_eq!(matmul_size(1 << 30, 4), 4096);
    assert_eq!(matmul_size(0, 4), 256);
}

#[test]
fn the_kernel_targets_no_newer_architecture_than_the_device() {
    assert!(empty_kernel(9, 0).contains("sm_75"));
    assert!(empty_kernel(7, 0).contains("sm_60"));
}

#[test]
fn random_numbers_are_uniform() {
    let mut random = Random::new();
    let numbers: Vec<f32> = (0..10_000).map(|_| random.next_f32()).collect();
    assert!(numbers.iter().all(|number| (-1.0..1.0).contains(number)));
    let mean = numbers.iter().sum::<f32>() / 10_000.0;
    assert!(mean.abs() < 0.03, "{mean}");
    assert_eq!(random_block(13).len(), 13);
}

#[test]
fn a_missing_driver_is_reported() {
    // SAFETY: as in `measure`.
    if unsafe { sys::is_culib_present() } {
        eprintln!("skipped: this machine has a driver");
        return;
    }
    let result = measure(0);
    assert!(matches!(result, Err(CeilingsError::NoDriver)), "{result:?}");
}

#[test]
fn torchs_libraries_come_first() {
    let own = [PathBuf::from("/env/nvidia/cu13/lib")];
    let path = |before: &str| library_path(&own, Some(before.into()));
    let joined = std::env::join_paths(["/env/nvidia/cu13/lib", "/usr/lib"]).unwrap();
    assert_eq!(path("/usr/lib"), Some(joined));
    assert_eq!(path(""), Some(own[0].clone().into_os_string()));
    assert_eq!(library_path(&[], Some("/usr/lib".into())), None);
}

#[tokio::test]
async fn a_failed_child_process_is_reported() {
    let failed = measure_in_child(Path::new("/no/such/ridgeline"), 0, &[]).await;
    assert!(matches!(failed, Err(CeilingsError::Process(_))), "{failed:?}");
}
