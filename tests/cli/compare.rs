//! `ridgeline compare`, on recordings, documents, a project's history, and invalid inputs.

use serde_json::{Value, json};

use crate::cli::panel::Served;
use crate::cli::schema;
use crate::sandbox::{CommandResult, Sandbox, python_with_torch, repository, run_to_end};

/// A training loop whose model size is a number in the text.
const TRAINS: &str = include_str!("scripts/train.py");

fn recording(name: &str) -> String {
    repository().join("tests/recordings").join(name).to_str().expect("a path").to_owned()
}

fn document(result: &CommandResult) -> Value {
    let document = serde_json::from_str(&result.stdout).expect("JSON and nothing else");
    schema::validate(&document, "compare");
    document
}

/// Returns all verdicts in a document.
fn verdicts(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(entries) => {
            if let Some(verdict) = entries.get("verdict").and_then(Value::as_str) {
                found.push(verdict.to_owned());
            }
            entries.values().for_each(|entry| verdicts(entry, found));
        }
        Value::Array(entries) => entries.iter().for_each(|entry| verdicts(entry, found)),
        _ => {}
    }
}

#[test]
fn a_recording_equals_itself() {
    let sandbox = Sandbox::new();
    for name in ["mlp-cpu", "conv-cpu", "gan-cpu", "seq-cpu", "accumulation-cpu", "compiled-cpu"] {
        let recording = recording(name);
        let result = sandbox.run(&["compare", &recording, &recording, "--json", "-"]).exits_with(0);
        let found = document(&result);
        let mut verdicts_found = Vec::new();
        verdicts(&found, &mut verdicts_found);
        assert!(verdicts_found.len() > 10, "{name}: {found}");
        assert!(
            verdicts_found
                .iter()
                .all(|verdict| ["within-noise", "unknown"].contains(&verdict.as_str()))
        );
        assert!(!found["lines"].as_array().expect("lines").is_empty());
    }
    let mlp = recording("mlp-cpu");
    let result = sandbox.run(&["compare", &mlp, &mlp]).exits_with(0);
    result.stdout_contains("within noise").stdout_contains("No significant change in lines.");
}

#[test]
fn different_programs_differ() {
    let sandbox = Sandbox::new();
    let (before, after) = (recording("mlp-cpu"), recording("conv-cpu"));
    let found = document(&sandbox.run(&["compare", &before, &after, "--json", "-"]).exits_with(0));
    let mut verdicts_found = Vec::new();
    verdicts(&found, &mut verdicts_found);
    assert!(verdicts_found.iter().any(|verdict| verdict == "gone" || verdict == "new"), "{found}");
}

#[test]
fn invalid_runs_are_reported() {
    let sandbox = Sandbox::new();
    let run = |name: &str| sandbox.run(&["compare", name, &recording("mlp-cpu")]);
    run("gone")
        .exits_with(2)
        .stderr_contains("file `gone` does not exist")
        .stderr_contains("HEAD~1");
    run("last").exits_with(2).stderr_contains("has not been profiled yet");
    let both = [recording("mlp-cpu"), recording("conv-cpu")];
    sandbox
        .run(&["compare", &both[0], &both[1], "--json", "-", "--markdown", "-"])
        .exits_with(2)
        .stderr_contains("print to the same output");
    let deep = "[".repeat(200_000);
    let huge = format!("{{\"schema\": 1, \"lines\": [{}]}}", "0,".repeat(2_000_000) + "0");
    for (name, text) in [
        ("empty.json", ""),
        ("words.json", "this is no JSON"),
        ("deep.json", deep.as_str()),
        ("other.json", "{\"run\": 7}"),
        ("huge.json", huge.as_str()),
        ("notes.txt", "{}"),
    ] {
        let file = sandbox.write(name, text);
        run(file.to_str().expect("a path")).exits_with(1).stderr_contains(name);
    }
    let cut = sandbox.write("cut.json", "{\"schema\": 1, \"run\": {\"version\": 1, ");
    let cut = run(cut.to_str().expect("a path"));
    cut.exits_with(1)
        .stderr_contains("not the output of `profile --json`")
        .stderr_contains("not a recording");
    let newer = sandbox.write("newer.json", "{\"run\": {\"version\": 99}}");
    run(newer.to_str().expect("a path")).exits_with(1).stderr_contains("newer Ridgeline");
    sandbox.run(&["compare"]).exits_with(0).stdout_contains("has not been profiled yet");
}

/// Profiles `train.py` of a sandbox. Returns false without torch.
fn profile(sandbox: &Sandbox, text: &str) -> bool {
    let Some(python) = python_with_torch() else { return false };
    sandbox.write("train.py", text);
    let mut command = sandbox.ridgeline();
    command.args(["profile", "train.py", "--device", "cpu", "--iterations", "7", "--python"]);
    command.arg(python).args(["--json", "profile.json"]);
    run_to_end(&mut command).exits_with(0);
    true
}

#[tokio::test]
async fn runs_of_a_project_by_their_names() {
    let sandbox = Sandbox::new();
    if !profile(&sandbox, TRAINS) {
        return;
    }
    std::fs::rename(sandbox.project().join("profile.json"), sandbox.path("small.json"))
        .expect("moved");
    // The layers do two hundred times the work, and the file has one more line at the top.
    let large = format!(
        "import os\n{}",
        TRAINS.replace("64, 128", "64, 8192").replace("128, 10", "8192, 512")
    );
    let large = large.replace("randint(0, 10", "randint(0, 512");
    assert!(profile(&sandbox, &large));
    let result = sandbox.run(&["compare", "last~1", "last", "--json", "-"]).exits_with(0);
    let found = document(&result);
    // The time depends on the machine, the memory only on the program.
    assert_eq!(found["test"]["name"], "Mann-Whitney U", "{found}");
    assert!(found["time"]["ratio"].is_number() && found["throughput"]["ratio"].is_number());
    assert_eq!(found["peak"]["verdict"], "larger");
    let lines = found["lines"].as_array().expect("lines");
    let at = |line: u32| lines.iter().find(|row| row["line_before"] == line).expect("the line");
    // Line 24 is `loss.backward()`. It moved by one line and is unchanged.
    let backward = lines.iter().find(|row| row["line_after"] == 25).expect("the line after");
    assert_eq!((&backward["line_before"], &backward["is_changed"]), (&json!(24), &json!(false)));
    // The layer's call is unchanged, and allocates more.
    assert_eq!((&at(12)["line_after"], &at(12)["is_changed"]), (&json!(13), &json!(false)));
    assert_eq!(at(12)["memory"]["verdict"], "larger", "{}", at(12));
    // The line that creates it was edited in place.
    let definition =
        lines.iter().find(|row| row["line_after"] == 9).expect("the layer's definition");
    assert_eq!((&definition["line_before"], &definition["is_changed"]), (&json!(8), &json!(true)));
    let modules = found["modules"].as_array().expect("modules");
    let second = modules.iter().find(|row| row["path"] == "second").expect("the module");
    assert_eq!(second["memory"]["verdict"], "larger");

    // A subfolder of the project shows the project's runs.
    std::fs::create_dir(sandbox.project().join("notes")).expect("a folder");
    sandbox.run(&["compare", "--project", "notes"]).exits_with(0).stdout_contains("last~1");

    // The same by document, by number in the list, and as a page.
    let small = sandbox.path("small.json");
    let small = small.to_str().expect("a path");
    let again = document(&sandbox.run(&["compare", small, "--json", "-"]).exits_with(0));
    assert_eq!(again["time"], found["time"]);
    assert_eq!(again["lines"], found["lines"]);
    let listed = sandbox.run(&["compare"]).exits_with(0).stdout_contains("last~1");
    let numbers: Vec<&str> =
        listed.stdout.lines().filter_map(|line| line.split_whitespace().nth(1)).take(2).collect();
    let result = sandbox.run(&["compare", numbers[1], numbers[0]]).exits_with(0);
    // The number of timed iterations depends on their variance.
    result.stdout_contains("larger").stdout_contains("Mann-Whitney U over ");

    // Nothing about the user's machine is stored.
    let state = sandbox.path("state");
    let folder = sandbox.project();
    let mut stored_runs = 0;
    for file in files_below(&state) {
        let text = std::fs::read_to_string(&file).expect("text");
        assert!(!text.contains(folder.to_str().expect("a path")), "{}", file.display());
        assert!(!text.contains("loss.backward()"), "{}", file.display());
        stored_runs += usize::from(file.parent().is_some_and(|folder| folder.ends_with("runs")));
    }
    assert_eq!(stored_runs, 2);

    let served = Served::of(&sandbox, sandbox.project());
    let path = format!("/api/compare?workspace=0&before={}&after={}", numbers[1], numbers[0]);
    let shown = served.panel.get(&path).await.json();
    schema::validate(&shown, "compare");
    assert_eq!(shown["lines"], found["lines"]);
    let history = served.panel.document().await["history"].clone();
    assert!(
        history[0]["text"].is_string() && history[0]["text"] != history[1]["text"],
        "{history}"
    );
    let gone = "/api/compare?workspace=0&before=1&after=2";
    assert_eq!(served.panel.get(gone).await.status, 404);
    assert_eq!(served.panel.get("/api/compare?workspace=0&before=-1&after=x").await.status, 400);
}

fn files_below(folder: &std::path::Path) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
            match entry.path() {
                path if path.is_dir() => folders.push(path),
                path => found.push(path),
            }
        }
    }
    found
}
