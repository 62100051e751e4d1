//! How the report's own part looks. What has a size or a heat has it by a class, so that the page's
//! policy needs to allow no style within elements.

use std::fmt::Write as _;

/// Widths of bars, in so many steps.
const WIDTHS: u32 = 50;
/// Heats of lines.
const HEATS: u32 = 15;
/// Depths of modules.
const DEPTHS: u32 = 8;

/// The class of a bar for a share of 0 to 1.
pub(super) fn width(share: f64) -> String {
    format!("w{}", step(share, WIDTHS))
}

/// The class of a line for a share of 0 to 1; nothing where it is not warm.
pub(super) fn heat(share: f64) -> Option<String> {
    // A hundredth of the iteration is warm already, and half of it is not fifty times as hot.
    let step = step(share.sqrt(), HEATS);
    (share >= 0.005 && step > 0).then(|| format!("h{step}"))
}

/// The class of a module's depth.
pub(super) fn depth(depth: usize) -> String {
    format!("d{}", depth.min(DEPTHS as usize))
}

fn step(share: f64, steps: u32) -> u32 {
    // A cast saturates, and takes what is no number for 0.
    (share.clamp(0.0, 1.0) * f64::from(steps)).round() as u32
}

/// The style sheet.
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
