//! `ridgeline mcp`: costs, findings and predictions as tools for coding agents, over the Model Context Protocol on
//! standard input and output.
//!
//! Most tools read a project's latest run and today's source (`../latest.rs`, `edits.rs`). `profile` and
//! `measure_optimization` run code of the project, and only with its user's consent (`consent.rs`). Answers are
//! short plain text in which numbers have units, `~` marks an estimate, and places are `file:line`.

mod arguments;
mod consent;
mod lines;
mod progress;
mod tools;

use std::time::Duration;

use rmcp::ServiceExt as _;

use tokio::time::timeout;

use self::lines::{Lines, lines};
use self::tools::Tools;
use super::exit::Failure;
use super::{McpArgs, profile, run};

/// The time limit for writing the last answers.
const GOODBYE_LIMIT: Duration = Duration::from_millis(400);

/// Serves until the client closes standard input.
pub(super) fn run(args: &McpArgs) -> Result<(), Failure> {
    let allowed = args.allow.iter().map(|folder| profile::absolute(folder));
    let allowed = allowed.collect::<Result<Vec<_>, _>>()?;
    let tools = Tools::new(run::open_store()?, allowed);
    run::block_on(|cancel| async move {
        let ended =
            |error: String| Failure::failed(format!("the client is not usable: {error}"), "");
        let Lines { input, output, written } = lines(tokio::io::stdin(), tokio::io::stdout());
        let service = tools.serve_with_ct((input, output), cancel).await;
        let service = service.map_err(|error| ended(error.to_string()))?;
        service.waiting().await.map_err(|error| ended(error.to_string()))?;
        // A client that has gone does not read the last answers.
        let _ = timeout(GOODBYE_LIMIT, written).await;
        Ok(())
    })?
}
