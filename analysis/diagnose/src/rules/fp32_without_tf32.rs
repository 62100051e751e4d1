//! `fp32-without-tf32`: FP32 matrix multiplications without tensor cores, on a GPU that supports
//! TF32 (NVIDIA, "TensorFloat-32 in the A100 GPU"; PyTorch, `set_float32_matmul_precision`).

use crate::evidence::Evidence;
use crate::finding::{Cost, Finding};
use crate::line_sums::{by_line, highest_first};
use crate::rule::Rule;
use ridgeline_operators::op_cost::{Family, work};
use ridgeline_operators::operator::ElementType;
use ridgeline_optimize::rewrite::EditKind;
use ridgeline_optimize::rewrite::program::Program;

/// The minimum share of the iteration time; less is not worth the lower precision.
const MIN_SHARE: f64 = 0.02;
/// Calls and settings that choose the precision.
const PRECISION_SETTINGS: [&str; 3] =
    ["set_float32_matmul_precision", "allow_tf32", "fp32_precision"];

pub(super) struct Fp32WithoutTf32;

impl Rule for Fp32WithoutTf32 {
    fn name(&self) -> &'static str {
        "fp32-without-tf32"
    }

    fn title(&self) -> &'static str {
        "FP32 matrix multiplications without TF32"
    }

    fn measured(&self, evidence: &Evidence<'_>) -> Vec<Finding> {
        find(evidence).into_iter().collect()
    }
}

fn find(evidence: &Evidence<'_>) -> Option<Finding> {
    let precision = evidence.manifest()?.settings.matmul_precision.as_deref();
    let has_tf32 = evidence.device()?.peaks.tf32.is_some();
    if !evidence.on_gpu()
        || !has_tf32
        || precision != Some("highest")
        || is_chosen(evidence.program)
    {
        return None;
    }
    let matmuls = by_line(evidence, |_, done, operator| {
        let is_matmul = work(operator)?.family == Family::Gemm;
        let is_single = operator.element() == Some(ElementType::Float32);
        (is_matmul && is_single).then_some(done.kernel_ns)
    });
    let total_ns: f64 = matmuls.values().sum();
    if evidence.share(total_ns) < MIN_SHARE {
        return None;
    }
    let saved_ns = evidence.what_if("tf32")?.time_ns;
    let lines = highest_first(matmuls);
    let ((file, line), _) = *lines.first()?;
    if evidence.share(saved_ns) < MIN_SHARE {
        return None;
    }
    let others = lines.iter().skip(1).take(3);
    Some(Finding {
        rule: "fp32-without-tf32",
        at: evidence.place(file, line),
        related: others
            .map(|((file, line), _)| {
                (evidence.place(*file, *line), "also multiplies in FP32".into())
            })
            .collect(),
        message: "FP32 matrix multiplications run without tensor cores".to_owned(),
        why: "With TF32 this GPU multiplies FP32 matrices several times faster. TF32 rounds the \
            inputs to a 10-bit mantissa and keeps the FP32 range and FP32 accumulation, which \
            rarely affects training. Enable it with `torch.set_float32_matmul_precision(\"high\")`."
            .to_owned(),
        cost: Some(Cost::time(saved_ns).predicted()),
        fix: Some(EditKind::Tf32),
        ..Finding::default()
    })
}

/// Whether the program sets the precision of matrix multiplications itself, so that it is a choice.
fn is_chosen(program: &Program<'_>) -> bool {
    let mut texts = program.modules().iter().map(|module| module.index.text());
    texts.any(|text| PRECISION_SETTINGS.iter().any(|name| text.contains(name)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::{Case, of_type, operator};
    use ridgeline_profile::Phase;

    const TEXT: &str = "import torch\n\ny = model(x)\nz = head(y)\n";
    const SQUARE: &[&[u64]] = &[&[4096, 4096], &[4096, 4096], &[4096, 4096]];

    fn example(text: &str, precision: &str) -> Case {
        let precision = precision.to_owned();
        Case::new(text)
            .on_gpu()
            .with_manifest(|it| it.settings.matmul_precision = Some(precision))
            .call(3, Phase::Forward, &operator("mm", SQUARE), 4000.0)
            .call(4, Phase::Forward, &operator("mm", SQUARE), 8000.0)
    }

    #[test]
    fn line_with_most_matmul_time_is_reported() {
        let found = example(TEXT, "highest").measured(&Fp32WithoutTf32);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].at.line, found[0].related[0].0.line), (4, 3));
        let cost = found[0].cost.unwrap();
        assert!(cost.is_predicted && cost.time_ns > 0.5 * 12e6, "{cost:?}");
        assert_eq!(found[0].fix, Some(EditKind::Tf32));
    }

    #[test]
    fn enabled_chosen_or_unsupported_tf32_is_not_reported() {
        assert!(example(TEXT, "high").measured(&Fp32WithoutTf32).is_empty());
        let chosen = "import torch\ntorch.set_float32_matmul_precision('highest')\ny = model(x)\n";
        assert!(example(chosen, "highest").measured(&Fp32WithoutTf32).is_empty());
        let mut old = example(TEXT, "highest");
        old.device.as_mut().expect("a GPU").peaks.tf32 = None;
        assert!(old.measured(&Fp32WithoutTf32).is_empty());
        let unknown =
            example(TEXT, "highest").with_manifest(|it| it.settings.matmul_precision = None);
        assert!(unknown.measured(&Fp32WithoutTf32).is_empty());
    }

    #[test]
    fn half_precision_or_small_matmuls_are_not_reported() {
        let half = of_type(ElementType::BFloat16, "mm", SQUARE);
        let half = Case::new(TEXT)
            .on_gpu()
            .with_manifest(|it| it.settings.matmul_precision = Some("highest".to_owned()))
            .call(3, Phase::Forward, &half, 4000.0);
        assert!(half.measured(&Fp32WithoutTf32).is_empty());
        let sum = operator("add", &[&[1 << 20], &[1 << 20], &[1 << 20]]);
        let small = Case::new(TEXT)
            .on_gpu()
            .with_manifest(|it| it.settings.matmul_precision = Some("highest".to_owned()))
            .call(3, Phase::Forward, &operator("mm", &[&[8, 8], &[8, 8], &[8, 8]]), 2.0)
            .call(4, Phase::Forward, &sum, 4000.0);
        assert!(small.measured(&Fp32WithoutTf32).is_empty());
    }
}
