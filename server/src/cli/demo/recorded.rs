//! A recorded run of the demo, for machines that have no torch to measure with. It is embedded in the binary;
//! `tests/recordings/make.py demo` renews it.

use std::path::Path;

use crate::cli::exit::Failure;
use crate::pipeline;
use crate::profiler::Profiled;
use crate::store::{Store, create_private, write_atomic};

/// The recording's files.
const FILES: [(&str, &[u8]); 3] = [
    ("manifest.json", include_bytes!("../../../../demo-projects/resnet/recording/manifest.json")),
    ("trace.json.gz", include_bytes!("../../../../demo-projects/resnet/recording/trace.json.gz")),
    ("lines.bin.gz", include_bytes!("../../../../demo-projects/resnet/recording/lines.bin.gz")),
];

/// Reads the recorded run of the demo project at `root`, without running anything.
pub(in crate::cli) fn read(store: &Store, root: &Path) -> Result<Profiled, Failure> {
    let failed = |why: String| Failure::failed(why, "");
    let folder = store.cache().join("demo").join("recording");
    create_private(&folder).map_err(|error| failed(error.to_string()))?;
    for (name, content) in FILES {
        write_atomic(&folder.join(name), content).map_err(|error| failed(error.to_string()))?;
    }
    pipeline::measured(root, &folder).map_err(failed)
}
