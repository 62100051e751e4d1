//! The process that lists the operators of models for `ridgeline evaluate`: `models/list_models.py`
//! in the user's Python. It needs torch, and `timm` for the models of that package.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use serde::Deserialize;
use tokio::io::{AsyncWriteExt, BufReader};
use tokio::process::{ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

use super::embedded;
use super::lines::{Line, next_line};
use crate::interpreter::neutral_folder;
use crate::process::{self, OnParentExit, ProcessTree};

/// Time limit for importing torch and timm.
const STARTUP_TIMEOUT: Duration = Duration::from_secs(180);
/// Added to the time limit that the process itself enforces.
const GRACE: Duration = Duration::from_secs(20);
const LINE_LIMIT: usize = 64 * 1024;

/// A running lister. Dropping it kills the process and its children.
#[derive(Debug)]
pub struct ModelLister {
    _tree: ProcessTree,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    last_id: u64,
}

/// Installed versions in the lister's Python.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Versions {
    pub torch: String,
    /// `None` if timm is not installed.
    pub timm: Option<String>,
}

/// Why a model was not listed.
#[derive(Debug, thiserror::Error)]
pub enum ListError {
    /// The lister could not be started.
    #[error("the model lister could not be started: {0}")]
    Start(String),
    /// It exited or stopped responding, and must be restarted.
    #[error("the model lister has exited")]
    Ended,
    /// This model cannot be listed.
    #[error("{0}")]
    Model(String),
    /// This model took too long. A retry may succeed.
    #[error("{0}")]
    TooSlow(String),
}

#[derive(Deserialize)]
struct Answer {
    id: u64,
    ok: bool,
    #[serde(default)]
    too_slow: bool,
    #[serde(default)]
    error: String,
}

impl ModelLister {
    /// Unpacks the agent's files below `cache`, starts the lister in `interpreter` and waits until
    /// it has reported the installed versions.
    ///
    /// # Errors
    /// [`ListError::Start`].
    pub async fn start(
        interpreter: &Path,
        cache: &Path,
    ) -> Result<(ModelLister, Versions), ListError> {
        let start = |why: &dyn std::fmt::Display| ListError::Start(why.to_string());
        let folder = cache.to_owned();
        let boot = tokio::task::spawn_blocking(move || embedded::unpack(&folder))
            .await
            .map_err(|error| start(&error))?
            .map_err(|error| start(&error))?;
        let mut command = Command::new(interpreter);
        command
            .arg("-u")
            .arg(boot)
            .arg("--list-models")
            .current_dir(neutral_folder())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut tree =
            process::spawn(command, OnParentExit::Kill).await.map_err(|error| start(&error))?;
        let (Some(input), Some(output)) = (tree.child.stdin.take(), tree.child.stdout.take())
        else {
            return Err(start(&"it has no stdin or stdout"));
        };
        let mut lister =
            ModelLister { _tree: tree, input, output: BufReader::new(output), last_id: 0 };
        let first = lister.line(STARTUP_TIMEOUT).await.map_err(|_| {
            start(
                &"it exited or did not respond while importing torch; check that `import torch` \
                works",
            )
        })?;
        let versions = serde_json::from_slice(&first).map_err(|error| start(&error))?;
        Ok((lister, versions))
    }

    /// Writes the operator list of one model to `out`. `request` is a request of
    /// `models/list_models.py`, to which `limit` and `memory_bytes` are added.
    ///
    /// # Errors
    /// [`ListError::Model`] if this model cannot be listed; others may still work. After
    /// [`ListError::Ended`] this lister is unusable.
    pub async fn list(
        &mut self,
        request: &serde_json::Value,
        out: &Path,
        limit: Duration,
        memory_bytes: u64,
    ) -> Result<(), ListError> {
        self.last_id += 1;
        let mut message = request.clone();
        let (Some(fields), Some(out)) = (message.as_object_mut(), out.to_str()) else {
            return Err(ListError::Model("it cannot be serialized as JSON".to_owned()));
        };
        fields.insert("id".to_owned(), self.last_id.into());
        fields.insert("out".to_owned(), out.into());
        fields.insert("seconds".to_owned(), limit.as_secs().into());
        fields.insert("memory_bytes".to_owned(), memory_bytes.into());
        let mut line = message.to_string();
        if line.len() >= LINE_LIMIT {
            return Err(ListError::Model("its configuration is too long".to_owned()));
        }
        line.push('\n');
        timeout(GRACE, self.input.write_all(line.as_bytes()))
            .await
            .map_err(|_| ListError::Ended)?
            .map_err(|_| ListError::Ended)?;
        let answer = self.line(limit + GRACE).await?;
        let answer: Answer = serde_json::from_slice(&answer).map_err(|_| ListError::Ended)?;
        if answer.id != self.last_id {
            return Err(ListError::Ended);
        }
        match (answer.ok, answer.too_slow) {
            (true, _) => Ok(()),
            (false, true) => Err(ListError::TooSlow(answer.error)),
            (false, false) => Err(ListError::Model(answer.error)),
        }
    }

    async fn line(&mut self, limit: Duration) -> Result<Vec<u8>, ListError> {
        match timeout(limit, next_line(&mut self.output, LINE_LIMIT)).await {
            Ok(Line::Text(line)) => Ok(line),
            Ok(Line::TooLong | Line::End) | Err(_) => Err(ListError::Ended),
        }
    }
}
