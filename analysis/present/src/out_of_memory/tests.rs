use expect_test::{Expect, expect};

use super::*;

const GB: u64 = 1_000_000_000;

fn kind(kind: &str, bytes: u64, lines: &[(u32, u64)]) -> HeldKind {
    let line = |&(line, bytes): &(u32, u64)| HeldLine { path: "train.py".into(), line, bytes };
    HeldKind { kind: kind.into(), bytes, lines: lines.iter().map(line).collect() }
}

fn in_forward() -> OutOfMemory {
    OutOfMemory {
        device: Some("cuda:0".into()),
        requested_bytes: Some(5 * GB / 2),
        capacity_bytes: Some(85 * GB),
        limit_bytes: Some(85 * GB),
        free_bytes: Some(GB),
        other_processes_bytes: Some(0),
        outside_pytorch_bytes: Some(GB / 2),
        reserved_bytes: Some(78 * GB),
        allocated_bytes: Some(77 * GB),
        graph_pool_bytes: Some(0),
        expandable_segments: Some(false),
        phase: Some("forward".into()),
        batch_size: Some(64),
        held: vec![
            kind("activation", 52 * GB, &[(33, 18 * GB), (20, 9 * GB), (21, 8 * GB), (22, 7 * GB)]),
            kind("optimizer_state", 12 * GB, &[(50, 12 * GB)]),
            kind("weight", 6 * GB, &[(10, 6 * GB)]),
            kind("gradient", 6 * GB, &[]),
            kind("batch", GB, &[(40, GB)]),
            kind("buffer", 1_000, &[(10, 1_000)]),
        ],
        ..OutOfMemory::default()
    }
}

#[track_caller]
fn check(memory: &OutOfMemory, expected: Expect) {
    let mut lines = vec![memory.headline()];
    lines.extend(memory.details());
    expected.assert_eq(&lines.join("\n"));
}

#[test]
fn activations_fill_the_memory() {
    check(
        &in_forward(),
        expect![[r#"
                Out of memory: tried to allocate 2.5 GB, 1.0 GB of 85 GB free
                PyTorch has allocated 77 GB in the forward pass (batch size 64):
                  activations 52 GB (train.py:33 18 GB, train.py:20 9.0 GB, train.py:21 8.0 GB, …)
                  optimizer state 12 GB
                  weights 6.0 GB
                  gradients 6.0 GB
                  batch 1.0 GB (train.py:40)
                Try: a smaller batch size, with gradient accumulation; activation checkpointing (`torch.utils.checkpoint`) around train.py:33"#]],
    );
}

#[test]
fn the_lines_that_hold_most_are_labeled() {
    let places = in_forward().places();
    let lines: Vec<String> =
        places.iter().map(|(frame, text)| format!("{}: {text}", frame.line)).collect();
    expect![[r#"
            33: holds 18 GB of activations
            50: holds 12 GB of optimizer state
            20: holds 9.0 GB of activations
            21: holds 8.0 GB of activations
            22: holds 7.0 GB of activations"#]]
    .assert_eq(&lines.join("\n"));
}

#[test]
fn the_first_optimizer_step_allocates_the_state() {
    let memory = OutOfMemory {
        phase: Some("optimizer".into()),
        rank: Some("rank 1".into()),
        device: Some("cuda:1".into()),
        held: vec![
            kind("optimizer_state", 30 * GB, &[(50, 30 * GB)]),
            kind("weight", 20 * GB, &[]),
            kind("gradient", 20 * GB, &[]),
            kind("temporary", 8 * GB, &[(50, 8 * GB)]),
        ],
        ..in_forward()
    };
    check(
        &memory,
        expect![[r#"
                Out of memory on rank 1: tried to allocate 2.5 GB, 1.0 GB of 85 GB free
                PyTorch has allocated 78 GB in the optimizer step (batch size 64):
                  optimizer state 30 GB
                  weights 20 GB
                  gradients 20 GB
                  temporaries 8.0 GB (train.py:50)
                Try: pass `fused=True` or `foreach=False` to the optimizer: the foreach implementation needs temporary memory; an optimizer with less state (8-bit Adam, Adafactor), or FSDP over several GPUs"#]],
    );
}

#[test]
fn memory_outside_the_program_is_listed() {
    let memory = OutOfMemory {
        other_processes_bytes: Some(30 * GB),
        outside_pytorch_bytes: Some(9 * GB),
        limit_bytes: Some(60 * GB),
        reserved_bytes: Some(50 * GB),
        allocated_bytes: Some(40 * GB),
        graph_pool_bytes: Some(20 * GB),
        held: vec![kind("other", 40 * GB, &[(7, 40 * GB)])],
        phase: None,
        batch_size: None,
        ..in_forward()
    };
    check(
        &memory,
        expect![[r#"
                Out of memory: tried to allocate 2.5 GB, above the program's own limit of 60 GB of 85 GB
                PyTorch has allocated 40 GB:
                  other tensors 40 GB (train.py:7)
                Reserved by PyTorch but not allocated: 10 GB (fragmentation)
                Reserved for CUDA graphs: 20 GB
                Used by this process outside PyTorch's allocator (CUDA context, libraries): 9.0 GB
                Used by other processes on this GPU: 30 GB
                Try: raise `torch.cuda.set_per_process_memory_fraction`; end the other processes (`nvidia-smi` lists them); set `PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True`"#]],
    );
    let expandable = OutOfMemory { expandable_segments: Some(true), ..memory };
    assert!(!expandable.details().join("\n").contains("expandable_segments"));
}

#[test]
fn one_tensor_may_be_larger_than_the_device() {
    let memory = OutOfMemory { requested_bytes: Some(200 * GB), held: Vec::new(), ..in_forward() };
    check(
        &memory,
        expect![[r#"
                Out of memory: tried to allocate 200 GB, 1.0 GB of 85 GB free
                Try: check the sizes at this line: this tensor is larger than the GPU memory"#]],
    );
}

#[test]
fn nothing_known() {
    check(&OutOfMemory::default(), expect!["Out of memory"]);
}

#[test]
fn invalid_numbers_do_not_panic() {
    let memory = OutOfMemory {
        reserved_bytes: Some(0),
        allocated_bytes: Some(u64::MAX),
        held: vec![kind("activation", u64::MAX, &[(1, u64::MAX)]), kind("", u64::MAX, &[])],
        ..in_forward()
    };
    assert!(memory.details().len() > 2);
    let files = [manifest::SourceFile::default()];
    let line = manifest::HeldLine { file: 9, line: 1, bytes: 1 };
    let held = manifest::HeldKind { lines: vec![line], ..manifest::HeldKind::default() };
    let recorded = manifest::OutOfMemory {
        capacity_bytes: Some(1),
        free_bytes: Some(2),
        process_bytes: Some(3),
        held: vec![held],
        ..manifest::OutOfMemory::default()
    };
    let memory = OutOfMemory::of(&recorded, &files);
    assert_eq!((memory.other_processes_bytes, memory.held[0].lines.len()), (None, 0));
}
