//! Paths within the project.

use std::borrow::Cow;
use std::path::{Component, Path, PathBuf};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, de};

use super::{MAX_SHOWN_CHARACTERS, clipped};

/// A path below the project's root. Absolute paths and paths that leave the project (`../other`)
/// are refused when the file is read. Links that lead out are refused when the path is used (see
/// [`inside`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PathInside(pub(super) PathBuf);

impl PathInside {
    /// The path, relative to the root, without `.` and `..`.
    pub(crate) fn as_path(&self) -> &Path {
        &self.0
    }

    fn parse(text: &str) -> Result<PathInside, String> {
        let shown = clipped(text, MAX_SHOWN_CHARACTERS);
        if text.is_empty() || text.contains('\0') {
            return Err("the path is empty or contains a NUL byte".to_owned());
        }
        let mut path = PathBuf::new();
        for component in Path::new(text).components() {
            match component {
                Component::CurDir => {}
                Component::Normal(name) => path.push(name),
                Component::ParentDir => {
                    if !path.pop() {
                        return Err(format!("`{shown}` is outside the project"));
                    }
                }
                Component::RootDir | Component::Prefix(_) => {
                    return Err(format!(
                        "`{shown}` is absolute: use a path relative to the project folder"
                    ));
                }
            }
        }
        Ok(PathInside(path))
    }
}

impl<'de> Deserialize<'de> for PathInside {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        PathInside::parse(&String::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}

impl JsonSchema for PathInside {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "Path".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "minLength": 1})
    }
}

/// Resolves the links of `path` (relative to `root`) and checks that it is still below `root`.
///
/// # Errors
/// If it does not exist or leads out of `root`.
pub(crate) fn inside(root: &Path, path: &Path) -> Result<PathBuf, String> {
    let full = root.join(path);
    let resolved = full
        .canonicalize()
        .map_err(|error| format!("`{}` cannot be found: {error}", path.display()))?;
    let root = root.canonicalize().map_err(|error| error.to_string())?;
    if resolved.starts_with(&root) {
        Ok(full)
    } else {
        Err(format!("`{}` is a link to a path outside the project", path.display()))
    }
}
