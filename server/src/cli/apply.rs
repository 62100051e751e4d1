//! `ridgeline whatif --apply NAME`: shows edits as a patch, and writes them if the user agrees.

use std::fs;
use std::io::{self, IsTerminal as _};
use std::path::{Path, PathBuf};

use anstyle::{AnsiColor, Style};
use ridgeline_analysis::base::printable::printable;
use ridgeline_analysis::diagnose;
use ridgeline_analysis::diagnose::finding::Finding;
use ridgeline_analysis::optimize::rewrite::EditKind;
use ridgeline_analysis::optimize::study::optimization;
use ridgeline_analysis::present::patch::unified_diff;

use super::WhatifArgs;
use super::edits::{EditedFile, Program, ToApply};
use super::exit::Failure;
use super::terminal::Terminal;
use super::{profile, run, script_choice};
use crate::findings::{self, FindingSet};
use crate::notebook;
use crate::pipeline::{self, Pipeline};
use crate::profiler::Profiled;
use crate::what_if;

/// An edit that the user asked for.
#[derive(Clone, Copy)]
pub(super) enum Requested {
    /// An optimization or a fix, by its name.
    Edit(EditKind),
    /// The fixes of all findings of a rule.
    Rule(&'static str),
}

/// The edits with these names.
pub(super) fn requested(names: &[String]) -> Result<Vec<Requested>, Failure> {
    let one = |name: &String| {
        let rule = || diagnose::rules().into_iter().find(|(rule, _)| rule == name);
        if let Some(kind) = EditKind::from_name(name) {
            return Ok(Requested::Edit(kind));
        }
        if let Some((rule, _)) = rule() {
            return Ok(Requested::Rule(rule));
        }
        let why = optimization(name).map_or("no automatic edit", |one| one.why_no_edit());
        let all = EditKind::ALL.into_iter().chain(EditKind::FIXES);
        let known: Vec<&str> = all.map(EditKind::name).collect();
        let known = format!(
            "Optimizations and fixes that have one: {}. The name of a finding's rule is accepted too",
            known.join(", ")
        );
        Err(Failure::usage(format!("`{name}` has {why}"), known))
    };
    names.iter().map(one).collect()
}

/// Resolves rules to the fixes of their findings in a run.
fn resolved(requested: &[Requested], profiled: &Profiled) -> Result<Vec<ToApply>, Failure> {
    let mut all = Vec::new();
    let mut found: Option<FindingSet> = None;
    for one in requested {
        let rule = match one {
            Requested::Edit(kind) => {
                all.push(ToApply::everywhere(*kind));
                continue;
            }
            Requested::Rule(rule) => *rule,
        };
        if found.is_none() {
            let run = what_if::recorded_run(profiled).map_err(|why| Failure::failed(why, ""))?;
            found = Some(findings::of_recorded_run(profiled, &run));
        }
        let Some(set) = &found else { continue };
        let own: Vec<&Finding> = set.findings.iter().filter(|one| one.rule == rule).collect();
        if own.is_empty() {
            return Err(Failure::failed(format!("the latest run has no finding `{rule}`"), ""));
        }
        let fixes: Vec<ToApply> =
            own.into_iter().filter_map(|finding| ToApply::of_finding(finding, set)).collect();
        if fixes.is_empty() {
            let why = format!("`{rule}` has no automatic fix");
            return Err(Failure::failed(why, "`ridgeline profile` describes what to change"));
        }
        all.extend(fixes);
    }
    Ok(all)
}

/// Applies edits one after the other. The program is run first if it was not profiled before.
pub(super) fn run(
    args: &WhatifArgs,
    requested: &[Requested],
    terminal: &Terminal,
) -> Result<(), Failure> {
    let path = profile::absolute(profile::named(args.path.as_deref()))?;
    if pipeline::is_recording(&path) {
        return Err(Failure::usage(
            "`--apply` cannot be used with a recording: there is no program to edit",
            "Pass the recorded script instead",
        ));
    }
    let request = profile::request(args.path.as_deref(), None, &args.run)?;
    let pipeline = Pipeline::new(run::open_store()?);
    let profiled = run::block_on(|cancel| async move {
        let plan = script_choice::plan(&pipeline, request, terminal, &cancel).await?;
        run::reuse_or_run(&pipeline, &plan, args.fresh, terminal, &cancel).await
    })??;
    let program = Program::of(&profiled).map_err(|why| Failure::failed(why, ""))?;
    let edits = resolved(requested, &profiled)?;
    let (files, notes) = program.apply(&edits).map_err(|why| Failure::failed(why, ""))?;
    let patch: String =
        files.iter().map(|file| unified_diff(&file.edits(), &file.before)).collect();
    show(&patch, terminal)?;
    notes.iter().for_each(|note| terminal.note(&format!("note: {note}")));
    write_if_agreed(&profiled.real_root, &files, args.yes, terminal)
}

/// Prints a patch.
pub(super) fn show(patch: &str, terminal: &Terminal) -> Result<(), Failure> {
    if !io::stdout().is_terminal() {
        return terminal.print(patch);
    }
    let shown = printable(patch);
    terminal.print(&if terminal.colors() { colored(&shown) } else { shown.into_owned() })
}

/// Writes edited files if the user agreed before, or agrees now.
pub(super) fn write_if_agreed(
    root: &Path,
    files: &[EditedFile],
    agreed: bool,
    terminal: &Terminal,
) -> Result<(), Failure> {
    let is_interactive = io::stdin().is_terminal() && io::stdout().is_terminal();
    let agrees = agreed || (is_interactive && terminal.asks("Write these changes?"));
    if !agrees {
        let how = if is_interactive { "" } else { ". Add `--yes` to write the changes" };
        terminal.note(&format!("No file was changed{how}"));
        return Ok(());
    }
    write(root, files)?;
    let names: Vec<&str> = files.iter().map(|file| file.path.as_str()).collect();
    terminal.note(&format!("Changed {}", names.join(", ")));
    Ok(())
}

/// Colors the lines of a patch.
fn colored(patch: &str) -> String {
    let line = |line: &str| {
        let style = match line.as_bytes().first() {
            _ if line.starts_with("+++") || line.starts_with("---") => Style::new().bold(),
            Some(b'+') => AnsiColor::Green.on_default(),
            Some(b'-') => AnsiColor::Red.on_default(),
            _ => Style::new(),
        };
        format!("{style}{line}{style:#}\n")
    };
    patch.lines().map(line).collect()
}

/// Writes all files if none has changed since it was read.
fn write(root: &Path, files: &[EditedFile]) -> Result<(), Failure> {
    let mut paths: Vec<PathBuf> = Vec::new();
    for file in files {
        let path = root.join(&file.path);
        if let Some((notebook, number)) = notebook::cell_of(&path) {
            let name = notebook.file_name().unwrap_or_default().to_string_lossy().into_owned();
            return Err(Failure::failed(
                format!("the change is in code cell {number} of {name}, and no file was changed"),
                "Open the notebook in an editor, where the same edit is a code action",
            ));
        }
        if fs::read_to_string(&path).ok().as_deref() != Some(&*file.before) {
            return Err(Failure::failed(
                format!("{} has just changed, and no file was changed", file.path),
                "Try again",
            ));
        }
        paths.push(path);
    }
    for (path, file) in paths.iter().zip(files) {
        fs::write(path, &file.after)
            .map_err(|error| Failure::failed(format!("cannot write {}: {error}", file.path), ""))?;
    }
    Ok(())
}
