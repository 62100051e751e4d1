//! Kernels of matrix products, convolutions and attention, known by their names, and the type that they
//! multiply: that of their operator's tensors, or as their names show where a trace has no shapes.

use super::operator::{ElementType, Operator};
use ridgeline_devices::device_spec::Rates;

/// What such a kernel multiplies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProductType {
    /// FP32 outside tensor cores.
    Fp32,
    /// FP32 in TF32.
    Tf32,
    /// FP16 or BF16.
    Half,
}

impl ProductType {
    /// The rate of a device for it: of the next type that the device has.
    pub fn peak(self, peaks: &Rates) -> Option<f64> {
        match self {
            ProductType::Fp32 => peaks.fp32,
            ProductType::Tf32 => peaks.tf32.or(peaks.fp32),
            ProductType::Half => peaks.fp16.or(peaks.fp32),
        }
    }
}

/// Names of templates run to thousands of characters, and show their type early.
const READ: usize = 400;

/// What a kernel multiplies, if its name is one of a product; a guess where the name does not show a
/// type. The names are those of cuBLAS, cuDNN, CUTLASS, FlashAttention and their AMD counterparts in
/// traces of 2021 to 2026.
pub fn product_type(kernel: &str) -> Option<ProductType> {
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
    // Names that only sound like it: torch's own conversions and convolutions' copies of layouts.
    if !has(&PRODUCTS) || has(&["convert", "elementwise", "nchwtonhwc", "nhwctonchw"]) {
        return None;
    }
    let is_attention = has(&["fmha"]) && !has(&["f32"]);
    let guess = if is_attention { ProductType::Half } else { ProductType::Fp32 };
    Some(shown_type(&name).unwrap_or(guess))
}

/// What a kernel of an operator multiplies, if it is a product. The operator's tensors have the type.
/// Under autocast an operator takes FP32 tensors and converts them itself: then the kernel's name
/// shows what it multiplies.
pub fn product_of(operator: Option<&Operator>, kernel: &str) -> Option<ProductType> {
    let guess = product_type(kernel)?;
    let first = operator.and_then(|operator| operator.input_tensors().next());
    Some(match first.and_then(|tensor| tensor.element) {
        // Nothing has a rate for FP8 of its own: that of FP16 is the nearest.
        Some(ElementType::Float16 | ElementType::BFloat16 | ElementType::Float8) => {
            ProductType::Half
        }
        Some(ElementType::Float32) => shown_type(&lowercase(kernel)).unwrap_or(ProductType::Fp32),
        _ => guess,
    })
}

/// The type that a name of a product shows, in lower case; nothing where it shows none, or FP32.
fn shown_type(name: &str) -> Option<ProductType> {
    const TF32: [&str; 2] = ["tf32", "s1688"];
    // FlashAttention has no other types.
    const HALF: [&str; 13] = [
        "h884", "h1688", "h16816", "s884", "s16816", "f16", "bf16", "half", "hgemm", "_hss_",
        "hmma", "bfloat16", "flash",
    ];
    let has = |marks: &[&str]| marks.iter().any(|mark| name.contains(mark));
    if has(&HALF) || is_half_nvjet(name) {
        Some(ProductType::Half)
    } else if has(&TF32) {
        Some(ProductType::Tf32)
    } else {
        None
    }
}

/// cuBLAS calls its kernels for Hopper and later `nvjet_tst_…` or, since CUDA 13, `nvjet_sm90_tst_…`:
/// types of inputs, sums and output, of which `h` is FP16 and `t` BF16 (as traces with shapes show).
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
    kernel.chars().take(READ).collect::<String>().to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(kernel: &str, expected: Option<ProductType>) {
        assert_eq!(product_type(kernel), expected, "{kernel}");
    }

    #[test]
    fn names_of_libraries() {
        check("volta_sgemm_128x64_nt", Some(ProductType::Fp32));
        check(
            "ampere_fp16_s16816gemm_fp16_128x128_ldg8_f2f_stages_32x5_tn",
            Some(ProductType::Half),
        );
        check("volta_fp16_s884cudnn_fp16_256x64_relu_nhwc_tn_v1", Some(ProductType::Half));
        check("cutlass_80_tensorop_s1688gemm_128x128_16x4_nt_align4", Some(ProductType::Tf32));
        check("sm80_xmma_gemm_tf32f32_tf32f32_f32_nn_n", Some(ProductType::Tf32));
        check("nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_NTT", Some(ProductType::Half));
        check("nvjet_sm90_tst_64x8_64x16_4x1_v_bz_TNT", Some(ProductType::Half));
        check("nvjet_sm100_tst_32x64_64x16_4x2_2cta_h_bz_splitK_bias_TNN", Some(ProductType::Half));
        check("nvjet_sm120_hsh_mma_128x64", Some(ProductType::Half));
        check("fmha_cutlassF_f32_aligned_64x64_rf_sm80", Some(ProductType::Fp32));
        check("fmha_cutlassB_bf16_aligned_64x64_k64_sm80", Some(ProductType::Half));
        check("void pytorch_flash::flash_fwd_kernel<...>", Some(ProductType::Half));
        check("Cijk_Ailk_Bljk_HSS_BH_MT128x128x32", Some(ProductType::Half));
        check("void cudnn::winograd::generateWinogradTilesKernel", Some(ProductType::Fp32));
    }

    #[test]
    fn tensors_have_the_type() {
        let of = |element: &str, kernel: &str| {
            let dims = "[[64, 64], [64, 64]]";
            let types = format!("[\"{element}\", \"{element}\"]");
            let operator = Operator::from_trace("aten::mm", dims, &types, "");
            product_of(operator.as_ref(), kernel)
        };
        let attention = "fmha_cutlassF_f32_aligned_64x64_rf_sm80";
        assert_eq!(of("float", attention), Some(ProductType::Fp32));
        // Names of later versions may show nothing.
        assert_eq!(of("c10::BFloat16", "nvjet_sm110_x"), Some(ProductType::Half));
        assert_eq!(of("float", "nvjet_sm110_x"), Some(ProductType::Fp32));
        assert_eq!(of("float", "fmha_x"), Some(ProductType::Fp32));
        assert_eq!(of("c10::Float8_e4m3fn", "nvjet_sm90_qqtst_128x192"), Some(ProductType::Half));
        // Autocast converts within the operator.
        assert_eq!(of("float", "nvjet_sm90_tst_64x8_TNT"), Some(ProductType::Half));
        assert_eq!(of("float", "sm80_xmma_gemm_tf32f32_f32_nn_n"), Some(ProductType::Tf32));
        assert_eq!(of("float", "void at::native::copy_kernel"), None);
        assert_eq!(product_of(None, attention), Some(ProductType::Fp32));
    }

    #[test]
    fn what_only_sounds_like_it() {
        check("void at::native::vectorized_elementwise_kernel<4, at::native::conv_func>", None);
        check("void cudnn::ops::nchwToNhwcKernel<float>", None);
        check("void at::native::batch_norm_collect_statistics_kernel", None);
        check("", None);
    }
}
