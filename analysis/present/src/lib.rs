//! Everything users read: hints, lenses, hovers, terminal pages and the report, as plain values
//! with byte offsets. It knows no editor and no protocol.

pub mod activity;
pub mod bottleneck;
pub mod check;
pub mod compare;
pub mod cost_map;
pub mod devices;
pub mod edit_gain;
mod entry_statement;
pub mod explained;
pub mod failure;
pub mod failure_json;
pub mod findings;
#[cfg(test)]
pub(crate) mod fixture;
pub mod gpu_batches;
pub mod headline;
pub mod heat;
pub mod hints;
pub mod hover;
mod iteration_times;
pub mod json;
pub mod lenses;
pub mod machines;
pub mod network;
pub mod out_of_memory;
mod page;
pub mod panel;
pub mod patch;
pub mod ranks;
pub mod remarks;
pub mod report;
mod share;
pub mod side_effects;
pub mod terminal;
pub mod timeline;
pub mod trace_summary;
pub mod tuning;
pub mod tuning_json;
pub mod what_ifs;
pub mod what_ifs_json;

/// Runs all presentations, for tests that arbitrary input does not panic. Returns the byte offsets
/// in the results.
#[cfg(test)]
pub(crate) fn present_everything(
    profile: &ridgeline_profile::Profile,
    costs: &crate::cost_map::CostMap,
    index: &ridgeline_python::SourceIndex,
) -> Vec<usize> {
    let mut offsets = Vec::new();
    let whole = 0..index.text().len();
    let options = hints::HintOptions { min_share: 0.0, min_duration_ns: 0.0, ..Default::default() };
    for hint in hints::hints(profile, costs, index, whole, &options) {
        assert!(hint.label.chars().count() < hints::MAX_CHARACTERS, "{}", hint.label);
        offsets.push(hint.offset);
    }
    for hot in heat::heat(profile, costs) {
        assert!((0.0..=1.0).contains(&hot.share), "{}", hot.share);
        offsets.extend([hot.span.start, hot.span.end]);
    }
    for remark in remarks::remarks(profile, costs, index) {
        offsets.extend([remark.span.start, remark.span.end]);
    }
    let training = ridgeline_python::training_script(index);
    let options = lenses::LensOptions {
        min_memory_share: 0.0,
        min_capacity_share: 0.0,
        panel: true,
        ..Default::default()
    };
    for lens in lenses::lenses(Some((profile, costs)), index, || &training, &options) {
        offsets.extend([lens.span.start, lens.span.end]);
    }
    for offset in 0..index.text().len() + 2 {
        let context = hover::HoverContext::default();
        if let Some(hover) = hover::hover(profile, context, costs, index, offset) {
            offsets.extend([hover.span.start, hover.span.end]);
        }
    }
    for width in [0, 30, 80, 500] {
        let style = terminal::Style { color: width == 80, width };
        terminal::annotated_source(profile, costs, index, style);
        terminal::summary(profile, style);
    }
    let texts = [Some(index.text()), None];
    let input = panel::PanelInput { profile: Some(profile), texts: &texts, ..Default::default() };
    let document = panel::document(&input);
    let timeline = timeline::Timeline::empty(0);
    let page = "<title>Ridgeline</title><link rel=\"stylesheet\" href=\"panel.css\">\
                <script src=\"panel.js\"></script>";
    let panel = report::BuiltPanel { html: page, script: "", style: "" };
    let (document, timeline) = (&document, &timeline);
    let report =
        report::Report { profile, texts: &texts, title: "title", document, timeline, panel };
    report::html(&report).expect("a report");
    offsets
}
