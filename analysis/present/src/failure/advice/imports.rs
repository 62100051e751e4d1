//! Modules that are not found.

use super::{Advice, Reader, Seen, between, quoted};

/// Names on the package index that differ from the module's.
const PACKAGES: &[(&str, &str)] = &[
    ("Crypto", "pycryptodome"),
    ("OpenSSL", "pyOpenSSL"),
    ("PIL", "Pillow"),
    ("attr", "attrs"),
    ("bs4", "beautifulsoup4"),
    ("clip", "openai-clip"),
    ("comet_ml", "comet-ml"),
    ("cv2", "opencv-python"),
    ("dateutil", "python-dateutil"),
    ("dotenv", "python-dotenv"),
    ("faiss", "faiss-cpu"),
    ("git", "GitPython"),
    ("google.protobuf", "protobuf"),
    ("hydra", "hydra-core"),
    ("lightning_fabric", "lightning"),
    ("mpl_toolkits", "matplotlib"),
    ("open_clip", "open-clip-torch"),
    ("osgeo", "GDAL"),
    ("pkg_resources", "setuptools"),
    ("pl_bolts", "lightning-bolts"),
    ("pytorch_lightning", "pytorch-lightning"),
    ("serial", "pyserial"),
    ("sentence_transformers", "sentence-transformers"),
    ("skimage", "scikit-image"),
    ("sklearn", "scikit-learn"),
    ("skopt", "scikit-optimize"),
    ("torch_geometric", "torch-geometric"),
    ("torch_scatter", "torch-scatter"),
    ("torch_sparse", "torch-sparse"),
    ("umap", "umap-learn"),
    ("usb", "pyusb"),
    ("yaml", "PyYAML"),
    ("zmq", "pyzmq"),
];

/// The module that could not be found, dotted.
pub fn missing_module<'t>(error_type: &str, message: &'t str) -> Option<&'t str> {
    if !["ModuleNotFoundError", "ImportError"].contains(&super::last_name(error_type)) {
        return None;
    }
    between(message.lines().next()?, "No module named '", "'")
}

/// A script that is part of a package and was run by its path.
pub(super) fn relative_import(seen: &Seen) -> Option<Advice> {
    let text = "relative import with no known parent package";
    let path = &seen.failure.frames.first().filter(|_| seen.says(&[text]))?.path;
    let module = path.strip_suffix(".py")?;
    let is_within = module.contains('/') && !module.starts_with(['/', '.']);
    let module = is_within.then(|| module.replace('/', "."))?;
    seen.because(
        "relative-import",
        format!(
            "This file must run as part of its package: set `module = \"{module}\"` in \
            ridgeline.toml to run it like `python -m {module}`."
        ),
    )
}

/// A module of the project that Python does not look for where it is.
pub(super) fn own_module(seen: &Seen) -> Option<Advice> {
    let name = missing_module(&seen.failure.error_type, &seen.failure.message)?;
    let found = seen.run.elsewhere.first()?;
    // `src/data/loading.py` for `data.loading` is looked for from `src`.
    let top = name.split('.').next().unwrap_or(name);
    let folder = match found.rsplit_once('/') {
        Some((folder, _)) => folder,
        None => "",
    };
    let shown = if folder.is_empty() { "." } else { folder };
    let how = seen.run.with_variable(seen.reader, "PYTHONPATH", shown);
    seen.because(
        "own-module",
        format!(
            "{} is part of the project ({}), but Python does not search there: it searches next to \
            the script. Set {how}, or install the project (`pip install -e .`).",
            quoted(top),
            quoted(found)
        ),
    )
}

/// A package that this Python does not have.
pub(super) fn missing_package(seen: &Seen) -> Option<Advice> {
    let name = missing_module(&seen.failure.error_type, &seen.failure.message)?;
    let top = name.split('.').next().unwrap_or(name);
    if seen.run.error.module.as_ref().is_some_and(|module| module.version.is_some()) {
        // The package is there, and a part of it is not.
        return None;
    }
    let known = |wanted: &str| PACKAGES.iter().find(|(module, _)| *module == wanted);
    let package = known(name).or_else(|| known(top)).map_or(top, |(_, package)| package);
    let renamed = match package == top {
        true => String::new(),
        false => format!(" (the package is called {})", quoted(package)),
    };
    let python = &seen.run.python;
    let other = match seen.reader {
        Reader::Terminal => "`--python PATH`, or `python` in ridgeline.toml",
        Reader::Editor => "the editor's choice of interpreter, or `python` in ridgeline.toml",
    };
    seen.because(
        "missing-package",
        format!(
            "{}{renamed} is not installed in the environment of {python}. Install it: `{python} -m \
            pip install {package}`. Or choose the environment that has it: {other}.",
            quoted(top)
        ),
    )
}

/// A library of the system, or of another build of a package.
pub(super) fn missing_library(seen: &Seen) -> Option<Advice> {
    if !seen.is(&["ImportError", "OSError"]) {
        return None;
    }
    let said = seen.failure.message.as_str();
    if said.contains("cannot open shared object file") {
        let name = said.split(": ").next().filter(|name| name.contains(".so"))?;
        let name = name.trim_start_matches("…/");
        return seen.because(
            "missing-library",
            format!(
                "The shared library {} is missing. If it belongs to CUDA, the package was built \
                for a different CUDA version than this PyTorch ({}): install matching builds. \
                Otherwise install it with the system package manager.",
                quoted(name),
                seen.run.torch
            ),
        );
    }
    if said.contains("undefined symbol: ") {
        return seen.because(
            "binary-mismatch",
            format!(
                "A compiled package was built for a different version of a library, usually of \
                PyTorch, than this {}. Install a build that matches this version.",
                seen.run.torch
            ),
        );
    }
    None
}
