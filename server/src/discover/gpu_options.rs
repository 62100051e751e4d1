//! Removes the options for a GPU from a command's arguments, for machines without one.

/// Returns the arguments without the options for a GPU, and the removed words. A device is replaced
/// by the CPU: `--device cuda:0` becomes `--device cpu`.
pub(super) fn removed(arguments: Vec<String>) -> (Vec<String>, Vec<String>) {
    let (mut kept, mut removed) = (Vec::new(), Vec::new());
    let mut words = arguments.into_iter().peekable();
    while let Some(word) = words.next() {
        let (name, value) = match word.split_once('=') {
            Some((name, value)) if word.starts_with('-') => (Some(name), Some(value)),
            _ if word.starts_with('-') => (Some(word.as_str()), None),
            _ => (None, Some(word.as_str())),
        };
        if value.is_some_and(is_gpu) {
            match name {
                Some(name) if !is_gpu_option(name) => kept.push(format!("{name}=cpu")),
                Some(_) => {}
                None => kept.push("cpu".to_owned()),
            }
            removed.push(word);
        } else if name.is_some_and(is_gpu_option) && !value.is_some_and(is_none) {
            let has_value = value.is_none() && words.peek().is_some_and(|next| is_count(next));
            removed.push(word);
            removed.extend(words.next_if(|_| has_value));
        } else {
            kept.push(word);
        }
    }
    (kept, removed)
}

/// Whether an option requests GPUs, whatever its value.
fn is_gpu_option(name: &str) -> bool {
    let name = name.trim_start_matches('-').to_lowercase().replace('-', "_");
    matches!(name.as_str(), "cuda" | "gpu" | "gpus" | "gpu_id" | "gpu_ids" | "use_cuda" | "use_gpu")
}

fn is_gpu(value: &str) -> bool {
    let value = value.to_lowercase();
    value == "cuda" || value == "gpu" || value.starts_with("cuda:")
}

/// Whether the value of an option turns GPUs off.
fn is_none(value: &str) -> bool {
    matches!(value.to_lowercase().as_str(), "0" | "-1" | "false" | "none" | "no")
}

/// Whether a word is the value of an option for GPUs: their number, their indices, or `true`.
fn is_count(word: &str) -> bool {
    let is_numbers = word.chars().all(|c| c.is_ascii_digit() || c == ',');
    (is_numbers && !word.is_empty()) || matches!(word.to_lowercase().as_str(), "true" | "all")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(arguments: &str, expected: &str) {
        let words = arguments.split(' ').map(str::to_owned).collect();
        let (kept, removed) = removed(words);
        assert_eq!(format!("{} | {}", kept.join(" "), removed.join(" ")), expected);
    }

    #[test]
    fn options_for_a_gpu() {
        check("-net vgg16 -gpu", "-net vgg16 | -gpu");
        check("--cuda --lr 1", "--lr 1 | --cuda");
        check("--gpus 2 --lr 1", "--lr 1 | --gpus 2");
        check("--gpu 0,1 data", "data | --gpu 0,1");
        check("--gpu data", "data | --gpu");
        check("--device cuda:0 x", "--device cpu x | cuda:0");
        check("--device=cuda", "--device=cpu | --device=cuda");
        check("--gpus=0 --use_gpu=false", "--gpus=0 --use_gpu=false | ");
        check("--model resnet --device cpu", "--model resnet --device cpu | ");
    }
}
