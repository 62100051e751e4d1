//! Checks that every page marks the device of a simulated recording as simulated.
//! `tests/cli/simulated_gpu.rs` checks what a program on the simulated device sees.

use crate::recorded;

use recorded::{recording, root};
use ridgeline_analysis::attribution::attribute;
use ridgeline_analysis::compare::check::{Budgets, CheckInput, check};
use ridgeline_analysis::compare::compare;
use ridgeline_analysis::compare::run::Run;
use ridgeline_analysis::diagnose::finding::SourceLine;
use ridgeline_analysis::present::compare::RunLabel;
use ridgeline_analysis::present::cost_map::CostMap;
use ridgeline_analysis::present::hover::{HoverContext, hover};
use ridgeline_analysis::present::panel::{PanelInput, RunRecord};
use ridgeline_analysis::present::terminal::Style;
use ridgeline_analysis::present::timeline::{MAX_SPANS, timeline};
use ridgeline_analysis::present::{self, json, panel, terminal};
use ridgeline_analysis::profile::{FileId, Profile};
use ridgeline_analysis::python::SourceIndex;
use ridgeline_analysis::recording::Recording;
use serde_json::to_value;

const NAME: &str = "NVIDIA H100 80GB HBM3";
const SHOWN: &str = "NVIDIA H100 80GB HBM3 (simulated)";
const STYLE: Style = Style { color: false, width: 100 };

/// Returns a CPU recording whose manifest names a GPU. This is enough here: the pages read only the
/// manifest's device.
fn on_gpu(is_simulated: bool) -> (Recording, Profile) {
    let mut recording = recording(&root().join("tests/recordings/conv-cpu"));
    let device = &mut recording.manifest.as_mut().expect("a manifest").device;
    device.kind = Some("cuda".to_owned());
    device.name = Some(NAME.to_owned());
    device.simulated = is_simulated;
    let profile = attribute(&recording).expect("a profile");
    (recording, profile)
}

/// Returns all pages that show the name of a measured device, labeled.
fn pages(is_simulated: bool) -> Vec<(&'static str, String)> {
    let (_, profile) = on_gpu(is_simulated);
    let run = Run::of(&profile);
    let text = std::fs::read_to_string(root().join("tests/recordings/conv-cpu/src/train.py"));
    let index = SourceIndex::new(text.expect("the program"));
    let file = profile.files.iter().position(|file| file.path == "train.py").expect("the program");
    let costs = CostMap::build(&profile, FileId(u32::try_from(file).expect("few")), &index);
    let training_loop = costs.training_loop.as_ref().expect("a loop").header.start;
    let loop_hover = hover(&profile, HoverContext::default(), &costs, &index, training_loop);
    let at = SourceLine { path: "train.py".to_owned(), line: 1 };
    let judged = CheckInput { run: &run, baseline: None, findings: Ok(&[]), at: &at };
    let both = compare(&run, &run);
    let names = [&RunLabel::default(), &RunLabel::default()];
    let history = [RunRecord::of(&profile, 2), RunRecord::of(&profile, 1)];
    let input = PanelInput { profile: Some(&profile), history: &history, ..PanelInput::default() };
    let document = to_value(panel::document(&input)).expect("JSON");
    vec![
        ("terminal", terminal::summary(&profile, STYLE)),
        ("hover", loop_hover.expect("a hover").plain),
        ("check", present::check::page(&check(&judged, &Budgets::default()), STYLE)),
        ("compare", present::compare::page(&both, names, STYLE)),
        ("saved run", run.device),
        ("panel", document["recording"]["device"]["name"].to_string()),
        ("history", document["history"][1]["device"].to_string()),
    ]
}

#[test]
fn every_page_with_a_device_name_marks_it_as_simulated() {
    for (place, page) in pages(true) {
        assert!(page.contains(SHOWN), "{place}: {page}");
    }
    for (place, page) in pages(false) {
        assert!(page.contains(NAME) && !page.contains("simulated"), "{place}: {page}");
    }
}

#[test]
fn json_documents_have_a_separate_simulated_field() {
    for is_simulated in [true, false] {
        let (recording, profile) = on_gpu(is_simulated);
        let document = to_value(json::document(&profile, &[])).expect("JSON");
        assert_eq!(
            document["device"]["name"], NAME,
            "the name must be the one in the device table"
        );
        assert_eq!(document["device"]["simulated"], is_simulated);
        let input = PanelInput { profile: Some(&profile), ..PanelInput::default() };
        let document = to_value(panel::document(&input)).expect("JSON");
        assert_eq!(document["recording"]["device"]["simulated"], is_simulated);
        let document = to_value(timeline(&recording, 1, MAX_SPANS)).expect("JSON");
        assert_eq!(document["simulated"], is_simulated);
    }
}

#[test]
fn a_simulated_device_is_not_compared_with_the_real_one() {
    let [simulated, real] = [true, false].map(|is_simulated| Run::of(&on_gpu(is_simulated).1));
    let found = compare(&simulated, &real);
    let why = format!("the devices differ: {SHOWN} and {NAME}");
    assert_eq!(found.unlike.as_deref(), Some(&*why));
}
