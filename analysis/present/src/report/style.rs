//! The style sheet of the report. Sizes and heat are set by classes, so that the page's policy need
//! not allow inline styles.

use std::fmt::Write as _;

/// The number of steps of bar widths.
const WIDTHS: u32 = 50;
/// The number of heat levels of lines.
const HEATS: u32 = 15;
/// The maximum depth at which modules are indented further.
const DEPTHS: u32 = 8;

/// Returns the class of a bar for a share of 0 to 1.
pub(super) fn width(share: f64) -> String {
    format!("w{}", step(share, WIDTHS))
}

/// Returns the class of a line for a share of 0 to 1. `None` for lines without heat.
pub(super) fn heat(share: f64) -> Option<String> {
    // The square root makes 1% of the iteration visible without making 50% fifty times as hot.
    let step = step(share.sqrt(), HEATS);
    (share >= 0.005 && step > 0).then(|| format!("h{step}"))
}

/// Returns the class of a module's depth.
pub(super) fn depth(depth: usize) -> String {
    format!("d{}", depth.min(DEPTHS as usize))
}

fn step(share: f64, steps: u32) -> u32 {
    // The cast saturates, and NaN becomes 0.
    (share.clamp(0.0, 1.0) * f64::from(steps)).round() as u32
}

/// Returns the style sheet.
pub(super) fn style() -> String {
    let mut style = include_str!("report.css").to_owned();
    for step in 0..=WIDTHS {
        let percent = step * 100 / WIDTHS;
        let _ = writeln!(style, "#static .w{step}{{width:{percent}%}}");
    }
    for step in 1..=HEATS {
        let alpha = 0.45 * f64::from(step) / f64::from(HEATS);
        let _ = writeln!(style, "#static .h{step}{{background:rgb(var(--heat) / {alpha:.2})}}");
    }
    for step in 0..=DEPTHS {
        let indent = 0.6 + 1.2 * f64::from(step);
        let _ = writeln!(style, "#static td.d{step}{{padding-left:{indent:.1}em}}");
    }
    style
}
