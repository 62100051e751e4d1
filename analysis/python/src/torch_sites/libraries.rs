//! Libraries that train, and the calls that start their training.

/// Packages whose import shows that a file uses PyTorch.
const PACKAGES: &[&str] = &[
    "torch",
    "torchvision",
    "torchaudio",
    "torch_geometric",
    "lightning_fabric",
    "transformers",
    "accelerate",
    "deepspeed",
    "timm",
    "peft",
    "monai",
    "litgpt",
    "torchtune",
];

/// A library that trains.
#[derive(Debug)]
pub(super) struct Library {
    package: &'static str,
    /// Its functions and methods that train. A name only counts in a file that imports the library,
    /// because many libraries have a `fit`.
    calls: &'static [&'static str],
    /// The reason shown to the user why such a call makes a training script.
    pub(super) reason: &'static str,
}

const fn library(
    package: &'static str,
    calls: &'static [&'static str],
    reason: &'static str,
) -> Library {
    Library { package, calls, reason }
}

/// From the documentation of each library.
const LIBRARIES: &[Library] = &[
    library("keras", &["fit", "fit_generator", "train_on_batch"], "trains with Keras"),
    library("skorch", &["fit", "partial_fit"], "trains with skorch"),
    library("ultralytics", &["train"], "trains with Ultralytics"),
    library("lightning", &["fit", "LightningCLI"], "trains with Lightning"),
    library("pytorch_lightning", &["fit", "LightningCLI"], "trains with Lightning"),
    library(
        "fastai",
        &["fit", "fit_one_cycle", "fine_tune", "fit_flat_cos", "fit_sgdr"],
        "trains with fastai",
    ),
    library("denoising_diffusion_pytorch", &["train"], "trains with denoising-diffusion-pytorch"),
    library("trl", &["train"], "trains with TRL"),
    library("unsloth", &["train", "unsloth_train"], "trains with Unsloth"),
    library("axolotl", &["train"], "trains with Axolotl"),
    library("composer", &["fit"], "trains with Composer"),
    library("ignite", &["run"], "trains with Ignite"),
    library("sentence_transformers", &["fit", "train"], "trains with Sentence Transformers"),
    library("setfit", &["train"], "trains with SetFit"),
    library("simpletransformers", &["train_model"], "trains with Simple Transformers"),
    library("flair", &["train", "fine_tune"], "trains with Flair"),
    library("stable_baselines3", &["learn"], "trains with Stable-Baselines3"),
    library("sb3_contrib", &["learn"], "trains with Stable-Baselines3"),
    library("tianshou", &["run"], "trains with Tianshou"),
    library("pytorch_tabnet", &["fit"], "trains with TabNet"),
    library("pytorch_forecasting", &["fit"], "trains with PyTorch Forecasting"),
    library("neuralforecast", &["fit"], "trains with NeuralForecast"),
    library("darts", &["fit"], "trains with Darts"),
    library("gluonts", &["train"], "trains with GluonTS"),
    library("pykeen", &["pipeline"], "trains with PyKEEN"),
    library("detectron2", &["train"], "trains with Detectron2"),
    library("mmengine", &["train"], "trains with MMEngine"),
    library("catalyst", &["train"], "trains with Catalyst"),
    library("poutyne", &["fit", "fit_generator", "fit_dataset"], "trains with Poutyne"),
    library("pyro", &["step"], "trains with Pyro"),
    library("scvi", &["train"], "trains with scvi-tools"),
    library("nemo", &["fit"], "trains with NeMo"),
    library("speechbrain", &["fit"], "trains with SpeechBrain"),
];

/// Whether importing a package shows that a file uses PyTorch.
pub(super) fn uses_torch(package: &str) -> bool {
    PACKAGES.contains(&package) || LIBRARIES.iter().any(|library| library.package == package)
}

/// Returns the imported library whose training this call starts.
pub(super) fn training_library(
    call: &str,
    is_imported: impl Fn(&str) -> bool,
) -> Option<&'static Library> {
    LIBRARIES.iter().find(|library| library.calls.contains(&call) && is_imported(library.package))
}
