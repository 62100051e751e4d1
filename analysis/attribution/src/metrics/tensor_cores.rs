//! Detects from a kernel's name whether it used tensor cores (AMD: matrix cores).
//!
//! Libraries name the instruction that a kernel is built on. The names are those of cuBLAS, cuDNN,
//! CUTLASS, FlashAttention, TensorRT-LLM, Tensile, MIOpen and Composable Kernel in traces of 2021
//! to 2026. A name without such a hint is unknown. A type alone is not sufficient, since
//! half-precision matrix multiplications can run without tensor cores (`gemv`).

use std::collections::HashSet;

use ridgeline_operators::matmul_kernel::matmul_type;
use ridgeline_recording::trace::{ActivityKind, Trace};

/// The unit that a matrix-multiplication kernel uses, as far as its name reveals it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MatmulUnit {
    /// Tensor cores.
    TensorCores,
    /// No tensor cores.
    Other,
    /// Unknown from the name.
    Unknown,
}

/// The number of characters inspected. Template names have thousands, and the relevant part is at
/// the start.
const MAX_INSPECTED_CHARS: usize = 400;

/// Returns the unit of a matrix-multiplication kernel; `None` if its name is not that of one.
pub fn matmul_unit(kernel: &str) -> Option<MatmulUnit> {
    let name: String =
        kernel.chars().take(MAX_INSPECTED_CHARS).collect::<String>().to_ascii_lowercase();
    let has = |marks: &[&str]| marks.iter().any(|mark| name.contains(mark));
    let is_matmul = matmul_type(kernel).is_some()
        || has(&["bmm_", "gemv", "cublasdot", "wgmma", "hmma", "mfma", "triton_mm", "triton_tem"]);
    // Kernels that prepare or finish a convolution or GEMM, but do not multiply.
    const AROUND: [&str; 10] = [
        "computeoffsets",
        "splitkoffsets",
        "wgradboffsets",
        "generatewinogradtiles",
        "splitkreduce",
        "splitk_reduce",
        "reduce_wgrad",
        "winograd_nonfused",
        "winogradforwardfilter",
        "subtensorop",
    ];
    if !is_matmul || has(&AROUND) {
        return None;
    }
    Some(if has(&OTHER) || is_simt_attention(&name) {
        MatmulUnit::Other
    } else if has(&TENSOR_CORES) || has_matrix_instruction(&name) {
        MatmulUnit::TensorCores
    } else if has(&PLAIN) {
        MatmulUnit::Other
    } else {
        MatmulUnit::Unknown
    })
}

/// Names of kernels without tensor cores, whatever else the name contains: `sm80_xmma_…_ffma_…` is
/// one.
const OTHER: [&str; 5] = ["ffma", "simt", "gemv", "cublasdot", "dot_kernel"];

/// Names of tensor core instructions (`s1688`: an FP32 sum of 16 by 8 by 8), or of kernel families
/// that always use tensor cores.
const TENSOR_CORES: [&str; 36] = [
    "884gemm",
    "884cudnn",
    "s884",
    "h884",
    "d884",
    "1688",
    "16816",
    "s161616",
    "h161616",
    "s16832",
    "i8816",
    "i16832",
    "s64x",
    "h64x",
    "tensorop",
    "wgmma",
    "wmma",
    "hmma",
    "imma",
    "xmma",
    "umma",
    "utcmma",
    "16dp256b",
    "tensor16x8",
    "nvjet",
    "flash_fwd",
    "flash_bwd",
    "flash_attn",
    "flashattn",
    "cutlass3x",
    "fmha_v2",
    "mfma",
    "xdl",
    "gtcx",
    "sdpa_sm",
    "fmha_cutlass",
];

/// Whether a kernel is PyTorch's memory-efficient attention without tensor cores. It uses them for
/// FP16 since Volta, and for FP32 (as three TF32 multiplications) since Ampere: `DefaultGemmType`
/// in its `gemm_kernel_utils.h`.
fn is_simt_attention(name: &str) -> bool {
    let on_tensor_cores =
        name.contains("_sm80") || (name.contains("f16") && !name.contains("_sm50"));
    name.contains("fmha_cutlass") && !on_tensor_cores
}

/// Names of libraries that would otherwise name the tensor core instruction.
const PLAIN: [&str; 7] =
    ["sgemm", "dgemm", "scudnn", "winograd", "dgrad_engine", "wgrad_alg", "_sgemm_"];

/// Whether a Tensile kernel's name has the matrix instruction (`MI32x32x8x1`). Without one, it uses
/// none.
fn has_matrix_instruction(name: &str) -> bool {
    name.match_indices("_mi")
        .filter_map(|(at, mark)| name.get(at + mark.len()..))
        .any(|rest| rest.starts_with(|letter: char| letter.is_ascii_digit()) && rest.contains('x'))
}

/// Whether a trace has matrix multiplications of 8-bit floating-point numbers, by their names.
pub fn runs_fp8(trace: &Trace) -> bool {
    let mut seen = HashSet::new();
    let mut kernels = trace.activities.iter().filter(|one| one.kind == ActivityKind::Kernel);
    kernels.any(|kernel| seen.insert(kernel.name) && is_fp8_matmul(trace.text(kernel.name)))
}

fn is_fp8_matmul(name: &str) -> bool {
    const TYPES: [&str; 7] = ["fp8", "e4m3", "e5m2", "float8", "float_e", "f8f8", "nvjet_sm100_qq"];
    const MATMULS: [&str; 6] = ["gemm", "bmm_", "cutlass", "nvjet", "xmma", "matmul"];
    // Template names have thousands of characters.
    let name: String = name.chars().take(1_000).collect::<String>().to_ascii_lowercase();
    let has = |marks: &[&str]| marks.iter().any(|mark| name.contains(mark));
    has(&TYPES) && has(&MATMULS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(kernel: &str, expected: Option<MatmulUnit>) {
        assert_eq!(matmul_unit(kernel), expected, "{kernel}");
    }

    #[test]
    fn names_with_an_instruction_use_tensor_cores() {
        for name in [
            "ampere_fp16_s16816gemm_fp16_128x128_ldg8_f2f_stages_32x5_tn",
            "volta_fp16_s884cudnn_fp16_256x64_relu_nhwc_tn_v1",
            "turing_h1688gemm_128x128_ldg8_nn",
            "void cutlass::Kernel2<cutlass_75_tensorop_bf16_s1688gemm_bf16_256x128_tn_align1>",
            "void cutlass::Kernel2<cutlass_75_wmma_tensorop_bf16_s161616gemm_bf16_32x32_32x1_tn>",
            "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1",
            "sm80_xmma_wgrad_implicit_gemm_indexed_tf32f32_tf32f32_f32_nhwckrsc_tensor16x8x8",
            "nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_NTT",
            "nvjet_sm90_tst_64x8_64x16_4x1_v_bz_TNT",
            "nvjet_sm100_qqtst_128x256_128x4",
            "fmha_cutlassF_f32_aligned_64x64_rf_sm80",
            "fmha_cutlassF_f16_aligned_64x64_rf_sm75",
            "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128>>",
            "igemm_bwd_gtcx3_nhwc_bf16_bx0_ex1_bt128x256x32_wt32x32x8_ws1x2_wr2x2",
            "Cijk_Ailk_Bljk_HSS_BH_MT128x128x32_MI32x32x8x1_SN",
            "bmm_MxE4m3_MxE2m1MxE4m3_Fp32_t128x16x256u2_s3_et128x16_m128x16x32_16dp256b_rM_TN",
        ] {
            check(name, Some(MatmulUnit::TensorCores));
        }
    }

    #[test]
    fn fp8_matrix_multiplications() {
        for name in [
            "void cutlass::device_kernel<dpsk::grouped_gemm::cuda::fp8_ptp128c::GemmKernel>(…)",
            "bmm_MxE4m3_MxE2m1MxE4m3_Fp32_t128x16x256u2_s3_et128x16_m128x16x32_16dp256b_rM_TN",
        ] {
            assert!(is_fp8_matmul(name), "{name}");
        }
        for name in
            ["void cuda::per_token_cast_to_fp8<__nv_bfloat16>(…)", "nvjet_hsh_128x256_64x4_1x2_NTT"]
        {
            assert!(!is_fp8_matmul(name), "{name}");
        }
    }

    #[test]
    fn matrix_multiplications_without_tensor_cores() {
        for name in [
            "volta_sgemm_128x64_nt",
            "ampere_sgemm_32x32_sliced1x4_tn",
            "cudnn_turing_scudnn_128x64_stridedB_splitK_xregs_large_nn_v1",
            "cudnn_volta_scudnn_winograd_128x128_ldg1_ldg4_relu_tile148t_nt_v1",
            "sm80_xmma_fprop_implicit_gemm_f32f32_f32f32_f32_nhwckrsc_nchw_g1_ffma_aligna4",
            "void cutlass::Kernel<cutlass_80_simt_sgemm_128x64_8x5_nn_align1>",
            "void gemv2T_kernel_val<int, int, __nv_bfloat16, __nv_bfloat16, float, 128>",
            "void cudnn::detail::dgrad_engine<float, 512, 6, 5, 3, 3, 3, false>",
            "void wgrad_alg0_engine<float, 128, 6, 8, 3, 3, 5, false, 512>",
            "fmha_cutlassF_f32_aligned_64x64_rf_sm75",
        ] {
            check(name, Some(MatmulUnit::Other));
        }
    }

    #[test]
    fn names_without_an_instruction_are_unknown() {
        check("triton_mm", Some(MatmulUnit::Unknown));
        check("Cijk_Ailk_Bljk_SB_MT64x64x8_SE_K1", Some(MatmulUnit::Unknown));
        check("my_fused_gemm_kernel", Some(MatmulUnit::Unknown));
    }

    #[test]
    fn other_kernels_have_no_unit() {
        for name in [
            "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>",
            "void cudnn::ops::nchwToNhwcKernel<float>",
            "void cask_cudnn::computeOffsetsKernel<false, false>",
            "batched_transpose_32x32_half",
            "ncclDevKernel_AllReduce_Sum_f32_RING_LL",
            "",
        ] {
            check(name, None);
        }
        check(&"é".repeat(10_000), None);
    }
}
