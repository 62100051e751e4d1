//! Agents that stay warm between runs.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, Weak};
use std::time::Duration;

use ridgeline_gpu::agent::{Agent, AgentError, AgentOptions, Prepare, Timeouts};
use ridgeline_gpu::interpreter::Interpreter;
use tokio::sync::Mutex;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::outcome::{Outcome, Problem, ProblemKind};
use super::{Pipeline, Plan};

/// The number of agents kept warm. Each holds a few hundred megabytes of imported torch.
const WARM_AGENTS: usize = 2;
/// Warm agents other than the last one used end after this time without use.
const IDLE_TIMEOUT: Duration = Duration::from_secs(120);

/// A running agent that is ready for a project.
#[derive(Clone)]
pub(super) struct WarmAgent {
    pub(super) root: PathBuf,
    interpreter: PathBuf,
    /// The environment variables of the configuration. Libraries read theirs when they are loaded,
    /// so an agent started with other variables cannot be used.
    env: BTreeMap<String, String>,
    agent: Arc<Agent>,
    prepared: Option<Prepare>,
    /// Whether it was asked to run the program.
    has_run: bool,
    last_used: Instant,
}

impl Pipeline {
    /// Returns whether the user has set this agent mode (docs/configuration.md).
    fn has_agent_mode(&self, wanted: &str) -> bool {
        let mode = self.system.variables.get(OsStr::new("RIDGELINE_AGENT_MODE"));
        mode.is_some_and(|mode| mode == wanted)
    }

    /// Returns the agent that measures a plan. For launched runs, it is always a new one.
    pub(super) async fn agent_for_measuring(
        &self,
        plan: &Plan,
        interpreter: &Interpreter,
    ) -> Result<Arc<Agent>, Outcome> {
        if plan.launched_by.is_none() {
            return self.agent_for(plan, interpreter, true).await;
        }
        let options = AgentOptions { launch: true, ..self.agent_options(plan, interpreter) };
        Agent::start(options).await.map(Arc::new).map_err(agent_problem)
    }

    fn agent_options(&self, plan: &Plan, interpreter: &Interpreter) -> AgentOptions {
        AgentOptions {
            interpreter: interpreter.path.clone(),
            cache: self.store.cache().to_owned(),
            env: plan.environment().clone(),
            standby: self.has_agent_mode("standby"),
            // Not the default before it has run on a GPU: docs/gpu-status.md.
            cuda: self.has_agent_mode("warm-cuda"),
            launch: false,
            patience: Timeouts::default(),
        }
    }

    /// Returns the agent of a plan: a warm one, or a new one that replaces the one unused for
    /// longest.
    pub(super) async fn agent(
        &self,
        plan: &Plan,
        interpreter: &Interpreter,
    ) -> Result<Arc<Agent>, Outcome> {
        self.agent_for(plan, interpreter, false).await
    }

    /// Returns the agent of a plan. `is_run` is true for a run. The process that imports the
    /// project's packages in advance is not sandboxed, so it only does so for a run that the user allowed, and
    /// after it. A command imports nothing in advance for its first run, which is usually the only one: that
    /// saves nothing, and imports that turn out to prevent forking would take twice as long.
    async fn agent_for(
        &self,
        plan: &Plan,
        interpreter: &Interpreter,
        is_run: bool,
    ) -> Result<Arc<Agent>, Outcome> {
        let mut agents = self.agents.lock().await;
        let known = agents
            .iter()
            .position(|warm| {
                warm.root == plan.root
                    && warm.interpreter == interpreter.path
                    && warm.env == *plan.environment()
            })
            .map(|at| agents.remove(at));
        let mut warm = match known {
            Some(warm) => warm,
            None => {
                // Another Python for the same project replaces the previous one.
                agents.retain(|warm| warm.root != plan.root);
                while agents.len() >= WARM_AGENTS {
                    agents.remove(0);
                }
                let agent = Agent::start(self.agent_options(plan, interpreter))
                    .await
                    .map_err(agent_problem)?;
                WarmAgent {
                    root: plan.root.clone(),
                    interpreter: interpreter.path.clone(),
                    env: plan.environment().clone(),
                    agent: Arc::new(agent),
                    prepared: None,
                    has_run: false,
                    last_used: Instant::now(),
                }
            }
        };
        let wanted = plan.prepare(warm.has_run || is_run && self.is_lasting);
        warm.has_run |= is_run;
        if warm.prepared.as_ref() != Some(&wanted) {
            warm.agent.prepare(wanted.clone()).await.map_err(agent_problem)?;
            warm.prepared = Some(wanted);
        }
        let agent = Arc::clone(&warm.agent);
        warm.last_used = Instant::now();
        agents.push(warm);
        if agents.len() > 1 {
            let mut ending = self.ending_idle.lock().unwrap_or_else(PoisonError::into_inner);
            if ending.as_ref().is_none_or(JoinHandle::is_finished) {
                *ending = Some(tokio::spawn(end_idle(Arc::downgrade(&self.agents))));
            }
        }
        Ok(agent)
    }
}

/// Ends agents that were unused for [`IDLE_TIMEOUT`], except the last one used.
async fn end_idle(agents: Weak<Mutex<Vec<WarmAgent>>>) {
    loop {
        tokio::time::sleep(IDLE_TIMEOUT / 4).await;
        // The pipeline may be gone.
        let Some(agents) = agents.upgrade() else { return };
        let mut agents = agents.lock().await;
        let newest = agents.len().saturating_sub(1);
        let mut at = 0;
        agents.retain(|warm| {
            let is_newest = at == newest;
            at += 1;
            // An agent in use has another reference.
            is_newest
                || warm.last_used.elapsed() < IDLE_TIMEOUT
                || Arc::strong_count(&warm.agent) > 1
        });
        if agents.len() <= 1 {
            return;
        }
    }
}

fn agent_problem(error: AgentError) -> Outcome {
    let kind = match error {
        AgentError::Unpack { .. } => ProblemKind::Files,
        _ => ProblemKind::Run,
    };
    Outcome::Problem(Problem::new(kind, error.to_string(), "Run `ridgeline doctor` for details"))
}
