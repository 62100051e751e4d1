//! Usual names of the batch size.

/// Whether a name, an option or a key is the batch size of training: `batch_size`, `train_bs`,
/// `per_device_train_batch_size`, `BATCH_SIZE`, `--batch-size`. Names for validation are excluded.
pub fn is_batch_name(name: &str) -> bool {
    let plain = plain(name);
    let known = [
        "batchsize",
        "batch",
        "bs",
        "bsz",
        "bz",
        "nbatch",
        "trainbatchsize",
        "trainingbatchsize",
        "batchsizetrain",
        "trainbatch",
        "trainbs",
        "bstrain",
        "batchsz",
        "perdevicetrainbatchsize",
        "pergputrainbatchsize",
        "perdevicebatchsize",
        "pergpubatchsize",
        "devicebatchsize",
        "microbatchsize",
        "minibatchsize",
        "minibatch",
        "localbatchsize",
        "batchsizeperdevice",
        "batchsizepergpu",
        "samplespergpu",
        "imsperbatch",
        "videosperbatch",
        "nbatchsize",
        "batchsizes",
    ];
    known.contains(&plain.as_str()) && !is_for_validation(name)
}

/// Whether a name contains that of a batch size: `pretrain_batch_size`.
pub fn may_be_batch_name(name: &str) -> bool {
    let plain = plain(name);
    is_batch_name(name)
        || ((plain.ends_with("batchsize") || plain.starts_with("batchsize"))
            && !is_for_validation(name))
}

/// Only letters and digits, in lower case.
fn plain(name: &str) -> String {
    name.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect()
}

/// Whether a name is about validation or testing.
pub fn is_for_validation(name: &str) -> bool {
    let mut words: Vec<String> = Vec::new();
    let mut was_lower = false;
    for c in name.chars() {
        let begins = !c.is_alphanumeric() || (c.is_uppercase() && was_lower);
        if begins || words.is_empty() {
            words.push(String::new());
        }
        was_lower = c.is_lowercase();
        if let (true, Some(word)) = (c.is_alphanumeric(), words.last_mut()) {
            word.extend(c.to_lowercase());
        }
    }
    let validation_words =
        ["val", "valid", "validation", "eval", "evaluation", "test", "testing", "dev"];
    let inference_words = ["infer", "inference", "predict", "sample", "sampling"];
    words.iter().any(|word| {
        // `testloader`, `valset`
        let data = ["loader", "set", "data"].iter().find_map(|data| word.strip_suffix(data));
        validation_words.contains(&data.unwrap_or(word)) || inference_words.contains(&word.as_str())
    })
}
