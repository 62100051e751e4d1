//! Finds out whether a module that was not found is compiled code of the project that is not built:
//! an extension in C++ or CUDA that a `setup.py` names, or a file in Cython.

use std::fs::File;
use std::io::Read as _;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;

use ridgeline_analysis::present::failure::RunFailure;
use ridgeline_analysis::present::failure::advice::unbuilt_module;
use ridgeline_analysis::present::failure::run::UnbuiltModule;

use crate::walk::{Limits, visit_nearest_first};

const LIMITS: Limits = Limits { entries: 20_000, depth: 8, time: Duration::from_secs(1) };
const MAX_SETUP_BYTES: u64 = 1 << 20;

pub(super) fn find(failure: &RunFailure, root: &Path) -> Option<UnbuiltModule> {
    let module = unbuilt_module(&failure.error_type, &failure.message)?;
    let cython = format!("{}.pyx", module.replace('.', "/"));
    let mut found = None;
    visit_nearest_first(
        root,
        |_| true,
        LIMITS,
        |entry| {
            let relative = entry.path().strip_prefix(root).unwrap_or(Path::new(""));
            let is_file = entry.file_type().is_some_and(|kind| kind.is_file());
            let needs_torch = match is_file {
                true if relative.ends_with("setup.py") => builds(entry.path(), &module),
                true => relative.ends_with(&cython).then_some(false),
                false => None,
            };
            if let (Some(needs_torch), Some(path)) = (needs_torch, relative.to_str()) {
                found = Some(UnbuiltModule { source: path.replace('\\', "/"), needs_torch });
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        },
    );
    found
}

/// Whether building with a `setup.py` needs PyTorch. Returns `None` if it has no extension of this
/// name.
fn builds(setup: &Path, module: &str) -> Option<bool> {
    let mut bytes = Vec::new();
    File::open(setup).ok()?.take(MAX_SETUP_BYTES).read_to_end(&mut bytes).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    let name = module.rsplit('.').next().filter(|name| !name.is_empty())?;
    let is_named = text.match_indices(name).any(|(at, _)| {
        text[at + name.len()..].starts_with(['\'', '"']) && names_extension(&text[..at])
    });
    let imports_torch = |line: &str| {
        line.trim_start().starts_with("import torch") || line.trim_start().starts_with("from torch")
    };
    (is_named && text.contains("ext_modules")).then(|| text.lines().any(imports_torch))
}

/// Whether a name that comes after this text is that of an extension: `CUDAExtension('pkg._C', …)` or
/// `make_cuda_ext(name='_C', module='pkg', …)`, but not a requirement.
fn names_extension(before: &str) -> bool {
    let package = |c: char| c == '.' || c == '_' || c.is_alphanumeric();
    let Some(call) = before.trim_end_matches(package).strip_suffix(['\'', '"']) else {
        return false;
    };
    let call = call.trim_end();
    let is_name = |call: &str| call.trim_end().ends_with("name");
    call.ends_with("xtension(")
        || call.ends_with("_ext(")
        || call.strip_suffix('=').is_some_and(is_name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extensions_and_cython() {
        let folder = tempfile::TempDir::new().expect("a folder");
        let cuda = "setup(install_requires=['scipy', \"pkg.gym\"], ext_modules=[\n\
            CUDAExtension('pkg._C', sources), make_ext(\n    name = \"MSDA\", sources=[])])";
        for (file, text) in [
            ("setup.py", "setup(name='pkg')"),
            ("ops/setup.py", cuda),
            ("pkg/data/transforms.pyx", ""),
            ("pkg/data/other.py", ""),
        ] {
            let file = folder.path().join(file);
            std::fs::create_dir_all(file.parent().expect("one")).expect("created");
            std::fs::write(file, text).expect("written");
        }
        let look = |error_type: &str, message: &str| {
            let failure = RunFailure {
                error_type: error_type.into(),
                message: message.into(),
                ..RunFailure::default()
            };
            find(&failure, folder.path()).map(|found| found.source)
        };
        let missing =
            |name: &str| look("ModuleNotFoundError", &format!("No module named '{name}'"));
        assert_eq!(missing("MSDA").as_deref(), Some("ops/setup.py"));
        assert_eq!(missing("pkg._C").as_deref(), Some("ops/setup.py"));
        assert_eq!(missing("pkg.data.transforms").as_deref(), Some("pkg/data/transforms.pyx"));
        assert_eq!(missing("pkg"), None);
        assert_eq!(missing("MSD"), None);
        // Requirements.
        assert_eq!(missing("scipy"), None);
        assert_eq!(missing("gym"), None);
        let name = |name: &str, from: &str| {
            look("ImportError", &format!("cannot import name '{name}' from {from} (…/x.py)"))
        };
        let partial = "partially initialized module 'pkg.data'";
        assert_eq!(name("transforms", partial).as_deref(), Some("pkg/data/transforms.pyx"));
        assert_eq!(name("_C", "'pkg'").as_deref(), Some("ops/setup.py"));
        assert_eq!(name("other", partial), None);
    }
}
