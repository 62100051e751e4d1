//! Checks that each crate depends only on crates listed before it in `src/lib.rs`.

use std::path::Path;

/// Returns the crate names in the order in which `src/lib.rs` exports them.
fn order() -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(root.join("src/lib.rs")).unwrap();
    let exported = text.lines().filter_map(|line| line.strip_prefix("pub use ridgeline_"));
    exported.filter_map(|rest| rest.split(" as ").next()).map(str::to_owned).collect()
}

/// Returns the `analysis` crates listed in a section of a crate's manifest.
fn dependencies(name: &str, section: &str) -> Vec<String> {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join(name).join("Cargo.toml");
    let text = std::fs::read_to_string(manifest).unwrap();
    let after = text.split(section).nth(1).unwrap_or_default();
    let lines = after.split("\n[").next().unwrap_or_default().lines();
    let named = lines.filter_map(|line| line.strip_prefix("ridgeline-")?.split('.').next());
    named.filter_map(|rest| rest.split(' ').next()).map(str::to_owned).collect()
}

#[test]
fn crates_depend_only_on_earlier_crates() {
    let order = order();
    assert!(order.len() > 10, "the crates were not found: {order:?}");
    let mut edges = 0;
    for (place, name) in order.iter().enumerate() {
        for section in ["[dependencies]", "[dev-dependencies]"] {
            for other in dependencies(name, section) {
                let dependency = order.iter().position(|it| *it == other);
                assert!(
                    dependency < Some(place) && dependency.is_some(),
                    "{name} depends on {other}"
                );
                edges += 1;
            }
        }
    }
    assert!(edges > 20, "the dependencies were not found");
}

#[test]
fn every_crate_is_in_the_list() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found: Vec<String> = std::fs::read_dir(root)
        .unwrap()
        .flatten()
        .filter(|entry| entry.path().join("Cargo.toml").exists())
        .map(|entry| entry.file_name().into_string().unwrap())
        // Used only in development and by `ridgeline evaluate`. No other crate depends on it.
        .filter(|name| name != "evaluate")
        .collect();
    found.sort();
    let mut order = order();
    order.sort();
    assert_eq!(found, order);
}
