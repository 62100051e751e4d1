//! Names and calls of older versions of Python, NumPy, PyTorch and other libraries, and what to
//! write instead.

use super::{Advice, Failed, between, missing_module, quoted};

/// A removed name, since when it is missing, and what replaces it.
type Removed = (&'static str, &'static str, &'static str);

/// Attributes of modules.
const ATTRIBUTES: &[(&str, &[Removed])] = &[
    (
        "numpy",
        &[
            ("bool", "NumPy 1.24", "bool"),
            ("complex", "NumPy 1.24", "complex"),
            ("float", "NumPy 1.24", "float"),
            ("int", "NumPy 1.24", "int"),
            ("long", "NumPy 1.24", "int"),
            ("object", "NumPy 1.24", "object"),
            ("str", "NumPy 1.24", "str"),
            ("cumproduct", "NumPy 2", "np.cumprod"),
            ("in1d", "NumPy 2", "np.isin"),
            ("product", "NumPy 2", "np.prod"),
            ("row_stack", "NumPy 2", "np.vstack"),
            ("sometrue", "NumPy 2", "np.any"),
            ("trapz", "NumPy 2", "np.trapezoid"),
        ],
    ),
    (
        "torch",
        &[
            ("ifft", "PyTorch 1.8", "torch.fft.ifft"),
            ("irfft", "PyTorch 1.8", "torch.fft.irfft"),
            ("rfft", "PyTorch 1.8", "torch.fft.rfft"),
        ],
    ),
    (
        "PIL.Image",
        &[
            ("ANTIALIAS", "Pillow 10", "Image.LANCZOS"),
            ("LINEAR", "Pillow 10", "Image.BILINEAR"),
            ("CUBIC", "Pillow 10", "Image.BICUBIC"),
        ],
    ),
    (
        "collections",
        &[
            ("Callable", "Python 3.10", "collections.abc.Callable"),
            ("Iterable", "Python 3.10", "collections.abc.Iterable"),
            ("Mapping", "Python 3.10", "collections.abc.Mapping"),
            ("MutableMapping", "Python 3.10", "collections.abc.MutableMapping"),
            ("Sequence", "Python 3.10", "collections.abc.Sequence"),
        ],
    ),
    ("time", &[("clock", "Python 3.8", "time.perf_counter")]),
    ("inspect", &[("getargspec", "Python 3.11", "inspect.getfullargspec")]),
    ("fractions", &[("gcd", "Python 3.9", "math.gcd")]),
];

/// Attributes of objects, by the class in the message.
const METHODS: &[(&str, &[Removed])] = &[
    (
        "numpy.ndarray",
        &[
            ("tostring", "NumPy 2", "tobytes"),
            ("ptp", "NumPy 2", "np.ptp(x)"),
            ("itemset", "NumPy 2", "x[index] = value"),
        ],
    ),
    (
        "DataFrame",
        &[
            ("append", "pandas 2.0", "pd.concat"),
            ("iteritems", "pandas 2.0", "items"),
            ("ix", "pandas 1.0", "loc"),
            ("as_matrix", "pandas 1.0", "to_numpy"),
        ],
    ),
    ("Series", &[("append", "pandas 2.0", "pd.concat"), ("iteritems", "pandas 2.0", "items")]),
    ("FreeTypeFont", &[("getsize", "Pillow 10", "getbbox")]),
    ("ImageDraw", &[("textsize", "Pillow 10", "textbbox")]),
];

/// Modules.
const MODULES: &[Removed] = &[
    ("imp", "Python 3.12", "importlib"),
    ("asyncore", "Python 3.12", "asyncio"),
    ("cgi", "Python 3.13", "urllib.parse"),
    ("cPickle", "Python 3.0", "pickle"),
    ("ConfigParser", "Python 3.0", "configparser"),
    ("Queue", "Python 3.0", "queue"),
    ("StringIO", "Python 3.0", "io"),
    ("Tkinter", "Python 3.0", "tkinter"),
    ("urllib2", "Python 3.0", "urllib.request"),
    ("urlparse", "Python 3.0", "urllib.parse"),
];

/// What programs import from `torch._six`.
const TORCH_SIX: &[Removed] = &[
    ("container_abcs", "PyTorch 2.0", "import collections.abc as container_abcs"),
    ("inf", "PyTorch 2.0", "from torch import inf"),
    ("string_classes", "PyTorch 2.0", "string_classes = str"),
];

/// Arguments of functions, by the function in the message, and what to do.
const KEYWORDS: &[(&str, &str, &str)] = &[
    ("ReduceLROnPlateau", "verbose", "Remove it; `get_last_lr()` returns the learning rate"),
    ("LR", "verbose", "Remove it; `get_last_lr()` returns the learning rate"),
    ("Trainer", "tokenizer", "Write `processing_class` instead"),
    ("TrainingArguments", "evaluation_strategy", "Write `eval_strategy` instead"),
    ("TrainingArguments", "no_cuda", "Write `use_cpu` instead"),
    ("OneHotEncoder", "sparse", "Write `sparse_output` instead"),
    ("TensorDataset", "data_tensor", "Pass the tensors without names"),
    ("backward", "retain_variables", "Write `retain_graph` instead"),
];

/// The program uses an argument that newer versions removed:
/// `Trainer.__init__() got an unexpected keyword argument 'tokenizer'`.
pub(super) fn removed_keyword(failed: &Failed) -> Option<Advice> {
    let message = failed.failure.message.as_str();
    let (function, rest) = message.split_once(" got an unexpected keyword argument '")?;
    let keyword = rest.split('\'').next()?;
    let owner = function.split("()").next()?.trim_end_matches(".__init__");
    let (.., instead) = KEYWORDS.iter().find(|(of, name, _)| {
        *name == keyword && owner.rsplit('.').next().is_some_and(|last| last.ends_with(of))
    })?;
    failed.is(&["TypeError"]).then_some(())?;
    failed.because(
        "removed-name",
        format!(
            "Newer versions of {} do not have the argument {}. {instead}.",
            quoted(owner),
            quoted(keyword)
        ),
    )
}

/// An installed package uses a name that NumPy removed. The program's own line has nothing to change.
pub(super) fn package_for_old_numpy(failed: &Failed) -> Option<Advice> {
    if !failed.is(&["AttributeError"]) {
        return None;
    }
    let message = failed.failure.message.as_str();
    let name = between(message, "module 'numpy' has no attribute '", "'")
        .or_else(|| between(message, "`np.", "` was removed in the NumPy 2.0 release"))?;
    let (package, _) = failed.raised_in().split_once('/')?;
    let is_own = failed.run.source.contains(&format!(".{name}"))
        || failed.failure.frames.iter().any(|frame| frame.path == failed.raised_in());
    if is_own {
        return None;
    }
    let since = find(ATTRIBUTES, "numpy", name).map_or("NumPy 2", |(_, since, _)| since);
    // The newest `gym` is the one that fails.
    let update = match package {
        "gym" => "Its successor is `gymnasium`; to keep it,".to_owned(),
        package => format!("Update {}, or", quoted(package)),
    };
    let (name, package) = (quoted(&format!("np.{name}")), quoted(package));
    let python = &failed.run.python;
    let below = since.trim_start_matches("NumPy ");
    failed.because(
        "removed-name",
        format!(
            "The installed package {package} uses {name}, which {since} removed. {update} \
            install an older NumPy: `{python} -m pip install \"numpy<{below}\"`."
        ),
    )
}

/// The program, or a package that it imports, needs `distutils`.
pub(super) fn distutils(failed: &Failed) -> Option<Advice> {
    let module = missing_module(&failed.failure.error_type, &failed.failure.message)?;
    (module.split('.').next() == Some("distutils")).then_some(())?;
    failed.because(
        "removed-name",
        format!(
            "Python 3.12 removed `distutils`. The package `setuptools` has a copy: `{} -m pip install \
            setuptools`.",
            failed.run.python
        ),
    )
}

/// The program uses a name that newer versions removed.
pub(super) fn removed_name(failed: &Failed) -> Option<Advice> {
    let (name, since, instead) = stated_by_numpy(failed).or_else(|| {
        let (name, (_, since, instead)) = module_attribute(failed)
            .or_else(|| imported_name(failed))
            .or_else(|| method(failed))
            .or_else(|| module(failed))?;
        Some((name, *since, *instead))
    })?;
    failed.because(
        "removed-name",
        format!(
            "{since} removed {}: the program was written for an older version. Write {} instead.",
            quoted(&name),
            quoted(instead)
        ),
    )
}

/// NumPy's own text: "`np.float_` was removed in the NumPy 2.0 release. Use `np.float64` instead."
fn stated_by_numpy<'t>(failed: &'t Failed) -> Option<(String, &'static str, &'t str)> {
    let message = failed.failure.message.as_str();
    let name = between(message, "`", "` was removed in the NumPy 2.0 release")?;
    let instead = between(message, "release. Use `", "`")?;
    failed.is(&["AttributeError"]).then(|| (name.to_owned(), "NumPy 2", instead))
}

fn find(table: &[(&str, &'static [Removed])], owner: &str, name: &str) -> Option<&'static Removed> {
    let (_, removed) = table.iter().find(|(of, _)| *of == owner)?;
    removed.iter().find(|(of, ..)| *of == name)
}

/// `module 'numpy' has no attribute 'float_'`.
fn module_attribute(failed: &Failed) -> Option<(String, &'static Removed)> {
    if !failed.is(&["AttributeError"]) {
        return None;
    }
    let message = failed.failure.message.as_str();
    let owner = between(message, "odule '", "'")?;
    let name = between(message, "has no attribute '", "'")?;
    find(ATTRIBUTES, owner, name).map(|removed| (format!("{owner}.{name}"), removed))
}

/// `cannot import name 'Iterable' from 'collections' (…)`.
fn imported_name(failed: &Failed) -> Option<(String, &'static Removed)> {
    if !failed.is(&["ImportError"]) {
        return None;
    }
    let message = failed.failure.message.as_str();
    let name = between(message, "cannot import name '", "'")?;
    let owner = between(message, "from '", "'")?;
    find(ATTRIBUTES, owner, name).map(|removed| (format!("{owner}.{name}"), removed))
}

/// `'numpy.ndarray' object has no attribute 'tostring'`.
fn method(failed: &Failed) -> Option<(String, &'static Removed)> {
    if !failed.is(&["AttributeError"]) {
        return None;
    }
    let message = failed.failure.message.as_str();
    let (owner, rest) = message.strip_prefix('\'')?.split_once("' object has no attribute '")?;
    let name = rest.split('\'').next()?;
    find(METHODS, owner, name).map(|removed| (format!("{owner}.{name}"), removed))
}

fn module(failed: &Failed) -> Option<(String, &'static Removed)> {
    let name = missing_module(&failed.failure.error_type, &failed.failure.message)?;
    if name == "torch._six" {
        let of_line = TORCH_SIX.iter().find(|(part, ..)| failed.run.source.contains(part));
        return Some((name.to_owned(), of_line.or(TORCH_SIX.first())?));
    }
    let removed = MODULES.iter().find(|(of, ..)| *of == name)?;
    Some((name.to_owned(), removed))
}

/// Code for PyTorch 0.3 and earlier.
pub(super) fn old_pytorch(failed: &Failed) -> Option<Advice> {
    let is_index =
        failed.is(&["IndexError"]) && failed.message_contains(&["invalid index of a 0-dim tensor"]);
    let is_keyword = failed.failure.kind == "syntax" && failed.run.source.contains("async=");
    let instead = if is_index {
        "a loss has no dimensions since then. Write `loss.item()` instead of `loss.data[0]`"
    } else if is_keyword {
        "`async` became a keyword of Python. Write `non_blocking=True` instead of `async=True`"
    } else {
        return None;
    };
    failed.because(
        "old-pytorch",
        format!("This line was written for a PyTorch before 0.4: {instead}."),
    )
}

/// Code for the interface that Gym changed in versions 0.25 and 0.26. Gymnasium never had it.
pub(super) fn old_gym(failed: &Failed) -> Option<Advice> {
    let source = failed.run.source.as_str();
    let unpacks = failed.is(&["ValueError"])
        && failed.message_contains(&["too many values to unpack (expected 4)"])
        && source.contains(".step(");
    let seeds = failed.is(&["AttributeError"])
        && failed.message_contains(&["has no attribute 'seed'"])
        && source.contains("env")
        && source.contains(".seed(");
    let instead = if unpacks {
        "`env.step()` returns five values since then: `state, reward, terminated, truncated, info`"
    } else if seeds {
        "pass the seed to `env.reset(seed=…)` instead of `env.seed(…)`"
    } else {
        return None;
    };
    failed.because(
        "old-gym",
        format!(
            "This line was written for an older Gym: {instead}. `env.reset()` returns the \
            state and an `info`, too. Check the program's requirements and install that version: \
            `{} -m pip install \"gym<0.25\"`.",
            failed.run.python
        ),
    )
}
