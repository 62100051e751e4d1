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

    /// Files outside of `lsp` and `requests` in which a word of the protocol's types stands.
    fn check(folder: &Path, found: &mut Vec<String>) {
        for entry in fs::read_dir(folder).expect("a folder").flatten() {
            let (path, name) = (entry.path(), entry.file_name());
            if path.is_dir() && name != "lsp" && name != "requests" {
                check(&path, found);
            } else if path.is_file() {
                let text = fs::read_to_string(&path).expect("text");
                if text.contains("ls_types") || text.contains("jsonrpc::") {
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
