//! Recognizes kernels of matrix multiplications, convolutions and attention by name. Their operand
//! type comes from the operator's tensors, or from the kernel's name if the trace has no shapes.

use super::operator::{ElementType, Operator};
use ridgeline_devices::device_spec::Rates;

/// The operand type of a matrix multiplication kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MatmulType {
    /// FP32 outside tensor cores.
    Fp32,
    /// FP32 operands computed in TF32.
    Tf32,
    /// FP16 or BF16.
    Half,
}

impl MatmulType {
    /// Returns the device's peak rate for this type, or for the next type that the device has.
    pub fn peak(self, peaks: &Rates) -> Option<f64> {
        match self {
            MatmulType::Fp32 => peaks.fp32,
            MatmulType::Tf32 => peaks.tf32.or(peaks.fp32),
            MatmulType::Half => peaks.fp16.or(peaks.fp32),
        }
    }
}

/// The number of characters inspected. Template names have thousands of characters and show their
/// type early.
const NAME_PREFIX_CHARS: usize = 400;

/// Returns the operand type if the name is that of a matrix multiplication kernel. It is a guess if
/// the name does not show a type. The patterns are from cuBLAS, cuDNN, CUTLASS, FlashAttention and
/// their AMD counterparts in traces of 2021 to 2026.
pub fn matmul_type(kernel: &str) -> Option<MatmulType> {
    const PRODUCTS: [&str; 14] = [
        "gemm",
        "conv",
        "cutlass",
        "winograd",
        "xmma",
        "nvjet",
        "flash",
        "fmha",
        "wgrad",
        "dgrad",
        "fprop",
        "cijk_",
        "splitk",
        "s884cudnn",
    ];
    let name = lowercase(kernel);
    let has = |marks: &[&str]| marks.iter().any(|mark| name.contains(mark));
    // False matches: PyTorch's type conversions and cuDNN's layout copies.
    if !has(&PRODUCTS) || has(&["convert", "elementwise", "nchwtonhwc", "nhwctonchw"]) {
        return None;
    }
    let is_attention = has(&["fmha"]) && !has(&["f32"]);
    let guess = if is_attention { MatmulType::Half } else { MatmulType::Fp32 };
    Some(type_in_name(&name).unwrap_or(guess))
}

/// Returns the operand type of an operator's kernel if it is a matrix multiplication. The type
/// comes from the operator's tensors. Under autocast an operator takes FP32 tensors and converts
/// them itself; then the kernel's name shows the type.
pub fn matmul_type_of(operator: Option<&Operator>, kernel: &str) -> Option<MatmulType> {
    let guess = matmul_type(kernel)?;
    let first = operator.and_then(|operator| operator.input_tensors().next());
    Some(match first.and_then(|tensor| tensor.element) {
        // There is no separate rate for FP8. FP16 is the nearest.
        Some(ElementType::Float16 | ElementType::BFloat16 | ElementType::Float8) => {
            MatmulType::Half
        }
        Some(ElementType::Float32) => type_in_name(&lowercase(kernel)).unwrap_or(MatmulType::Fp32),
        _ => guess,
    })
}

/// Returns the type shown in a lower-case kernel name, or `None` if it shows none or FP32.
fn type_in_name(name: &str) -> Option<MatmulType> {
    const TF32: [&str; 2] = ["tf32", "s1688"];
    // FlashAttention supports only half-precision types.
    const HALF: [&str; 13] = [
        "h884", "h1688", "h16816", "s884", "s16816", "f16", "bf16", "half", "hgemm", "_hss_",
        "hmma", "bfloat16", "flash",
    ];
    let has = |marks: &[&str]| marks.iter().any(|mark| name.contains(mark));
    if has(&HALF) || is_half_nvjet(name) {
        Some(MatmulType::Half)
    } else if has(&TF32) {
        Some(MatmulType::Tf32)
    } else {
        None
    }
}

/// Whether a cuBLAS kernel multiplies in half precision. cuBLAS names its kernels for Hopper and
/// later `nvjet_tst_…` or, since CUDA 13, `nvjet_sm90_tst_…`. The three letters are the types of
/// inputs, accumulator and output: `h` is FP16 and `t` BF16 (as traces with shapes show).
fn is_half_nvjet(name: &str) -> bool {
    let Some(at) = name.find("nvjet_") else { return false };
    let mut parts = name.get(at..).unwrap_or_default().split('_').skip(1);
    let is_architecture = |part: &&str| {
        part.strip_prefix("sm").is_some_and(|rest| rest.starts_with(|it: char| it.is_ascii_digit()))
    };
    let types = parts.find(|part| !is_architecture(part)).unwrap_or_default();
    types.len() == 3 && types.starts_with(['h', 't'])
}

fn lowercase(kernel: &str) -> String {
    kernel.chars().take(NAME_PREFIX_CHARS).collect::<String>().to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(kernel: &str, expected: Option<MatmulType>) {
        assert_eq!(matmul_type(kernel), expected, "{kernel}");
    }

    #[test]
    fn library_kernel_names_show_the_type() {
        check("volta_sgemm_128x64_nt", Some(MatmulType::Fp32));
        check(
            "ampere_fp16_s16816gemm_fp16_128x128_ldg8_f2f_stages_32x5_tn",
            Some(MatmulType::Half),
        );
        check("volta_fp16_s884cudnn_fp16_256x64_relu_nhwc_tn_v1", Some(MatmulType::Half));
        check("cutlass_80_tensorop_s1688gemm_128x128_16x4_nt_align4", Some(MatmulType::Tf32));
        check("sm80_xmma_gemm_tf32f32_tf32f32_f32_nn_n", Some(MatmulType::Tf32));
        check("nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_NTT", Some(MatmulType::Half));
        check("nvjet_sm90_tst_64x8_64x16_4x1_v_bz_TNT", Some(MatmulType::Half));
        check("nvjet_sm100_tst_32x64_64x16_4x2_2cta_h_bz_splitK_bias_TNN", Some(MatmulType::Half));
        check("nvjet_sm120_hsh_mma_128x64", Some(MatmulType::Half));
        check("fmha_cutlassF_f32_aligned_64x64_rf_sm80", Some(MatmulType::Fp32));
        check("fmha_cutlassB_bf16_aligned_64x64_k64_sm80", Some(MatmulType::Half));
        check("void pytorch_flash::flash_fwd_kernel<...>", Some(MatmulType::Half));
        check("Cijk_Ailk_Bljk_HSS_BH_MT128x128x32", Some(MatmulType::Half));
        check("void cudnn::winograd::generateWinogradTilesKernel", Some(MatmulType::Fp32));
    }

    #[test]
    fn tensor_types_take_precedence() {
        let of = |element: &str, kernel: &str| {
            let dims = "[[64, 64], [64, 64]]";
            let types = format!("[\"{element}\", \"{element}\"]");
            let operator = Operator::from_trace("aten::mm", dims, &types, "");
            matmul_type_of(operator.as_ref(), kernel)
        };
        let attention = "fmha_cutlassF_f32_aligned_64x64_rf_sm80";
        assert_eq!(of("float", attention), Some(MatmulType::Fp32));
        // Names in later versions may not show a type.
        assert_eq!(of("c10::BFloat16", "nvjet_sm110_x"), Some(MatmulType::Half));
        assert_eq!(of("float", "nvjet_sm110_x"), Some(MatmulType::Fp32));
        assert_eq!(of("float", "fmha_x"), Some(MatmulType::Fp32));
        assert_eq!(of("c10::Float8_e4m3fn", "nvjet_sm90_qqtst_128x192"), Some(MatmulType::Half));
        // Autocast converts within the operator.
        assert_eq!(of("float", "nvjet_sm90_tst_64x8_TNT"), Some(MatmulType::Half));
        assert_eq!(of("float", "sm80_xmma_gemm_tf32f32_f32_nn_n"), Some(MatmulType::Tf32));
        assert_eq!(of("float", "void at::native::copy_kernel"), None);
        assert_eq!(matmul_type_of(None, attention), Some(MatmulType::Fp32));
    }

    #[test]
    fn similar_names_are_not_matrix_multiplications() {
        check("void at::native::vectorized_elementwise_kernel<4, at::native::conv_func>", None);
        check("void cudnn::ops::nchwToNhwcKernel<float>", None);
        check("void at::native::batch_norm_collect_statistics_kernel", None);
        check("", None);
    }
}
