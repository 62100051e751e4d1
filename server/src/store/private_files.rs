//! Files and folders that only this user can access.

use std::fs;
use std::io::Write as _;
use std::path::Path;

use super::owner::Owner;
use super::{StoreError, TEMPORARY};

/// Writes a file atomically: readers see either the old content or the new one.
///
/// # Errors
/// If the folder cannot be written, or the disk is full. The old file stays then.
pub(crate) fn write_atomic(file: &Path, bytes: &[u8]) -> Result<(), StoreError> {
    let failed = |error| StoreError::at(file, error);
    let folder = match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let mut draft = tempfile::Builder::new()
        .prefix(&format!("{TEMPORARY}-{}-", Owner::this()))
        .tempfile_in(folder)
        .map_err(failed)?;
    draft.write_all(bytes).and_then(|()| draft.as_file().sync_data()).map_err(failed)?;
    draft.persist(file).map_err(|error| failed(error.error))?;
    Ok(())
}

/// Creates a folder and its parents with access for this user only: a recording's log has the
/// program's output.
///
/// # Errors
/// If it cannot be created.
pub(crate) fn create_private(folder: &Path) -> Result<(), StoreError> {
    let mut builder = private_folders();
    builder.recursive(true);
    builder.create(folder).map_err(|error| StoreError::at(folder, error))
}

pub(super) fn private_folders() -> fs::DirBuilder {
    #[allow(unused_mut, reason = "only UNIX has modes")]
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder
}

/// Removes other users' access to one of our files or folders.
pub(super) fn make_private(path: &Path) {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        let Ok(facts) = fs::symlink_metadata(path) else { return };
        let mode = facts.permissions().mode();
        if !facts.is_symlink() && mode & 0o077 != 0 {
            let private = fs::Permissions::from_mode(mode & 0o700);
            if let Err(error) = fs::set_permissions(path, private) {
                tracing::debug!("others can read {}: {error}", path.display());
            }
        }
    }
    #[cfg(not(unix))]
    let _ = path;
}

/// Removes other users' access to a recording: the agent writes with the umask of the user's
/// program.
pub(crate) fn make_recording_private(recording: &Path) {
    fn below(folder: &Path, depth: usize) {
        make_private(folder);
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            match entry.file_type() {
                Ok(kind) if kind.is_dir() && depth > 0 => below(&entry.path(), depth - 1),
                Ok(kind) if kind.is_file() => make_private(&entry.path()),
                _ => {}
            }
        }
    }
    below(recording, DEPTH_OF_A_RECORDING);
}

/// The maximum depth of folders in a recording: ranks and passes have their own.
pub(super) const DEPTH_OF_A_RECORDING: usize = 4;

pub(super) fn temporary_folder(
    prefix: &str,
    parent: &Path,
) -> Result<tempfile::TempDir, StoreError> {
    let prefix = format!("{}-{}-", prefix.trim_end_matches('-'), Owner::this());
    let mut builder = tempfile::Builder::new();
    builder.prefix(&prefix);
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o700));
    builder.tempdir_in(parent).map_err(|error| StoreError::at(parent, error))
}
