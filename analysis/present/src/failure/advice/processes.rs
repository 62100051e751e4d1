//! Child processes of the program: DataLoader workers and others.

use super::{Advice, Failed};

/// A spawned process runs the script from the top, which starts further processes.
pub(super) fn no_main_guard(failed: &Failed) -> Option<Advice> {
    let text = "before the current process has finished its bootstrapping phase";
    if !failed.message_contains(&[text]) && !failed.printed(&[text, "freeze_support()"]) {
        return None;
    }
    failed.because(
        "no-main-guard",
        "A `spawn` process imports the script again, and the script starts processes on import. \
        Move the code into a function, and call it under `if __name__ == \"__main__\":`.",
    )
}

/// DataLoader workers pass batches through shared memory.
pub(super) fn shared_memory(failed: &Failed) -> Option<Advice> {
    let is_bus = failed.message_contains(&["is killed by signal: Bus error"]);
    let is_full = failed.message_contains(&[
        "unable to allocate shared memory",
        "unable to write to file </torch_",
    ]) || (failed.message_contains(&["/torch_"])
        && failed.message_contains(&["No space left on device"]));
    if !(is_bus || is_full) {
        return None;
    }
    failed.because(
        "shared-memory",
        "DataLoader workers pass batches through shared memory (/dev/shm), which is full. \
        Containers have little by default: start the container with `--shm-size=8g` or \
        `--ipc=host`. Otherwise lower `num_workers` or `prefetch_factor`.",
    )
}

/// Each tensor that a worker passes is an open file.
pub(super) fn too_many_files(failed: &Failed) -> Option<Advice> {
    if failed.errno() != "EMFILE"
        && !failed.message_contains(&["Too many open files", "received 0 items of ancdata"])
    {
        return None;
    }
    failed.because(
        "too-many-files",
        "The process has reached its limit of open files. Raise the limit (`ulimit -n 65536`) \
        before starting Ridgeline, or call \
        `torch.multiprocessing.set_sharing_strategy(\"file_system\")` in the program.",
    )
}

/// With `spawn`, everything passed to a process is pickled.
pub(super) fn not_picklable(failed: &Failed) -> Option<Advice> {
    let is_pickle_error =
        failed.message_contains(&["Can't pickle ", "cannot pickle ", "Can't get local object"]);
    let is_sent = failed.raised_in().starts_with("multiprocessing/")
        || failed.failure.message.contains("when serializing");
    if !is_pickle_error || !is_sent {
        return None;
    }
    failed.because(
        "not-picklable",
        "Objects passed to a `spawn` or `forkserver` process are pickled. Lambdas, nested \
        functions, open files and locks cannot be pickled: move the function to module level, open \
        the file in the worker, or use `num_workers=0`.",
    )
}

/// A worker exited without an exception.
pub(super) fn loader_worker(failed: &Failed) -> Option<Advice> {
    if !(failed.message_contains(&["DataLoader worker (pid"])
        && failed.message_contains(&["exited unexpectedly", "is killed by signal"]))
    {
        return None;
    }
    let killed = failed.message_contains(&["is killed by signal: Killed"]);
    let text = if killed {
        "A DataLoader worker was killed, usually because the machine ran out of memory: each \
        worker holds its own copy of the dataset. Lower `num_workers`."
    } else {
        "A DataLoader worker exited without an exception. With `num_workers=0` the dataset runs in \
        the main process, and its own error is shown."
    };
    failed.because("loader-worker", text)
}
