//! Programs with many ranks.

use super::{Advice, Reader, Seen, between};

const VARIABLES: &[&str] =
    &["RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"];

/// A program that `torchrun` has to start.
pub(super) fn no_launcher(seen: &Seen) -> Option<Advice> {
    if seen.run.has_launcher {
        return None;
    }
    let said = seen.failure.message.as_str();
    let by_torch = between(said, "env:// rendezvous: environment variable ", " expected");
    let by_program = between(said, "'", "'")
        .filter(|name| seen.is(&["KeyError"]) && is_of_environ(seen) && VARIABLES.contains(name));
    let name = by_torch.or(by_program)?;
    let how = match seen.reader {
        Reader::Terminal => format!(
            "`ridgeline profile {} --launcher \"torchrun --nproc-per-node 1\"`, or `launcher` in ridgeline.toml",
            seen.run.path()
        ),
        Reader::Editor => {
            "`launcher = [\"torchrun\", \"--nproc-per-node\", \"1\"]` in ridgeline.toml".to_owned()
        }
    };
    seen.because(
        "no-launcher",
        format!(
            "`{name}` is set by a launcher such as `torchrun`, but this program was started \
            without one. Start it with a launcher: {how}."
        ),
    )
}

/// Whether a KeyError is of `os.environ`.
pub(super) fn is_of_environ(seen: &Seen) -> bool {
    let raised = seen.run.error.raised_in.as_ref();
    raised.is_some_and(|raised| raised.path == "os.py" && raised.name == "__getitem__")
}

/// Another process has the port.
pub(super) fn port_in_use(seen: &Seen) -> Option<Advice> {
    if seen.errno() != "EADDRINUSE" && !seen.says(&["EADDRINUSE", "address already in use"]) {
        return None;
    }
    seen.because(
        "port-in-use",
        "Another process uses the port that the program needs, often an earlier run that is still \
        alive. End that process, or give the program another port (`MASTER_PORT` for \
        torch.distributed).",
    )
}
