//! How long the panel's documents take to make for a long iteration.
//! `cargo bench -p ridgeline-analysis --bench panel` prints them; the goal is half a second for the
//! timeline of 100,000 operators.
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
use ridgeline_analysis::present::timeline::{MOST_SPANS, timeline};

fn main() {
    for operators in [10_000, 100_000, 1_000_000] {
        let recording = large::large(operators);
        let begun = Instant::now();
        let made = timeline(&recording, 1, MOST_SPANS);
        let taken = begun.elapsed();
        let begun = Instant::now();
        let json = serde_json::to_string(&made).expect("JSON");
        let written = begun.elapsed();
        println!(
            "{operators:>9} operators: timeline {taken:>8.1?}, as JSON {written:>8.1?}, {} bytes",
            json.len()
        );
        let profile = attribute(&recording).expect("a profile");
        let input = PanelInput { profile: Some(&profile), ..PanelInput::default() };
        let begun = Instant::now();
        let json = serde_json::to_string(&document(&input)).expect("JSON");
        println!("{:>20} document {:>8.1?}, {} bytes", "", begun.elapsed(), json.len());
    }
}
