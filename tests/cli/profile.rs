//! `ridgeline profile`, with programs that train and programs that fail. Needs a Python with torch.

use std::process::Command;

use serde_json::Value;

use crate::cli::schema;
use crate::sandbox::{CommandResult, Sandbox, python_with_torch, run_to_end};

const TRAINS: &str = include_str!("scripts/train.py");

/// Profiles a script in an otherwise empty project. Returns `None` without torch.
fn profile(sandbox: &Sandbox, script: &str, more: &[&str]) -> Option<CommandResult> {
    let python = python_with_torch()?;
    sandbox.write("train.py", script);
    let mut command = sandbox.ridgeline();
    command.args(["profile", "train.py", "--device", "cpu", "--python"]).arg(python).args(more);
    Some(run_to_end(&mut command))
}

/// Returns a training loop with these lines in its body.
fn loop_with(body: &str) -> String {
    format!(
        "import os, sys, torch\n\
         net = torch.nn.Linear(8, 8)\n\
         optimizer = torch.optim.SGD(net.parameters(), lr=0.1)\n\
         for step in range(100):\n    \
             optimizer.zero_grad()\n    \
             net(torch.randn(4, 8)).sum().backward()\n    \
             optimizer.step()\n    {body}\n"
    )
}

#[test]
fn without_a_fork() {
    let Some(python) = python_with_torch() else { return };
    let sandbox = Sandbox::new();
    sandbox.write("train.py", TRAINS);
    let mut command = sandbox.ridgeline();
    command.env("RIDGELINE_AGENT_MODE", "standby");
    command.args(["profile", "train.py", "--device", "cpu", "--json", "-", "--python"]).arg(python);
    let json = run_to_end(&mut command).exits_with(0).stdout;
    let json: Value = serde_json::from_str(&json).expect("JSON and nothing else");
    assert_eq!(json["iteration"]["batch_size"], 32);
}

#[test]
fn configured_variables_are_set_before_the_program_starts() {
    // OpenMP reads its variable when it is loaded, before the program starts.
    let sandbox = Sandbox::new();
    sandbox.write("ridgeline.toml", "[environment]\nOMP_NUM_THREADS = \"1\"\n");
    let script = loop_with("assert torch.get_num_threads() == 1, torch.get_num_threads()");
    let Some(result) = profile(&sandbox, &script, &[]) else { return };
    result.exits_with(0);
}

/// Returns the JSON profile of a script, and its terminal output.
fn document(script: &str) -> Option<Value> {
    let sandbox = Sandbox::new();
    let json = profile(&sandbox, script, &["--json", "-"])?.exits_with(0).stdout;
    Some(serde_json::from_str(&json).expect("JSON and nothing else"))
}

#[track_caller]
fn check_note(document: &Value, expected: &str) {
    let notes = document["notes"].as_array().expect("notes");
    let is_there = notes.iter().any(|note| note.as_str().is_some_and(|it| it.contains(expected)));
    assert!(is_there, "{expected}: {notes:?}");
}

#[test]
fn a_program_of_one_iteration_runs_several_times() {
    let script = loop_with("").replace("range(100)", "range(1)");
    let Some(document) = document(&script) else { return };
    assert_eq!(document["iteration"]["found_by"], "optimizer");
    assert_eq!(document["iteration"]["timed_ms"].as_array().map(Vec::len), Some(3));
    check_note(&document, "the program has 1 iteration: it was run 5 times");
    check_note(&document, "It is slower than later ones");
}

#[test]
fn a_program_that_only_calls_its_model() {
    let script = "import torch\nnet = torch.nn.Linear(8, 8)\nif __name__ == '__main__':\n    \
                  y = net(torch.randn(4, 8))\n";
    let Some(document) = document(script) else { return };
    let iteration = &document["iteration"];
    assert_eq!((&iteration["found_by"], &iteration["batch_size"]), (&"module".into(), &4.into()));
    assert!(iteration["forward_ms"].as_f64().is_some_and(|time| time > 0.0), "{iteration}");
    check_note(&document, "forward only");
}

#[test]
fn a_loop_that_generates() {
    let script = "import torch\n\
        net = torch.nn.Sequential(torch.nn.Embedding(9, 8), torch.nn.Linear(8, 9)).eval()\n\
        text = torch.zeros(2, 3, dtype=torch.long)\n\
        for step in range(60):\n    \
            with torch.no_grad():\n        \
                token = net(text)[:, -1].argmax(-1, keepdim=True)\n    \
            text = torch.cat([text, token], 1)\n";
    let Some(document) = document(script) else { return };
    assert!(document["iteration"]["tokens_per_s"].as_f64().is_some_and(|rate| rate > 0.0));
    assert_eq!(document["iteration"]["samples_per_s"], Value::Null);
    check_note(&document, "generation");
}

#[test]
fn a_program_that_trains_in_child_processes() {
    let script = "import torch, torch.multiprocessing as mp\n\
        def train(rank):\n    \
            torch.set_num_threads(1)\n    \
            net = torch.nn.Linear(8, 8)\n    \
            optimizer = torch.optim.SGD(net.parameters(), lr=0.1)\n    \
            while True:\n        \
                optimizer.zero_grad()\n        \
                net(torch.randn(4, 8)).sum().backward()\n        \
                optimizer.step()\n\
        if __name__ == '__main__':\n    \
            children = [mp.Process(target=train, args=(rank,)) for rank in range(2)]\n    \
            for child in children: child.start()\n    \
            for child in children: child.join()\n";
    let Some(document) = document(script) else { return };
    assert_eq!(document["iteration"]["loop"]["line"], 6);
    check_note(&document, "trains in 2 child processes");
}

#[test]
fn a_plain_script() {
    let sandbox = Sandbox::new();
    let Some(result) = profile(&sandbox, TRAINS, &["--json", "-"]) else { return };
    let result = result.exits_with(0);
    let json: Value = serde_json::from_str(&result.stdout).expect("JSON and nothing else");
    schema::validate(&json, "profile");
    assert_eq!(json["device"]["kind"], "cpu");
    assert_eq!(json["iteration"]["batch_size"], 32);
    let number = |pointer: &str| {
        json.pointer(pointer).and_then(Value::as_f64).unwrap_or_else(|| panic!("{pointer}: {json}"))
    };
    assert!(number("/iteration/time_ms") > 0.0);
    assert!(number("/iteration/samples_per_s") > 0.0);
    let phases: f64 = ["forward", "backward", "optimizer", "data", "other"]
        .iter()
        .map(|phase| number(&format!("/iteration/{phase}_ms")))
        .sum();
    assert!((phases / number("/iteration/time_ms") - 1.0).abs() < 0.01);
    let at_peak: f64 =
        ["weights", "gradients", "optimizer_state", "activations", "batch", "temporaries", "other"]
            .iter()
            .map(|kind| number(&format!("/memory/at_peak/{kind}")))
            .sum();
    assert_eq!(at_peak, number("/memory/peak_bytes"));
    let lines = json["lines"].as_array().expect("lines");
    let has =
        |line: u64| lines.iter().any(|entry| entry["file"] == "train.py" && entry["line"] == line);
    for (line, what) in [(12, "first"), (13, "second"), (24, "backward"), (25, "step")] {
        assert!(has(line), "no entry for line {line}, {what}");
    }
    assert_expressions(lines);
    let modules = json["modules"].as_array().expect("modules");
    let first = modules.iter().find(|module| module["path"] == "first").expect("a module");
    assert_eq!((&first["type"], &first["line"]), (&"Linear".into(), &8.into()));
}

/// Checks the expressions of the lines of [`TRAINS`], which are recorded since Python 3.12.
fn assert_expressions(lines: &[Value]) {
    let newer = "import sys; sys.exit(sys.version_info < (3, 12))";
    let python = python_with_torch().expect("the one that profiled");
    let records_expressions =
        Command::new(python).args(["-c", newer]).status().expect("Python").success();
    for (number, columns) in [
        (12, vec![("torch.relu(…)", 12..37), ("self.first(x)", 23..36)]),
        (23, vec![("nn.functional.cross_entropy(…)", 15..62), ("net(batch)", 43..53)]),
        (24, vec![]),
    ] {
        let line = lines.iter().find(|line| line["line"] == number).expect("the line");
        let found = line["expressions"].as_array().expect("expressions").iter().map(|one| {
            assert!(one["total_ms"].as_f64() <= line["total_ms"].as_f64(), "{line}");
            let column = |key: &str| one[key].as_u64().expect("a column");
            (one["text"].as_str().expect("a text"), column("column")..column("end_column"))
        });
        let expected = if records_expressions { columns } else { Vec::new() };
        assert_eq!(found.collect::<Vec<_>>(), expected, "{line}");
    }
}

#[test]
fn lines_and_a_report_for_people() {
    let sandbox = Sandbox::new();
    let report = sandbox.path("report.html");
    let more = ["--lines", "--report", report.to_str().expect("it is text")];
    let Some(result) = profile(&sandbox, TRAINS, &more) else { return };
    result.exits_with(0).stdout_contains("loss.backward()").stdout_contains("report.html");
    let page = std::fs::read_to_string(report).expect("the report");
    assert!(page.contains("<html") && page.contains("train.py"));
    // The same profile can be shown again without a run.
    let recordings = sandbox.path("cache").join("recordings");
    let of_project = std::fs::read_dir(recordings).expect("recordings").flatten().next();
    let recording = std::fs::read_dir(of_project.expect("the project's").path())
        .expect("its recordings")
        .flatten()
        .find(|entry| entry.path().join("manifest.json").is_file());
    let recording = recording.expect("a recording").path();
    let recording = recording.to_str().expect("it is text");
    let analyzed = sandbox.run(&["analyze", recording, "--json", "-"]).exits_with(0);
    let json: Value = serde_json::from_str(&analyzed.stdout).expect("JSON and nothing else");
    schema::validate(&json, "profile");
    assert!(json["kernels"].is_array());
    let again = sandbox.path("again.html");
    sandbox.run(&["report", "-o", again.to_str().expect("it is text")]).exits_with(0);
    let page = std::fs::read_to_string(again).expect("the report");
    let data = |id: &str| -> Value {
        let start = format!("<script type=\"application/json\" id=\"{id}\">");
        let data = page.split_once(&start).and_then(|(_, rest)| rest.split_once("</script>"));
        serde_json::from_str(data.expect("the data").0).expect("JSON")
    };
    let (panel, timeline) = (data("panel-data"), data("timeline-data"));
    assert_eq!((&panel["schema"], &timeline["schema"]), (&1.into(), &1.into()));
    assert_eq!(panel["recording"]["files"][0]["path"], "train.py");
    let names = timeline["names"].as_array().expect("names");
    assert!(names.iter().any(|name| name == "aten::linear"), "{names:?}");
}

#[test]
fn program_output_is_not_mixed_in() {
    let sandbox = Sandbox::new();
    let prints = loop_with("print('\\x1b[31mnoise'); os.write(1, b'\\xff\\xfenoise\\n')");
    let Some(result) = profile(&sandbox, &prints, &["--json", "-"]) else { return };
    let result = result.exits_with(0);
    assert!(!result.stdout.contains("noise") && !result.stderr.contains("noise"));
}

#[test]
fn arguments_reach_the_program() {
    let sandbox = Sandbox::new();
    let wants = format!("import sys\nassert sys.argv[1:] == ['--x', 'y z'], sys.argv\n{TRAINS}");
    let Some(result) = profile(&sandbox, &wants, &["--", "--x", "y z"]) else { return };
    result.exits_with(0);
}

#[test]
fn a_few_iterations_are_enough() {
    let sandbox = Sandbox::new();
    let few = loop_with("").replace("range(100)", "range(4)");
    let Some(result) = profile(&sandbox, &few, &[]) else { return };
    result.exits_with(0).stdout_contains("the program has 4 iterations: it was run");
    let one = loop_with("").replace("range(100)", "range(1)");
    let Some(result) = profile(&sandbox, &one, &[]) else { return };
    result.exits_with(0).stdout_contains("the program has 1 iteration: it was run");
}

#[test]
fn an_exception_is_shown_at_its_line() {
    let sandbox = Sandbox::new();
    let raises = loop_with("if step == 1: torch.ones(2, 3) @ torch.ones(2, 3)");
    let Some(result) = profile(&sandbox, &raises, &[]) else { return };
    result
        .exits_with(1)
        .stderr_contains("train.py:8: RuntimeError: ")
        .stderr_contains("mat1 and mat2 shapes");
}

#[test]
fn an_exit_is_shown() {
    let sandbox = Sandbox::new();
    let Some(result) = profile(&sandbox, "import sys\nsys.exit('no data here')\n", &[]) else {
        return;
    };
    result.exits_with(1).stderr_contains("train.py:2").stderr_contains("no data here");
}

#[test]
fn a_syntax_error_is_shown_at_its_line() {
    let sandbox = Sandbox::new();
    let Some(result) = profile(&sandbox, "import torch\nx = = 1\n", &[]) else { return };
    result.exits_with(1).stderr_contains("train.py:2: SyntaxError");
}

#[test]
fn a_crash_is_named() {
    let sandbox = Sandbox::new();
    let crashes = loop_with("if step == 1: os.kill(os.getpid(), 11)");
    let Some(result) = profile(&sandbox, &crashes, &[]) else { return };
    result.exits_with(1).stderr_contains("segmentation fault");
}

#[test]
fn an_endless_program_is_stopped() {
    let sandbox = Sandbox::new();
    let endless = "import torch\nwhile True:\n    pass\n";
    let Some(result) = profile(&sandbox, endless, &["--seconds", "2"]) else { return };
    result.exits_with(1).stderr_contains("exceeded 2 s").stderr_contains("[limits]");
}

#[test]
fn a_program_that_does_not_train() {
    let sandbox = Sandbox::new();
    let Some(result) = profile(&sandbox, "import torch\nprint(torch.ones(2))\n", &[]) else {
        return;
    };
    result.exits_with(1).stderr_contains("before its first iteration");
}

#[test]
fn a_provider_file() {
    let sandbox = Sandbox::new();
    let Some(python) = python_with_torch() else { return };
    sandbox.write("entry_point.py", include_str!("scripts/entry_point.py"));
    let mut command = sandbox.ridgeline();
    command.args(["profile", "entry_point.py", "--batch-size", "16", "--device", "cpu"]);
    command.args(["--json", "-", "--python"]).arg(python);
    let result = run_to_end(&mut command).exits_with(0);
    let json: Value = serde_json::from_str(&result.stdout).expect("JSON and nothing else");
    assert_eq!(json["iteration"]["batch_size"], 16);
}

#[test]
fn everything_can_be_configured() {
    let sandbox = Sandbox::new();
    let Some(python) = python_with_torch() else { return };
    let wants = format!(
        "import os, sys\nassert sys.argv[1:] == ['--fast']\nassert os.environ['MODE'] == 'x'\n\
         assert os.path.basename(os.getcwd()) == 'data'\n{TRAINS}"
    );
    sandbox.write("src/train.py", wants);
    sandbox.write("src/other.py", TRAINS);
    sandbox.write("data/keep", "");
    let python = python.display();
    let config = format!(
        "script = 'src/train.py'\narguments = ['--fast']\nworking_directory = 'data'\n\
         python = '{python}'\ndevice = 'cpu'\n[environment]\nMODE = 'x'\n[iterations]\ntimed = 2\n"
    );
    sandbox.write("ridgeline.toml", config);
    let result = sandbox.run(&["profile", ".", "--json", "-"]).exits_with(0);
    let json: Value = serde_json::from_str(&result.stdout).expect("JSON and nothing else");
    assert_eq!(json["iteration"]["timed_ms"].as_array().map(Vec::len), Some(2));
    assert!(
        json["lines"].as_array().expect("lines").iter().all(|line| line["file"] == "src/train.py")
    );
}

#[test]
fn a_python_without_torch() {
    let sandbox = Sandbox::new();
    let Some(python) = python_with_torch() else { return };
    let bare = sandbox.path("bare");
    let status = std::process::Command::new(python)
        .args(["-m", "venv", "--without-pip"])
        .arg(&bare)
        .status()
        .expect("python starts");
    assert!(status.success());
    sandbox.write("train.py", TRAINS);
    let arguments = ["profile", "train.py", "--python", bare.to_str().expect("it is text")];
    sandbox
        .run(&arguments)
        .exits_with(4)
        .stderr_contains("no torch")
        .stderr_contains("pip install torch");
}

#[cfg(unix)]
#[test]
fn an_interrupt_ends_everything() {
    use std::process::Stdio;
    let sandbox = Sandbox::new();
    let Some(python) = python_with_torch() else { return };
    let pid_file = sandbox.path("pid");
    let sleeps = format!(
        "import os, time, torch\nopen({pid_file:?}, 'w').write(str(os.getpid()))\ntime.sleep(600)\n"
    );
    sandbox.write("train.py", sleeps);
    let mut command = sandbox.ridgeline();
    // It must write where this test can read.
    command.args(["profile", "train.py", "--side-effects", "allow", "--python"]).arg(python);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let program = loop {
        let text = std::fs::read_to_string(&pid_file).unwrap_or_default();
        match text.parse::<u32>() {
            Ok(pid) => break pid,
            Err(_) => std::thread::sleep(std::time::Duration::from_millis(50)),
        }
    };
    let sent = std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    assert!(sent.expect("kill starts").success());
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(130));
    // The program ends soon afterwards. Wait for it instead of sleeping.
    while std::process::Command::new("kill")
        .args(["-0", &program.to_string()])
        .stderr(Stdio::null())
        .status()
        .expect("kill starts")
        .success()
    {
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}

/// A project with an existing checkpoint, and a program that overwrites it before its loop.
fn with_checkpoint(sandbox: &Sandbox) -> (std::path::PathBuf, String) {
    let checkpoint = sandbox.write("out/model.pt", "of weeks of training");
    let script = loop_with("").replace(
        "for step",
        "torch.save(net.state_dict(), 'out/model.pt')\n\
         assert torch.load('out/model.pt')['bias'].shape == (8,)\n\
         open('out/log.txt', 'w').write('1')\n\
         for step",
    );
    (checkpoint, script)
}

#[cfg(unix)]
#[test]
fn a_run_does_not_overwrite_a_checkpoint() {
    let sandbox = Sandbox::new();
    let (checkpoint, script) = with_checkpoint(&sandbox);
    let Some(result) = profile(&sandbox, &script, &["--json", "-"]) else { return };
    let result = result
        .exits_with(0)
        .stderr_contains("Not written to disk: 2 files")
        .stderr_contains("out/model.pt");
    assert_eq!(std::fs::read_to_string(&checkpoint).expect("it is there"), "of weeks of training");
    assert!(!sandbox.project().join("out/log.txt").exists());
    let json: Value = serde_json::from_str(&result.stdout).expect("JSON and nothing else");
    schema::validate(&json, "profile");
    let effects = &json["side_effects"];
    assert_eq!(effects["mode"], "redirect");
    assert_eq!(effects["count"], 2);
    assert_eq!(effects["changes"][0]["path"], "out/log.txt");
    assert_eq!(effects["changes"][1]["path"], "out/model.pt");
    assert_eq!(effects["changes"][1]["change"], "changed");
}

#[cfg(unix)]
#[test]
fn side_effects_follow_the_setting() {
    let sandbox = Sandbox::new();
    let (checkpoint, script) = with_checkpoint(&sandbox);
    // The command line overrides the configuration.
    sandbox.write("ridgeline.toml", "side_effects = \"allow\"\n");
    let Some(result) = profile(&sandbox, &script, &["--side-effects", "deny"]) else { return };
    result.exits_with(1);
    assert_eq!(std::fs::read_to_string(&checkpoint).expect("it is there"), "of weeks of training");
    let Some(result) = profile(&sandbox, &script, &[]) else { return };
    let result = result.exits_with(0);
    assert!(!result.stderr.contains("Not written to disk"), "{}", result.stderr);
    assert_ne!(std::fs::read(&checkpoint).expect("it is there"), b"of weeks of training");
    assert!(sandbox.project().join("out/log.txt").exists());
}

#[cfg(unix)]
#[test]
fn a_failing_program_does_not_overwrite_a_checkpoint() {
    let sandbox = Sandbox::new();
    let (checkpoint, script) = with_checkpoint(&sandbox);
    let script = script.replace("for step", "1 / 0\nfor step");
    let Some(result) = profile(&sandbox, &script, &[]) else { return };
    result
        .exits_with(1)
        .stderr_contains("ZeroDivisionError")
        .stderr_contains("Not written to disk: 2 files");
    assert_eq!(std::fs::read_to_string(&checkpoint).expect("it is there"), "of weeks of training");
}

/// A loop that leaves anomaly detection on. The finding is at the line of `set_detect_anomaly`.
const ANOMALY: &str = "\
import torch
torch.autograd.set_detect_anomaly(True)
net = torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(4)])
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for step in range(100):
    optimizer.zero_grad()
    net(torch.randn(16, 64)).square().mean().backward()
    optimizer.step()
";

/// Returns a rule's findings in a JSON profile.
fn found(result: &CommandResult, rule: &str) -> Vec<Value> {
    let json: Value = serde_json::from_str(&result.stdout).expect("JSON and nothing else");
    schema::validate(&json, "profile");
    let findings = json["findings"].as_array().expect("findings").clone();
    findings.into_iter().filter(|one| one["rule"] == rule).collect()
}

#[test]
fn findings_are_reported_until_silenced() {
    let sandbox = Sandbox::new();
    let Some(result) = profile(&sandbox, ANOMALY, &["--json", "-"]) else { return };
    let result = result.exits_with(0);
    let [finding] = &found(&result, "anomaly-detection")[..] else { panic!("{}", result.stdout) };
    assert_eq!((&finding["file"], &finding["line"]), (&"train.py".into(), &2.into()));
    assert_eq!(finding["fix"], "remove-anomaly-detection");
    let result = profile(&sandbox, ANOMALY, &[]).expect("a Python").exits_with(0);
    result
        .stdout_contains("Findings")
        .stdout_contains("train.py:2")
        .stdout_contains("anomaly-detection");
    let comment = ANOMALY.replace("(True)", "(True)  # ridgeline: ignore[anomaly-detection]");
    let silenced = profile(&sandbox, &comment, &["--json", "-"]).expect("a Python").exits_with(0);
    assert_eq!(found(&silenced, "anomaly-detection"), Vec::<Value>::new());
    sandbox.write("ridgeline.toml", "[findings]\nignore = [\"anomaly-detection:*.py\"]\n");
    let silenced = profile(&sandbox, ANOMALY, &["--json", "-"]).expect("a Python").exits_with(0);
    assert_eq!(found(&silenced, "anomaly-detection"), Vec::<Value>::new());
}
