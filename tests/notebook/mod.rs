//! The `%%ridgeline` magic in a real kernel, with Jupyter's own client (`magic.py`). RIDGELINE_NOTEBOOK_PYTHON names a
//! Python that has `ipykernel`, `nbclient` and torch; `tests/run` makes one.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::sandbox::{Sandbox, repository, run_to_end};

#[test]
#[cfg(unix)]
fn the_magic_profiles_a_cell_of_a_running_kernel() {
    let Some(python) = std::env::var_os("RIDGELINE_NOTEBOOK_PYTHON") else {
        println!(
            "skipped: no Python with `ipykernel` and `nbclient` (set RIDGELINE_NOTEBOOK_PYTHON)"
        );
        return;
    };
    let sandbox = Sandbox::new();
    // As `pip install --target` places the wheel's module and binary.
    let packages = sandbox.path("packages");
    fs::create_dir_all(packages.join("bin")).expect("a folder");
    let link = |to: &Path, name: &str| {
        std::os::unix::fs::symlink(to, packages.join(name)).expect("a link");
    };
    link(&repository().join("server/python/ridgeline"), "ridgeline");
    link(Path::new(env!("CARGO_BIN_EXE_ridgeline")), "bin/ridgeline");
    let mut command = Command::new(python);
    command
        .arg(repository().join("tests/notebook/magic.py"))
        .current_dir(sandbox.project())
        .env("PYTHONPATH", &packages)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("OMP_NUM_THREADS", "1")
        .env("RIDGELINE_CACHE_DIR", sandbox.path("cache"))
        .env("RIDGELINE_STATE_DIR", sandbox.path("state"));
    for variable in ["IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR"]
    {
        command.env(variable, sandbox.path(variable));
    }
    run_to_end(&mut command).exits_with(0).stdout_contains("the magic works");

    // The run is in the store, as if `ridgeline profile` had measured it.
    let annotated = sandbox.run(&["annotate", "train.ipynb"]).exits_with(0);
    let step = annotated.stdout.lines().find(|row| row.ends_with("optimizer.step()"));
    assert!(step.is_some_and(|row| row.contains('%')), "{}", annotated.stdout);
    annotated.stderr_contains("source unchanged since");
    let runs = sandbox.run(&["compare"]).exits_with(0).stdout;
    assert_eq!(runs.matches(" ago").count(), 2, "{runs}");
}
