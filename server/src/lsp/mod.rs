//! The protocol boundary. Apart from `requests`, only this module uses the protocol's types.

pub(crate) mod backend;
pub(crate) mod capabilities;
pub(crate) mod client;
pub(crate) mod ext;
pub(crate) mod from_proto;
pub(crate) mod initialize;
pub(crate) mod position;
pub(crate) mod to_proto;

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    /// Collects files that use the protocol's types in folders that must not. `transport` handles
    /// messages without knowing their content.
    fn check(folder: &Path, found: &mut Vec<String>) {
        const ALLOWED: [&str; 3] = ["lsp", "requests", "session_tests"];
        for entry in fs::read_dir(folder).expect("a folder").flatten() {
            let (path, name) = (entry.path(), entry.file_name());
            if path.is_dir() && !ALLOWED.iter().any(|one| name == *one) {
                check(&path, found);
            } else if path.is_file() {
                let text = fs::read_to_string(&path).expect("text");
                let in_transport = folder.ends_with("transport");
                if text.contains("ls_types") || (text.contains("jsonrpc::") && !in_transport) {
                    found.push(path.display().to_string());
                }
            }
        }
    }

    #[test]
    fn protocol_types_stay_at_the_boundary() {
        let mut found = Vec::new();
        check(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut found);
        assert_eq!(found, Vec::<String>::new());
    }

    /// The state must not contain types of these modules, because they can contain the protocol's
    /// types under another name.
    #[test]
    fn the_state_has_no_type_of_a_request() {
        let state = include_str!("../state.rs");
        for module in ["requests::", "lsp::from_proto", "lsp::backend", "lsp::capabilities"] {
            assert!(!state.contains(module), "state.rs uses {module}");
        }
    }
}
