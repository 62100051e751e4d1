//! Chooses the training run among the programs of a project.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};

use ridgeline_analysis::python::{ProjectFiles, Subcommand, TrainingScript, reach};

use super::commands::{Described, Kind, wants_cpu};
use super::imports::importers;
use super::run::Run;
use super::{Candidate, Facts, Files, SearchResult};

/// The score difference from which the best candidate is chosen without asking the user.
const CLEAR_LEAD: i32 = 4;
/// The maximum number of programs in a question to the user.
const MAX_CANDIDATES: usize = 20;
/// The maximum number of files that a message lists if nothing was found.
const MAX_LISTED_FILES: usize = 3;
/// The maximum number of files whose calls are followed into other files.
pub(super) const MAX_FOLLOWED_FILES: usize = 300;

/// The assessment of a program.
#[derive(Debug, Default)]
struct Assessment {
    /// It trains, or is very likely to.
    fits: bool,
    /// It runs something and uses PyTorch, itself or through its imports.
    is_possible: bool,
    /// It runs something.
    runs: bool,
    /// It runs something, or assigns the result of a call, which may run something.
    may_run: bool,
    /// The likelihood of being the training run. Higher is likelier.
    score: i32,
    /// The position of its first command among the commands of the READMEs.
    in_readme: usize,
    reasons: Vec<String>,
}

/// Chooses by the contents of the files. The first rule that applies wins:
///
/// 1. The opened file is a provider or a training script.
/// 2. Exactly one training script imports the opened file, directly or indirectly.
/// 3. The user chose a program before, and it still fits.
/// 4. Exactly one script fits, or one leads clearly; else exactly one provider.
/// 5. Exactly one program runs something with PyTorch, or leads clearly; else exactly one runs
///    anything.
pub(super) fn choose(
    files: &Files,
    described: &[Described],
    opened: Option<&Path>,
    remembered: Option<&str>,
    cut_short: bool,
) -> SearchResult {
    let assessed = assess(files, described);
    let fits = |path: &Path| assessed.get(path).is_some_and(|assessed| assessed.fits);
    let best = |path: &Path| SearchResult::Run(best_run(path, files, described));
    if let Some(opened) = opened {
        if files.get(opened).is_some_and(|facts| facts.training.provider) {
            return SearchResult::Provider(opened.to_owned());
        }
        if fits(opened) {
            return best(opened);
        }
    }
    let all: Vec<&Path> = files.keys().map(PathBuf::as_path).filter(|path| fits(path)).collect();
    let importing: Vec<&Path> = match opened {
        Some(opened) => {
            let importers = importers(files, opened);
            all.iter().copied().filter(|path| importers.contains(*path)).collect()
        }
        None => Vec::new(),
    };
    if let [only] = importing.as_slice() {
        return best(only);
    }
    let fitting = if importing.is_empty() { all } else { importing };
    let remembered =
        |among: &[&Path]| remembered.and_then(|it| chosen(it, among, files, described));
    if let Some(run) = remembered(&fitting) {
        return SearchResult::Run(run);
    }
    let ranked = ranked(&assessed, &fitting);
    if let Some(first) = leader(&ranked, &assessed) {
        return best(first);
    }
    if !ranked.is_empty() {
        return several(&assessed, &ranked, files, described, true);
    }
    let providers: Vec<&Path> = files
        .iter()
        .filter(|(_, facts)| facts.training.provider)
        .map(|(path, _)| path.as_path())
        .collect();
    match providers.as_slice() {
        [] => {}
        [only] => return SearchResult::Provider((*only).to_owned()),
        providers => {
            let candidates = candidates(&assessed, providers, files, described);
            return SearchResult::Several { candidates, leads: false, trains: true };
        }
    }
    let that = |holds: fn(&Assessment) -> bool| -> Vec<&Path> {
        let paths = assessed.iter().filter(|(_, assessed)| holds(assessed));
        paths.map(|(path, _)| *path).collect()
    };
    let possible = self::ranked(&assessed, &that(|assessed| assessed.is_possible));
    if let Some(run) = remembered(&possible) {
        return SearchResult::Run(run);
    }
    if let Some(first) = leader(&possible, &assessed) {
        return best(first);
    }
    if !possible.is_empty() {
        return several(&assessed, &possible, files, described, false);
    }
    // Files unrelated to PyTorch are saved all the time, so such a save starts nothing.
    let running = self::ranked(&assessed, &that(|assessed| assessed.runs));
    let running = match running.as_slice() {
        [] => self::ranked(&assessed, &that(|assessed| assessed.may_run)),
        _ => running,
    };
    if let ([only], None) = (running.as_slice(), opened) {
        return best(only);
    }
    let likely = running.into_iter().take(MAX_LISTED_FILES).map(Path::to_owned).collect();
    SearchResult::Nothing { looked_at: files.len(), cut_short, likely }
}

/// Whether a file trains, itself or through the files that it imports.
pub(super) fn trains(files: &Files, path: &PathBuf) -> bool {
    let Some(facts) = files.get(path) else { return false };
    facts.training.score >= TrainingScript::LIKELY
        || facts.outline.may_run_something()
            && !is_no_program(path)
            && reach(files, path, None).is_some()
}

/// The best way to start a program: a command from the project's files if there is one, else the
/// program without arguments. Selects the CPU if there is no GPU.
pub(super) fn best_run(path: &Path, files: &Files, described: &[Described]) -> Run {
    let facts = files.get(path);
    let training = facts.and_then(|facts| facts.training_subcommand.as_ref());
    let own = described.iter().filter(|one| {
        let has_other_subcommand =
            training.is_some_and(|it| starts_another(&one.run.arguments, it));
        one.run.path == path && !one.doubts.are_serious() && !has_other_subcommand
    });
    let best = own.min_by_key(|one| (one.doubts, one.kind));
    let run = best.map_or_else(|| without_arguments(path, described), |one| one.run.clone());
    let is_command = best.is_some_and(|one| one.kind != Kind::EntryPoints);
    match facts {
        None => run,
        Some(facts) if is_command => on_the_cpu(run, facts),
        Some(facts) => with_own_arguments(run, facts),
    }
}

/// Whether a command has another subcommand than the one that trains: `main.py download`.
fn starts_another(arguments: &[String], training: &Subcommand) -> bool {
    let is_training = |argument: &String| argument.rsplit('=').next() == Some(&training.name);
    !arguments.is_empty() && !arguments.iter().any(is_training)
}

/// Adds the subcommand that trains, if the program has subcommands, and selects the CPU if there is no GPU.
pub(super) fn with_own_arguments(mut run: Run, facts: &Facts) -> Run {
    if let Some(training) = &facts.training_subcommand {
        run.arguments.extend(training.arguments.iter().cloned());
        let file = run.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        run.origin = also(run.origin, format!("subcommand from {file}:{}", training.line));
    }
    on_the_cpu(run, facts)
}

/// The program without arguments, in the folder where the project's files start it.
fn without_arguments(path: &Path, described: &[Described]) -> Run {
    let of_path = |one: &&Described| one.run.path == path && one.run.module.is_none();
    let folder = described.iter().find(of_path).and_then(|one| one.run.folder.clone());
    Run { folder, ..Run::script(path) }
}

/// Adds the program's own option for the CPU.
fn on_the_cpu(mut run: Run, facts: &Facts) -> Run {
    let Some((arguments, line)) = &facts.cpu_option else { return run };
    // If the option toggles the GPU, passing it twice may turn the GPU on again.
    let is_given = |argument: &String| wants_cpu(argument) || arguments.contains(argument);
    if run.arguments.iter().any(is_given) {
        return run;
    }
    run.arguments.extend(arguments.iter().cloned());
    let file = run.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let why = format!("{} because there is no GPU (see {file}:{line})", arguments.join(" "));
    run.origin = also(run.origin, why);
    run
}

/// Adds to where a run's arguments come from.
fn also(origin: Option<String>, more: String) -> Option<String> {
    Some(match origin {
        Some(origin) => format!("{origin}; {more}"),
        None => more,
    })
}

/// The run that the user chose before, by its displayed command.
fn chosen(
    remembered: &str,
    among: &[&Path],
    files: &Files,
    described: &[Described],
) -> Option<Run> {
    let named = among.iter().find(|path| path.to_string_lossy() == remembered);
    if let Some(path) = named {
        return Some(best_run(path, files, described));
    }
    let is_it = |one: &&Described| {
        one.run.display() == remembered && among.contains(&one.run.path.as_path())
    };
    let known = described.iter().filter(is_it).min_by_key(|one| (one.doubts, one.kind));
    known.map(|one| one.run.clone()).or_else(|| {
        // With a subcommand or an option for the CPU, which no file of the project has.
        let best = among.iter().map(|path| best_run(path, files, described));
        let plain = among.iter().map(|path| Run::script(path));
        best.chain(plain).find(|run| run.display() == remembered)
    })
}

fn ranked<'a>(assessed: &BTreeMap<&Path, Assessment>, paths: &[&'a Path]) -> Vec<&'a Path> {
    let mut paths = paths.to_vec();
    // A variant has a longer name than the program that it varies: `mnist.py`, `mnist-mixed.py`.
    let size = |path: &Path| (path.components().count(), path.as_os_str().len());
    paths.sort_by(|a, b| {
        rank(assessed, a)
            .cmp(&rank(assessed, b))
            .then_with(|| size(a).cmp(&size(b)))
            .then_with(|| a.cmp(b))
    });
    paths
}

/// The sort key of a program, likeliest first: by score, then by its first command in the READMEs.
fn rank(assessed: &BTreeMap<&Path, Assessment>, path: &Path) -> (Reverse<i32>, usize) {
    let unknown = (Reverse(0), usize::MAX);
    assessed.get(path).map_or(unknown, |assessed| (Reverse(assessed.score), assessed.in_readme))
}

fn leader<'a>(ranked: &[&'a Path], assessed: &BTreeMap<&Path, Assessment>) -> Option<&'a Path> {
    let score = |path: &Path| assessed.get(path).map_or(0, |assessed| assessed.score);
    match ranked {
        [only] => Some(only),
        [first, second, ..] if score(first) - score(second) >= CLEAR_LEAD => Some(first),
        _ => None,
    }
}

fn several(
    assessed: &BTreeMap<&Path, Assessment>,
    ranked: &[&Path],
    files: &Files,
    described: &[Described],
    trains: bool,
) -> SearchResult {
    let leads = match ranked {
        [first, second, ..] => rank(assessed, first) < rank(assessed, second),
        _ => true,
    };
    let candidates = candidates(assessed, ranked, files, described);
    SearchResult::Several { candidates, leads, trains }
}

fn candidates(
    assessed: &BTreeMap<&Path, Assessment>,
    paths: &[&Path],
    files: &Files,
    described: &[Described],
) -> Vec<Candidate> {
    let candidate = |path: &&Path| Candidate {
        run: best_run(path, files, described),
        reasons: assessed.get(path).map(|assessed| assessed.reasons.clone()).unwrap_or_default(),
    };
    paths.iter().take(MAX_CANDIDATES).map(candidate).collect()
}

fn assess<'a>(files: &'a Files, described: &[Described]) -> BTreeMap<&'a Path, Assessment> {
    let mut with_torch: HashSet<&Path> = HashSet::new();
    for (path, facts) in files.iter() {
        if facts.outline.imports_torch() {
            with_torch.insert(path);
        }
    }
    let starts_function = |path: &Path| {
        let function = |one: &Described| {
            let (_, function) = one.run.module.as_deref()?.split_once(':')?;
            (one.run.path == path).then(|| function.to_owned())
        };
        described.iter().find_map(function)
    };
    // Modules that assign the result of a call (`logger = get_logger()`) leave the programs their share.
    let (mut followed_running, mut followed_others) = (0, 0);
    let mut assessed = BTreeMap::new();
    for (path, facts) in files.iter() {
        let function = starts_function(path);
        let is_program = !is_no_program(path);
        let mut runs = (facts.outline.runs_something() || function.is_some()) && is_program;
        let may_run = runs || facts.outline.may_run_something() && is_program;
        let mut one = Assessment { may_run, ..Assessment::default() };
        let mut base = i32::try_from(facts.training.score).unwrap_or(i32::MAX);
        one.reasons = facts.training.reasons.iter().map(|reason| (*reason).to_owned()).collect();
        let followed = if runs { &mut followed_running } else { &mut followed_others };
        if base < LIKELY && may_run && *followed < MAX_FOLLOWED_FILES {
            *followed += 1;
            if let Some(reached) = reach(files, path, function.as_deref()) {
                runs = true;
                // It is as likely as a program with this loop in its own file.
                let of_loop = files.get(&reached.file).map_or(0, |facts| facts.training.score);
                base = i32::try_from(of_loop)
                    .unwrap_or(i32::MAX)
                    .max(LIKELY + i32::from(reached.sets_up));
                let place = reached.file.to_string_lossy().replace('\\', "/");
                one.reasons = if reached.file == *path {
                    vec!["runs its training function".to_owned()]
                } else {
                    vec![format!("runs the training loop in {place}")]
                };
            }
            one.is_possible = runs && reaches_torch(files, path, &with_torch);
        }
        one.runs = runs;
        one.is_possible |= runs && (base > 0 || with_torch.contains(path.as_path()));
        if base == 0 {
            base = if one.is_possible { 5 } else { 1 };
            if one.is_possible {
                one.reasons.push("uses PyTorch".to_owned());
            }
        }
        let is_in_main_readme = is_in_main_readme(path, described);
        if base >= LIKELY && is_in_main_readme {
            base = base.max(COMPLETE);
        }
        let (named, kinds) = mentions(path, described);
        let copied = if files.is_copied(path) { COPIED } else { 0 };
        // What the main README starts is not aside, whatever its folder is called.
        let by_folder = if is_in_main_readme { 0 } else { by_folder(path) };
        one.score = base + by_name(path) + by_folder + copied + named;
        one.reasons.extend(kinds);
        one.in_readme = in_readme(path, described);
        one.fits = base >= LIKELY || (one.is_possible && one.score >= LIKELY && named > 0);
        assessed.insert(path.as_path(), one);
    }
    assessed
}

const LIKELY: i32 = TrainingScript::LIKELY as i32;
/// The score of a script that has everything of a training script. Between programs that the README
/// starts, its order counts more than their style.
const COMPLETE: i32 = LIKELY + 8;
/// The score of a program in a copy of another project, which is there to be compared with or used.
const COPIED: i32 = -10;

/// The score from the project's files that mention a program, and their names.
fn mentions(path: &Path, described: &[Described]) -> (i32, Vec<String>) {
    let mut kinds: BTreeMap<Kind, bool> = BTreeMap::new();
    let mut reasons = Vec::new();
    let is_it = |one: &&Described| one.run.path == path && !one.doubts.is_other_task;
    for one in described.iter().filter(is_it) {
        let is_of_root = !one.file.contains('/');
        if !kinds.contains_key(&one.kind) {
            reasons.push(format!("started in {}", one.file));
        }
        *kinds.entry(one.kind).or_default() |= is_of_root;
    }
    let points = kinds.iter().map(|(kind, is_of_root)| match kind {
        Kind::LaunchJson => 5,
        Kind::Readme if !is_of_root => 2,
        Kind::Readme => 4,
        Kind::Makefile | Kind::ShellScript => 3,
        Kind::EntryPoints => 2,
    });
    (points.sum::<i32>().min(6), reasons)
}

/// Whether the README at the root starts a program to train.
fn is_in_main_readme(path: &Path, described: &[Described]) -> bool {
    described.iter().any(|one| {
        one.kind == Kind::Readme
            && one.run.path == path
            && !one.file.contains('/')
            && !one.doubts.is_other_task
    })
}

fn in_readme(path: &Path, described: &[Described]) -> usize {
    let mut readmes = described.iter().filter(|one| one.kind == Kind::Readme);
    readmes.position(|one| one.run.path == path && !one.doubts.is_other_task).unwrap_or(usize::MAX)
}

/// The score from a file's name. Like that from its folder, it decides only between programs that
/// train.
fn by_name(path: &Path) -> i32 {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy().to_lowercase();
    let has = |words: &[&str]| words.iter().any(|word| stem.contains(word));
    let mut points = 0;
    if stem == "train" {
        points += 3;
    } else if matches!(stem.as_str(), "main" | "run" | "__main__" | "fit" | "app")
        // Finetuning usually needs the result of a training.
        || has(&["finetune", "fine_tune"])
    {
        points += 1;
    } else if has(&["train"]) {
        points += 2;
    }
    if has(&[
        "eval",
        "test",
        "infer",
        "predict",
        "sample",
        "generate",
        "bench",
        "export",
        "convert",
        "prepare",
        "preprocess",
        "download",
        "visual",
        "plot",
        "demo",
    ]) {
        points -= 4;
    }
    // Also among demos, these need more than others.
    if has(&["distributed", "multi_gpu", "multigpu"]) {
        points -= 4;
    }
    points
}

/// The score from a file's folder.
fn by_folder(path: &Path) -> i32 {
    let aside = [
        "test",
        "tests",
        "example",
        "examples",
        "benchmark",
        "benchmarks",
        "docs",
        "tools",
        "demos",
        "tutorial",
        "tutorials",
        "distributed",
        "multi_gpu",
    ];
    let folders = path.parent().into_iter().flat_map(Path::components);
    let mut points = 0;
    let mut depth = 0;
    for folder in folders {
        depth += 1;
        let name = folder.as_os_str().to_string_lossy().to_lowercase();
        if aside.contains(&name.as_str()) || name.contains("conver") {
            points -= 3;
        }
    }
    points + if depth == 0 { 2 } else { 0 }
}

/// Whether a file is run by Python tools rather than by users.
fn is_no_program(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let in_tests = path.components().any(|part| {
        let part = part.as_os_str();
        part == "tests" || part == "test" || part == "docs"
    });
    in_tests
        || name.starts_with("test_")
        || matches!(
            &*name,
            "setup.py"
                | "conftest.py"
                | "noxfile.py"
                | "tasks.py"
                | "__init__.py"
                | "versioneer.py"
                | "hubconf.py"
                | "conf.py"
        )
}

/// Whether a program uses PyTorch through the project files that it imports.
fn reaches_torch(files: &Files, path: &Path, with_torch: &HashSet<&Path>) -> bool {
    const MOST: usize = 500;
    let mut seen = HashSet::from([path.to_owned()]);
    let mut waiting = vec![path.to_owned()];
    while let Some(file) = waiting.pop() {
        if with_torch.contains(file.as_path()) {
            return true;
        }
        let Some(facts) = files.get(&file) else { continue };
        for import in facts.outline.imports() {
            let names = import.names.iter().map(|name| format!("{}.{name}", import.module));
            for name in std::iter::once(import.module.clone()).chain(names) {
                if let Some(module) = files.module(&file, import.level, &name)
                    && seen.len() < MOST
                    && seen.insert(module.clone())
                {
                    waiting.push(module);
                }
            }
        }
    }
    false
}
