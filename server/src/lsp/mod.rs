//! The edge: the only place, beside `requests`, where the protocol's types are known.

pub(crate) mod backend;
pub(crate) mod capabilities;
pub(crate) mod client;
pub(crate) mod ext;
pub(crate) mod from_proto;
pub(crate) mod position;
pub(crate) mod to_proto;

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    /// Files that name the protocol's types, in folders that may not. `transport` knows messages, but not
    /// what is in them.
    fn check(folder: &Path, found: &mut Vec<String>) {
        const KNOWING: [&str; 3] = ["lsp", "requests", "session_tests"];
        for entry in fs::read_dir(folder).expect("a folder").flatten() {
            let (path, name) = (entry.path(), entry.file_name());
            if path.is_dir() && !KNOWING.iter().any(|one| name == *one) {
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
    fn the_protocols_types_stay_at_the_edge() {
        let mut found = Vec::new();
        check(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut found);
        assert_eq!(found, Vec::<String>::new());
    }

    /// A type of another name can bring the protocol's types in, so the state has none of these modules'.
    #[test]
    fn the_state_has_no_type_of_a_request() {
        let state = include_str!("../state.rs");
        for module in ["requests::", "lsp::from_proto", "lsp::backend", "lsp::capabilities"] {
            assert!(!state.contains(module), "state.rs uses {module}");
        }
    }
}
