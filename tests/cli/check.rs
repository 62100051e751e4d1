//! `ridgeline check`, on recordings, on a program, and with invalid baselines.

use serde_json::{Value, json};

use crate::cli::schema;
use crate::sandbox::{CommandResult, Sandbox, python_with_torch, repository, run_to_end};

const TRAINS: &str = include_str!("scripts/train.py");

fn recording(name: &str) -> String {
    repository().join("tests/recordings").join(name).to_str().expect("a path").to_owned()
}

fn check(sandbox: &Sandbox, arguments: &[&str]) -> CommandResult {
    sandbox.run(&[&["check"], arguments].concat())
}

fn json_of(result: &CommandResult) -> Value {
    let found: Value = serde_json::from_str(&result.stdout).expect("JSON and nothing else");
    schema::validate(&found, "check");
    found
}

/// Returns `name: status` of every check.
fn statuses(found: &Value) -> Vec<String> {
    let items = found["items"].as_array().expect("items");
    let word = |item: &Value, key: &str| item[key].as_str().expect("a word").to_owned();
    items.iter().map(|item| format!("{}: {}", word(item, "name"), word(item, "status"))).collect()
}

#[test]
fn budgets_of_a_recording() {
    let sandbox = Sandbox::new();
    let mlp = recording("mlp-cpu");
    check(&sandbox, &[&mlp]).exits_with(0).stdout_contains("Nothing to check");
    let generous = ["--max-time", "60000", "--max-memory", "500 GB", "--max-findings", "hint/1000"];
    let result = check(&sandbox, &[&[mlp.as_str()], &generous[..], &["--format", "json"]].concat());
    let found = json_of(&result.exits_with(0));
    assert_eq!(found["passed"], true);
    assert_eq!(
        statuses(&found),
        ["time-budget: passed", "memory-budget: passed", "findings-hint: passed"]
    );
    let result = check(
        &sandbox,
        &[&mlp, "--max-time", "0.0001", "--max-memory", "1 kB", "--format", "json"],
    );
    let found = json_of(&result.exits_with(1).stderr_contains("2 of 2 checks failed"));
    assert_eq!(found["passed"], false);
    assert_eq!(statuses(&found), ["time-budget: broken", "memory-budget: broken"]);
}

#[test]
fn the_same_run_passes_its_baseline_and_another_fails() {
    let sandbox = Sandbox::new();
    let (mlp, conv) = (recording("mlp-cpu"), recording("conv-cpu"));
    let file = sandbox.path("baseline.json");
    let file = file.to_str().expect("a path");
    check(&sandbox, &[&mlp, "--write-baseline", file]).exits_with(0);
    let text = std::fs::read_to_string(file).expect("it was written");
    let baseline: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(baseline["run"]["version"], 1);
    let result = check(&sandbox, &[&mlp, "--baseline", file, "--format", "json"]).exits_with(0);
    let found = json_of(&result);
    assert!(statuses(&found).iter().all(|item| !item.ends_with("broken")), "{found}");
    assert_eq!(statuses(&found).len(), 2);
    // A recording can be a baseline, too. The other program uses more memory.
    let result = check(&sandbox, &[&mlp, "--baseline", &conv]);
    result.stdout_contains("time-regression").stdout_contains("memory-regression");
}

#[test]
fn usage_errors_are_reported_before_anything_runs() {
    let sandbox = Sandbox::new();
    let gone = "gone.py";
    for (option, value, message) in [
        ("--max-regression", "5", "`5` is not a percentage"),
        ("--max-regression", "-5%", "`-5%` is not a percentage"),
        ("--max-memory", "much", "`much` is not a size"),
        ("--max-time", "0", "`0` is not a time"),
        ("--max-findings", "error/0", "`error/0` is not a findings budget"),
        ("--max-findings", "warning", "`warning` is not a findings budget"),
        ("--format", "xml", "xml"),
    ] {
        check(&sandbox, &[gone, &format!("{option}={value}")])
            .exits_with(2)
            .stderr_contains(message);
    }
    sandbox.write("train.py", TRAINS);
    check(&sandbox, &["train.py", "--baseline", "gone.json"])
        .exits_with(2)
        .stderr_contains("--write-baseline");
    sandbox.write("ridgeline.toml", "[check]\nmax_regression = 5\n");
    check(&sandbox, &["train.py"]).exits_with(2).stderr_contains("ridgeline.toml:2");
}

#[test]
fn invalid_baselines() {
    let sandbox = Sandbox::new();
    let mlp = recording("mlp-cpu");
    let deep = "{\"run\":".repeat(100_000);
    let huge = format!("{{\"schema\": 1, \"lines\": [{}]}}", "0,".repeat(2_000_000) + "0");
    for (name, text) in [
        ("empty.json", ""),
        ("words.json", "no JSON"),
        ("deep.json", deep.as_str()),
        ("huge.json", huge.as_str()),
        ("older.json", "{\"schema\": 1, \"iteration\": {}}"),
        ("words.txt", "not the output of"),
    ] {
        let file = sandbox.write(name, text);
        let file = file.to_str().expect("a path");
        check(&sandbox, &[&mlp, "--baseline", file])
            .exits_with(2)
            .stderr_contains(name)
            .stderr_contains("A baseline is");
    }
    // Absurd but readable values are corrected.
    let odd = json!({"run": {"version": 1, "device": "x", "time_ns": -5, "timed_ns": [-1, 0],
        "lines": [{"file": 7, "line": 0}], "phases_ns": [0, 0, 0, 0, 0]}});
    let file = sandbox.write("odd.json", odd.to_string());
    let result = check(&sandbox, &[&mlp, "--baseline", file.to_str().expect("a path")]);
    result.exits_with(0).stdout_contains("not checked");
    let strict = ["--strict", "--baseline", file.to_str().expect("a path")];
    let result = check(&sandbox, &[&[mlp.as_str()], &strict[..]].concat());
    result.exits_with(1).stdout_contains("FAILED       time-regression: cannot be compared");
}

#[test]
fn every_format_can_be_written_to_a_file_with_a_page() {
    let sandbox = Sandbox::new();
    let mlp = recording("mlp-cpu");
    let written = |format: &str| {
        let file = sandbox.path("out");
        let arguments = [
            &mlp,
            "--max-time",
            "0.0001",
            "--format",
            format,
            "--output",
            file.to_str().expect("a path"),
        ];
        check(&sandbox, &arguments).exits_with(1).stdout_contains("FAILED       time-budget");
        std::fs::read_to_string(&file).expect("written")
    };
    let sarif: Value = serde_json::from_str(&written("sarif")).expect("JSON");
    assert_eq!(sarif["version"], "2.1.0");
    assert_eq!(sarif["runs"][0]["results"][0]["ruleId"], "time-budget");
    let quality: Value = serde_json::from_str(&written("code-quality")).expect("JSON");
    assert_eq!(quality[0]["check_name"], "time-budget");
    let junit = written("junit");
    assert!(junit.starts_with("<?xml") && junit.contains("failures=\"1\""), "{junit}");
    assert!(written("text").starts_with("FAILED"));
    let found: Value = serde_json::from_str(&written("json")).expect("JSON");
    schema::validate(&found, "check");
}

#[test]
fn a_failing_program_is_reported_in_every_format() {
    let sandbox = Sandbox::new();
    sandbox.write("train.py", TRAINS);
    let written = |format: &str| {
        let file = sandbox.path("out");
        let file = file.to_str().expect("a path");
        let arguments = ["train.py", "--python", "gone", "--format", format, "--output", file];
        let result = check(&sandbox, &arguments);
        assert_eq!(result.stdout, "");
        let message = result.exits_with(4).stderr;
        (std::fs::read_to_string(file).expect("written"), message)
    };
    let (sarif, message) = written("sarif");
    let sarif: Value = serde_json::from_str(&sarif).expect("JSON");
    let invocation = &sarif["runs"][0]["invocations"][0];
    assert_eq!(invocation["executionSuccessful"], false);
    let why = &invocation["toolExecutionNotifications"][0]["message"]["text"];
    let why = why.as_str().expect("a text");
    assert!(
        !why.is_empty() && message.contains(why.lines().next().expect("a line")),
        "{why}: {message}"
    );
    let (junit, _) = written("junit");
    assert!(junit.contains("errors=\"1\"") && junit.contains("<error message="), "{junit}");
    let found: Value = serde_json::from_str(&written("json").0).expect("JSON");
    schema::validate(&found, "check");
    assert_eq!((&found["passed"], &found["items"]), (&json!(false), &json!([])));
    let quality: Value = serde_json::from_str(&written("code-quality").0).expect("JSON");
    assert_eq!(quality[0]["check_name"], "program");
    // A page would only repeat the error.
    let file = sandbox.path("none");
    let file = file.to_str().expect("a path");
    check(&sandbox, &["train.py", "--python", "gone", "--output", file]).exits_with(4);
    assert!(!sandbox.path("none").exists());
}

#[test]
fn a_program_is_checked_against_its_configuration() {
    let Some(python) = python_with_torch() else { return };
    let sandbox = Sandbox::new();
    sandbox.write("train.py", TRAINS);
    let config =
        "[check]\nbaseline = \"baseline.json\"\nmax_regression = \"900%\"\nmax_time = 60000\n";
    sandbox.write("ridgeline.toml", config);
    let check = |more: &[&str]| {
        let mut command = sandbox.ridgeline();
        command.args(["check", "train.py", "--device", "cpu", "--python"]).arg(python).args(more);
        run_to_end(&mut command)
    };
    // The baseline does not exist before it is written.
    let missing = check(&[]).exits_with(2);
    missing.stderr_contains("baseline.json does not exist");
    check(&["--write-baseline", "baseline.json"])
        .exits_with(0)
        .stdout_contains("passed       time-budget");
    let baseline =
        std::fs::read_to_string(sandbox.project().join("baseline.json")).expect("written");
    let baseline: Value = serde_json::from_str(&baseline).expect("JSON");
    // More iterations than without a baseline, and even more if iterations are fast.
    let timed = baseline["run"]["timed_ns"].as_array().map(Vec::len);
    assert!(timed.is_some_and(|timed| timed >= 7), "{timed:?}");
    // The time depends on the machine, so the test makes the baseline slow, and then fast.
    let baseline_times = |factor: f64| {
        let mut changed = baseline.clone();
        let run = &mut changed["run"];
        let scaled = |value: &Value| json!(value.as_f64().expect("a time") * factor);
        let time_ns = scaled(&run["time_ns"]);
        run["time_ns"] = time_ns;
        run["timed_ns"] = run["timed_ns"].as_array().expect("times").iter().map(scaled).collect();
        for line in run["lines"].as_array_mut().expect("lines") {
            line["own_ns"] = json!(0);
            line["total_ns"] = json!(0);
        }
        std::fs::write(sandbox.project().join("baseline.json"), changed.to_string())
            .expect("written");
    };
    baseline_times(1000.0);
    let found = json_of(&check(&["--format", "json"]).exits_with(0));
    let all = ["time-budget: passed", "time-regression: passed", "memory-regression: passed"];
    assert_eq!(statuses(&found), all, "{found}");

    // Much slower, confirmed by a second run, and reported at a line that takes longer.
    baseline_times(0.001);
    let result = check(&["--max-regression", "100%", "--format", "json"]);
    let found = json_of(&result.exits_with(1).stderr_contains("measuring again"));
    let items = found["items"].as_array().expect("items");
    let time = items.iter().find(|item| item["name"] == "time-regression").expect("the question");
    assert_eq!(time["status"], "broken");
    assert!(
        time["message"].as_str().is_some_and(|text| text.ends_with("confirmed by a second run"))
    );
    assert_eq!(time["at"]["file"], "train.py");
    assert!(time["at"]["line"].as_u64() > Some(1), "{time}");

    // A larger model exceeds the memory budget. One run is enough to show that.
    baseline_times(1000.0);
    let large = TRAINS.replace("64, 128", "64, 8192").replace("128, 10", "8192, 512");
    sandbox.write("train.py", large.replace("randint(0, 10", "randint(0, 512"));
    let found = json_of(&check(&["--format", "json"]).exits_with(1));
    assert!(statuses(&found).contains(&"memory-regression: broken".to_owned()), "{found}");
}
