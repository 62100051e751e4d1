//! Recognizes that an optimization was applied: the text that ran is the previous one with its edit. Then the speedup is
//! compared with the prediction.

use std::collections::BTreeMap;
use std::sync::Arc;

use ridgeline_analysis::optimize::accuracy::{Pair, Sides};
use ridgeline_analysis::optimize::optimization::Prediction;
use ridgeline_analysis::optimize::rewrite::{EditKind, Request, rewrite};
use ridgeline_analysis::optimize::study::Study;
use ridgeline_analysis::present::what_ifs;
use ridgeline_analysis::profile::Profile;
use ridgeline_analysis::python::fingerprint;

use super::worker_count;
use crate::batch::Sources;
use crate::documents::text_on_disk;
use crate::findings::entry::entry_of;
use crate::profiler::Profiled;

/// The maximum size of the texts that are kept, in bytes.
const MAX_BYTES: usize = 4 << 20;

/// The texts of a measurement, by path relative to its root.
pub(super) type Texts = BTreeMap<String, Arc<str>>;

/// Returns the texts that ran, or `None` if the files have changed since.
pub(super) fn texts_of(measured: &Profiled) -> Option<Texts> {
    let (mut texts, mut bytes) = (Texts::new(), 0);
    let files = measured.profile.files.iter().zip(&measured.files);
    for (facts, file) in files.filter(|(facts, _)| !facts.fingerprint.is_empty()) {
        let text = text_on_disk(file.as_deref()?)?;
        bytes += text.len();
        if bytes > MAX_BYTES || fingerprint(&text) != facts.fingerprint {
            return None;
        }
        texts.insert(facts.path.clone(), text.into());
    }
    Some(texts)
}

/// The measurement before the newest one.
#[derive(Clone, Debug)]
pub(super) struct Previous {
    pub measured: Arc<Profiled>,
    pub study: Arc<Study>,
    pub texts: Texts,
}

impl Previous {
    /// Compares the prediction with the measurement if one of the predicted optimizations was applied, and nothing else
    /// changed: a sentence without a full stop.
    pub(super) fn comparison(&self, now: &Profiled) -> Option<String> {
        // A run in one process shows nothing about several.
        let kinds = EditKind::ALL.into_iter().filter(|kind| !kind.needs_launcher());
        let predicted = kinds.filter_map(|kind| Some((kind, self.study.prediction(kind.name())?)));
        if now.root != self.measured.root || is_text_of(&self.texts, &now.profile) {
            return None;
        }
        let root = &self.measured.real_root;
        let open = self.texts.iter().map(|(path, text)| (root.join(path), text.clone()));
        let sources = Sources::new(root, open);
        let entry = entry_of(self.measured.recording.as_deref()?, &sources)?;
        for (kind, prediction) in predicted {
            let lines: Vec<(&str, u32)> = prediction
                .lines
                .iter()
                .filter_map(|(file, line)| {
                    let file = self.measured.profile.files.get(file.0 as usize)?;
                    Some((file.path.as_str(), *line))
                })
                .collect();
            let lines = if kind == EditKind::Checkpoint { lines.as_slice() } else { &[] };
            let request = Request { kind, lines, count: Some(worker_count()) };
            let Ok(rewrite) = rewrite(&sources, &entry, &request) else { continue };
            let mut edited = self.texts.clone();
            for file in &rewrite.files {
                let text = self.texts.get(&file.path).map(|text| file.applied(text));
                edited.extend(text.map(|text| (file.path.clone(), text.into())));
            }
            if is_text_of(&edited, &now.profile) {
                return self.words(prediction, now);
            }
        }
        None
    }

    fn words(&self, prediction: &Prediction, now: &Profiled) -> Option<String> {
        let (before, after) = (&self.measured.profile, &now.profile);
        if before.iteration.is_of_busy_machine() || after.iteration.is_of_busy_machine() {
            return Some(format!(
                "{}: ~{} predicted. The last two runs cannot be compared, because the machine was busy",
                prediction.title,
                what_ifs::speedup(prediction.speedup().value),
            ));
        }
        let peak = |profile: &Profile| {
            Some(profile.memory.peak_bytes).filter(|bytes| *bytes > 0).map(|bytes| bytes as f64)
        };
        let measured = Sides {
            before_ns: before.iteration.time_ns,
            after_ns: after.iteration.time_ns,
            before_peak_bytes: peak(before),
            after_peak_bytes: peak(after),
        };
        let predicted = Sides::predicted(prediction);
        let pair = Pair { predicted, measured, ..Pair::default() };
        Some(format!("{}: {}", prediction.title, what_ifs::pair(&pair)?))
    }
}

/// Whether a profile is of these texts.
fn is_text_of(texts: &Texts, profile: &Profile) -> bool {
    let files = profile.files.iter().filter(|facts| !facts.fingerprint.is_empty());
    files.into_iter().all(|facts| {
        texts.get(&facts.path).is_some_and(|text| fingerprint(text) == facts.fingerprint)
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use ridgeline_analysis::operators::range::Range;
    use ridgeline_analysis::profile::FileFacts;

    use super::*;
    use crate::profiler::PendingIteration;

    const TEXT: &str = "import torch\n\nmodel = torch.nn.Linear(2, 2)\noptimizer = torch.optim.Adam(model.parameters())\n\
        for x in range(9):\n    loss = model(torch.ones(3, 2)).sum()\n    loss.backward()\n    optimizer.step()\n";

    fn measured(folder: &std::path::Path, text: &str, time_ns: f64) -> Profiled {
        let file = folder.join("train.py");
        fs::write(&file, text).expect("written");
        let manifest = r#"{"entry": {"kind": "script", "path": "train.py"}}"#;
        fs::write(folder.join("manifest.json"), manifest).expect("written");
        let mut profile = Profile::default();
        profile.iteration.time_ns = time_ns;
        let facts = FileFacts { path: "train.py".to_owned(), ..FileFacts::default() };
        profile.files = vec![FileFacts { fingerprint: fingerprint(text), ..facts }];
        Profiled {
            root: folder.to_owned(),
            real_root: folder.to_owned(),
            files: vec![Some(file)],
            recording: Some(folder.to_owned()),
            profile: Arc::new(profile),
            device_comparison: None,
            log: None,
            when_unix_ms: None,
            iteration: PendingIteration::default(),
        }
    }

    #[test]
    fn an_applied_optimization_is_compared_with_its_prediction() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let folder = folder.path().canonicalize().expect("a path");
        let before = measured(&folder, TEXT, 60e6);
        let mut study = Study::default();
        study.what_ifs.predictions = vec![Prediction {
            names: vec!["fused-optimizer".to_owned()],
            title: "Fused optimizer".to_owned(),
            before_ns: 60e6,
            time_ns: Range::exact(50e6),
            samples_factor: 1.0,
            ..Prediction::default()
        }];
        let texts = texts_of(&before).expect("the texts that ran");
        let previous = Previous { measured: Arc::new(before), study: Arc::new(study), texts };
        let comparison = |text: &str| previous.comparison(&measured(&folder, text, 48e6));
        let applied = TEXT.replace("parameters())", "parameters(), fused=True)");
        let expected = "Fused optimizer: 1.2× measured (60 ms to 48 ms), ~1.2× predicted";
        assert_eq!(comparison(&applied).as_deref(), Some(expected));
        // Nothing, something else, and something in addition.
        assert_eq!(comparison(TEXT), None);
        let mut busy = measured(&folder, &applied, 480e6);
        Arc::make_mut(&mut busy.profile).iteration.waited_share = 0.5;
        let expected = "Fused optimizer: ~1.2× predicted. The last two runs cannot be compared, because the machine was busy";
        assert_eq!(previous.comparison(&busy).as_deref(), Some(expected));
        assert_eq!(comparison(&TEXT.replace("range(9)", "range(8)")), None);
        assert_eq!(comparison(&applied.replace("ones(3", "ones(4")), None);
    }

    #[test]
    fn changed_files_are_not_the_texts_that_ran() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let profiled = measured(folder.path(), TEXT, 60e6);
        assert!(texts_of(&profiled).is_some());
        fs::write(folder.path().join("train.py"), "import os\n").expect("written");
        assert_eq!(texts_of(&profiled), None);
    }
}
