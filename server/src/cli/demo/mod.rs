//! `ridgeline demo`: profiles ResNet-50, on a machine that may have nothing but Rust. Where torch must be installed
//! first, it begins with a recorded run.

pub(super) mod recorded;

use std::path::{Path, PathBuf};

use ridgeline_gpu::environment;
use ridgeline_gpu::interpreter::{self, Consent, Search, SystemEnvironment};
use tokio_util::sync::CancellationToken;

use super::DemoArgs;
use super::exit::Failure;
use super::terminal::Terminal;
use super::{profile, report, run, setup, show};
use crate::findings;
use crate::pipeline::{Overrides, Pipeline, Request};
use crate::profiler::Profiled;
use crate::store::{Store, create_private, write_atomic};
use crate::what_if;

/// The demo's files, embedded in the binary for machines without a checkout. A test compares them
/// with the folder.
const FILES: [(&str, &str); 4] = [
    ("train.py", include_str!("../../../../demo-projects/resnet/train.py")),
    ("model.py", include_str!("../../../../demo-projects/resnet/model.py")),
    ("data.py", include_str!("../../../../demo-projects/resnet/data.py")),
    ("skyline_provider.py", include_str!("../../../../demo-projects/resnet/skyline_provider.py")),
];

/// Runs the subcommand. Running the demo command is the user's consent.
pub(super) fn run(args: &DemoArgs, terminal: &Terminal) -> Result<(), Failure> {
    let store = run::open_store()?;
    let root = demo_project(&store)?;
    let device = args.device.as_deref().map(profile::parse_device).transpose()?;
    let python = args.python.as_deref().map(profile::absolute).transpose()?;
    let pipeline = Pipeline::new(store.clone());
    let profiled = run::block_on(|cancel| {
        let (root, store) = (root.clone(), store.clone());
        async move {
            let python = match python {
                Some(python) => python,
                None => match find_python(&store, &root, terminal, &cancel).await? {
                    Ok(python) => python,
                    Err(why) => {
                        terminal.note(&why);
                        let recorded = recorded::read(&store, &root)?;
                        terminal.print(&format!(
                            "A recorded run, while this machine has no torch to measure with:\n\n{}\n",
                            page(&recorded, args, &store, terminal)?
                        ))?;
                        setup::create_environment(&store, terminal, &cancel).await?.path
                    }
                },
            };
            let overrides = Overrides {
                python: Some(python),
                device,
                without_sandbox: true,
                ..Overrides::default()
            };
            let script = Some(root.join("train.py"));
            let request = Request { workspace: root, script, overrides, ..Request::default() };
            let plan = pipeline.plan(request).await.map_err(run::failure_of)?;
            run::run_plan(&pipeline, &plan, terminal, &cancel).await
        }
    })??;
    let page = page(&profiled, args, &store, terminal)?;
    terminal.print(&format!("{page}Source: {}\n", root.display()))
}

/// Writes the report of a run. Returns the source with its costs, the summary, the findings and the report's path.
fn page(
    profiled: &Profiled,
    args: &DemoArgs,
    store: &Store,
    terminal: &Terminal,
) -> Result<String, Failure> {
    let sources = show::Sources::read(profiled);
    let mut text = show::annotated_sources(profiled, &sources, terminal);
    text.push_str(&show::summary(profiled, terminal));
    let recorded_run = what_if::recorded_run(profiled);
    let found = findings::of_run(profiled, &recorded_run);
    text.push_str(&show::findings(profiled, &found, true, terminal));
    let file = match &args.report {
        Some(file) => file.clone(),
        None => {
            let folder = store.cache().join("demo");
            create_private(&folder).map_err(|error| Failure::failed(error.to_string(), ""))?;
            folder.join("report.html")
        }
    };
    report::write(profiled, &sources, &found, &recorded_run, store, &file)?;
    text.push_str(&format!("\nReport: {}\n", file.display()));
    Ok(text)
}

/// An existing Python with torch, or why there is none.
async fn find_python(
    store: &Store,
    root: &Path,
    terminal: &Terminal,
    cancel: &CancellationToken,
) -> Result<Result<PathBuf, String>, Failure> {
    // In a checkout, also search next to the demos and in the root folder.
    let workspace = root.ancestors().nth(2).unwrap_or(root).to_owned();
    let search = Search {
        root: root.to_owned(),
        workspace,
        configured: None,
        editor: None,
        private: environment::installed(store.cache()),
    };
    let system =
        SystemEnvironment { variables: std::env::vars_os().collect(), windows: cfg!(windows) };
    let bar = terminal.spinner("looking for a Python with torch");
    let found = tokio::select! {
        () = cancel.cancelled() => return Err(Failure::interrupted()),
        found = interpreter::find(&search, &system, Consent::Given) => found,
    };
    bar.finish_and_clear();
    let found = found.and_then(|found| found.usable().map(|_| found.path.clone()));
    Ok(found.map_err(|error| error.to_string()))
}

/// The demo in the checkout from which this binary was built, else a copy in the cache folder.
pub(super) fn demo_project(store: &Store) -> Result<PathBuf, Failure> {
    let checkout = Path::new(env!("CARGO_MANIFEST_DIR")).join("../demo-projects/resnet");
    if let Ok(checkout) = checkout.canonicalize()
        && checkout.join("train.py").is_file()
    {
        return Ok(checkout);
    }
    let folder = store.cache().join("demo").join("resnet");
    let wrong = |error: crate::store::StoreError| Failure::failed(error.to_string(), "");
    for (name, text) in FILES {
        let file = folder.join(name);
        create_private(file.parent().unwrap_or(&folder)).map_err(wrong)?;
        write_atomic(&file, text.as_bytes()).map_err(wrong)?;
    }
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use ridgeline_analysis::python::fingerprint;

    use super::*;

    #[test]
    fn the_binary_contains_the_whole_demo() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../demo-projects/resnet");
        let mut there: Vec<String> = std::fs::read_dir(folder)
            .expect("the demo is in the checkout")
            .flatten()
            .filter(|entry| entry.path().is_file())
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect();
        there.sort();
        let mut carried: Vec<&str> = FILES.iter().map(|(name, _)| *name).collect();
        carried.sort();
        assert_eq!(carried, there);
    }

    #[test]
    fn the_recorded_run_is_of_the_present_text() {
        let folder = tempfile::tempdir().expect("a folder");
        let store = Store::at(folder.path().join("cache"), folder.path().join("state"));
        let root = demo_project(&store).expect("the demo");
        let profiled = recorded::read(&store, &root).expect("a run");
        assert_eq!(profiled.profile.iteration.batch_size, Some(8));
        for file in &profiled.profile.files {
            let text = FILES.iter().find(|(name, _)| *name == file.path).map(|(_, text)| text);
            let text = text.unwrap_or_else(|| panic!("{} is not of the demo", file.path));
            assert_eq!(file.fingerprint, fingerprint(text), "{}", file.path);
        }
    }
}
