//! Answers questions about one batch size: runs or estimates the program with another number in its
//! text.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ridgeline_analysis::devices::device_table::DeviceTable;
use ridgeline_analysis::operators::op_cost::{Options, cost};
use ridgeline_analysis::operators::op_list::{OpList, Outcome as ListOutcome};
use ridgeline_analysis::predict::batch_size::{Estimate, Question, Round, Run};
use ridgeline_analysis::profile::Profile;
use ridgeline_analysis::python::batch_site::{BatchSite, Project as _};
use ridgeline_gpu::agent::{
    Agent, Claim, EstimateRequest, Iterations, Outcome as AgentOutcome, RunOutcome, RunRequest,
};
use tokio::sync::mpsc;

use super::plan::Plan;
use super::side_by_side::{self, SideBySide};
use super::{Pipeline, blocking, fewer_iterations, read_in_background, recording};
use crate::batch::Sources;
use crate::consent::Permit;
use crate::profiler::ProgressEvent;

/// The time limit of one run or estimate, in seconds. The configuration may set a lower one.
const QUESTION_SECONDS: u64 = 60;
/// The number of iterations to time. The fastest one counts, so more are better, up to the time
/// below.
const TIMED: std::ops::RangeInclusive<u32> = 5..=60;
const TIMED_FOR: Duration = Duration::from_secs(2);
/// The maximum size of an operator list in bytes. The agent never writes a larger one.
const LIST_BYTES_LIMIT: u64 = 256 << 20;

/// Answers questions about other batch sizes of a program.
pub(super) struct Sweep<'a> {
    pub(super) pipeline: &'a Pipeline,
    pub(super) agent: Arc<Agent>,
    pub(super) plan: Plan,
    pub(super) profile: Arc<Profile>,
    /// The text around the number. A provider has none.
    pub(super) gap: Option<Gap>,
    /// The batch size of the measurement, and its number of samples.
    pub(super) base: (u64, u64),
    /// The batches that the measured run used.
    pub(super) batches: Option<PathBuf>,
    pub(super) permit: &'a Permit,
}

pub(super) struct Gap {
    file: String,
    before: String,
    after: String,
}

/// Returns the text before and after the number.
pub(super) fn gap(site: &BatchSite, sources: &Sources) -> Option<Gap> {
    let text = sources.text(&site.file)?;
    Some(Gap {
        file: site.file.clone(),
        before: text.get(..site.span.start)?.to_owned(),
        after: text.get(site.span.end..)?.to_owned(),
    })
}

pub(super) fn run_of(profile: &Profile, batch: u64) -> Option<Run> {
    Some(Run {
        batch,
        samples: profile.iteration.batch_size?,
        timed_ns: profile.iteration.timed_ns.clone(),
        peak_bytes: Some(profile.memory.peak_bytes).filter(|bytes| *bytes > 0),
        at_peak: profile.memory.at_peak,
    })
}

pub(super) enum Answer {
    Run(Run),
    SideBySide(Vec<Run>, Vec<Round>),
    /// An estimate and its operators.
    Estimate(Estimate, Box<OpList>),
}

impl Sweep<'_> {
    /// Answers a question with a run or an estimate. `before` is the number of side-by-side runs so
    /// far.
    pub(super) async fn answer(&self, question: Question, before: usize) -> Result<Answer, String> {
        let store = self.pipeline.store().clone();
        let folder = blocking(move || store.new_batch_folder())
            .await
            .map_err(|_| "it was interrupted".to_owned())?;
        let folder = folder.map_err(|error| error.to_string())?;
        let answer = match question {
            Question::Run(batch) => self.run(batch, folder.path()).await.map(Answer::Run),
            Question::SideBySide { smaller, larger } => {
                let others = smaller.into_iter().chain(larger);
                self.side_by_side(others, before, folder.path()).await
            }
            Question::Estimate(batch) => {
                let estimated = self.estimate(batch, folder.path()).await;
                estimated
                    .map(|(estimate, operators)| Answer::Estimate(estimate, Box::new(operators)))
            }
        };
        // A recording has many megabytes, so removing it takes time.
        let _ = blocking(move || drop(folder)).await;
        answer
    }

    pub(super) fn iterations(&self) -> Iterations {
        let planned = self.plan.run_request(PathBuf::new()).iterations;
        let room = TIMED_FOR.as_nanos() as f64 / self.profile.iteration.time_ns.max(1.0);
        let timed = (room as u32).clamp(*TIMED.start(), *TIMED.end());
        Iterations { timed: planned.timed.max(timed), timed_at_most: None, ..planned }
    }

    /// Returns the request for a batch size: a provider gets it as an argument, a script in an
    /// overlay.
    fn request(&self, batch: u64, out: &Path) -> RunRequest {
        let mut request = self.plan.run_request(out.to_owned());
        match &self.gap {
            None => request.batch_size = Some(batch),
            Some(gap) => {
                let text = format!("{}{batch}{}", gap.before, gap.after);
                request.overlay = BTreeMap::from([(gap.file.clone(), text)]);
            }
        }
        request.iterations = self.iterations();
        request.limits.seconds = request.limits.seconds.min(QUESTION_SECONDS);
        request
    }

    async fn run(&self, batch: u64, out: &Path) -> Result<Run, String> {
        let mut request = self.request(batch, out);
        let mut ended = self.run_once(&request).await;
        if ended.outcome == AgentOutcome::Short
            && let Some(fewer) = fewer_iterations(out, &request.iterations).await
        {
            request.iterations = fewer;
            ended = self.run_once(&request).await;
        }
        if ended.outcome != AgentOutcome::Complete {
            return Err(why(&ended, out).await);
        }
        let read = read_in_background(out, None, &self.plan.root).await;
        let read = read.map_err(|_| "its recording cannot be read".to_owned())?;
        let run = run_of(&read.profile, batch);
        let run = run.ok_or_else(|| "it did not report its batch size".to_owned())?;
        self.check_batch_size(batch, Some(run.samples))?;
        Ok(run)
    }

    /// Runs the current batch size and others in turns.
    async fn side_by_side(
        &self,
        others: impl Iterator<Item = u64>,
        before: usize,
        out: &Path,
    ) -> Result<Answer, String> {
        let batches: Vec<u64> = std::iter::once(self.base.0).chain(others).collect();
        let request = self.request(self.base.0, out);
        let versions: Vec<side_by_side::VersionChanges> = batches
            .iter()
            .map(|batch| {
                let request = self.request(*batch, out);
                (request.overlay, request.batch_size)
            })
            .collect();
        let run = SideBySide {
            agent: &self.agent,
            request,
            iteration_ns: self.profile.iteration.time_ns,
            timed_for: TIMED_FOR,
            more_turns: u32::try_from(before).unwrap_or(0),
        };
        // Not displayed: the status says that batch sizes are being tried.
        let (progress, _unread) = mpsc::channel::<ProgressEvent>(1);
        let measured =
            self.pipeline.side_by_side(run, &versions, &progress, self.permit.token()).await;
        let measured = match measured {
            Ok(measured) => measured,
            Err(ended) => return Err(why(&ended, out).await),
        };
        let mut runs = Vec::with_capacity(batches.len());
        for (batch, one) in batches.iter().zip(&measured) {
            let run = run_of(&one.profile, *batch);
            let run = run.ok_or_else(|| "it did not report its batch size".to_owned())?;
            self.check_batch_size(*batch, Some(run.samples))?;
            runs.push(run);
        }
        let rounds = measured.iter().map(|one| one.turns.len()).min().unwrap_or_default();
        // Every version had at least `rounds` turns.
        let round = |number: usize| -> Option<Round> {
            let turns = measured.iter().map(|one| one.turns.get(number).copied());
            batches.iter().zip(turns).map(|(batch, turn)| Some((*batch, turn?))).collect()
        };
        Ok(Answer::SideBySide(runs, (0..rounds).map_while(round).collect()))
    }

    async fn run_once(&self, request: &RunRequest) -> RunOutcome {
        // Not displayed: the status says that batch sizes are being tried.
        let (progress, _unread) = mpsc::channel::<ProgressEvent>(1);
        self.pipeline.run_once(&self.agent, request, &progress, self.permit.token()).await
    }

    async fn estimate(&self, batch: u64, out: &Path) -> Result<(Estimate, OpList), String> {
        let is_cpu = self.profile.device.kind == "cpu";
        let run = RunRequest { device: "cpu".to_owned(), ..self.request(batch, out) };
        let claim = if is_cpu { Claim::Cpu } else { Claim::Cuda };
        // The recorded batches have the measured batch size.
        let batches = self.batches.clone().filter(|_| batch == self.base.0);
        let request = EstimateRequest { run, claim, batches, low_priority: true };
        let (events, _unread) = mpsc::channel(1);
        let ended = self.agent.estimate(request, events, self.permit.token().clone()).await;
        if ended.outcome != AgentOutcome::Complete {
            return Err(why(&ended, out).await);
        }
        let file = out.join("ops.json");
        let read = blocking(move || read_list(&file)).await;
        let list = read.map_err(|_| "its operators cannot be read".to_owned())??;
        if list.outcome != ListOutcome::Complete {
            let first = list.unsupported.first().map(|one| one.message.clone());
            return Err(first.unwrap_or_else(|| "it exited early".to_owned()));
        }
        self.check_batch_size(batch, list.batch.as_ref().and_then(|batch| batch.size))?;
        let peak_bytes = list.memory.as_ref().map(|memory| memory.peak_bytes);
        let peak_bytes = peak_bytes.ok_or_else(|| "its memory usage is unknown".to_owned())?;
        let device = DeviceTable::shipped().find(&self.profile.device.name);
        let cost_ns = device.filter(|_| !is_cpu).map(|device| {
            let operators = list.ops.iter().filter_map(|op| list.operator(op));
            operators.map(|one| cost(one, device, &Options::default()).time_ns.value).sum()
        });
        Ok((Estimate { batch, peak_bytes, cost_ns }, list))
    }

    /// Checks that changing the number has changed the batch size.
    fn check_batch_size(&self, batch: u64, samples: Option<u64>) -> Result<(), String> {
        let (base, base_samples) = self.base;
        let Some(samples) = samples else {
            return Err("it did not report its batch size".to_owned());
        };
        let expected = u128::from(base_samples) * u128::from(batch);
        if u128::from(samples) * u128::from(base) == expected {
            return Ok(());
        }
        Err(format!("the batch size did not change: an iteration had {samples} samples"))
    }
}

/// Says in a few words why a question has no answer.
async fn why(ended: &RunOutcome, out: &Path) -> String {
    let out = out.to_owned();
    let failure = blocking(move || recording::failure(&out)).await.ok().flatten();
    if let Some(failure) = failure {
        let first = failure.message.lines().next().unwrap_or_default().to_owned();
        return format!("{}: {first}", failure.error_type);
    }
    let message = ended.message.as_deref().map(str::trim).filter(|text| !text.is_empty());
    let reason = match ended.outcome {
        AgentOutcome::Short => "too few iterations at this batch size",
        AgentOutcome::Memory => "it exceeded the memory limit",
        AgentOutcome::Timeout => "it took longer than a minute",
        AgentOutcome::Crashed => "it crashed",
        _ => "it exited early",
    };
    message.map_or(reason.to_owned(), |message| format!("{reason}: {message}"))
}

fn read_list(file: &Path) -> Result<OpList, String> {
    let size = file.metadata().map_err(|error| error.to_string())?.len();
    if size > LIST_BYTES_LIMIT {
        return Err("its operator list is too large".to_owned());
    }
    let bytes = std::fs::read(file).map_err(|error| error.to_string())?;
    OpList::parse(&bytes).map_err(|error| error.to_string())
}
