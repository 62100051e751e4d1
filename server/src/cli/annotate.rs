//! `ridgeline annotate FILE`: source with the costs of the latest run in the margin, as `git blame` shows commits.

use std::ops::RangeInclusive;

use ridgeline_analysis::present::cost_map::CostMap;
use ridgeline_analysis::present::terminal as present;
use ridgeline_analysis::python::SourceIndex;

use super::AnnotateArgs;
use super::exit::Failure;
use super::latest::{Latest, Target};
use super::terminal::Terminal;
use super::{run, show};

/// Runs the subcommand. It reads what an earlier run left and runs nothing.
pub(super) fn run(args: &AnnotateArgs, terminal: &Terminal) -> Result<(), Failure> {
    let target = Target::of(Some(&args.file))?;
    let file = target.file.as_ref().ok_or_else(|| {
        Failure::usage(format!("{} is a folder", args.file.display()), "Pass a Python file")
    })?;
    let latest = Latest::read(&run::open_store()?, &target)?;
    let profile = &latest.profiled.profile;
    let lines = args.lines.clone().unwrap_or(1..=u32::MAX);
    let annotated = |at, source: &SourceIndex| {
        let costs = CostMap::build(profile, at, source);
        present::annotated_lines(profile, &costs, source, lines.clone(), show::style(terminal))
    };
    let cells = latest.cells(file);
    let text = if cells.is_empty() {
        let (at, source) = latest.source(&file.to_string_lossy())?;
        annotated(at, &source)
    } else {
        let cells = cells
            .iter()
            .map(|(number, at, source)| format!("cell {number}\n{}", annotated(*at, source)));
        cells.collect::<Vec<_>>().join("\n")
    };
    terminal.note(latest.heading().trim_end());
    terminal.print(&text)
}

/// Reads `40,60`, `40,` or `40`, as `git blame -L` does.
pub(super) fn lines(text: &str) -> Result<RangeInclusive<u32>, String> {
    let wrong = || format!("`{text}` is not a range of lines such as `40,60`");
    let number = |text: &str| text.trim().parse::<u32>().map_err(|_| wrong());
    let (first, last) = match text.split_once(',') {
        Some((first, "")) => (number(first)?, u32::MAX),
        Some((first, last)) => (number(first)?, number(last)?),
        None => (number(text)?, number(text)?),
    };
    if first == 0 || last < first {
        return Err(wrong());
    }
    Ok(first..=last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_lines() {
        assert_eq!(lines("40,60"), Ok(40..=60));
        assert_eq!(lines("40,"), Ok(40..=u32::MAX));
        assert_eq!(lines(" 7 "), Ok(7..=7));
        for wrong in ["", ",", "0,3", "5,4", "a", "1,2,3", "-1", "99999999999"] {
            assert!(lines(wrong).is_err(), "{wrong}");
        }
    }
}
