//! Tests the packages in a clean environment. `.ci/package` builds them into the folder
//! RIDGELINE_PACKAGES. `tests/editors` installs the extension in VS Code.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Maximum size in bytes, for the test build with few optimizations. Detects files that do not
/// belong in the package.
const MAX_EXTENSION_BYTES: u64 = 24_000_000;

/// Returns the package with this extension. Prints why and returns `None` if packages were not built.
fn package(ending: &str) -> Option<PathBuf> {
    let Some(folder) = std::env::var_os("RIDGELINE_PACKAGES") else {
        println!("skipped: RIDGELINE_PACKAGES names no folder with packages");
        return None;
    };
    let entries = fs::read_dir(&folder).expect("the folder of packages");
    let mut found: Vec<PathBuf> = entries
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|found| found == ending))
        .collect();
    assert_eq!(found.len(), 1, "{found:?} in {}", folder.display());
    found.pop()
}

/// Returns a command with an empty environment and a temporary home.
fn clean(program: &Path, home: &Path) -> Command {
    let mut command = Command::new(program);
    command.env_clear().env("HOME", home).env("PATH", "/usr/bin:/bin").current_dir(home);
    command
}

fn stdout_of(output: Output) -> String {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    text
}

fn has_the_version(binary: &Path, home: &Path) {
    let version = stdout_of(clean(binary, home).arg("--version").output().expect("it runs"));
    assert_eq!(version.trim(), format!("ridgeline {}", env!("CARGO_PKG_VERSION")));
}

/// Lists a zip archive's files with sizes in bytes. Wheels and extensions are zip archives.
fn contents(archive: &Path, into: &Path) -> Vec<(String, u64)> {
    let list = "import sys, zipfile\n\
        archive = zipfile.ZipFile(sys.argv[1])\n\
        archive.extractall(sys.argv[2])\n\
        for entry in archive.infolist(): print(entry.file_size, entry.filename)";
    let output = Command::new("python3").args(["-c", list]).arg(archive).arg(into).output();
    let text = stdout_of(output.expect("python3 runs"));
    text.lines()
        .map(|line| {
            let (size, name) = line.split_once(' ').expect("a size and a name");
            (name.to_owned(), size.parse().expect("a size"))
        })
        .collect()
}

#[test]
fn the_wheel_contains_the_binary() {
    let Some(wheel) = package("whl") else { return };
    let home = tempfile::tempdir().expect("a folder");
    let env = home.path().join("env");
    stdout_of(Command::new("python3").args(["-m", "venv"]).arg(&env).output().expect("venv"));
    let bin = env.join("bin");
    let mut install = clean(&bin.join("python"), home.path());
    install.args(["-m", "pip", "install", "--quiet", "--no-index", "--no-deps"]).arg(&wheel);
    stdout_of(install.output().expect("pip runs"));
    has_the_version(&bin.join("ridgeline"), home.path());
    let help = clean(&bin.join("ridgeline"), home.path()).arg("--help").output();
    assert!(stdout_of(help.expect("it runs")).contains("lsp"));
    // The module of the notebook magic finds the binary that was installed with it.
    let find = "from ridgeline._binary import binary; print(binary())";
    let found = clean(&bin.join("python"), home.path()).args(["-c", find]).output();
    let found = stdout_of(found.expect("it runs"));
    let real = |path: &Path| path.canonicalize().expect("a file");
    assert_eq!(real(Path::new(found.trim())), real(&bin.join("ridgeline")));
}

#[test]
fn the_extension_contains_only_the_binary_and_its_files() {
    let Some(extension) = package("vsix") else { return };
    let size = extension.metadata().expect("it is there").len();
    assert!(size < MAX_EXTENSION_BYTES, "the extension has {size} bytes");
    let home = tempfile::tempdir().expect("a folder");
    let files = contents(&extension, home.path());
    for (name, _) in &files {
        let superfluous = [".map", ".ts", ".test.js", "package-lock.json"];
        let is_superfluous = superfluous.iter().any(|ending| name.ends_with(ending));
        assert!(!is_superfluous && !name.contains("node_modules"), "{name}");
    }
    for needed in ["package.json", "readme.md", "changelog.md", "license.txt", "server/ridgeline"] {
        let is_there = files.iter().any(|(name, size)| {
            name.to_lowercase().strip_prefix("extension/") == Some(needed) && *size > 0
        });
        assert!(is_there, "{needed} is missing: {files:?}");
    }
    // Python's zipfile drops the file mode, which an editor preserves.
    let binary = home.path().join("extension/server/ridgeline");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(&binary, fs::Permissions::from_mode(0o755)).expect("it may run");
    }
    has_the_version(&binary, home.path());
}
