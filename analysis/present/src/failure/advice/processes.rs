//! Processes that the program starts: workers of data loaders, and others.

use super::{Advice, Seen};

/// A spawned process runs the script from the top, and starts the next one there.
pub(super) fn no_main_guard(seen: &Seen) -> Option<Advice> {
    let text = "before the current process has finished its bootstrapping phase";
    if !seen.says(&[text]) && !seen.printed(&[text, "freeze_support()"]) {
        return None;
    }
    seen.because(
        "no-main-guard",
        "A `spawn` process imports the script again, and the script starts processes on import. \
        Move the code into a function, and call it under `if __name__ == \"__main__\":`.",
    )
}

/// Workers hand batches over in shared memory.
pub(super) fn shared_memory(seen: &Seen) -> Option<Advice> {
    let is_bus = seen.says(&["is killed by signal: Bus error"]);
    let is_full = seen
        .says(&["unable to allocate shared memory", "unable to write to file </torch_"])
        || (seen.says(&["/torch_"]) && seen.says(&["No space left on device"]));
    if !(is_bus || is_full) {
        return None;
    }
    seen.because(
        "shared-memory",
        "DataLoader workers pass batches through shared memory (/dev/shm), which is full. \
        Containers have little by default: start the container with `--shm-size=8g` or \
        `--ipc=host`. Otherwise lower `num_workers` or `prefetch_factor`.",
    )
}

/// Each tensor that a worker hands over is an open file.
pub(super) fn too_many_files(seen: &Seen) -> Option<Advice> {
    if seen.errno() != "EMFILE"
        && !seen.says(&["Too many open files", "received 0 items of ancdata"])
    {
        return None;
    }
    seen.because(
        "too-many-files",
        "The process has reached its limit of open files. Raise the limit (`ulimit -n 65536`) \
        before starting Ridgeline, or call \
        `torch.multiprocessing.set_sharing_strategy(\"file_system\")` in the program.",
    )
}

/// With `spawn`, everything that a process gets travels as a pickle.
pub(super) fn not_picklable(seen: &Seen) -> Option<Advice> {
    let says = seen.says(&["Can't pickle ", "cannot pickle ", "Can't get local object"]);
    let is_sent = seen.raised_in().starts_with("multiprocessing/")
        || seen.failure.message.contains("when serializing");
    if !says || !is_sent {
        return None;
    }
    seen.because(
        "not-picklable",
        "Objects passed to a `spawn` or `forkserver` process are pickled. Lambdas, nested \
        functions, open files and locks cannot be pickled: move the function to module level, open \
        the file in the worker, or use `num_workers=0`.",
    )
}

/// A worker that ended without an exception.
pub(super) fn loader_worker(seen: &Seen) -> Option<Advice> {
    if !(seen.says(&["DataLoader worker (pid"])
        && seen.says(&["exited unexpectedly", "is killed by signal"]))
    {
        return None;
    }
    let killed = seen.says(&["is killed by signal: Killed"]);
    let text = if killed {
        "A DataLoader worker was killed, usually because the machine ran out of memory: each \
        worker holds its own copy of the dataset. Lower `num_workers`."
    } else {
        "A DataLoader worker exited without an exception. With `num_workers=0` the dataset runs in \
        the main process, and its own error is shown."
    };
    seen.because("loader-worker", text)
}
