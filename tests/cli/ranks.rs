//! `ridgeline profile` of programs with several ranks, through real launchers. Needs a Python with
//! torch.

use std::path::Path;

use serde_json::Value;

use crate::cli::schema;
use crate::sandbox::{CommandResult, Sandbox, python_with_torch, run_to_end};

/// Two ranks with gloo; the second one computes more. `{body}` is additional code of a step.
const TRAINS: &str = r#"
import os, sys, torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("gloo")
net = DistributedDataParallel(torch.nn.Linear(64, 64))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(100):
    samples = torch.randn(32 * (1 + dist.get_rank()), 64)
    optimizer.zero_grad()
    net(samples).sum().backward()
    optimizer.step()
    {body}
"#;
const LAUNCHER: &str = "torchrun --standalone --nproc-per-node 2";

fn profile(sandbox: &Sandbox, body: &str, more: &[&str]) -> Option<CommandResult> {
    run(sandbox, "profile", body, more)
}

fn run(sandbox: &Sandbox, subcommand: &str, body: &str, more: &[&str]) -> Option<CommandResult> {
    let python = python_with_torch()?;
    sandbox.write("train.py", TRAINS.replace("{body}", body));
    let mut command = sandbox.ridgeline();
    command.args([subcommand, "train.py", "--device", "cpu", "--python"]).arg(python).args(more);
    Some(run_to_end(&mut command))
}

/// Returns the document and checks its two ranks.
#[track_caller]
fn two_ranks(result: CommandResult) -> Value {
    let json = result.exits_with(0).stdout;
    let json: Value = serde_json::from_str(&json).expect("JSON and nothing else");
    schema::validate(&json, "profile");
    let ranks = json["ranks"]["ranks"].as_array().expect("ranks");
    let numbers: Vec<_> = ranks.iter().map(|rank| rank["rank"].as_u64()).collect();
    assert_eq!(numbers, [Some(0), Some(1)]);
    let batches: Vec<_> = ranks.iter().map(|rank| rank["batch_size"].as_u64()).collect();
    assert_eq!(batches, [Some(32), Some(64)]);
    for rank in ranks {
        let ms = |key: &str| rank[key].as_f64().expect("a number");
        assert!(ms("communication_ms") > 0.0, "{rank}");
        assert!(ms("computing_ms") > 0.0 && ms("computing_ms") <= ms("time_ms"), "{rank}");
    }
    let lines = json["ranks"]["lines"].as_array().expect("lines");
    assert!(lines.iter().any(|line| line["file"] == "train.py" && line["line"] == 12));
    for line in lines {
        let ms = |key: &str| line[key].as_f64().expect("a number");
        assert!(ms("least_ms") <= ms("mean_ms") && ms("mean_ms") <= ms("most_ms"), "{line}");
    }
    json
}

#[test]
fn every_rank_is_reported() {
    let sandbox = Sandbox::new();
    let Some(result) = profile(&sandbox, "", &["--launcher", LAUNCHER, "--json", "-"]) else {
        return;
    };
    two_ranks(result);
    // The recording gives the same result later.
    let folders = std::fs::read_dir(sandbox.path("cache").join("recordings")).expect("recordings");
    let project = folders.flatten().next().expect("the project").path();
    let recording = std::fs::read_dir(project).expect("it").flatten().next().expect("one").path();
    let again = sandbox.ridgeline().arg("analyze").arg(&recording).output().expect("it starts");
    let text = String::from_utf8_lossy(&again.stdout);
    assert!(text.contains("rank 0") && text.contains("rank 1"), "{text}");
}

#[test]
fn the_launcher_can_be_configured() {
    let sandbox = Sandbox::new();
    let words: Vec<String> = LAUNCHER.split(' ').map(|word| format!("{word:?}")).collect();
    sandbox.write("ridgeline.toml", format!("launcher = [{}]\n", words.join(", ")));
    let Some(result) = profile(&sandbox, "", &[]) else { return };
    let result = result.exits_with(0);
    assert!(result.stderr.contains(&format!("launched by `{LAUNCHER}`")), "{}", result.stderr);
    assert!(result.stdout.contains("  rank 1 "), "{}", result.stdout);
}

/// Runs a check with JSON output. Returns the status of each check, and the document.
fn check(
    sandbox: &Sandbox,
    body: &str,
    more: &[&str],
) -> Option<(CommandResult, Vec<String>, Value)> {
    let launched = ["--launcher", LAUNCHER, "--format", "json"];
    let result = run(sandbox, "check", body, &[&launched[..], more].concat())?;
    let found: Value = serde_json::from_str(&result.stdout).expect("JSON and nothing else");
    schema::validate(&found, "check");
    let items = found["items"].as_array().expect("items").iter();
    let statuses =
        items.map(|item| format!("{}: {}", item["name"], item["status"]).replace('"', ""));
    Some((result, statuses.collect(), found["findings"].clone()))
}

#[test]
fn a_check_counts_findings_between_ranks() {
    let sandbox = Sandbox::new();
    let alone = "if dist.get_rank() == 1:\n        __import__('time').sleep(0.05)";
    let arguments = ["--max-findings", "warning/0", "--write-baseline", "baseline.json"];
    let Some((result, statuses, findings)) = check(&sandbox, alone, &arguments) else { return };
    result.exits_with(1).stderr_contains("1 of 1 checks failed");
    assert_eq!(statuses, ["findings-warning: broken"]);
    let is_straggler = |one: &&Value| one["rule"] == "straggler" && one["severity"] == "warning";
    let straggler = findings.as_array().and_then(|all| all.iter().find(is_straggler));
    let straggler = straggler.unwrap_or_else(|| panic!("no straggler: {findings}"));
    assert_eq!(
        (&straggler["at"]["file"], &straggler["at"]["line"]),
        (&"train.py".into(), &14.into())
    );

    // Without it, the same two ranks are faster and use the same memory.
    let (result, statuses, _) =
        check(&sandbox, "", &["--baseline", "baseline.json"]).expect("the Python that was there");
    result.exits_with(0);
    assert_eq!(statuses, ["time-regression: passed", "memory-regression: passed"]);

    let body = "dist.get_rank() == 1 and step == 2 and [][1]";
    let (result, statuses, _) = check(&sandbox, body, &[]).expect("the Python that was there");
    result.exits_with(1).stderr_contains("(on rank 1)");
    assert!(statuses.is_empty());
}

#[test]
fn the_rank_that_fails_is_named_with_its_line() {
    let sandbox = Sandbox::new();
    let body = "dist.get_rank() == 1 and step == 2 and [][1]";
    let Some(result) = profile(&sandbox, body, &["--launcher", LAUNCHER]) else { return };
    let result = result.exits_with(1);
    assert!(result.stderr.contains("train.py:13: IndexError"), "{}", result.stderr);
    assert!(result.stderr.contains("(on rank 1)"), "{}", result.stderr);
}

#[test]
fn a_killed_rank_is_named() {
    let sandbox = Sandbox::new();
    let body = "dist.get_rank() == 1 and step == 2 and os._exit(3)";
    let Some(result) = profile(&sandbox, body, &["--launcher", LAUNCHER]) else { return };
    let result = result.exits_with(1);
    assert!(result.stderr.contains("rank 1 was stopped in stage"), "{}", result.stderr);
}

/// Imitates `ssh HOST WORDS...`: a shell with its own environment and folder.
const SSH: &str = "#!/bin/sh\n[ \"$1\" = 127.0.0.2 ] || exit 255\nshift\ncd /\n\
                   exec env -i PATH=/usr/bin:/bin HOME=/ sh -c \"$*\"\n";

#[cfg(target_os = "linux")]
#[test]
fn a_launcher_on_another_machine() {
    use std::os::unix::fs::PermissionsExt as _;
    let Some(python) = python_with_torch() else { return };
    let sandbox = Sandbox::new();
    let there = sandbox.path("there");
    std::fs::create_dir_all(&there).expect("a folder");
    std::fs::write(there.join("train.py"), TRAINS.replace("{body}", "")).expect("written");
    let ssh = sandbox.path("ssh");
    std::fs::write(&ssh, SSH).expect("written");
    std::fs::set_permissions(&ssh, std::fs::Permissions::from_mode(0o700)).expect("allowed");
    let port = free_port();
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let configuration = format!(
        "[launcher]\n\
         command = [{ssh:?}, \"127.0.0.2\", {python:?}, \"-m\", \"torch.distributed.run\", \
         \"--nproc-per-node\", \"2\", \"--master-addr\", \"127.0.0.2\", \"--master-port\", \"{port}\"]\n\
         python = {python:?}\n\
         paths = {{ {there:?} = \".\" }}\n",
        ssh = text(&ssh),
        python = text(python),
        there = text(&there),
    );
    sandbox.write("ridgeline.toml", configuration);
    let Some(result) = profile(&sandbox, "", &["--json", "-"]) else { return };
    let json = two_ranks(result);
    assert!(json["lines"].as_array().is_some_and(|lines| lines.len() > 3), "{}", json["lines"]);
}

/// A free port below the range that the system assigns by itself (`ip_local_port_range`), so that nothing else takes it
/// before the launcher does.
#[cfg(target_os = "linux")]
fn free_port() -> u16 {
    let first = 20_000 + u16::try_from(std::process::id() % 10_000).expect("it fits");
    let is_free = |port: &u16| std::net::TcpListener::bind(("0.0.0.0", *port)).is_ok();
    (first..32_000).find(is_free).expect("a free port")
}

#[test]
fn an_invalid_launcher() {
    let sandbox = Sandbox::new();
    sandbox.write("train.py", "");
    let run = |launcher: &str| sandbox.run(&["profile", "train.py", "--launcher", launcher]);
    run("").exits_with(2).stderr_contains("the launcher has no program");
    run("srun 'x").exits_with(2).stderr_contains("a quote is not closed");
    run("ssh -p 22").exits_with(2).stderr_contains("has no host");
}
