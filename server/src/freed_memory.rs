//! Gives memory that was freed back to the system. The allocator of Linux keeps it otherwise: after
//! one large document for as long as the session lasts.

use std::time::Duration;

/// Documents from this size on are worth it, in bytes.
pub(crate) const LARGE: usize = 1 << 20;

/// Answers that are still being worked out hold the text until they are given.
const SETTLED: Duration = Duration::from_secs(1);

/// Gives back what is free after a moment, on a thread on which that keeps nobody waiting.
pub(crate) fn give_back_soon() {
    tokio::spawn(async {
        tokio::time::sleep(SETTLED).await;
        let _ = tokio::task::spawn_blocking(give_back).await;
    });
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn give_back() {
    use std::ffi::c_int;
    unsafe extern "C" {
        fn malloc_trim(keep_bytes: usize) -> c_int;
    }
    // SAFETY: it has no preconditions, and other threads may allocate meanwhile (malloc_trim(3)).
    let gave = unsafe { malloc_trim(0) };
    tracing::debug!("freed memory was given back to the system: {}", gave == 1);
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn give_back() {}
