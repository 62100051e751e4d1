//! Kernels of matrix products, convolutions and attention, known by their names: all that a trace
//! without shapes tells of them.

use super::device_spec::Rates;

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

/// What a kernel multiplies, if its name is one of a product. The names are those of cuBLAS, cuDNN,
/// CUTLASS, FlashAttention and their AMD counterparts in traces of 2021 to 2026.
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
    const TF32: [&str; 2] = ["tf32", "s1688"];
    const HALF: [&str; 14] = [
        "h884", "h1688", "h16816", "s884", "s16816", "f16", "bf16", "half", "hgemm", "_hss_",
        "hmma", "bfloat16", "nvjet_h", "nvjet_t",
    ];
    // Names of templates run to thousands of characters, and say it early.
    const READ: usize = 400;
    let name: String = kernel.chars().take(READ).collect::<String>().to_ascii_lowercase();
    let has = |marks: &[&str]| marks.iter().any(|mark| name.contains(mark));
    // Names that only sound like it: torch's own conversions and convolutions' copies of layouts.
    if !has(&PRODUCTS) || has(&["convert", "elementwise", "nchwtonhwc", "nhwctonchw"]) {
        return None;
    }
    Some(if has(&HALF) || has(&["flash", "fmha"]) {
        ProductType::Half
    } else if has(&TF32) {
        ProductType::Tf32
    } else {
        ProductType::Fp32
    })
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
        check("void pytorch_flash::flash_fwd_kernel<...>", Some(ProductType::Half));
        check("Cijk_Ailk_Bljk_HSS_BH_MT128x128x32", Some(ProductType::Half));
        check("void cudnn::winograd::generateWinogradTilesKernel", Some(ProductType::Fp32));
    }

    #[test]
    fn what_only_sounds_like_it() {
        check("void at::native::vectorized_elementwise_kernel<4, at::native::conv_func>", None);
        check("void cudnn::ops::nchwToNhwcKernel<float>", None);
        check("void at::native::batch_norm_collect_statistics_kernel", None);
        check("", None);
    }
}
