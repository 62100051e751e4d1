//! `ridgeline evaluate FOLDER`: evaluates predictions against published measurements.

use std::path::PathBuf;

use clap::Args;
use clap::builder::TypedValueParser as _;
use ridgeline_analysis::devices::device_table::DeviceTable;
use ridgeline_evaluate::case::Case;
use ridgeline_evaluate::ground_truth::GroundTruth;
use ridgeline_evaluate::list_request::ListRequest;
use ridgeline_evaluate::questions::{self, Question};
use ridgeline_evaluate::report::{Answer, Report, Sample};
use ridgeline_evaluate::sample::sample;
use ridgeline_gpu::environment;
use ridgeline_gpu::interpreter::{self, Consent, Search, SystemEnvironment};

use super::exit::{self, Failure};
use super::terminal::Terminal;
use super::{output_file, profile, run};
use crate::store::Store;

mod folder;
mod operator_lists;

use operator_lists::OperatorLists;

/// What `ridgeline evaluate` takes.
#[derive(Debug, Args)]
pub(super) struct EvaluateArgs {
    /// A folder with measurements, laid out as docs/accuracy.md says.
    folder: PathBuf,
    /// Take at most so many cases of each question.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..).map(|count| count as usize))]
    sample: Option<usize>,
    /// Which cases `--sample` takes: the same for the same seed.
    #[arg(long, value_name = "S", default_value_t = 0)]
    seed: u64,
    /// Write the report with every case as JSON here; `-` is standard output.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Copy the operator lists into this folder, for the fits of coefficients.
    #[arg(long, value_name = "FOLDER")]
    lists: Option<PathBuf>,
    /// A Python with torch and timm to list the operators of models with, instead of the one found.
    #[arg(long, value_name = "FILE")]
    python: Option<PathBuf>,
}

/// Runs the subcommand.
pub(super) fn run(args: &EvaluateArgs, terminal: &Terminal) -> Result<(), Failure> {
    let truth = GroundTruth::read(&folder::read(&args.folder)?);
    let store = run::open_store()?;
    let question_cases: Vec<QuestionCases> = questions::all()
        .into_iter()
        .map(|question| QuestionCases::new(question, &truth, args))
        .collect();
    let mut wanted: Vec<ListRequest> = question_cases
        .iter()
        .flat_map(|question_cases| question_cases.cases.iter().flat_map(Case::lists))
        .collect();
    wanted.sort();
    wanted.dedup();
    let lists = lists(args, &store, &wanted, terminal)?;
    if let Some(folder) = &args.lists {
        let copied = lists
            .copy_to(folder, &wanted)
            .map_err(|error| Failure::failed(error.to_string(), "Name another folder"))?;
        terminal.note(&format!("{copied} operator lists are in {}", folder.display()));
    }
    let answers = question_cases.into_iter().map(|question_cases| {
        let judged: Vec<_> = question_cases.cases.iter().map(|case| case.judge(&lists)).collect();
        Answer::new(&*question_cases.question, &judged, question_cases.passed_over)
    });
    let report = Report {
        version: 1,
        questions: answers.collect(),
        lister: lists.versions(),
        sample: args.sample.map(|cases| Sample { cases, seed: args.seed }),
        problems: truth.problems,
    };
    if let Some(file) = &args.json {
        output_file::write(&report, file)?;
    }
    if !output_file::is_stdout(args.json.as_deref()) {
        terminal.print(&report.text(terminal.heading()))?;
    }
    Ok(())
}

/// A question with its cases in the folder.
struct QuestionCases {
    question: Box<dyn Question>,
    cases: Vec<Case>,
    passed_over: Vec<(String, usize)>,
}

impl QuestionCases {
    fn new(question: Box<dyn Question>, truth: &GroundTruth, args: &EvaluateArgs) -> QuestionCases {
        let found = question.cases(truth, DeviceTable::shipped());
        let cases = match args.sample {
            Some(count) => sample(question.id(), found.cases, count, args.seed),
            None => found.cases,
        };
        QuestionCases { question, cases, passed_over: found.passed_over }
    }
}

/// Creates the missing lists. Without a Python, the questions that need no lists are still
/// answered.
fn lists(
    args: &EvaluateArgs,
    store: &Store,
    wanted: &[ListRequest],
    terminal: &Terminal,
) -> Result<OperatorLists, Failure> {
    if wanted.is_empty() {
        return Ok(OperatorLists::none("no case needs one"));
    }
    let current = std::env::current_dir()
        .map_err(|error| Failure::failed(format!("the current folder: {error}"), ""))?;
    let search = Search {
        workspace: current.clone(),
        root: current,
        configured: args.python.as_deref().map(profile::absolute).transpose()?,
        editor: None,
        private: environment::installed(store.cache()),
    };
    let system = SystemEnvironment::of_this_process();
    let bar = terminal.spinner("looking for a Python with torch");
    let result = run::block_on(|cancel| async move {
        let work = async {
            let python = interpreter::find(&search, &system, Consent::Given)
                .await
                .and_then(|found| found.usable().map(|_| found.clone()));
            let python = match python {
                Ok(python) => python,
                Err(error) if args.python.is_some() => {
                    return Err(Failure {
                        code: exit::NO_PYTHON,
                        what: error.to_string(),
                        next: "Name a Python with torch and timm".to_owned(),
                    });
                }
                Err(error) => return Ok(OperatorLists::none(&error.to_string())),
            };
            let progress = |done: usize, missing: usize| {
                bar.set_message(format!("listing operators: {done} of {missing} models"));
            };
            Ok(OperatorLists::make(&python.path, store.cache(), wanted, &progress).await)
        };
        tokio::select! {
            () = cancel.cancelled() => Err(Failure::interrupted()),
            lists = work => lists,
        }
    })?;
    let lists = result?;
    if let Some(missing) = lists.missing() {
        terminal.note(&missing);
    }
    Ok(lists)
}
