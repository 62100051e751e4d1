//! Measures the time to build and serialize the panel's documents for a long iteration. `cargo
//! bench -p ridgeline-analysis --bench panel` prints the times; the goal is 0.5 s for a timeline of
//! 100,000 operators.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a benchmark reads files and the clock"
)]

#[path = "../tests/recorded/large.rs"]
mod large;

use std::time::Instant;

use ridgeline_analysis::attribution::attribute;
use ridgeline_analysis::present::panel::{PanelInput, document};
use ridgeline_analysis::present::timeline::{MAX_SPANS, timeline};

fn main() {
    for operators in [10_000, 100_000, 1_000_000] {
        let recording = large::large(operators);
        let start = Instant::now();
        let built = timeline(&recording, 1, MAX_SPANS);
        let build_time = start.elapsed();
        let start = Instant::now();
        let json = serde_json::to_string(&built).expect("JSON");
        let json_time = start.elapsed();
        println!(
            "{operators:>9} operators: timeline {build_time:>8.1?}, as JSON {json_time:>8.1?}, {} bytes",
            json.len()
        );
        let profile = attribute(&recording).expect("a profile");
        let input = PanelInput { profile: Some(&profile), ..PanelInput::default() };
        let start = Instant::now();
        let json = serde_json::to_string(&document(&input)).expect("JSON");
        println!("{:>20} document {:>8.1?}, {} bytes", "", start.elapsed(), json.len());
    }
}
