//! Checks findings that need a GPU, on handwritten recordings in the agent's format: a Kineto
//! trace, a manifest and a line log. They cover everything from the files to the findings, but did
//! not run on a GPU. The programs are those of `demo-projects/planted`, which `tests/gpu/run
//! --planted` runs on a GPU.

mod iteration;

use std::collections::HashMap;
use std::sync::Arc;

use iteration::{BACKWARD, Cost, DATA, FORWARD, Iteration, line_of};
use ridgeline_analysis::diagnose::finding::Finding;
use ridgeline_analysis::optimize::rewrite::{Request, rewrite};
use ridgeline_analysis::python::semantics::Entry;
use ridgeline_analysis::recording::line_log::{LINE, MODULE_ENTER, MODULE_EXIT, POP, PUSH};
use serde_json::json;

/// The faulty and the clean version of a project.
struct Pair {
    rule: &'static str,
    faulty: &'static str,
    clean: &'static str,
}

macro_rules! pair {
    ($rule:literal) => {
        Pair {
            rule: $rule,
            faulty: include_str!(concat!(
                "../../demo-projects/planted/",
                $rule,
                "/faulty/train.py"
            )),
            clean: include_str!(concat!("../../demo-projects/planted/", $rule, "/clean/train.py")),
        }
    };
}

const HIDDEN_SYNC: Pair = pair!("hidden-sync");

/// The comment at the end of a faulty line.
const FAULT: &str = "  # fault";
/// Headers of the training loops.
const LOOPS: &[&str] = &["for _ in range(200):", "for x, y in loader:"];
/// The number of layers in these recordings.
const LAYERS: usize = 8;

const BF16: &str = "c10::BFloat16";
const SINGLE: &str = "float";
const PRODUCT: &str =
    "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1";
const TF32: &str = "sm90_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128x128x32_warpgroupsize1x1x1";
const FP32: &str = "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize128x128x8_stage3_ffma";
const CONVOLUTION: &str =
    "sm90_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x128x64";
const REORDER: &str = "void cudnn::ops::nchwToNhwcKernel<__nv_bfloat16, __nv_bfloat16, float>";
const POINTWISE: &str =
    "void at::native::vectorized_elementwise_kernel<4, at::native::GeluFunctor>";

impl Pair {
    /// Records both twins. The clean one must have no findings, and the faulty one a single finding
    /// of the rule at the marked line, whose fix (if any) must produce the clean twin. Returns the
    /// finding, and what the clean twin saves.
    #[track_caller]
    fn check(&self, run: impl Fn(&mut Iteration)) -> (Finding, Cost) {
        let record = |text: &str| {
            let mut it = Iteration::of(text);
            run(&mut it);
            it.findings()
        };
        let (findings, faulty) = record(self.faulty);
        let (clean_findings, clean) = record(self.clean);
        assert_eq!(clean_findings, [], "the clean twin");
        let [finding] = &findings[..] else { panic!("{findings:#?}") };
        let line = line_of(self.faulty, &[FAULT]);
        assert_eq!((finding.rule, finding.at.line), (self.rule, line), "{finding:#?}");
        self.fix_produces_the_clean_twin(finding);
        (finding.clone(), Cost { ns: faulty.ns - clean.ns, bytes: faulty.bytes - clean.bytes })
    }

    #[track_caller]
    fn fix_produces_the_clean_twin(&self, finding: &Finding) {
        let Some(kind) = finding.fix else { return };
        let project: HashMap<String, Arc<str>> =
            HashMap::from([("train.py".to_owned(), self.faulty.into())]);
        let entry = Entry { path: "train.py".to_owned(), ..Entry::default() };
        let lines = [("train.py", finding.at.line)];
        let fix = rewrite(&project, &entry, &Request { kind, lines: &lines, count: None });
        let fix = fix.expect("a fix");
        let [file] = &fix.files[..] else { panic!("{fix:#?}") };
        // Ignore formatting.
        let plain = |text: &str| {
            let text: String = text.replace(FAULT, "").split_whitespace().collect();
            text.replace(",)", ")")
        };
        assert_eq!(plain(&file.applied(self.faulty)), plain(self.clean));
    }
}

#[track_caller]
fn check_cost_ms(finding: &Finding, expected: std::ops::Range<f64>) {
    let cost = finding.cost.expect("a cost");
    assert!(expected.contains(&(cost.time_ns / 1e6)), "{cost:?}");
}

/// The reported cost must be within 20% of what the clean twin saves.
#[track_caller]
fn check_cost_matches_savings((finding, saved): &(Finding, Cost)) {
    let cost = finding.cost.expect("a cost");
    let kinds = [(cost.time_ns, saved.ns), (cost.bytes, saved.bytes)];
    let reported: Vec<(f64, f64)> = kinds.into_iter().filter(|(cost, _)| *cost > 0.0).collect();
    assert_eq!(reported.len(), 1, "{cost:?}");
    for (cost, saved) in reported {
        assert!((cost - saved).abs() <= 0.2 * saved, "{cost} instead of {saved}");
    }
}

/// Records layers and the maximum of their activations. The faulty program reads the maximum on the
/// host through `operator`.
fn activation_maxima(it: &mut Iteration, operator: &str, bytes: u64) {
    let shape = json!([[1024], [8192, 1024], [1024, 1024]]);
    for _ in 0..LAYERS {
        it.line("x = x + layer(x)");
        it.phase(FORWARD, |it| {
            it.op("aten::addmm", shape.clone(), SINGLE, &[(TF32, 90)]);
            it.op("aten::gelu", json!([[8192, 1024]]), SINGLE, &[(POINTWISE, 20)]);
        });
        let reads = it.is_faulty();
        it.record(LINE, 0, line_of(&it.text, &[FAULT, "self.largest.append"]));
        it.phase(FORWARD, |it| {
            it.op("aten::amax", json!([[8192, 1024]]), SINGLE, &[(POINTWISE, 20)]);
            if reads {
                it.copy(operator, "Memcpy DtoH (Device -> Pageable)", bytes, 2, true);
                it.python(30);
            }
        });
    }
    it.backward("aten::addmm", &shape, SINGLE, &[(TF32, 180)]);
}

#[test]
fn item_is_reported() {
    let found = HIDDEN_SYNC.check(|it| activation_maxima(it, "aten::_local_scalar_dense", 4));
    assert!(found.0.message.starts_with("`.item()`"), "{}", found.0.message);
    check_cost_matches_savings(&found);
}

#[test]
fn other_synchronizing_calls_are_reported() {
    let item = "aten::_local_scalar_dense";
    let cases = [
        ("total += float(x.max())", item, 4, "`float()`"),
        ("print(x.max())", item, 4, "`print()`"),
        ("assert x.max() < 9", item, 1, "A condition on a tensor"),
        ("seen = x.argmax(1).tolist()", "aten::copy_", 512, "`.tolist()`"),
        ("seen = x.cpu()", "aten::copy_", 4096, "`.cpu()`"),
        ("some = x.nonzero()", "aten::nonzero", 8, "`.nonzero()`"),
        ("some = x[x > 0]", "aten::nonzero", 8, "Indexing with a mask"),
    ];
    let planted = "self.largest.append(x.detach().abs().amax().item())";
    assert!(HIDDEN_SYNC.faulty.contains(planted));
    for (statement, operator, bytes, named) in cases {
        let text = HIDDEN_SYNC.faulty.replace(planted, statement);
        let mut it = Iteration::of(&text);
        activation_maxima(&mut it, operator, bytes);
        let (found, _) = it.findings();
        let [finding] = &found[..] else { panic!("{statement}: {found:#?}") };
        let line = line_of(&text, &[FAULT]);
        assert_eq!((finding.rule, finding.at.line), ("hidden-sync", line), "{statement}");
        assert!(finding.message.starts_with(named), "{statement}: {}", finding.message);
    }
}

/// Records a batch copy to the GPU, then layers: kernels shorter than the host's launch interval,
/// then long ones.
fn batches_and_layers(it: &mut Iteration, copies: &str, copy_us: i64, blocks: bool) {
    it.phase(DATA, |it| it.python(20));
    it.line("x = x.to(");
    it.copy("aten::copy_", copies, 9_600_000, copy_us, blocks);
    it.line("loss = ");
    it.phase(FORWARD, |it| {
        for _ in 0..2 * LAYERS {
            it.op("aten::gelu", json!([[3136, 64]]), SINGLE, &[(POINTWISE, 3)]);
        }
        for _ in 0..LAYERS {
            let shape = json!([[3072], [3136, 768], [768, 3072]]);
            it.op("aten::addmm", shape, SINGLE, &[(TF32, 90)]);
        }
    });
    let shape = json!([[3136, 3072], [3072, 768]]);
    it.backward("aten::mm", &shape, SINGLE, &[(TF32, 180)]);
}

#[test]
fn blocking_copy_from_pinned_memory_is_reported() {
    check_cost_matches_savings(&pair!("blocking-copy").check(|it| {
        let blocks = it.is_faulty();
        batches_and_layers(it, "Memcpy HtoD (Pinned -> Device)", 190, blocks);
    }));
}

#[test]
fn unpinned_batches_are_reported() {
    check_cost_matches_savings(&pair!("loader-not-pinned").check(|it| match it.is_faulty() {
        true => batches_and_layers(it, "Memcpy HtoD (Pageable -> Device)", 1600, true),
        false => batches_and_layers(it, "Memcpy HtoD (Pinned -> Device)", 190, false),
    }));
}

#[test]
fn fp32_matmuls_without_tf32_are_reported() {
    let (found, _) = pair!("fp32-without-tf32").check(|it| {
        let kernel = if it.is_faulty() { (FP32, 1400) } else { (TF32, 220) };
        let shape = json!([[2048], [8192, 2048], [2048, 2048]]);
        it.line("loss = ");
        it.phase(FORWARD, |it| {
            for _ in 0..LAYERS {
                it.op("aten::addmm", shape.clone(), SINGLE, &[kernel]);
            }
        });
        it.backward("aten::addmm", &shape, SINGLE, &[kernel]);
    });
    // Out of 22.4 ms.
    check_cost_ms(&found, 12.0..20.0);
}

#[test]
fn vocabulary_size_unsuitable_for_tensor_cores_is_reported() {
    let (found, _) = pair!("tensor-core-sizes").check(|it| {
        let words = if it.is_faulty() { 50_257 } else { 50_304 };
        it.line("x = x + self.body(x)");
        it.phase(FORWARD, |it| {
            let shape = json!([[3072], [4096, 768], [768, 3072]]);
            it.op("aten::addmm", shape, BF16, &[(PRODUCT, 60)]);
        });
        it.line("return self.head(x)");
        it.phase(FORWARD, |it| {
            let shape = json!([[4096, 768], [768, words]]);
            it.op("aten::mm", shape, BF16, &[(PRODUCT, 900)]);
        });
        it.backward("aten::mm", &json!([[4096, 768], [768, 3072]]), BF16, &[(PRODUCT, 120)]);
    });
    assert!(found.message.contains("50257"), "{}", found.message);
}

/// Records convolutions, each after the kernels that convert its input's memory format.
fn convolutions(it: &mut Iteration, reorder: &[(&str, i64)]) {
    it.line("loss = ");
    it.phase(FORWARD, |it| {
        for layer in 0..LAYERS {
            it.node = Some((layer as u64, 0));
            let shape = json!([[64, 128, 56, 56], [128, 128, 3, 3]]);
            let kernels = [reorder, &[(CONVOLUTION, 150)]].concat();
            it.op("aten::cudnn_convolution", shape, BF16, &kernels);
        }
    });
    let shape = json!([[64, 128, 56, 56], [64, 128, 56, 56], [128, 128, 3, 3]]);
    it.backward("aten::convolution_backward", &shape, BF16, &[(CONVOLUTION, 300)]);
}

#[test]
fn memory_format_conversions_are_reported() {
    check_cost_matches_savings(&pair!("channels-last-missed").check(|it| {
        let reorder: &[(&str, i64)] = if it.is_faulty() { &[(REORDER, 60)] } else { &[] };
        convolutions(it, reorder);
    }));
}

/// Records the same convolutions on batches of a data loader.
fn convolutions_on_loaded_batches(it: &mut Iteration) {
    it.phase(DATA, |it| it.python(20));
    it.line("x, y = x.to(");
    it.copy("aten::copy_", "Memcpy HtoD (Pinned -> Device)", 1_200_000, 30, false);
    convolutions(it, &[]);
}

#[test]
fn disabled_cudnn_benchmark_is_reported() {
    pair!("cudnn-benchmark-off").check(convolutions_on_loaded_batches);
}

#[test]
fn cudnn_benchmark_with_changing_shapes_is_reported() {
    pair!("cudnn-benchmark-changing").check(convolutions_on_loaded_batches);
}

/// Operator name, duration in microseconds, and the bytes that it allocates (or frees, if negative)
/// per buffer.
type Step<'a> = (&'a str, i64, &'a [(u64, i64)]);

/// Records layers on as many rows as fit in GPU memory. Each layer stores the outputs of the linear
/// layer, the norm and the addition, and the dropout mask. With checkpointing, it stores only the
/// outputs of the linear layer and the addition.
fn layers_that_fill_the_memory(it: &mut Iteration) {
    const SUM: i64 = 2_700_000_000;
    const MASK: i64 = SUM / 4;
    const LINEAR: u64 = 0;
    const NORM: u64 = 1;
    const GELU: u64 = 2;
    const MASKED: u64 = 3;
    const DROPPED: u64 = 4;
    const ADDED: u64 = 5;
    fn step(it: &mut Iteration, layer: usize, (name, us, memory): Step<'_>) {
        let address = |what: u64| 1 + 10 * layer as u64 + what;
        it.memory = memory.iter().map(|(what, bytes)| (address(*what), *bytes)).collect();
        it.op(name, json!([[329_000, 2048]]), SINGLE, &[(POINTWISE, us)]);
    }
    let activate: [Step<'_>; 3] = [
        ("aten::native_layer_norm", 1800, &[(NORM, SUM)]),
        ("aten::gelu", 1800, &[(GELU, SUM)]),
        ("aten::native_dropout", 2000, &[(DROPPED, SUM), (MASKED, MASK), (GELU, -SUM)]),
    ];
    let stores_all = it.is_faulty();
    let mut modules = vec![json!({"path": "", "type": "Sequential"})];
    for layer in 0..LAYERS {
        let module_json = |name: &str, kind: &str, parent: usize| json!({"path": format!("{layer}{name}"), "type": kind, "parent": parent});
        let number = modules.len();
        modules.push(module_json("", "Layer", 0));
        modules.push(module_json(".linear", "Linear", number));
        modules.push(module_json(".activate", "Sequential", number));
    }
    it.manifest["modules"] = modules.into();
    let first_line = line_of(&it.text, &["def forward"]);
    let forward = json!({"file": 0, "name": "forward", "first_line": first_line});
    it.manifest["codes"].as_array_mut().expect("codes").push(forward);
    it.line("loss = ");
    it.phase(FORWARD, |it| {
        it.record(MODULE_ENTER, 0, 0);
        for layer in 0..LAYERS {
            let module = 1 + 3 * layer as u32;
            let node = |number: u64| Some((4 * layer as u64 + number, 0));
            it.record(MODULE_ENTER, module, 0);
            it.record(PUSH, 1, line_of(&it.text, &["y = self.linear(x)"]));
            it.record(MODULE_ENTER, module + 1, 0);
            it.node = node(0);
            step(it, layer, ("aten::addmm", 9000, &[(LINEAR, SUM)]));
            it.record(MODULE_EXIT, module + 1, 0);
            it.record(LINE, 1, line_of(&it.text, &["return x + "]));
            it.record(MODULE_ENTER, module + 2, 0);
            for (number, one) in (1..).zip(activate) {
                it.node = node(number);
                step(it, layer, one);
            }
            it.record(MODULE_EXIT, module + 2, 0);
            it.node = None;
            let keep_dropped: &[(u64, i64)] = &[(ADDED, SUM), (DROPPED, -SUM)];
            let dropped = &[(ADDED, SUM), (DROPPED, -SUM), (NORM, -SUM), (MASKED, -MASK)];
            step(it, layer, ("aten::add", 2700, if stores_all { keep_dropped } else { dropped }));
            it.record(POP, 1, 0);
            it.record(MODULE_EXIT, module, 0);
        }
        it.record(MODULE_EXIT, 0, 0);
    });
    it.line("loss.backward()");
    it.phase(BACKWARD, |it| {
        for layer in (0..LAYERS).rev() {
            // Checkpointing recomputes these operators.
            for one in activate.into_iter().filter(|_| !stores_all) {
                it.node = None;
                step(it, layer, one);
            }
            let masked: &[(u64, i64)] = &[(MASKED, -MASK)];
            let and_dropped = &[(MASKED, -MASK), (DROPPED, -SUM)];
            let backward: [Step<'_>; 4] = [
                (
                    "aten::native_dropout_backward",
                    2000,
                    if stores_all { masked } else { and_dropped },
                ),
                ("aten::gelu_backward", 2700, &[(NORM, -SUM)]),
                ("aten::native_layer_norm_backward", 3600, &[(LINEAR, -SUM)]),
                ("aten::mm", 18_000, &[(ADDED, -SUM)]),
            ];
            for (number, one) in (0..4).rev().zip(backward) {
                it.node = Some((4 * layer as u64 + number, 1));
                step(it, layer, one);
            }
        }
    });
    it.node = None;
}

#[test]
fn activations_worth_recomputing_are_reported() {
    check_cost_matches_savings(&pair!("recompute-candidates").check(layers_that_fill_the_memory));
}

#[test]
fn launch_bound_kernels_are_reported() {
    let text = pair!("fp32-without-tf32").clean;
    let mut it = Iteration::of(text);
    it.line("loss = ");
    it.phase(FORWARD, |it| {
        for _ in 0..150 {
            it.op("aten::gelu", json!([[64, 64]]), SINGLE, &[(POINTWISE, 2)]);
        }
    });
    it.backward("aten::gelu_backward", &json!([[64, 64]]), SINGLE, &[(POINTWISE, 3)]);
    let (found, _) = it.findings();
    let [finding] = &found[..] else { panic!("{found:#?}") };
    assert_eq!((finding.rule, finding.at.line), ("tiny-kernels", line_of(text, &["loss = "])));
}

#[test]
fn thermal_throttling_is_reported() {
    let mut it = Iteration::of(HIDDEN_SYNC.clean);
    it.manifest["observed"] = json!({"gpu": {"clock_mhz": [990, 1000], "highest_clock_mhz": 1980,
        "limited_by": ["heat"], "other_processes": 0, "other_bytes": 0}});
    activation_maxima(&mut it, "", 0);
    let (found, _) = it.findings();
    let [finding] = &found[..] else { panic!("{found:#?}") };
    assert_eq!((finding.rule, finding.at.line), ("gpu-slowed", line_of(HIDDEN_SYNC.clean, LOOPS)));
    assert!(finding.message.starts_with("Heat throttles the GPU to 50%"), "{}", finding.message);
}
