//! The handling of a run's writes to disk, and the folders that it may still write to.

use std::borrow::Cow;

use ridgeline_gpu::agent::SideEffectsMode;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, de};

use super::{MAX_SHOWN_CHARACTERS, clipped};

/// The maximum length of a path, in bytes.
const MAX_BYTES: usize = 4096;

/// What to do with files the program creates, changes and deletes while profiled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum SideEffects {
    /// The program can read back what it wrote, but nothing is kept on disk.
    #[default]
    Redirect,
    /// Write to disk.
    Allow,
    /// Writes fail, as on a read-only file system.
    Deny,
}

impl SideEffects {
    /// The mode in the agent's protocol.
    pub(crate) fn mode(self) -> SideEffectsMode {
        match self {
            SideEffects::Redirect => SideEffectsMode::Redirect,
            SideEffects::Allow => SideEffectsMode::Allow,
            SideEffects::Deny => SideEffectsMode::Deny,
        }
    }
}

/// A folder that a run may write to: relative to the configuration file, relative to the home
/// folder (`~/data`), or absolute. It must not contain the project.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeptFolder(String);

impl KeptFolder {
    /// The path as written.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    fn parse(text: &str) -> Result<KeptFolder, String> {
        let shown = clipped(text, MAX_SHOWN_CHARACTERS);
        if text.is_empty() || text.len() > MAX_BYTES || text.contains('\0') {
            return Err(
                "a folder in keep_writes is empty, too long, or contains a NUL byte".to_owned()
            );
        }
        let mut parts = text.split(['/', '\\']).filter(|part| !part.is_empty() && *part != ".");
        if parts.clone().any(|part| part == "..") {
            return Err(format!("`{shown}` contains `..`: use the path of the folder itself"));
        }
        // `~` and the root would exempt everything, including the project that `side_effects`
        // protects.
        let names = parts.clone().count() - usize::from(parts.next() == Some("~"));
        if names == 0 {
            return Err(format!(
                "`{shown}` contains the whole project: use side_effects = \"allow\" to let a run \
                write there"
            ));
        }
        Ok(KeptFolder(text.to_owned()))
    }
}

impl<'de> Deserialize<'de> for KeptFolder {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        KeptFolder::parse(&String::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}

impl JsonSchema for KeptFolder {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "KeptFolder".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "minLength": 1, "maxLength": MAX_BYTES})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kept_folder_is_not_the_project() {
        for right in ["data/cache", "~/datasets", "/data/imagenet", "./cache"] {
            assert!(KeptFolder::parse(right).is_ok(), "{right}");
        }
        for wrong in ["", ".", "/", "~", "~/", "./", "../other", "a/../..", "a\0b"] {
            assert!(KeptFolder::parse(wrong).is_err(), "{wrong}");
        }
    }
}
