use std::time::{Duration, SystemTime};

use ignore::WalkBuilder;

use super::owner::Owner;
use super::recordings::{MANIFEST, MAX_RECORDINGS, by_age, set_modified};
use super::*;

fn store() -> (tempfile::TempDir, Store) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let store = Store::at(folder.path().join("cache"), folder.path().join("state"));
    (folder, store)
}

#[test]
fn recordings_are_bounded() {
    let (_folder, store) = store();
    let root = Path::new("/some/where/résumé project");
    for _ in 0..12 {
        store.new_recording(root).expect("a folder");
    }
    assert_eq!(by_age(&store.recordings(root)).len(), MAX_RECORDINGS + 1);
}

#[test]
fn failed_runs_do_not_push_out_a_measurement() {
    let (_folder, store) = store();
    let root = Path::new("/p");
    assert_eq!(store.newest_recording(root), None);
    let finished = store.new_recording(root).expect("a folder");
    for name in [MANIFEST, "trace.json"] {
        fs::write(finished.join(name), "{}").expect("written");
    }
    for _ in 0..12 {
        let failed = store.new_recording(root).expect("a folder");
        for name in [MANIFEST, "trace.json", "log.txt"] {
            fs::write(failed.join(name), "{}").expect("written");
        }
        discard_data(&failed);
        assert!(failed.join("log.txt").is_file());
    }
    assert_eq!(store.newest_recording(root), Some(finished));
}

#[test]
fn workspace_keys_are_unique_and_do_not_reveal_paths() {
    assert_ne!(workspace_key(Path::new("/a/train")), workspace_key(Path::new("/b/train")));
    let key = workspace_key(Path::new("/home/somebody/träin"));
    assert!(key.starts_with("tr_in-") && !key.contains("somebody"), "{key}");
    // The name must stay the same across versions, or recordings are not found again.
    assert_eq!(workspace_key(Path::new("/p")), "p-07d65607b49cbc4a");
}

#[test]
fn projects_below_a_workspace_are_found_by_their_recordings() {
    let (folder, store) = store();
    let workspace = folder.path().join("workspace");
    let project = workspace.join("experiments/first");
    fs::create_dir_all(&project).expect("created");
    assert_eq!(store.recorded_projects(&workspace), Vec::<PathBuf>::new());
    store.new_recording(&project).expect("a folder");
    store.new_recording(&workspace).expect("a folder");
    store.new_recording(folder.path()).expect("a folder");
    let mut found = store.recorded_projects(&workspace);
    found.sort();
    assert_eq!(found, [workspace, project]);
}

#[test]
fn a_choice_is_remembered_and_forgotten() {
    let (_folder, store) = store();
    let root = Path::new("/p");
    assert_eq!(store.remembered_run(root), None);
    store.remember_run(root, "src/train.py").expect("written");
    assert_eq!(store.remembered_run(root), Some("src/train.py".into()));
    store.forget_script(root).expect("removed");
    store.forget_script(root).expect("twice is fine");
    assert_eq!(store.remembered_run(root), None);
}

/// Finishes a recording with `bytes` bytes of trace.
fn finish(recording: &Path, bytes: usize) {
    fs::write(recording.join("trace.json"), vec![b' '; bytes]).expect("written");
    fs::write(recording.join(MANIFEST), "{}").expect("written");
}

#[test]
#[cfg(unix)]
fn only_this_user_has_access() {
    use std::os::unix::fs::PermissionsExt as _;
    let (folder, store) = store();
    let root = Path::new("/p");
    let recording = store.new_recording(root).expect("a folder");
    let rank = recording.join("rank-1");
    // With the permissions that the agent uses.
    fs::create_dir(&rank).expect("created");
    finish(&recording, 10);
    finish(&rank, 10);
    make_recording_private(&recording);
    let _batch = store.new_batch_folder().expect("a folder");
    let _estimate = store.new_estimate(root).expect("a folder");
    store.remember_run(root, "a.py").expect("written");
    let walk = WalkBuilder::new(folder.path()).standard_filters(false).build();
    let mut seen = 0;
    for entry in walk.skip(1) {
        let entry = entry.expect("readable");
        let mode = entry.metadata().expect("there").permissions().mode();
        assert_eq!(mode & 0o077, 0, "{}: {mode:o}", entry.path().display());
        seen += 1;
    }
    assert!(seen > 10, "{seen} files and folders");
}

/// Returns the ID of a dead process that was waited for, so it is not in use.
#[cfg(unix)]
fn dead_process() -> u32 {
    let mut child = std::process::Command::new("true").spawn().expect("true starts");
    let process = child.id();
    child.wait().expect("it ends");
    process
}

#[test]
#[cfg(target_os = "linux")]
fn leftovers_of_a_killed_process_are_removed() {
    let (_folder, store) = store();
    let root = Path::new("/p");
    store.remember_run(root, "a.py").expect("written");
    let own_batch = store.new_batch_folder().expect("a folder");
    let own_estimate = store.new_estimate(root).expect("a folder");
    let dead = Owner { process: dead_process(), ..Owner::this() };
    let elsewhere = Owner { machine: dead.machine ^ 1, ..dead };
    let workspace = store.workspace_state(root);
    let estimates = own_estimate.path().parent().expect("a parent").to_owned();
    let folders = |owner: String| {
        [store.cache.join(format!("batch-{owner}x")), estimates.join(format!(".tmp-{owner}x"))]
    };
    let files = |owner: String| {
        [store.state.join(format!(".tmp-{owner}x")), workspace.join(format!(".tmp-{owner}x"))]
    };
    // The names of earlier versions do not contain a process ID.
    let owners = [format!("{dead}-"), format!("{elsewhere}-"), "AbCdEf".to_owned()];
    for owner in &owners {
        for folder in folders(owner.clone()) {
            fs::create_dir(&folder).expect("created");
            fs::write(folder.join("trace.json"), "{}").expect("written");
        }
        for file in files(owner.clone()) {
            fs::write(file, "x").expect("written");
        }
    }
    let remaining = |owner: &String| {
        let all = folders(owner.clone()).into_iter().chain(files(owner.clone()));
        all.filter(|path| path.exists()).count()
    };
    let [dead, others @ ..] = &owners;
    store.sweep(SystemTime::now());
    assert_eq!(remaining(dead), 0);
    for other in others {
        assert_eq!(remaining(other), 4, "{other}: its process may be alive");
    }
    assert!(own_batch.path().exists() && own_estimate.path().exists());
    for other in others {
        // The same if the clock was set back since.
        let day = Duration::from_secs(25 * 60 * 60);
        store.sweep(if other == "AbCdEf" {
            SystemTime::now() + day
        } else {
            SystemTime::now() - day
        });
        assert_eq!(remaining(other), 0, "{other}");
        assert!(own_batch.path().exists() && own_estimate.path().exists());
    }
    assert_eq!(store.remembered_run(root), Some("a.py".into()));
}

#[test]
fn the_oldest_recordings_are_removed_beyond_the_size_limit() {
    let (_folder, store) = store();
    let recordings: Vec<PathBuf> = ["/a", "/b", "/a", "/b"]
        .into_iter()
        .enumerate()
        .map(|(age, root)| {
            let folder = store.new_recording(Path::new(root)).expect("a folder");
            finish(&folder, 1000);
            let modified = SystemTime::now() - Duration::from_secs(100 - age as u64);
            set_modified(&folder, modified).expect("set");
            folder
        })
        .collect();
    let there = || recordings.iter().map(|folder| folder.exists()).collect::<Vec<_>>();
    store.bound_recordings(10_000, Path::new(""));
    assert_eq!(there(), [true; 4]);
    // Manifests have two bytes.
    store.bound_recordings(3 * 1002, Path::new(""));
    assert_eq!(there(), [false, true, true, true]);
    // The newest measurement of the current project always stays.
    store.bound_recordings(10, &store.recordings(Path::new("/a")));
    assert_eq!(there(), [false, false, true, false]);
}

#[test]
#[cfg(unix)]
fn recordings_in_progress_are_kept() {
    let (_folder, store) = store();
    let unfinished = store.new_recording(Path::new("/a")).expect("a folder");
    fs::write(unfinished.join("trace.json"), [b' '; 1000]).expect("written");
    let abandoned = unfinished.with_file_name(format!("{}-0", dead_process()));
    fs::create_dir(&abandoned).expect("created");
    fs::write(abandoned.join("trace.json"), [b' '; 1000]).expect("written");
    store.bound_recordings(10, Path::new(""));
    assert!(unfinished.exists() && !abandoned.exists());
}

#[test]
#[cfg(unix)]
fn recordings_survive_a_clock_that_is_set_back() {
    let (_folder, store) = store();
    let root = Path::new("/p");
    // Recorded while the clock was a year ahead.
    for age in 0..MAX_RECORDINGS as u64 {
        let folder = store.new_recording(root).expect("a folder");
        finish(&folder, 10);
        let year = Duration::from_secs(365 * 24 * 60 * 60 + age);
        set_modified(&folder, SystemTime::now() + year).expect("set");
    }
    for _ in 0..3 {
        let newest = store.new_recording(root).expect("a folder");
        finish(&newest, 10);
        assert_eq!(store.newest_recording(root), Some(newest.clone()));
        // The next run removes the oldest recording, and not this one.
        store.new_recording(root).expect("a folder");
        assert_eq!(store.newest_recording(root), Some(newest));
    }
}

#[test]
fn a_full_disk_is_reported_with_a_remedy() {
    let full = Path::new("/dev/full");
    if !full.exists() {
        println!("skipped: this machine has no /dev/full");
        return;
    }
    let error = fs::write(full, "x").expect_err("it is full");
    let message = StoreError::at(Path::new("cache/trace.json"), error).to_string();
    assert!(message.starts_with("the disk is full: cache/trace.json"), "{message}");
    assert!(message.contains(CACHE_VARIABLE), "{message}");
}
