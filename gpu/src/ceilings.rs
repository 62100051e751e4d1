//! Measured ceilings of a GPU: what it really reaches, beside the datasheet's peaks of
//! [`ridgeline_analysis::predict::device_table`].
//!
//! Copies and matrix products run on *random* data: a GPU at its power limit multiplies zeros up to a
//! third faster than numbers, so a ceiling of zeros would be one that no training reaches.
//!
//! None of the device's part has run on a GPU yet: see `docs/gpu-status.md`.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use cudarc::cublaslt;
use cudarc::driver::sys::{self, CUdevice_attribute, CUevent_flags, CUresult};
use cudarc::driver::{CudaContext, CudaSlice, CudaStream, DriverError, LaunchConfig};
use cudarc::nvrtc::Ptx;
use ridgeline_analysis::predict::device_spec::{self, Rates};
use tokio_util::sync::CancellationToken;

pub use crate::matmul::Precision;
use crate::matmul::{Matmul, MatmulError};

/// What a GPU reaches.
#[derive(Clone, Debug, PartialEq)]
pub struct Ceilings {
    /// `NVIDIA H200`.
    pub device_name: String,
    /// Bytes read and written per second by a copy within the device's memory.
    pub copy_bandwidth: Measured,
    /// Operations per second of a large square matrix product, by type. Empty, with a reason in
    /// `notes`, where there is no cuBLASLt.
    pub matmul_flops: Vec<(Precision, Measured)>,
    /// Host seconds from one launch of an empty kernel to the next; `None`, with a reason in `notes`,
    /// where the driver does not take the kernel.
    pub launch_seconds: Option<Measured>,
    /// Bytes per second from page-locked memory to the device.
    pub host_to_device: Measured,
    /// Bytes per second from the device to page-locked memory.
    pub device_to_host: Measured,
    /// What could not be measured, and why.
    pub notes: Vec<String>,
}

impl Ceilings {
    /// As predictions take them: medians.
    pub fn medians(&self) -> device_spec::Ceilings {
        let rate = |precision: Precision| {
            let found = self.matmul_flops.iter().find(|(of, _)| *of == precision);
            found.map(|(_, rate)| rate.median)
        };
        device_spec::Ceilings {
            bandwidth: Some(self.copy_bandwidth.median),
            gemm: Rates {
                fp32: rate(Precision::Fp32),
                tf32: rate(Precision::Tf32),
                fp16: rate(Precision::Fp16),
                bf16: rate(Precision::Bf16),
                fp8: None,
            },
            launch_ns: self.launch_seconds.map(|seconds| seconds.median * 1e9),
            host_to_device: Some(self.host_to_device.median),
            device_to_host: Some(self.device_to_host.median),
        }
    }
}

/// Repeated measurements of one thing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    /// The middle one.
    pub median: f64,
    /// One in ten is below.
    pub low: f64,
    /// One in ten is above.
    pub high: f64,
    /// How many there were.
    pub samples: u32,
}

impl Measured {
    /// Of at least one finite number; `None` of none.
    pub fn of(samples: &[f64]) -> Option<Measured> {
        let mut sorted: Vec<f64> =
            samples.iter().copied().filter(|sample| sample.is_finite()).collect();
        sorted.sort_by(f64::total_cmp);
        Some(Measured {
            median: quantile(&sorted, 0.5)?,
            low: quantile(&sorted, 0.1)?,
            high: quantile(&sorted, 0.9)?,
            samples: u32::try_from(sorted.len()).unwrap_or(u32::MAX),
        })
    }
}

/// Linear between the two nearest, of sorted numbers.
fn quantile(sorted: &[f64], share: f64) -> Option<f64> {
    let place = share * sorted.len().checked_sub(1)? as f64;
    let below = *sorted.get(place.floor() as usize)?;
    let above = *sorted.get(place.ceil() as usize)?;
    Some(below + (above - below) * place.fract())
}

/// Why nothing was measured.
#[derive(Debug, thiserror::Error)]
pub enum CeilingsError {
    /// No CUDA driver.
    #[error("there is no CUDA driver on this machine")]
    NoDriver,
    /// The driver refused; out of memory where others use the device.
    #[error("the CUDA driver failed: {0:?}")]
    Driver(CUresult),
    /// A function is missing, or the binding panicked.
    #[error("the CUDA driver is not one that can be measured with: {0}")]
    Unexpected(String),
    /// Stopped.
    #[error("the measurement was stopped")]
    Cancelled,
}

impl From<DriverError> for CeilingsError {
    fn from(error: DriverError) -> Self {
        CeilingsError::Driver(error.0)
    }
}

/// Measures one GPU, in about ten seconds. It makes a context of its own and takes at most a quarter
/// of the memory that is free. Nothing else should run on the device meanwhile.
///
/// # Errors
/// Where there is no driver, or it refuses.
pub async fn measure(index: usize, cancel: CancellationToken) -> Result<Ceilings, CeilingsError> {
    let work = tokio::task::spawn_blocking(move || {
        // SAFETY: loading the driver's library runs its initialisers, as any CUDA program does.
        if !unsafe { sys::is_culib_present() } {
            return Err(CeilingsError::NoDriver);
        }
        catch_unwind(AssertUnwindSafe(|| measure_here(index, &cancel)))
            .unwrap_or_else(|panic| Err(CeilingsError::Unexpected(text_of(panic.as_ref()))))
    });
    work.await.unwrap_or_else(|error| Err(CeilingsError::Unexpected(error.to_string())))
}

/// What a panic of a binding says: the function that is missing.
pub(crate) fn text_of(panic: &(dyn std::any::Any + Send)) -> String {
    panic
        .downcast_ref::<String>()
        .cloned()
        .or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
        .unwrap_or_else(|| "it panicked".to_owned())
}

const WARM_UPS: u32 = 3;
const SAMPLES: u32 = 15;
/// Launches in a sample: fewer than the driver's queue holds, else the device's time is measured.
const LAUNCHES: u32 = 500;

fn measure_here(index: usize, cancel: &CancellationToken) -> Result<Ceilings, CeilingsError> {
    let context = CudaContext::new(index)?;
    let stream = context.default_stream();
    let (free, _) = context.mem_get_info()?;
    let l2 = context.attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)?;
    let bytes = copy_bytes(free, usize::try_from(l2).unwrap_or(0));
    let bench = Bench { context: &context, stream: &stream, cancel };
    let (copy_bandwidth, host_to_device, device_to_host) = bench.copies(bytes)?;
    let mut notes = Vec::new();
    let launch_seconds = match bench.launches() {
        Ok(seconds) => Some(seconds),
        Err(CeilingsError::Cancelled) => return Err(CeilingsError::Cancelled),
        Err(error) => {
            notes.push(format!("launches were not measured: {error}"));
            None
        }
    };
    let matmul_flops = bench.matmuls(free, &mut notes)?;
    Ok(Ceilings {
        device_name: context.name()?,
        copy_bandwidth,
        matmul_flops,
        launch_seconds,
        host_to_device,
        device_to_host,
        notes,
    })
}

struct Bench<'a> {
    context: &'a Arc<CudaContext>,
    stream: &'a Arc<CudaStream>,
    cancel: &'a CancellationToken,
}

impl Bench<'_> {
    fn copies(&self, bytes: usize) -> Result<(Measured, Measured, Measured), CeilingsError> {
        let source = self.random_bytes(bytes)?;
        let mut target = self.stream.alloc_zeros::<u8>(bytes)?;
        let within = self.rate(2.0 * bytes as f64, || {
            self.stream.memcpy_dtod(&source, &mut target).map_err(Into::into)
        })?;
        let host_bytes = bytes.min(PINNED_BYTES);
        // SAFETY: every byte is written before the memory is read by anything but a copy.
        let mut host = unsafe { self.context.alloc_pinned_with_flags::<u8>(host_bytes, 0)? };
        host.as_mut_slice()?.copy_from_slice(&random_block(host_bytes));
        let mut small = self.stream.alloc_zeros::<u8>(host_bytes)?;
        let up = self.rate(host_bytes as f64, || {
            self.stream.memcpy_htod(&host, &mut small).map_err(Into::into)
        })?;
        let down = self.rate(host_bytes as f64, || {
            self.stream.memcpy_dtoh(&small, &mut host).map_err(Into::into)
        })?;
        Ok((within, up, down))
    }

    fn launches(&self) -> Result<Measured, CeilingsError> {
        let (major, minor) = self.context.compute_capability()?;
        let module = self.context.load_module(Ptx::from_src(empty_kernel(major, minor)))?;
        let kernel = module.load_function("nothing")?;
        let shape =
            LaunchConfig { grid_dim: (1, 1, 1), block_dim: (32, 1, 1), shared_mem_bytes: 0 };
        let mut samples = Vec::new();
        for round in 0..WARM_UPS + SAMPLES {
            self.stop_if_cancelled()?;
            let start = Instant::now();
            for _ in 0..LAUNCHES {
                // SAFETY: the kernel takes no arguments and touches no memory.
                unsafe { self.stream.launch_builder(&kernel).launch(shape)? };
            }
            let spent: Duration = start.elapsed();
            self.stream.synchronize()?;
            if round >= WARM_UPS {
                samples.push(spent.as_secs_f64() / f64::from(LAUNCHES));
            }
        }
        measured(&samples)
    }

    fn matmuls(
        &self,
        free: usize,
        notes: &mut Vec<String>,
    ) -> Result<Vec<(Precision, Measured)>, CeilingsError> {
        // SAFETY: as for the driver's library.
        if !unsafe { cublaslt::sys::is_culib_present() } {
            notes.push("matrix products were not measured: cuBLASLt is not on the library path (the one of torch's packages can be put there with LD_LIBRARY_PATH)".to_owned());
            return Ok(Vec::new());
        }
        let capability = self.context.compute_capability()?;
        let mut rates = Vec::new();
        for precision in Precision::ALL {
            if !precision.is_offered_by(capability) {
                continue;
            }
            let size = matmul_size(free, precision.bytes());
            let matmul =
                Matmul::new(self.stream, precision, size, |bytes| self.random_of(precision, bytes));
            let result = matmul.and_then(|mut matmul| {
                self.rate(2.0 * (size as f64).powi(3), || matmul.run().map_err(Into::into))
                    .map_err(MatmulError::from)
            });
            match result {
                Ok(rate) => rates.push((precision, rate)),
                Err(MatmulError::Ceilings(error)) => return Err(error),
                Err(error) => notes.push(format!("{precision}: {error}")),
            }
        }
        Ok(rates)
    }

    /// `amount` per second of device time, once warmed up.
    fn rate(
        &self,
        amount: f64,
        mut work: impl FnMut() -> Result<(), CeilingsError>,
    ) -> Result<Measured, CeilingsError> {
        let mut samples = Vec::new();
        for round in 0..WARM_UPS + SAMPLES {
            self.stop_if_cancelled()?;
            let start = self.stream.record_event(Some(CUevent_flags::CU_EVENT_DEFAULT))?;
            work()?;
            let end = self.stream.record_event(Some(CUevent_flags::CU_EVENT_DEFAULT))?;
            let seconds = f64::from(start.elapsed_ms(&end)?) / 1e3;
            if round >= WARM_UPS && seconds > 0.0 {
                samples.push(amount / seconds);
            }
        }
        measured(&samples)
    }

    fn random_bytes(&self, bytes: usize) -> Result<CudaSlice<u8>, CeilingsError> {
        self.filled(bytes, &random_block(bytes.min(BLOCK_BYTES)))
    }

    fn random_of(
        &self,
        precision: Precision,
        bytes: usize,
    ) -> Result<CudaSlice<u8>, CeilingsError> {
        self.filled(bytes, &precision.random_block(bytes.min(BLOCK_BYTES)))
    }

    /// Memory on the device that repeats a block, so that little of it has to be made on the host.
    fn filled(&self, bytes: usize, block: &[u8]) -> Result<CudaSlice<u8>, CeilingsError> {
        let mut memory = self.stream.alloc_zeros::<u8>(bytes)?;
        let mut done = 0;
        while done < bytes && !block.is_empty() {
            let count = block.len().min(bytes - done);
            let mut part = memory.slice_mut(done..done + count);
            self.stream.memcpy_htod(&block[..count], &mut part)?;
            done += count;
        }
        self.stream.synchronize()?;
        Ok(memory)
    }

    fn stop_if_cancelled(&self) -> Result<(), CeilingsError> {
        if self.cancel.is_cancelled() { Err(CeilingsError::Cancelled) } else { Ok(()) }
    }
}

fn measured(samples: &[f64]) -> Result<Measured, CeilingsError> {
    Measured::of(samples)
        .ok_or_else(|| CeilingsError::Unexpected("its clock did not move".to_owned()))
}

const PINNED_BYTES: usize = 256 << 20;
const BLOCK_BYTES: usize = 64 << 20;

/// A copy's size: at most a gigabyte and an eighth of the free memory (there are two such blocks),
/// and far more than the L2 cache where the memory allows.
fn copy_bytes(free: usize, l2: usize) -> usize {
    let wanted = (l2.saturating_mul(16)).clamp(256 << 20, 1 << 30);
    wanted.min(free / 8).max(1 << 20)
}

/// A square product's side: three matrices in a quarter of the free memory, at most 8192, which
/// fills every tensor core there is.
fn matmul_size(free: usize, element_bytes: usize) -> usize {
    let mut size = 8192;
    while size > 256 && 3 * size * size * element_bytes > free / 4 {
        size /= 2;
    }
    size
}

/// PTX for the oldest architecture that a driver may still be asked for, and no newer than the
/// device's: the driver compiles it for the device.
fn empty_kernel(major: i32, minor: i32) -> String {
    let (version, target) =
        if (major, minor) >= (7, 5) { ("6.3", "sm_75") } else { ("5.0", "sm_60") };
    format!(
        ".version {version}\n.target {target}\n.address_size 64\n.visible .entry nothing() {{ ret; }}\n"
    )
}

fn random_block(bytes: usize) -> Vec<u8> {
    let mut random = Random::new();
    let mut block = Vec::with_capacity(bytes + 8);
    while block.len() < bytes {
        block.extend_from_slice(&random.next().to_le_bytes());
    }
    block.truncate(bytes);
    block
}

/// Steele, Lea and Flood's SplitMix64 (OOPSLA 2014). The same numbers each time, so that two
/// measurements can be compared.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new() -> Random {
        Random(0x5eed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From -1 to 1.
    pub(crate) fn next_f32(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_and_the_rest_are_tenths() {
        let samples: Vec<f64> = (0..=10).rev().map(f64::from).collect();
        let measured = Measured::of(&samples).unwrap();
        assert_eq!((measured.low, measured.median, measured.high), (1.0, 5.0, 9.0));
        assert_eq!(measured.samples, 11);
    }

    #[test]
    fn nothing_measured_is_nothing_and_absurd_samples_do_not_count() {
        assert_eq!(Measured::of(&[]), None);
        assert_eq!(Measured::of(&[f64::NAN, f64::INFINITY]), None);
        assert_eq!(Measured::of(&[f64::NAN, 3.0]).unwrap().median, 3.0);
    }

    #[test]
    fn a_copy_leaves_the_cache_behind_and_fits_the_memory() {
        assert_eq!(copy_bytes(140 << 30, 60 << 20), 960 << 20);
        assert_eq!(copy_bytes(8 << 30, 4 << 20), 256 << 20);
        assert_eq!(copy_bytes(800 << 20, 60 << 20), 100 << 20);
        assert_eq!(copy_bytes(0, usize::MAX), 1 << 20);
    }

    #[test]
    fn a_product_fits_a_quarter_of_the_memory() {
        assert_eq!(matmul_size(140 << 30, 2), 8192);
        assert_eq!(matmul_size(1 << 30, 4), 4096);
        assert_eq!(matmul_size(0, 4), 256);
    }

    #[test]
    fn the_kernel_is_no_newer_than_the_device() {
        assert!(empty_kernel(9, 0).contains("sm_75"));
        assert!(empty_kernel(7, 0).contains("sm_60"));
    }

    #[test]
    fn random_numbers_fill_their_range_evenly() {
        let mut random = Random::new();
        let numbers: Vec<f32> = (0..10_000).map(|_| random.next_f32()).collect();
        assert!(numbers.iter().all(|number| (-1.0..1.0).contains(number)));
        let mean = numbers.iter().sum::<f32>() / 10_000.0;
        assert!(mean.abs() < 0.03, "{mean}");
        assert_eq!(random_block(13).len(), 13);
    }

    #[tokio::test]
    async fn without_a_driver_it_says_so() {
        // SAFETY: as above.
        if unsafe { sys::is_culib_present() } {
            eprintln!("skipped: this machine has a driver");
            return;
        }
        let result = measure(0, CancellationToken::new()).await;
        assert!(matches!(result, Err(CeilingsError::NoDriver)), "{result:?}");
    }
}
