//! Embeds the agent's Python files in the binary: `agent/**/*.py` without tests and caches. The
//! models of `ridgeline evaluate` are included only with that feature.

use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let crate_folder = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    let agent = crate_folder.join("agent");
    // Cargo watches folders recursively, and tools put their caches next to the agent's folder.
    println!("cargo::rerun-if-changed=agent/boot.py");
    println!("cargo::rerun-if-changed=agent/ridgeline_agent");
    let mut files = Vec::new();
    collect(&agent, "", &mut files)?;
    if env::var_os("CARGO_FEATURE_EVALUATE").is_none() {
        files.retain(|name| !name.starts_with("ridgeline_agent/models/"));
    }
    files.sort();
    let mut list = String::from("&[\n");
    for name in &files {
        let path = agent.join(name);
        list += &format!("    ({name:?}, include_bytes!({path:?})),\n");
    }
    list += "]\n";
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    fs::write(out.join("agent_files.rs"), list)
}

fn collect(folder: &Path, prefix: &str, files: &mut Vec<String>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        let path = format!("{prefix}{name}");
        if entry.file_type()?.is_dir() {
            if name != "tests" && name != "__pycache__" && !name.starts_with('.') {
                collect(&entry.path(), &format!("{path}/"), files)?;
            }
        } else if name.ends_with(".py") {
            files.push(path);
        }
    }
    Ok(())
}
