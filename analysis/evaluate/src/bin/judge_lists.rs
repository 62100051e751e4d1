//! Answers the questions of `ridgeline evaluate` from a folder of operator lists, without Python:
//!
//! ```text
//! ridgeline evaluate GROUND_TRUTH --lists LISTS
//! cargo run --release -p ridgeline-evaluate --bin judge_lists -- GROUND_TRUTH LISTS [QUESTION]
//! ```
//!
//! It prints the tables of `docs/accuracy.md`. A case without a list counts as unanswered.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

use anstyle::Style;
use ridgeline_devices::device_table::DeviceTable;
use ridgeline_evaluate::case::ListSource;
use ridgeline_evaluate::ground_truth::{
    File, GroundTruth, LAMBDA, NEUSIGHT_CONFIGS, NEUSIGHT_MODELS, TIMM,
};
use ridgeline_evaluate::list_request::ListRequest;
use ridgeline_evaluate::questions;
use ridgeline_evaluate::report::{Answer, Report};
use ridgeline_operators::op_list::OpList;

struct Lists(PathBuf);

impl ListSource for Lists {
    fn list(&self, request: &ListRequest) -> Result<OpList, String> {
        let bytes =
            fs::read(self.0.join(request.file_name())).map_err(|error| error.to_string())?;
        OpList::parse(&bytes).map_err(|error| error.to_string())
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let (Some(folder), Some(lists)) = (arguments.next(), arguments.next()) else {
        return Err("usage: judge_lists GROUND_TRUTH LISTS [QUESTION]".into());
    };
    let selected = arguments.next();
    let truth = GroundTruth::read(&files(&folder)?);
    let lists = Lists(lists);
    let questions_to_answer = questions::all().into_iter().filter(|question| {
        selected.as_deref().is_none_or(|selected| selected == Path::new(question.id()))
    });
    let answers = questions_to_answer.map(|question| {
        let found = question.cases(&truth, DeviceTable::shipped());
        let judged: Vec<_> = found.cases.iter().map(|case| case.judge(&lists)).collect();
        Answer::new(&*question, &judged, found.passed_over)
    });
    let report = Report {
        version: 1,
        lister: None,
        sample: None,
        questions: answers.collect(),
        problems: truth.problems,
    };
    print!("{}", report.text(Style::new()));
    Ok(())
}

fn files(folder: &Path) -> Result<Vec<File>, Box<dyn Error>> {
    let mut files = Vec::new();
    for below in [TIMM, LAMBDA, NEUSIGHT_CONFIGS] {
        let Ok(entries) = fs::read_dir(folder.join(below)) else { continue };
        for entry in entries {
            let path = format!("{below}/{}", entry?.file_name().to_string_lossy());
            files.push(file(folder, path));
        }
    }
    files.sort_by(|one, other| one.path.cmp(&other.path));
    files.push(file(folder, NEUSIGHT_MODELS.to_owned()));
    Ok(files)
}

fn file(folder: &Path, path: String) -> File {
    let contents = fs::read(folder.join(&path)).map_err(|error| error.to_string());
    File { path, contents }
}
