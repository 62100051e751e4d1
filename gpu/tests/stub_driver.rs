//! The device query against CUDA drivers that are missing, broken or well, each a stub that is
//! compiled here (`stub_driver.c`). A process loads a driver once, so each case is one of its own.

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

/// Asks as `ridgeline doctor` does and prints the answer; started by [`check`] alone.
#[tokio::test]
async fn print_devices() {
    if let Ok(seconds) = std::env::var("RIDGELINE_TEST_PRINT_DEVICES") {
        let patience = std::time::Duration::from_secs(seconds.parse().unwrap());
        let devices = ridgeline_gpu::devices::query_within(patience).await;
        println!("\ndevices: {:?} {:?}", devices.driver, devices.gpus);
        // A query that hangs keeps its thread.
        std::process::exit(0);
    }
}

/// A folder with a stub of the driver; `None`, said aloud, where there is no C compiler.
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
fn a_driver_that_works_is_read_without_a_context() {
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
fn no_device() {
    check(stub(&[]), &[("STUB_INIT", "100")], &["NoDevice []"]);
    check(stub(&[]), &[("STUB_COUNT", "0")], &["NoDevice []"]);
}

#[test]
fn a_library_and_a_kernel_module_of_different_versions() {
    check(stub(&[]), &[("STUB_INIT", "803")], &["Mismatch []"]);
}

#[test]
fn an_unknown_error_and_one_that_no_header_knows() {
    check(stub(&[]), &[("STUB_INIT", "999")], &["Failed { code: 999 }"]);
    check(stub(&[]), &[("STUB_INIT", "123456")], &["Failed { code: 123456 }"]);
}

#[test]
fn a_missing_function_is_named() {
    let incomplete = "Incomplete { symbol: \"cuDeviceGetAttribute\" }";
    check(stub(&["-DWITHOUT_ATTRIBUTES"]), &[], &[incomplete]);
}

#[test]
fn an_absurd_number_of_devices_gives_those_that_answer() {
    check(stub(&[]), &[("STUB_COUNT", "2000000000")], &["index: 1"]);
    check(stub(&[]), &[("STUB_COUNT", "-5")], &["Ready", "[]"]);
}

#[test]
fn a_file_that_is_no_library_is_no_driver() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("libcuda.so.1"), "not a library").unwrap();
    if cudarc_finds_a_real_driver() {
        eprintln!("skipped: this machine has a driver of its own");
        return;
    }
    check(Some(folder), &[], &["Absent []"]);
}

#[test]
fn a_driver_that_hangs_is_given_up() {
    check(stub(&[]), &[("STUB_HANG", "1")], &["Unresponsive", "1 seconds"]);
}

fn cudarc_finds_a_real_driver() -> bool {
    // SAFETY: loading the driver's library runs its initialisers, as any CUDA program does.
    unsafe { cudarc::driver::sys::is_culib_present() }
}
