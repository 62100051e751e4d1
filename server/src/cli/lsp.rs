//! `ridgeline lsp`.

use super::exit::{FAILED, Failure};
use crate::server;
use crate::transport::Ended;

/// Speaks the protocol over standard input and output until the editor goes. As the protocol asks,
/// a session that ends without `shutdown` is a failure; there is nobody left to tell.
pub(super) fn run() -> Result<(), Failure> {
    match server::lsp_main() {
        Ok(Ended::Exit { in_order: true }) => Ok(()),
        Ok(_) => Err(Failure { code: FAILED, what: String::new(), next: String::new() }),
        Err(error) => Err(Failure::failed(format!("the server cannot be started: {error}"), "")),
    }
}
