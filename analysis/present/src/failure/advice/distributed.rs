//! Programs with many ranks.

use super::{Advice, Failed, Reader, between};

const VARIABLES: &[&str] =
    &["RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"];

/// The program must be started with a launcher such as `torchrun`.
pub(super) fn no_launcher(failed: &Failed) -> Option<Advice> {
    if failed.run.has_launcher {
        return None;
    }
    let message = failed.failure.message.as_str();
    let from_torch = between(message, "env:// rendezvous: environment variable ", " expected");
    let from_program = between(message, "'", "'").filter(|name| {
        failed.is(&["KeyError"]) && is_environ_lookup(failed) && VARIABLES.contains(name)
    });
    let name = from_torch.or(from_program)?;
    let how = match failed.reader {
        Reader::Terminal => format!(
            "`ridgeline profile {} --launcher \"torchrun --nproc-per-node 1\"`, or `launcher` in ridgeline.toml",
            failed.run.path()
        ),
        Reader::Editor => {
            "`launcher = [\"torchrun\", \"--nproc-per-node\", \"1\"]` in ridgeline.toml".to_owned()
        }
    };
    failed.because(
        "no-launcher",
        format!(
            "`{name}` is set by a launcher such as `torchrun`, but this program was started \
            without one. Start it with a launcher: {how}."
        ),
    )
}

/// Returns whether a `KeyError` was raised by `os.environ`.
pub(super) fn is_environ_lookup(failed: &Failed) -> bool {
    let raised = failed.run.error.raised_in.as_ref();
    raised.is_some_and(|raised| raised.path == "os.py" && raised.name == "__getitem__")
}

/// Another process uses the port.
pub(super) fn port_in_use(failed: &Failed) -> Option<Advice> {
    if failed.errno() != "EADDRINUSE"
        && !failed.message_contains(&["EADDRINUSE", "address already in use"])
    {
        return None;
    }
    failed.because(
        "port-in-use",
        "Another process uses the port that the program needs, often an earlier run that is still \
        alive. End that process, or give the program another port (`MASTER_PORT` for \
        torch.distributed).",
    )
}
