//! Replays the iteration of each given trace: `cargo run --release -p ridgeline-evaluate --bin
//! replay_error TRACE…`. Prints the error of the replay, and the time to build and to run it.

use std::time::Instant;

use ridgeline_graph::simulate;
use ridgeline_recording::Recording;
use ridgeline_recording::chrome_trace::Options;
use ridgeline_recording::trace::Trace;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    for path in std::env::args().skip(1) {
        let trace = Trace::read(std::fs::File::open(&path)?, &Options::default())?;
        let recording = Recording { trace, lines: None, manifest: None, ceilings: None };
        let profile = ridgeline_attribution::attribute(&recording)?;
        let name = path.rsplit('/').next().unwrap_or_default();
        let began = Instant::now();
        match ridgeline_attribution::step_graph(&recording, &profile) {
            Ok(recorded) => {
                let built = began.elapsed();
                let began = Instant::now();
                simulate::steady(&recorded.graph)?;
                println!(
                    "{name}: {} tasks, {:.2} ms, replay {:+.2}%, calibrated to {:.2} ms; built in {built:.0?}, run in {:.1?}",
                    recorded.graph.tasks.len(),
                    recorded.measured_ns / 1e6,
                    recorded.replay_error * 100.0,
                    recorded.schedule.iteration_ns / 1e6,
                    began.elapsed(),
                );
            }
            Err(error) => println!("{name}: {error}"),
        }
    }
    Ok(())
}
