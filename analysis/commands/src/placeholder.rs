//! Recognizes placeholders that the reader has to fill in.

/// Whether a word of documentation is a placeholder.
pub(super) fn is_placeholder(word: &str) -> bool {
    let lower = word.to_lowercase();
    let value = lower.rsplit('=').next().unwrap_or_default();
    is_certain_placeholder(word)
        || value.starts_with('[')
            // `[one of | another]` and `[the number of layers]` are several words to a shell.
            && (value.ends_with(']') || !value.contains(']'))
            && value.contains(|c: char| c == ' ' || c.is_alphabetic())
        || lower.starts_with('[')
        || lower.ends_with(']') && !lower.contains('[')
        || word.starts_with('{') && word.ends_with('}')
        || matches!(value, "..." | "…" | "xxx" | "path" | "/data" | "dir" | "/path")
}

/// Whether a word is a placeholder even in quotes, where brackets and dots are literal.
pub(super) fn is_certain_placeholder(word: &str) -> bool {
    let lower = word.to_lowercase();
    [
        "/path/to",
        "path/to/",
        "path_to",
        "path-to",
        "your_",
        "your-",
        "your ",
        "/your/",
        "=/my/",
        "/somewhere",
        "<",
        "{{",
        "[-",
    ]
    .iter()
    .any(|mark| lower.contains(mark))
}

/// Whether a value repeats the name of its option: `--env env_id`, `--algo algo_name`, `--data DATA`.
pub(super) fn repeats_option(option: &str, value: &str) -> bool {
    let Some(name) = option.strip_prefix("--").filter(|name| !name.is_empty()) else {
        return false;
    };
    let name = name.replace('-', "_").to_lowercase();
    let lower = value.replace('-', "_").to_lowercase();
    match lower.strip_prefix(&name) {
        Some("") => value.chars().any(char::is_uppercase) && !value.chars().any(char::is_lowercase),
        Some(rest) => matches!(rest, "_name" | "_id"),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_repeat_their_option() {
        for (option, value) in
            [("--env", "env_id"), ("--algo", "algo_name"), ("--batch-size", "BATCH_SIZE")]
        {
            assert!(repeats_option(option, value), "{option} {value}");
        }
        for (option, value) in [
            ("--data", "data"),
            ("--model", "model_small"),
            ("--env", "CartPole"),
            ("env", "env_id"),
        ] {
            assert!(!repeats_option(option, value), "{option} {value}");
        }
    }

    #[test]
    fn placeholders() {
        for word in [
            "/path/to/data",
            "--data_dir=/my/datasets/path",
            "--data=PATH_TO_DATA",
            "[options]",
            "[--gpu",
            "target_potential=[choice",
            "...",
            "YOUR_KEY",
        ] {
            assert!(is_placeholder(word), "{word}");
        }
        for word in ["('your device id')", "res{8,15}[-narrow]", "/somewhere/to/store/cifar10"] {
            assert!(is_certain_placeholder(word), "{word}");
        }
        for word in [
            "data/cifar",
            "--lr",
            "0.1",
            "model.layers=[1,2]",
            "layers=[a,b]+",
            "config.yaml",
            "--path=data",
        ] {
            assert!(!is_placeholder(word), "{word}");
        }
    }
}
