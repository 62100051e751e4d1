use expect_test::{Expect, expect};

use std::path::Path;

use super::load::parse;
use super::*;

/// Checks the result of a `ridgeline.toml` with this text: an error message without the folder, or
/// `ok`.
#[track_caller]
fn check(text: &str, expected: Expect) {
    check_files(&[(FILE_NAME, text)], expected);
}

#[track_caller]
fn check_files(files: &[(&str, &str)], expected: Expect) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for (name, text) in files {
        std::fs::write(folder.path().join(name), text).expect("written");
    }
    let result = match load(folder.path()) {
        Ok(loaded) => {
            let script = loaded.config.script.map(|script| script.0.display().to_string());
            format!("ok, script {script:?}, notes {:?}", loaded.notes)
        }
        Err(mut error) => {
            error.file = error.file.file_name().unwrap_or_default().into();
            error.to_string()
        }
    };
    expected.assert_eq(&result);
}

fn parsed(text: &str) -> Config {
    parse(text).expect("it is right")
}

#[test]
fn every_key_is_accepted() {
    let config = parsed(
        r#"
        script = "./src/../train.py"
        arguments = ["--epochs", "1"]
        working_directory = "."
        python = "~/envs/torch/bin/python"
        device = "cuda:1"
        batch_size = 32
        [environment]
        WANDB_MODE = "disabled"
        [user_code]
        paths = ["src"]
        exclude = ["src/vendor"]
        packages = ["transformers"]
        [iterations]
        warmup = 0
        timed = 5
        profiled = 1
        found_by = "backward"
        [limits]
        seconds = 60
        memory = "16 GB"
        [devices]
        files = ["gpus/ours.toml"]
        [devices.prices]
        T4 = 1
        "H100-SXM5-80GB" = { usd_per_hour = 2.2, date = "2026-11-01" }
        [check]
        baseline = "ci/baseline.json"
        max_regression = "7.5%"
        max_memory = "8 GB"
        max_time = 120
        max_findings = { warning = 0, information = 5 }
        strict = true
        "#,
    );
    assert_eq!(config.script, Some(PathInside("train.py".into())));
    assert_eq!(config.device, DeviceChoice::CudaIndex(1));
    assert_eq!(config.iterations.timed.map(|timed| timed.get()), Some(5));
    assert_eq!(config.limits.memory, Some(Size(16_000_000_000)));
    assert_eq!(config.environment.variables()["WANDB_MODE"], "disabled");
    assert_eq!(config.devices.prices["T4"].price().usd_per_hour, 1.0);
    assert_eq!(config.check.max_regression.map(Percent::share), Some(0.075));
    assert_eq!(config.check.max_time.map(Milliseconds::nanoseconds), Some(120e6));
    assert_eq!(config.check.max_findings.information.map(Count::get), Some(5));
    assert_eq!(config.check.max_findings.hint, None);
    assert!(config.check.strict && !Config::default().check.strict);
    let dated = config.devices.prices["H100-SXM5-80GB"].price();
    assert_eq!((dated.usd_per_hour, dated.date.as_deref()), (2.2, Some("2026-11-01")));
}

#[test]
fn invalid_prices() {
    check(
        "[devices.prices]\nT4 = -1\n",
        expect![[r#"ridgeline.toml:2: `usd_per_hour`: must be a number from 0 to 1000000"#]],
    );
    check(
        "[devices.prices]\nT4 = nan\n",
        expect![[r#"ridgeline.toml:2: `usd_per_hour`: must be a number from 0 to 1000000"#]],
    );
    check(
        "[devices.prices]\nT4 = { usd_per_hour = 1, date = \"today\" }\n",
        expect![[r#"ridgeline.toml:2: `date`: must be a date such as `2026-11-20`"#]],
    );
    check(
        "[devices.prices]\nT4 = \"cheap\"\n",
        expect![[
            r#"ridgeline.toml:2: invalid type: string "cheap", expected US dollars, or a table of `usd_per_hour` and `date`"#
        ]],
    );
}

#[test]
fn invalid_budgets() {
    check(
        "[check]\nmax_regression = 5\n",
        expect![[
            r#"ridgeline.toml:2: invalid type: integer `5`, expected a percentage from "0%" to "1000%""#
        ]],
    );
    check(
        "[check]\nmax_regression = \"-5%\"\n",
        expect![[
            r#"ridgeline.toml:2: invalid value: string "-5%", expected a percentage from "0%" to "1000%""#
        ]],
    );
    check(
        "[check]\nmax_time = 0\n",
        expect![
            "ridgeline.toml:2: invalid value: floating point `0.0`, expected milliseconds: a number above 0, at most 86400000"
        ],
    );
    check(
        "[check.max_findings]\nwarning = -1\n",
        expect![
            "ridgeline.toml:2: invalid value: integer `-1`, expected a whole number from 0 to 1000000"
        ],
    );
    check(
        "[check]\nbaseline = \"../elsewhere.json\"\n",
        expect!["ridgeline.toml:2: `../elsewhere.json` is outside the project"],
    );
}

#[test]
fn an_empty_file_means_the_defaults() {
    assert_eq!(parsed(""), Config::default());
    check_files(&[], expect!["ok, script None, notes []"]);
}

#[test]
fn unknown_keys_list_the_known_ones() {
    check(
        "[iterations]\nwarm_up = 3\n",
        expect![
            "ridgeline.toml:2: unknown field `warm_up`, expected one of `warmup`, `timed`, `profiled`, `found_by`"
        ],
    );
    check(
        "\nscrpt = \"train.py\"\n",
        expect![
            "ridgeline.toml:2: unknown field `scrpt`, expected one of `script`, `module`, `provider`, `arguments`, `environment`, `launcher`, `working_directory`, `python`, `device`, `batch_size`, `side_effects`, `keep_writes`, `user_code`, `iterations`, `limits`, `devices`, `findings`, `check`"
        ],
    );
}

#[test]
fn wrong_types_and_bounds() {
    check(
        "script = 3\n",
        expect!["ridgeline.toml:1: invalid type: integer `3`, expected a string"],
    );
    check(
        "[iterations]\ntimed = 0\n",
        expect![
            "ridgeline.toml:2: invalid value: integer `0`, expected a whole number from 1 to 1000"
        ],
    );
    check(
        "[iterations]\ntimed = -9223372036854775808\n",
        expect![
            "ridgeline.toml:2: invalid value: integer `-9223372036854775808`, expected a whole number from 1 to 1000"
        ],
    );
    check(
        "batch_size = 1.5\n",
        expect![
            "ridgeline.toml:1: invalid type: floating point `1.5`, expected a whole number from 1 to 16777216"
        ],
    );
    check(
        "device = \"gpu\"\n",
        expect![
            "ridgeline.toml:1: unknown device `gpu`: use `auto`, `cpu`, `cuda`, or one GPU such as `cuda:1`"
        ],
    );
    check(
        "[limits]\nmemory = \"lots\"\n",
        expect![[
            r#"ridgeline.toml:2: invalid value: string "lots", expected a number of bytes, or a size such as "16 GB""#
        ]],
    );
    check(
        "[limits]\nmemory = \"1e99 GB\"\n",
        expect![[
            r#"ridgeline.toml:2: invalid value: string "1e99 GB", expected a number of bytes, or a size such as "16 GB""#
        ]],
    );
    check(
        "module = \"a..b\"\n",
        expect!["ridgeline.toml:1: `a..b` is not a valid Python module name"],
    );
}

#[test]
fn paths_stay_inside() {
    check(
        "script = \"../other/train.py\"\n",
        expect!["ridgeline.toml:1: `../other/train.py` is outside the project"],
    );
    check(
        "script = \"/etc/passwd\"\n",
        expect![
            "ridgeline.toml:1: `/etc/passwd` is absolute: use a path relative to the project folder"
        ],
    );
    check(
        "script = \"a/../../b\"\n",
        expect!["ridgeline.toml:1: `a/../../b` is outside the project"],
    );
    check(
        "script = \"a\\u0000b\"\n",
        expect!["ridgeline.toml:1: the path is empty or contains a NUL byte"],
    );
}

#[cfg(unix)]
#[test]
fn links_stay_inside() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    std::os::unix::fs::symlink("/", folder.path().join("out")).expect("a link");
    std::fs::write(folder.path().join("train.py"), "").expect("written");
    assert!(inside(folder.path(), Path::new("train.py")).is_ok());
    assert!(inside(folder.path(), Path::new("gone.py")).is_err());
    let error = inside(folder.path(), Path::new("out/bin")).expect_err("it leads out");
    assert_eq!(error, "`out/bin` is a link to a path outside the project");
}

#[test]
fn only_one_program() {
    check(
        "script = \"a.py\"\nmodule = \"a\"\n",
        expect!["ridgeline.toml: `script` and `module` are mutually exclusive: keep only one"],
    );
}

#[test]
fn environment_values_are_never_quoted() {
    for text in [
        "[environment]\nTOKEN = 12345678\n",
        "[environment]\nTOKEN = [\"12345678\"]\n",
        "[environment]\nTOKEN = \"1234\\u00005678\"\n",
        "[environment]\n\"TOKEN=\" = \"12345678\"\n",
        "environment = \"12345678\"\n",
    ] {
        let error = parse(text).expect_err(text).message;
        assert!(!error.contains("1234"), "{error}");
    }
    let config = parsed("[environment]\nTOKEN = \"12345678\"\n");
    let shown = format!("{config:?}");
    assert!(shown.contains("TOKEN") && !shown.contains("12345678"), "{shown}");
}

#[test]
fn pyproject() {
    let ours = "[project]\nname = \"x\"\n[tool.ridgeline]\nscript = \"train.py\"\n";
    check_files(&[(PYPROJECT, ours)], expect![[r#"ok, script Some("train.py"), notes []"#]]);
    check_files(&[(PYPROJECT, "[project]\nname = \"x\"\n")], expect!["ok, script None, notes []"]);
    check_files(
        &[(PYPROJECT, "[tool.ridgeline]\n\nscrpt = 1\n")],
        expect![
            "pyproject.toml:3: unknown field `scrpt`, expected one of `script`, `module`, `provider`, `arguments`, `environment`, `launcher`, `working_directory`, `python`, `device`, `batch_size`, `side_effects`, `keep_writes`, `user_code`, `iterations`, `limits`, `devices`, `findings`, `check`"
        ],
    );
    check_files(
        &[(PYPROJECT, "[tool.other]\nbroken = = 1\n")],
        expect!["ok, script None, notes []"],
    );
    check_files(&[(PYPROJECT, "tool = 3\n")], expect!["ok, script None, notes []"]);
}

#[test]
fn ridgeline_toml_wins() {
    let ours = (FILE_NAME, "script = \"a.py\"\n");
    check_files(
        &[ours, (PYPROJECT, "[tool.ridgeline]\nscript = \"b.py\"\n")],
        expect![[
            r#"ok, script Some("a.py"), notes ["using ridgeline.toml; [tool.ridgeline] in pyproject.toml is ignored"]"#
        ]],
    );
    check_files(
        &[ours, (PYPROJECT, "[tool.ridgeline]\nscrpt = 1\n")],
        expect![[
            r#"ok, script Some("a.py"), notes ["using ridgeline.toml; [tool.ridgeline] in pyproject.toml is ignored"]"#
        ]],
    );
    check_files(
        &[ours, (PYPROJECT, "[tool.other]\n")],
        expect![[r#"ok, script Some("a.py"), notes []"#]],
    );
}

#[test]
fn hostile_files() {
    check(&"k".repeat(900_000), expect!["ridgeline.toml:1: key with no value, expected `=`"]);
    check(
        &"#".repeat(2_000_000),
        expect!["ridgeline.toml: is larger than 1.0 MB, too large for a configuration"],
    );
    check(
        &format!("script = {}", "[".repeat(20_000)),
        expect!["ridgeline.toml:1: cannot recurse further; max recursion depth met"],
    );
    check(&format!("{}x = 1\n", "a.".repeat(20_000)), expect!["ridgeline.toml: recursion limit"]);
    check("\u{feff}script = \"a.py\"\r\n", expect![[r#"ok, script Some("a.py"), notes []"#]]);
    let folder = tempfile::tempdir().expect("a temporary folder");
    std::fs::write(folder.path().join(FILE_NAME), b"\n\n\xff\xfe").expect("written");
    let error = load(folder.path()).expect_err("it is no text");
    assert_eq!((error.line, error.message.as_str()), (Some(3), "is not UTF-8"));
    std::fs::remove_file(folder.path().join(FILE_NAME)).expect("removed");
    std::fs::create_dir(folder.path().join(FILE_NAME)).expect("a folder");
    assert_eq!(load(folder.path()).expect_err("it is no file").message, "is not a regular file");
}

/// The published JSON schema of `ridgeline.toml`.
fn schema() -> String {
    let schema = schemars::schema_for!(Config);
    let text = serde_json::to_string_pretty(&schema).expect("a schema is JSON");
    format!("{text}\n")
}

#[test]
fn the_documentation_has_every_key() {
    let page = include_str!("../../../docs/configuration.md");
    let schema: serde_json::Value = serde_json::from_str(&schema()).expect("it is JSON");
    let keys = |pointer: &str| -> Vec<String> {
        let table = schema.pointer(pointer).and_then(serde_json::Value::as_object);
        table.expect(pointer).keys().cloned().collect()
    };
    let tables = [
        ("UserCode", "user_code"),
        ("Iterations", "iterations"),
        ("Limits", "limits"),
        ("Devices", "devices"),
        ("Findings", "findings"),
        ("Check", "check"),
        ("Launcher/anyOf/1", "launcher"),
    ];
    let mut all = keys("/properties");
    all.retain(|key| !tables.iter().any(|(_, table)| key == table));
    for (definition, table) in tables {
        let inner = keys(&format!("/$defs/{definition}/properties"));
        all.extend(inner.into_iter().map(|key| format!("{table}.{key}")));
    }
    for key in &all {
        assert!(page.contains(&format!("| `{key}` |")), "{key}");
    }
    assert_eq!(page.matches("\n| `").count(), all.len(), "the page has a key too many");
}

/// Set `UPDATE_SCHEMA=1` to write the file instead.
#[test]
fn the_published_schema_matches_the_code() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/ridgeline.schema.json");
    if std::env::var_os("UPDATE_SCHEMA").is_some() {
        std::fs::write(&file, schema()).expect("written");
    }
    let published = std::fs::read_to_string(&file).expect("it is published");
    assert_eq!(published, schema(), "run this test with UPDATE_SCHEMA=1");
}
