//! A square matrix multiplication with cuBLASLt, for measuring its rate.

use std::ffi::c_void;
use std::sync::Arc;

use cudarc::cublaslt::result::{self, CublasError};
use cudarc::cublaslt::sys::{
    self, cublasComputeType_t, cublasLtMatmulDesc_t, cublasLtMatmulHeuristicResult_t,
    cublasLtMatmulPreferenceAttributes_t, cublasLtMatrixLayout_t, cudaDataType,
};
use cudarc::driver::{CudaSlice, CudaStream, DevicePtr, DevicePtrMut};

use serde::{Deserialize, Serialize};

use crate::ceilings::{CeilingsError, Random};

/// The data type of a matrix multiplication, as PyTorch runs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// 32 bits, without tensor cores.
    Fp32,
    /// 32 bits in memory, 19 bits in the tensor cores.
    Tf32,
    /// 16 bits with FP32 accumulation.
    Fp16,
    /// 16 bits with an 8-bit exponent and FP32 accumulation.
    Bf16,
}

impl std::fmt::Display for Precision {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Precision::Fp32 => "FP32",
            Precision::Tf32 => "TF32",
            Precision::Fp16 => "FP16",
            Precision::Bf16 => "BF16",
        })
    }
}

impl Precision {
    pub(crate) const ALL: [Precision; 4] =
        [Precision::Fp32, Precision::Tf32, Precision::Fp16, Precision::Bf16];

    /// Whether devices of this compute capability support it. Tensor cores have TF32 and BF16 since
    /// 8.0.
    pub(crate) fn is_supported_by(self, capability: (i32, i32)) -> bool {
        match self {
            Precision::Fp32 | Precision::Fp16 => true,
            Precision::Tf32 | Precision::Bf16 => capability >= (8, 0),
        }
    }

    /// Size of an element in memory, in bytes.
    pub(crate) fn bytes(self) -> usize {
        match self {
            Precision::Fp32 | Precision::Tf32 => 4,
            Precision::Fp16 | Precision::Bf16 => 2,
        }
    }

    /// Returns uniform random numbers from -1 to 1, as bytes.
    pub(crate) fn random_block(self, bytes: usize) -> Vec<u8> {
        let mut random = Random::new();
        let mut block = Vec::with_capacity(bytes + 4);
        while block.len() < bytes {
            let number = random.next_f32();
            match self {
                Precision::Fp32 | Precision::Tf32 => block.extend(number.to_le_bytes()),
                Precision::Bf16 => block.extend(bf16_of(number).to_le_bytes()),
                Precision::Fp16 => block.extend(fp16_of(number).to_le_bytes()),
            }
        }
        block.truncate(bytes);
        block
    }

    fn data_type(self) -> cudaDataType {
        match self {
            Precision::Fp32 | Precision::Tf32 => cudaDataType::CUDA_R_32F,
            Precision::Fp16 => cudaDataType::CUDA_R_16F,
            Precision::Bf16 => cudaDataType::CUDA_R_16BF,
        }
    }

    fn compute_type(self) -> cublasComputeType_t {
        match self {
            Precision::Tf32 => cublasComputeType_t::CUBLAS_COMPUTE_32F_FAST_TF32,
            _ => cublasComputeType_t::CUBLAS_COMPUTE_32F,
        }
    }
}

/// Returns the upper half of an FP32 number.
fn bf16_of(number: f32) -> u16 {
    (number.to_bits() >> 16) as u16
}

/// Truncates instead of rounding, and flushes subnormal numbers to zero. Good enough for random
/// data below one.
fn fp16_of(number: f32) -> u16 {
    let bits = number.to_bits();
    let sign = (bits >> 16) as u16 & 0x8000;
    let exponent = (bits >> 23 & 0xff) as i32 - 127 + 15;
    if !(1..=30).contains(&exponent) {
        return sign;
    }
    sign | (exponent as u16) << 10 | (bits >> 13 & 0x3ff) as u16
}

/// Why a multiplication was not measured.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MatmulError {
    #[error("cuBLASLt rejected it ({0})")]
    Cublas(#[from] CublasError),
    #[error(transparent)]
    Ceilings(#[from] CeilingsError),
}

impl From<MatmulError> for CeilingsError {
    fn from(error: MatmulError) -> Self {
        match error {
            MatmulError::Ceilings(error) => error,
            error @ MatmulError::Cublas(_) => CeilingsError::Unexpected(error.to_string()),
        }
    }
}

/// NVIDIA's recommendation for Hopper, and more than enough for older GPUs.
const WORKSPACE_BYTES: usize = 32 << 20;

/// Square matrices on the device, and a plan to multiply them.
pub(crate) struct Matmul {
    stream: Arc<CudaStream>,
    a: CudaSlice<u8>,
    b: CudaSlice<u8>,
    c: CudaSlice<u8>,
    workspace: CudaSlice<u8>,
    plan: Plan,
}

impl Matmul {
    pub(crate) fn new(
        stream: &Arc<CudaStream>,
        precision: Precision,
        size: usize,
        random: impl Fn(usize) -> Result<CudaSlice<u8>, CeilingsError>,
    ) -> Result<Matmul, MatmulError> {
        let bytes = size * size * precision.bytes();
        let zeros = |bytes| stream.alloc_zeros::<u8>(bytes).map_err(CeilingsError::from);
        Ok(Matmul {
            stream: stream.clone(),
            a: random(bytes)?,
            b: random(bytes)?,
            c: zeros(bytes)?,
            workspace: zeros(WORKSPACE_BYTES)?,
            plan: Plan::new(precision, size as u64)?,
        })
    }

    /// Enqueues one multiplication on the stream.
    pub(crate) fn run(&mut self) -> Result<(), MatmulError> {
        let (one, zero) = (1.0f32, 0.0f32);
        let (a, _a_use) = self.a.device_ptr(&self.stream);
        let (b, _b_use) = self.b.device_ptr(&self.stream);
        let (c, _c_use) = self.c.device_ptr_mut(&self.stream);
        let (workspace, _workspace_use) = self.workspace.device_ptr_mut(&self.stream);
        // SAFETY: the matrices match the size and type of their layouts and live as long as `self`,
        // which outlives the work because every sample waits for its end event. The call itself
        // reads the scalars.
        unsafe {
            result::matmul(
                self.plan.handle,
                self.plan.description,
                (&raw const one).cast(),
                (&raw const zero).cast(),
                a as *const c_void,
                self.plan.layout,
                b as *const c_void,
                self.plan.layout,
                c as *const c_void,
                self.plan.layout,
                c as *mut c_void,
                self.plan.layout,
                &raw const self.plan.algorithm.algo,
                workspace as *mut c_void,
                WORKSPACE_BYTES,
                self.stream.cu_stream().cast(),
            )?;
        }
        Ok(())
    }
}

/// cuBLASLt's objects for one multiplication. All three matrices have the same layout.
struct Plan {
    handle: sys::cublasLtHandle_t,
    description: cublasLtMatmulDesc_t,
    layout: cublasLtMatrixLayout_t,
    algorithm: cublasLtMatmulHeuristicResult_t,
}

impl Plan {
    fn new(precision: Precision, size: u64) -> Result<Plan, CublasError> {
        let mut parts = Parts::default();
        let handle = *parts.handle.insert(result::create_handle()?);
        let description = *parts.description.insert(result::create_matmul_desc(
            precision.compute_type(),
            cudaDataType::CUDA_R_32F,
        )?);
        let stride = i64::try_from(size).unwrap_or(i64::MAX);
        let layout = *parts.layout.insert(result::create_matrix_layout(
            precision.data_type(),
            size,
            size,
            stride,
        )?);
        let preference = *parts.preference.insert(result::create_matmul_pref()?);
        let workspace_bytes = WORKSPACE_BYTES;
        let attribute =
            cublasLtMatmulPreferenceAttributes_t::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES;
        // SAFETY: all objects were created above and live at least until the end of this function.
        let algorithm = unsafe {
            result::set_matmul_pref_attribute(
                preference,
                attribute,
                (&raw const workspace_bytes).cast(),
                size_of::<usize>(),
            )?;
            result::get_matmul_algo_heuristic(
                handle,
                description,
                layout,
                layout,
                layout,
                layout,
                preference,
            )?
        };
        parts.handle = None;
        parts.description = None;
        parts.layout = None;
        Ok(Plan { handle, description, layout, algorithm })
    }
}

impl Drop for Plan {
    fn drop(&mut self) {
        drop(Parts {
            handle: Some(self.handle),
            description: Some(self.description),
            layout: Some(self.layout),
            preference: None,
        });
    }
}

/// Objects that are destroyed on drop, even if only some of them were created.
#[derive(Default)]
struct Parts {
    handle: Option<sys::cublasLtHandle_t>,
    description: Option<cublasLtMatmulDesc_t>,
    layout: Option<cublasLtMatrixLayout_t>,
    preference: Option<sys::cublasLtMatmulPreference_t>,
}

impl Drop for Parts {
    fn drop(&mut self) {
        // SAFETY: cuBLASLt created each object, and each is destroyed once. If destroying fails,
        // nothing can be done about it.
        unsafe {
            if let Some(preference) = self.preference {
                let _ = result::destroy_matmul_pref(preference);
            }
            if let Some(layout) = self.layout {
                let _ = result::destroy_matrix_layout(layout);
            }
            if let Some(description) = self.description {
                let _ = result::destroy_matmul_desc(description);
            }
            if let Some(handle) = self.handle {
                let _ = result::destroy_handle(handle);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_precision_conversion_is_correct() {
        assert_eq!(fp16_of(1.0), 0x3c00);
        assert_eq!(fp16_of(-0.5), 0xb800);
        assert_eq!(fp16_of(0.333_251_95), 0x3555);
        assert_eq!(fp16_of(1e-30), 0);
        assert_eq!(bf16_of(1.0), 0x3f80);
        assert_eq!(bf16_of(-2.5), 0xc020);
    }

    #[test]
    fn random_blocks_are_nonzero_and_have_the_requested_length() {
        for precision in Precision::ALL {
            let block = precision.random_block(1001);
            assert_eq!(block.len(), 1001);
            assert!(block.iter().filter(|byte| **byte == 0).count() < 200, "{precision}");
        }
    }

    #[test]
    fn older_devices_do_not_support_newer_types() {
        assert!(!Precision::Bf16.is_supported_by((7, 5)));
        assert!(Precision::Tf32.is_supported_by((8, 0)));
        assert!(Precision::Fp16.is_supported_by((7, 0)));
    }
}
