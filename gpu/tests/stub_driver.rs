//! Tests the device query with CUDA drivers that are missing, broken or healthy. Each driver is a
//! stub that is compiled here (`stub_driver.c`). A process loads a driver only once, so each case
//! runs in its own process.

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

/// Queries like `ridgeline doctor` and prints the result. Only [`check`] starts it.
#[tokio::test]
async fn print_devices() {
    if let Ok(seconds) = std::env::var("RIDGELINE_TEST_PRINT_DEVICES") {
        let timeout = std::time::Duration::from_secs(seconds.parse().unwrap());
        let devices = ridgeline_gpu::devices::query_within(timeout).await;
        println!("\ndevices: {:?} {:?}", devices.driver, devices.gpus);
        // A query that hangs blocks its thread.
        std::process::exit(0);
    }
}

/// Returns a folder with a stub driver, or prints a message and returns `None` if there is no C
/// compiler.
fn stub(flags: &[&str]) -> Option<TempDir> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/stub_driver.c");
    let folder = tempfile::tempdir().unwrap();
    let library: PathBuf = folder.path().join("libcuda.so.1");
    let compiled = Command::new("cc")
        .args(["-shared", "-fPIC"])
        .args(flags)
        .arg("-o")
        .args([&library, &source])
        .output();
    match compiled {
        Ok(output) if output.status.success() => Some(folder),
        Ok(output) => panic!("{}", String::from_utf8_lossy(&output.stderr)),
        Err(error) => {
            eprintln!("skipped: no C compiler for the stub of the driver ({error})");
            None
        }
    }
}

#[track_caller]
fn check(stub: Option<TempDir>, variables: &[(&str, &str)], expected: &[&str]) {
    let Some(stub) = stub else { return };
    let hangs = variables.iter().any(|(name, _)| *name == "STUB_HANG");
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "stub_driver::print_devices", "--nocapture"])
        .env("RIDGELINE_TEST_PRINT_DEVICES", if hangs { "1" } else { "30" })
        .env("LD_LIBRARY_PATH", stub.path())
        .envs(variables.iter().copied())
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    for part in expected {
        assert!(printed.contains(part), "{part:?} is not in {printed:?}");
    }
    assert!(output.status.success());
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(!errors.contains("panicked"), "{errors}");
}

#[test]
fn a_healthy_driver_is_queried_without_a_context() {
    check(
        stub(&[]),
        &[],
        &[
            "Ready { cuda: (13, 0) }",
            "name: \"NVIDIA H200\"",
            "capability: Some((9, 0))",
            "multiprocessors: Some(132)",
            "memory_bytes: Some(150754820096)",
            "clock_hz: Some(1980000000)",
            "bandwidth: Some(4916736000000.0)",
        ],
    );
}

#[test]
fn no_device_is_reported() {
    check(stub(&[]), &[("STUB_INIT", "100")], &["NoDevice []"]);
    check(stub(&[]), &[("STUB_COUNT", "0")], &["NoDevice []"]);
}

#[test]
fn mismatched_versions_of_library_and_kernel_module_are_reported() {
    check(stub(&[]), &[("STUB_INIT", "803")], &["Mismatch []"]);
}

#[test]
fn unknown_error_codes_are_reported() {
    check(stub(&[]), &[("STUB_INIT", "999")], &["Failed { code: 999 }"]);
    check(stub(&[]), &[("STUB_INIT", "123456")], &["Failed { code: 123456 }"]);
}

#[test]
fn a_missing_function_is_reported() {
    let incomplete = "Incomplete { symbol: \"cuDeviceGetAttribute\" }";
    check(stub(&["-DWITHOUT_ATTRIBUTES"]), &[], &[incomplete]);
}

#[test]
fn an_invalid_device_count_returns_only_valid_devices() {
    check(stub(&[]), &[("STUB_COUNT", "2000000000")], &["index: 1"]);
    check(stub(&[]), &[("STUB_COUNT", "-5")], &["Ready", "[]"]);
}

#[test]
fn an_invalid_library_counts_as_no_driver() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("libcuda.so.1"), "not a library").unwrap();
    if cudarc_finds_a_real_driver() {
        eprintln!("skipped: this machine has a driver of its own");
        return;
    }
    check(Some(folder), &[], &["Absent []"]);
}

#[test]
fn a_driver_that_hangs_times_out() {
    check(stub(&[]), &[("STUB_HANG", "1")], &["Unresponsive", "1 seconds"]);
}

fn cudarc_finds_a_real_driver() -> bool {
    // SAFETY: loading the driver's library runs its initialisers, as any CUDA program does.
    unsafe { cudarc::driver::sys::is_culib_present() }
}
