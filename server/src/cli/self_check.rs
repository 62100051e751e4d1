//! `ridgeline self-check`: checks that this installation works, without Python and without a project.

use std::fmt::Write as _;
use std::process::Stdio;
use std::time::Duration;

use ridgeline_analysis::base::printable::printable;
use ridgeline_analysis::present::headline::headline;
use ridgeline_analysis::profile::Provenance;
use ridgeline_gpu::agent;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::process::Command;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::demo::{demo_project, recorded};
use super::exit::Failure;
use super::terminal::Terminal;
use super::{output_file, run, show};
use crate::panel::Panel;
use crate::panel::feed::Feed;
use crate::scheduler::WorkspaceId;
use crate::store::{Store, create_private};
use crate::{findings, report, what_if};

/// The time for an answer of the language server or the panel.
const PATIENCE: Duration = Duration::from_secs(20);
/// The maximum size of an answer in bytes.
const MAX_ANSWER: u64 = 16 << 20;

/// Runs the subcommand.
pub(super) fn run(terminal: &Terminal) -> Result<(), Failure> {
    let store = run::open_store()?;
    let checked = run::block_on(|_| async move {
        let analysis = tokio::task::spawn_blocking({
            let store = store.clone();
            move || analysis(&store)
        });
        vec![
            ("Folders", folders(&store)),
            (
                "Agent",
                agent::unpack(store.cache())
                    .map(|_| "unpacked".to_owned())
                    .map_err(|error| error.to_string()),
            ),
            ("Analysis", analysis.await.unwrap_or_else(|error| Err(error.to_string()))),
            ("Language server", language_server().await),
            ("Panel", panel().await),
        ]
    })?;
    let heading = terminal.heading();
    let mut text = format!(
        "{heading}{:<17}{heading:#}{} for {} {}\n",
        "Ridgeline",
        env!("CARGO_PKG_VERSION"),
        std::env::consts::OS,
        std::env::consts::ARCH
    );
    for (name, result) in &checked {
        let result = match result {
            Ok(what) => format!("ok: {what}"),
            Err(why) => format!("failed: {why}"),
        };
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{heading}{name:<17}{heading:#}{}", printable(&result));
    }
    terminal.print(&text)?;
    let failed: Vec<&str> =
        checked.iter().filter(|(_, result)| result.is_err()).map(|(name, _)| *name).collect();
    if failed.is_empty() {
        return terminal.print(
            "\nThe installation works. `ridgeline doctor` checks Python, torch and the GPU.\n",
        );
    }
    Err(Failure::failed(format!("the installation does not work: {}", failed.join(", ")), ""))
}

/// Writes a file into each folder of the user.
fn folders(store: &Store) -> Result<String, String> {
    for folder in [store.cache(), store.state()] {
        create_private(folder).map_err(|error| error.to_string())?;
        let file = folder.join("self-check");
        output_file::save(&file, b"").map_err(|failure| failure.what)?;
        std::fs::remove_file(&file).map_err(|error| format!("{}: {error}", file.display()))?;
    }
    Ok(format!("{} and {}", store.cache().display(), store.state().display()))
}

/// Analyzes the embedded recording of the demo, with its findings and its report.
fn analysis(store: &Store) -> Result<String, String> {
    let root = demo_project(store).map_err(|failure| failure.what)?;
    let profiled = recorded::read(store, &root).map_err(|failure| failure.what)?;
    let recorded_run = what_if::recorded_run(&profiled);
    findings::of_run(&profiled, &recorded_run)?;
    let what_ifs =
        what_if::study_of(&profiled, recorded_run.as_ref().map_err(String::clone)?, None);
    let sources = show::Sources::read(&profiled);
    report::page(&profiled, &sources.texts(), None, Some(&what_ifs), store)
        .map_err(|error| format!("{error:#}"))?;
    Ok(format!(
        "a recorded run of ResNet-50: {}",
        headline(&profiled.profile, Provenance::Measured)
    ))
}

/// Starts the language server as an editor does, and ends it.
async fn language_server() -> Result<String, String> {
    let binary = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut server = Command::new(binary)
        .arg("lsp")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| error.to_string())?;
    let (Some(mut input), Some(mut output)) = (server.stdin.take(), server.stdout.take()) else {
        return Err("it has no standard streams".to_owned());
    };
    let talk = async {
        let mut messages = String::new();
        for message in [
            json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"processId": null, "rootUri": null, "capabilities": {}}}),
            json!({"jsonrpc": "2.0", "method": "initialized", "params": {}}),
            json!({"jsonrpc": "2.0", "id": 2, "method": "shutdown"}),
            json!({"jsonrpc": "2.0", "method": "exit"}),
        ] {
            let body = message.to_string();
            messages.push_str(&format!("Content-Length: {}\r\n\r\n{body}", body.len()));
        }
        input.write_all(messages.as_bytes()).await.map_err(|error| error.to_string())?;
        let answers = read(&mut output).await?;
        let status = server.wait().await.map_err(|error| error.to_string())?;
        Ok::<_, String>((answers, status))
    };
    let (answers, status) =
        timeout(PATIENCE, talk).await.map_err(|_| "it does not answer".to_owned())??;
    let first = answers.split_once("\r\n\r\n").map(|(_, rest)| rest).unwrap_or_default();
    let mut bodies = serde_json::Deserializer::from_str(first).into_iter::<Value>();
    let Some(Ok(initialized)) = bodies.next() else {
        return Err("it does not answer `initialize`".to_owned());
    };
    if initialized.pointer("/result/capabilities/inlayHintProvider").is_none() {
        return Err("it offers no inlay hints".to_owned());
    }
    if !status.success() {
        return Err(format!("it ended with {status}"));
    }
    Ok("starts, answers and ends".to_owned())
}

/// Starts the panel's server and reads its page.
async fn panel() -> Result<String, String> {
    let (questions, _requests) = mpsc::channel(1);
    let panel = Panel::start(questions, Feed::default()).map_err(|error| error.to_string())?;
    let uri = panel.uri(WorkspaceId(0));
    let address = uri.strip_prefix("http://").and_then(|rest| rest.split_once('/'));
    let Some((host, path)) = address else { return Err("it has no address".to_owned()) };
    let talk = async {
        let mut stream = TcpStream::connect(host).await.map_err(|error| error.to_string())?;
        let request = format!("GET /{path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.map_err(|error| error.to_string())?;
        read(&mut stream).await
    };
    let page = timeout(PATIENCE, talk).await.map_err(|_| "it does not answer".to_owned())??;
    if !page.starts_with("HTTP/1.1 200") || !page.contains("<html") {
        let status = page.lines().next().unwrap_or_default();
        return Err(format!("it answers `{status}`"));
    }
    Ok("serves its page on loopback".to_owned())
}

/// Reads an answer to its end.
async fn read(stream: &mut (impl AsyncRead + Unpin)) -> Result<String, String> {
    let mut answer = Vec::new();
    stream.take(MAX_ANSWER).read_to_end(&mut answer).await.map_err(|error| error.to_string())?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}
