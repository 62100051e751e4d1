//! `ridgeline lsp`.

use super::exit::{FAILED, Failure};
use crate::server;
use crate::transport::SessionEnd;

/// Serves the protocol over standard input and output until the session ends. As the protocol
/// requires, a session that ends without `shutdown` is a failure. It prints no message, because
/// there is no reader.
pub(super) fn run() -> Result<(), Failure> {
    match server::lsp_main() {
        Ok(SessionEnd::Exit { in_order: true }) => Ok(()),
        Ok(_) => Err(Failure { code: FAILED, what: String::new(), next: String::new() }),
        Err(error) => Err(Failure::failed(format!("the server cannot be started: {error}"), "")),
    }
}
