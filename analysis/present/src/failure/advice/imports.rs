//! Modules that are not found.

use super::{Advice, Failed, Reader, between, notebook, quoted};
use crate::failure::run::UnbuiltModule;

/// Modules whose PyPI package has a different name.
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
    ("pybullet_envs", "pybullet"),
    ("pytorch_lightning", "pytorch-lightning"),
    ("serial", "pyserial"),
    ("sentence_transformers", "sentence-transformers"),
    ("skimage", "scikit-image"),
    ("skvideo", "sk-video"),
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

/// Modules that are not on PyPI, and where they are. PyPI may have another project of that name.
const NOT_ON_PYPI: &[(&str, &str)] = &[
    ("apex", "https://github.com/NVIDIA/apex"),
    ("detectron2", "https://github.com/facebookresearch/detectron2"),
    ("pytorch3d", "https://github.com/facebookresearch/pytorch3d"),
    ("tinycudann", "https://github.com/NVlabs/tiny-cuda-nn"),
];

/// Modules that are no longer developed: the last version, and the PyTorch that it was built for.
const DISCONTINUED: &[(&str, &str, &str)] = &[("torchtext", "0.18", "2.3")];

/// Returns the package of a module, if it has another name.
pub(super) fn known_package(module: &str) -> Option<&'static str> {
    PACKAGES.iter().find(|(of, _)| *of == module).map(|(_, package)| *package)
}

/// Returns the dotted name of the module that was not found.
pub fn missing_module<'t>(error_type: &str, message: &'t str) -> Option<&'t str> {
    if !["ModuleNotFoundError", "ImportError"].contains(&super::last_name(error_type)) {
        return None;
    }
    between(message.lines().next()?, "No module named '", "'")
}

/// A script in a package was run by its path, so its relative imports fail.
pub(super) fn relative_import(failed: &Failed) -> Option<Advice> {
    let text = "relative import with no known parent package";
    let path = &failed.failure.frames.first().filter(|_| failed.message_contains(&[text]))?.path;
    let module = path.strip_suffix(".py")?;
    let is_within = module.contains('/') && !module.starts_with(['/', '.']);
    let module = is_within.then(|| module.replace('/', "."))?;
    failed.because(
        "relative-import",
        format!(
            "This file must run as part of its package: set `module = \"{module}\"` in \
            ridgeline.toml to run it like `python -m {module}`."
        ),
    )
}

/// Returns the dotted name of a module that was not found, also as a name of its package.
pub fn unbuilt_module(error_type: &str, message: &str) -> Option<String> {
    if let Some(module) = missing_module(error_type, message) {
        return Some(module.to_owned());
    }
    if super::last_name(error_type) != "ImportError" {
        return None;
    }
    let (_, rest) = message.lines().next()?.split_once("cannot import name '")?;
    let (name, rest) = rest.split_once("' from ")?;
    let rest = rest.strip_prefix("partially initialized module ").unwrap_or(rest);
    let (package, _) = rest.strip_prefix('\'')?.split_once('\'')?;
    Some(format!("{package}.{name}"))
}

/// The module is compiled code of the project.
pub(super) fn not_built(failed: &Failed) -> Option<Advice> {
    let module = unbuilt_module(&failed.failure.error_type, &failed.failure.message)?;
    let UnbuiltModule { source, needs_torch } = failed.run.unbuilt.as_ref()?;
    let python = &failed.run.python;
    let (folder, file) = source.rsplit_once('/').unwrap_or(("", source));
    let text = if file == "setup.py" {
        // By default pip builds in an environment without PyTorch.
        let option = if *needs_torch { "--no-build-isolation " } else { "" };
        format!(
            "{} is compiled code of the project ({} names it), and is not built. Build it: \
            `{python} -m pip install {option}-e ./{folder}`.{}",
            quoted(&module),
            quoted(source),
            if *needs_torch { " CUDA code also needs the CUDA toolkit (`nvcc`)." } else { "" }
        )
    } else {
        format!(
            "{} is written in Cython ({}), and is not built. Install the project, which builds it: \
            `{python} -m pip install -e .` in its folder.",
            quoted(&module),
            quoted(source)
        )
    };
    failed.because("not-built", text)
}

/// The module is in the project, but not on Python's search path.
pub(super) fn own_module(failed: &Failed) -> Option<Advice> {
    let name = missing_module(&failed.failure.error_type, &failed.failure.message)?;
    let found = failed.run.found_paths.first()?;
    let is_installed = failed.run.error.module.as_ref().is_some_and(|it| it.version.is_some());
    if is_installed && name.contains('.') {
        return failed.because(
            "own-module",
            format!(
                "An installed package is called {} as well, and Python prefers it to a folder \
                without `__init__.py`. Add an empty `__init__.py` to the project's folder (it has \
                {}), or use an environment without that package.",
                quoted(name.split('.').next().unwrap_or(name)),
                quoted(found)
            ),
        );
    }
    // To import `data.loading` from `src/data/loading.py`, the search path needs `src`.
    let top = name.split('.').next().unwrap_or(name);
    let folder = match found.rsplit_once('/') {
        Some((folder, _)) => folder,
        None => "",
    };
    let shown = if folder.is_empty() { "." } else { folder };
    let how = failed.run.with_variable(failed.reader, "PYTHONPATH", shown);
    failed.because(
        "own-module",
        format!(
            "{} is part of the project ({}), but Python does not search there: it searches next to \
            the script. Set {how}, or install the project (`pip install -e .`).",
            quoted(top),
            quoted(found)
        ),
    )
}

/// Google's packages share the name `google`, and that of Colab cannot be installed.
pub(super) fn only_in_colab(failed: &Failed) -> Option<Advice> {
    let name = missing_module(&failed.failure.error_type, &failed.failure.message)?;
    let is_certain = name.starts_with("google.colab");
    if !is_certain && name != "google" {
        return None;
    }
    let guard = "`google.colab` exists only in Google Colab. Import it only there: `if \
        \"COLAB_RELEASE_TAG\" in os.environ:`";
    let other = ". For `google.protobuf`, install `protobuf`";
    failed.because("only-in-colab", format!("{guard}{}.", if is_certain { "" } else { other }))
}

/// The package is not installed for this Python.
pub(super) fn missing_package(failed: &Failed) -> Option<Advice> {
    let name = missing_module(&failed.failure.error_type, &failed.failure.message)?;
    let top = name.split('.').next().unwrap_or(name);
    if failed.run.error.module.as_ref().is_some_and(|module| module.version.is_some()) {
        // The package is installed, but a part of it is missing.
        return None;
    }
    let package = known_package(name).or_else(|| known_package(top)).unwrap_or(top);
    let renamed = match package == top {
        true => String::new(),
        false => format!(" (the package is called {})", quoted(package)),
    };
    let python = &failed.run.python;
    let other = match failed.reader {
        Reader::Terminal => "`--python PATH`, or `python` in ridgeline.toml",
        Reader::Editor => "the editor's choice of interpreter, or `python` in ridgeline.toml",
    };
    let source = NOT_ON_PYPI.iter().find(|(module, _)| *module == top);
    let discontinued = DISCONTINUED.iter().find(|(module, ..)| *module == top);
    let how = match (source, discontinued) {
        (Some((_, source)), _) => {
            format!("It is not on PyPI: see {source} for how to build it. Or choose the")
        }
        (None, Some((_, version, torch))) => format!(
            "It is no longer developed: its last version, {version}, needs PyTorch {torch}, and this \
            environment has {}. Choose an",
            failed.run.torch
        ),
        (None, None) => format!("Install it: `{python} -m pip install {package}`. Or choose the"),
    };
    let how = match notebook::requirement_of(failed, &[top, package]) {
        Some(requirement) if discontinued.is_none() => format!(
            "The notebook installs it with a shell command, which a run skips. Run it once: `{python} -m pip install \
            {requirement}`. Or choose the"
        ),
        _ => how,
    };
    failed.because(
        "missing-package",
        format!(
            "{}{renamed} is not installed in the environment of {python}. {how} \
            environment that has it: {other}.",
            quoted(top)
        ),
    )
}

/// An environment of Gym or Gymnasium needs packages that are not installed, and the message says
/// which: `Box2D is not installed, run `pip install gym[box2d]``.
pub(super) fn missing_extra(failed: &Failed) -> Option<Advice> {
    if !failed.is(&["DependencyNotInstalled"]) {
        return None;
    }
    let python = &failed.run.python;
    let install = match pip_packages(&failed.failure.message).as_str() {
        "" => "Install it in the environment of ".to_owned() + python,
        packages => format!("Install it: `{python} -m pip install {packages}`"),
    };
    failed.because(
        "missing-package",
        format!(
            "This Gym environment needs a package that is not installed. {install}. Or choose \
            another environment, such as `CartPole-v1` or, for continuous actions, `Pendulum-v1`."
        ),
    )
}

/// A library checks for a package that it needs, and its message says how to install it: `Requirement
/// 'jsonargparse>=4.27' not met. HINT: Try running `pip install -U 'jsonargparse>=4.27'``.
pub(super) fn stated_package(failed: &Failed) -> Option<Advice> {
    let packages = pip_packages(&failed.failure.message);
    if !failed.is(&["ImportError", "ModuleNotFoundError"]) || packages.is_empty() {
        return None;
    }
    let python = &failed.run.python;
    failed.because(
        "missing-package",
        format!(
            "The environment of {python} does not have what the message names, or an older version. \
            Install it: `{python} -m pip install --upgrade {packages}`."
        ),
    )
}

/// The packages in the `pip install` commands of a message, quoted for a shell.
fn pip_packages(message: &str) -> String {
    let mut packages: Vec<String> = Vec::new();
    for rest in message.split("pip install ").skip(1) {
        let end = rest.find(['`', '\n', ')']).unwrap_or(rest.len());
        let words =
            rest[..end].split_whitespace().map(|word| word.trim_matches(['\'', '"', '.', ',']));
        let named = words.skip_while(|word| word.starts_with('-'));
        // Words after the packages belong to the sentence.
        for name in named.take_while(|name| is_requirement(name)) {
            let quoted = format!("\"{name}\"");
            if !packages.contains(&quoted) {
                packages.push(quoted);
            }
        }
    }
    packages.join(" ")
}

/// Whether a word can be what pip installs: `gymnasium[box2d]`, `swig`, `mujoco>=2.1`.
fn is_requirement(word: &str) -> bool {
    let is_sentence =
        ["to", "and", "or", "followed", "by", "then", "if", "for", "in"].contains(&word);
    let is_part = |c: char| c.is_ascii_alphanumeric() || "-_.[],<>=!~".contains(c);
    word.starts_with(|c: char| c.is_ascii_alphanumeric())
        && !is_sentence
        && word.chars().all(is_part)
}

/// The program asks for the version of a package that is not installed, such as the project itself.
pub(super) fn missing_metadata(failed: &Failed) -> Option<Advice> {
    let message = failed.failure.message.as_str();
    let name = message.lines().next()?.strip_prefix("No package metadata was found for ")?.trim();
    if !failed.is(&["PackageNotFoundError"]) || name.is_empty() {
        return None;
    }
    let python = &failed.run.python;
    let install = match is_requirement(name) {
        true => format!(": `{python} -m pip install {name}`"),
        false => String::new(),
    };
    failed.because(
        "missing-package",
        format!(
            "The program asks for the version of {}, which is not installed in the environment of \
            {python}. If that is this project, install it in place: `{python} -m pip install -e .`. \
            Otherwise install the package{install}.",
            quoted(name)
        ),
    )
}

/// A shared library is missing, or a package was built for another version of a library.
pub(super) fn missing_library(failed: &Failed) -> Option<Advice> {
    if !failed.is(&["ImportError", "OSError"]) {
        return None;
    }
    let message = failed.failure.message.as_str();
    if message.contains("cannot open shared object file") {
        let name = message.split(": ").next().filter(|name| name.contains(".so"))?;
        let name = name.trim_start_matches("…/");
        return failed.because(
            "missing-library",
            format!(
                "The shared library {} is missing. If it belongs to CUDA, the package was built \
                for a different CUDA version than this PyTorch ({}): install matching builds. \
                Otherwise install it with the system package manager.",
                quoted(name),
                failed.run.torch
            ),
        );
    }
    if message.contains("undefined symbol: ") {
        return failed.because(
            "binary-mismatch",
            format!(
                "A compiled package was built for a different version of a library, usually of \
                PyTorch, than this {}. Install a build that matches this version.",
                failed.run.torch
            ),
        );
    }
    None
}
