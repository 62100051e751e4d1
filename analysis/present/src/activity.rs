//! What a program is doing before its first iteration, or was doing when it was stopped.

use ridgeline_base::printable::one_line;

/// Width of a name or path, in characters.
const MAX_WIDTH: usize = 60;

/// Returns what a library does, as the agent reports it (`import transformers`, `data`), in words.
/// Returns `None` if it is unknown.
pub fn of_library(activity: &str) -> Option<String> {
    let text = match activity {
        "data" => "loading data".to_owned(),
        "compile" => "compiling (`torch.compile`)".to_owned(),
        "distributed" => "waiting for other ranks".to_owned(),
        "processes" => "waiting for its child processes".to_owned(),
        "network" => "waiting for the network".to_owned(),
        other => match other.strip_prefix("import")?.trim() {
            "" => "importing modules".to_owned(),
            module => format!("importing {}", one_line(module, MAX_WIDTH)),
        },
    };
    Some(text)
}

/// Returns a place in the user's code, such as `train.py:12 in main`.
pub fn place(path: &str, line: u32, function: &str) -> String {
    let path = one_line(path, MAX_WIDTH);
    match function {
        "" | "<module>" => format!("{path}:{line}"),
        function => format!("{path}:{line} in {}", one_line(function, MAX_WIDTH)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn activities_are_told_in_words() {
        assert_eq!(of_library("import transformers").as_deref(), Some("importing transformers"));
        assert_eq!(of_library("import").as_deref(), Some("importing modules"));
        assert_eq!(of_library("data").as_deref(), Some("loading data"));
        assert_eq!(of_library("something new"), None);
        assert_eq!(of_library(""), None);
    }

    #[test]
    fn a_place_names_its_function() {
        assert_eq!(place("train.py", 3, "<module>"), "train.py:3");
        assert_eq!(place("data.py", 8, "load"), "data.py:8 in load");
        assert_eq!(place("a\nb.py", 1, ""), "a b.py:1");
    }
}
