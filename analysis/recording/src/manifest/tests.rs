use super::*;

#[track_caller]
fn check_error(json: &str, expected: &str) {
    let error = Manifest::parse(json.as_bytes()).expect_err("it should be refused");
    let message = error.to_string();
    assert!(message.contains(expected), "{message}");
}

#[track_caller]
fn parsed(json: &str) -> Manifest {
    Manifest::parse(json.as_bytes()).expect("it should be read")
}

#[test]
fn everything_but_the_schema_may_be_missing() {
    assert_eq!(parsed(r#"{"schema": 1}"#), Manifest { schema: 1, ..Manifest::default() });
    check_error("{}", "missing field `schema`");
}

#[test]
fn sparsity_is_read() {
    let manifest = parsed(r#"{"schema": 1, "sparsity": [{"module": 3, "zeros": 0.53}]}"#);
    assert_eq!(manifest.sparsity, [Sparsity { module: 3, zeros: 0.53 }]);
    check_error(r#"{"schema": 1, "sparsity": [{"zeros": 0.5}]}"#, "sparsity[0]: missing field");
}

#[test]
fn unknown_keys_are_ignored_however_deep() {
    let deep = format!("{}{}", "[".repeat(20_000), "]".repeat(20_000));
    parsed(&format!(r#"{{"schema": 1, "later": {deep}, "device": {{"later": {deep}}}}}"#));
}

#[test]
fn a_wrong_value_names_its_path() {
    check_error(
        r#"{"schema": 1, "modules": [{"path": "a"}, {"path": "b", "parent": "a"}]}"#,
        "modules[1].parent: invalid type: string",
    );
    check_error(r#"{"schema": 1, "memory": {"baseline": [{"ptr": -1}]}}"#, "baseline[0].ptr");
    check_error(r#"{"schema": 1, "agent": 3}"#, "agent: invalid type");
}

#[test]
fn broken_text_is_an_error() {
    check_error("", "EOF");
    check_error(r#"{"schema": 1, "files": ["#, "EOF");
    check_error(r#"{"schema": 1} {"#, "after its end");
    check_error(r#"{"schema": 99999999999}"#, "schema");
}

#[test]
fn other_formats_are_rejected_with_advice() {
    check_error(r#"{"schema": 2}"#, "Profile again");
}

#[test]
fn null_means_unknown() {
    let manifest = parsed(
        r#"{"schema": 1, "loop": null, "device": {"name": null, "capability": null},
                "batch": {"size": null}, "failure": null, "agent": null}"#,
    );
    assert_eq!(manifest.training_loop, None);
    assert_eq!(manifest.device, DeviceFacts::default());
    assert_eq!(manifest.batch.and_then(|batch| batch.size), None);
}

#[test]
fn lone_surrogates_become_replacement_characters() {
    let manifest =
        parsed(r#"{"schema": 1, "status": "failed", "failure": {"message": "a\udc80b\u0000"}}"#);
    let message = manifest.failure.map(|failure| failure.message).unwrap_or_default();
    assert!(message.starts_with('a') && message.contains('\u{fffd}'), "{message:?}");
}

#[test]
fn loaders_and_the_machine_are_read() {
    let manifest = parsed(
        r#"{"schema": 1, "machine": {"cores": 2}, "loaders": [{"workers": 0,
                "pin_memory": false, "persistent": false, "prefetch_factor": null,
                "batch_size": 8, "fetch_ns": [5, 7], "fetch_cpu_ns": 9}]}"#,
    );
    assert_eq!(manifest.machine.and_then(|machine| machine.cores), Some(2));
    let loader = manifest.loaders.first().expect("a loader");
    assert_eq!((loader.workers, loader.prefetch_factor), (Some(0), None));
    assert_eq!((&loader.fetch_ns[..], loader.fetch_cpu_ns), (&[5, 7][..], Some(9)));
    assert_eq!(parsed(r#"{"schema": 1, "machine": null}"#).machine, None);
}

#[test]
fn loader_passes_are_read_or_unknown() {
    let manifest = parsed(
        r#"{"schema": 1, "loaders": [
                {"at": {"file": 0, "line": 20}, "passes": 3, "first_batch_ns": [9, 8],
                 "end_ns": [7], "distinct_shapes": 1},
                {"at": null, "passes": null, "first_batch_ns": null, "distinct_shapes": null}, {}]}"#,
    );
    let [known, unknown, missing] = &manifest.loaders[..] else { panic!("three loaders") };
    assert_eq!(known.at, Some(Location { file: 0, line: 20 }));
    assert_eq!((known.passes, known.distinct_shapes), (Some(3), Some(1)));
    assert_eq!((&known.first_batch_ns[..], &known.end_ns[..]), (&[9, 8][..], &[7][..]));
    assert_eq!(unknown, missing);
    check_error(r#"{"schema": 1, "loaders": [{"passes": -1}]}"#, "loaders[0].passes");
    check_error(
        r#"{"schema": 1, "loaders": [{"first_batch_ns": [1, "2"]}]}"#,
        "loaders[0].first_batch_ns[1]",
    );
}

#[test]
fn settings_are_read_or_unknown() {
    let manifest = parsed(
        r#"{"schema": 1, "settings": {"autocast": ["bfloat16"], "cudnn_tf32": true,
                "matmul_precision": "highest", "bf16_native": null}}"#,
    );
    let settings = manifest.settings;
    assert_eq!(settings.autocast, Some(vec!["bfloat16".to_owned()]));
    assert_eq!(settings.matmul_precision.as_deref(), Some("highest"));
    assert_eq!((settings.cudnn_tf32, settings.bf16_native), (Some(true), None));
    assert_eq!(parsed(r#"{"schema": 1}"#).settings, Settings::default());
}

#[test]
fn unknown_block_kinds_are_other() {
    let manifest = parsed(
        r#"{"schema": 1, "memory": {"baseline": [
                {"ptr": 1, "bytes": 2, "kind": "optimizer_state", "module": 3},
                {"ptr": 5, "bytes": 2, "kind": "cache"}]}}"#,
    );
    let kinds: Vec<_> =
        manifest.memory.unwrap_or_default().baseline.iter().map(|block| block.kind).collect();
    assert_eq!(kinds, [BlockKind::OptimizerState, BlockKind::Other]);
}
