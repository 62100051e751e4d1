//! Returns freed memory to the system. Otherwise the allocator on Linux keeps it, after a large
//! document for the rest of the session.

use std::time::Duration;

/// Closing a document of at least this size, in bytes, returns its memory.
pub(crate) const LARGE: usize = 1 << 20;

/// Requests in progress hold the text until they are answered.
const RELEASE_DELAY: Duration = Duration::from_secs(1);

/// Returns free memory after a short delay, on a thread where it blocks nobody.
pub(crate) fn release_soon() {
    tokio::spawn(async {
        tokio::time::sleep(RELEASE_DELAY).await;
        let _ = tokio::task::spawn_blocking(release).await;
    });
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn release() {
    use std::ffi::c_int;
    unsafe extern "C" {
        fn malloc_trim(keep_bytes: usize) -> c_int;
    }
    // SAFETY: it has no preconditions, and other threads may allocate meanwhile (malloc_trim(3)).
    let released = unsafe { malloc_trim(0) };
    tracing::debug!("freed memory was given back to the system: {}", released == 1);
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn release() {}
