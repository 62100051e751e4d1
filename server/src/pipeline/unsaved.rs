//! Texts of a project that are open in the editor and differ from the disk.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use ridgeline_analysis::operators::op_list::OpList;
use ridgeline_analysis::python::SourceIndex;

use crate::documents::text_on_disk;
use crate::profiler::Profiled;

/// Texts of a project as the editor has them.
pub(super) struct Unsaved {
    /// Texts that differ from the disk, by path relative to the root.
    pub(super) overlay: BTreeMap<String, String>,
    open: BTreeMap<String, SourceIndex>,
}

impl Unsaved {
    /// Returns the open texts of the project at `root`.
    pub(super) fn of(root: &Path, texts: Vec<(PathBuf, SourceIndex)>) -> Unsaved {
        let mut unsaved = Unsaved { overlay: BTreeMap::new(), open: BTreeMap::new() };
        for (file, index) in texts {
            let Some(path) = file.strip_prefix(root).ok().and_then(Path::to_str) else { continue };
            let path = path.replace('\\', "/");
            if text_on_disk(&file).as_deref() != Some(index.text()) {
                unsaved.overlay.insert(path.clone(), index.text().to_owned());
            }
            unsaved.open.insert(path, index);
        }
        unsaved
    }

    /// Returns texts that replace files, by path relative to the root.
    pub(super) fn replaced(overlay: BTreeMap<String, String>) -> Unsaved {
        let texts =
            overlay.iter().map(|(path, text)| (path.clone(), SourceIndex::new(text.as_str())));
        let open = texts.collect();
        Unsaved { overlay, open }
    }

    /// Returns the texts of all files with operators or costs, from the editor or else from the
    /// disk.
    pub(super) fn texts(
        mut self,
        root: &Path,
        list: &OpList,
        measured: Option<&Profiled>,
    ) -> BTreeMap<String, SourceIndex> {
        let of_profile = measured.into_iter().flat_map(|it| it.profile.files.iter().zip(&it.files));
        let recorded = of_profile.filter_map(|(facts, file)| Some((&facts.path, file.clone()?)));
        let listed = list.files.iter().map(|path| (path, root.join(path)));
        for (path, file) in recorded.chain(listed) {
            if !self.open.contains_key(path)
                && let Some(text) = text_on_disk(&file)
            {
                self.open.insert(path.clone(), SourceIndex::new(text.as_str()));
            }
        }
        self.open
    }
}
