//! Measured ceilings of a GPU: what it really reaches, in contrast to the datasheet's peaks in
//! [`ridgeline_devices::device_table`].
//!
//! Copies and matrix multiplications use *random* data: a GPU at its power limit multiplies zeros
//! up to a third faster than other numbers, so a ceiling measured with zeros is one that no
//! training reaches.
//!
//! [`measure`] creates a CUDA context in the calling process, which a broken driver can crash or
//! hang. Only the hidden subcommand `ridgeline measure-device` calls it. All other code starts that
//! subcommand with [`measure_in_child`].

use ridgeline_base::statistics::quantile;
use std::ffi::OsString;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use cudarc::cublaslt;
use cudarc::driver::sys::{self, CUdevice_attribute, CUevent_flags, CUresult};
use cudarc::driver::{CudaContext, CudaSlice, CudaStream, DriverError, LaunchConfig};
use cudarc::nvrtc::Ptx;
use ridgeline_devices::device_spec::{self, Rates};
use serde::{Deserialize, Serialize};
use tokio::process::Command;

pub use crate::matmul::Precision;
use crate::matmul::{Matmul, MatmulError};
use crate::process;

/// Measured rates of a GPU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ceilings {
    /// For example `NVIDIA H200`.
    pub device_name: String,
    /// Bytes read plus bytes written, per second, by a copy within device memory.
    pub copy_bandwidth: RateStatistics,
    /// FLOP/s of a large square matrix multiplication, by data type. Empty, with a reason in
    /// `notes`, if cuBLASLt is not available.
    pub matmul_flops: Vec<(Precision, RateStatistics)>,
    /// Host seconds from one launch of an empty kernel to the next. `None`, with a reason in
    /// `notes`, if the driver rejects the kernel.
    pub launch_seconds: Option<RateStatistics>,
    /// Bytes per second from pinned memory to the device.
    pub host_to_device: RateStatistics,
    /// Bytes per second from the device to pinned memory.
    pub device_to_host: RateStatistics,
    /// What could not be measured, and why.
    pub notes: Vec<String>,
}

impl Ceilings {
    /// Returns the rates that predictions use: medians, except for the 10th percentile of the
    /// launch latency, because other work on the host only lengthens it. The caller sets the date.
    pub fn rates(&self) -> device_spec::Ceilings {
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
            launch_ns: self.launch_seconds.map(|seconds| seconds.low * 1e9),
            host_to_device: Some(self.host_to_device.median),
            device_to_host: Some(self.device_to_host.median),
            measured_on: None,
        }
    }
}

/// Statistics of repeated measurements.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RateStatistics {
    pub median: f64,
    /// 10th percentile.
    pub low: f64,
    /// 90th percentile.
    pub high: f64,
    pub samples: u32,
}

impl RateStatistics {
    /// Computes the statistics. Returns `None` if no sample is finite.
    pub fn of(samples: &[f64]) -> Option<RateStatistics> {
        let mut sorted: Vec<f64> =
            samples.iter().copied().filter(|sample| sample.is_finite()).collect();
        sorted.sort_by(f64::total_cmp);
        Some(RateStatistics {
            median: quantile(&sorted, 0.5)?,
            low: quantile(&sorted, 0.1)?,
            high: quantile(&sorted, 0.9)?,
            samples: u32::try_from(sorted.len()).unwrap_or(u32::MAX),
        })
    }
}

/// Why nothing was measured.
#[derive(Debug, thiserror::Error)]
pub enum CeilingsError {
    #[error("no CUDA driver on this machine")]
    NoDriver,
    /// The driver returned an error, such as out of memory if others use the device.
    #[error("the CUDA driver failed: {0:?}")]
    Driver(CUresult),
    /// A function is missing, or the binding panicked.
    #[error("the CUDA driver cannot be used to measure: {0}")]
    Unexpected(String),
    /// The child process did not start, timed out, or was killed by a signal.
    #[error("the measuring process failed: {0}")]
    Process(String),
}

impl From<DriverError> for CeilingsError {
    fn from(error: DriverError) -> Self {
        CeilingsError::Driver(error.0)
    }
}

/// The subcommand of `ridgeline` that calls [`measure`] and prints the result as one line of JSON.
pub const SUBCOMMAND: &str = "measure-device";
/// A measurement takes about ten seconds. Creating a context takes longer on machines with many
/// GPUs.
const TIME_LIMIT: Duration = Duration::from_secs(90);
/// Memory limit of the child: pinned and random blocks take a third of a gigabyte, the CUDA
/// libraries one to two.
const MEMORY_LIMIT_BYTES: u64 = 6 << 30;
/// Output limit of the child. The result is less than 4 KB.
const OUTPUT_LIMIT_BYTES: usize = 64 << 10;

/// Measures the GPU with the driver's index `index` in a child process. The child is killed if it
/// exceeds its time or memory limit, if the future is dropped, or if this process ends.
///
/// `ridgeline` is the program to start. `libraries` are folders to search for cuBLASLt before the
/// system's, such as those of torch's packages ([`cublas_folders`]).
///
/// # Errors
/// If the child measures nothing, with its reason.
/// Where the child measures nothing, with its reason.
pub async fn measure_in_child(
    ridgeline: &Path,
    index: u32,
    libraries: &[PathBuf],
) -> Result<Ceilings, CeilingsError> {
    let failed = |why: String| CeilingsError::Process(why);
    let mut command = Command::new(ridgeline);
    command.args([SUBCOMMAND, &index.to_string()]);
    if let Some(path) = library_path(libraries, std::env::var_os(LIBRARY_PATH)) {
        command.env(LIBRARY_PATH, path);
    }
    let finished =
        process::run_within(command, TIME_LIMIT, MEMORY_LIMIT_BYTES, OUTPUT_LIMIT_BYTES).await;
    let finished = finished.map_err(|error| failed(error.to_string()))?;
    if !finished.status.success() {
        let said = String::from_utf8_lossy(&finished.stderr);
        let last = said.lines().rev().find(|line| !line.trim().is_empty());
        let last = last.map(|line| line.chars().take(500).collect::<String>());
        return Err(failed(last.unwrap_or_else(|| finished.status.to_string())));
    }
    let printed = String::from_utf8_lossy(&finished.stdout);
    // Libraries may print other lines first.
    let line = printed.lines().last().unwrap_or_default();
    serde_json::from_str(line).map_err(|error| failed(format!("invalid output: {error}")))
}

#[cfg(not(windows))]
const LIBRARY_PATH: &str = "LD_LIBRARY_PATH";
#[cfg(windows)]
const LIBRARY_PATH: &str = "PATH";

/// Prepends `folders` to the variable. Returns `None` if there is nothing to add.
fn library_path(folders: &[PathBuf], before: Option<OsString>) -> Option<OsString> {
    let before = before.filter(|before| !before.is_empty());
    let before = before.iter().flat_map(std::env::split_paths);
    let all: Vec<PathBuf> = folders.iter().cloned().chain(before).collect();
    // A folder with a colon in its name cannot be in such a list.
    (!folders.is_empty()).then(|| std::env::join_paths(all).ok()).flatten()
}

/// Returns the folders in an environment's site-packages where torch's CUDA packages keep cuBLASLt:
/// since CUDA 13 one for all libraries, before that one for each.
pub fn cublas_folders(prefix: &Path, python: (u32, u32, u32)) -> Vec<PathBuf> {
    let packages = if cfg!(windows) {
        prefix.join("Lib/site-packages")
    } else {
        prefix.join(format!("lib/python{}.{}/site-packages", python.0, python.1))
    };
    let places = ["nvidia/cu13/lib", "nvidia/cublas/lib", "torch/lib"];
    places.iter().map(|place| packages.join(place)).filter(|folder| folder.is_dir()).collect()
}

/// Measures a GPU in this process, in about ten seconds. Creates a CUDA context and takes at most a
/// quarter of the free device memory. Nothing else should run on the device meanwhile.
///
/// # Errors
/// If there is no driver, or it returns an error.
pub fn measure(index: usize) -> Result<Ceilings, CeilingsError> {
    // SAFETY: loading the driver's library runs its initialisers, as any CUDA program does.
    if !unsafe { sys::is_culib_present() } {
        return Err(CeilingsError::NoDriver);
    }
    catch_unwind(|| measure_here(index))
        .unwrap_or_else(|panic| Err(CeilingsError::Unexpected(text_of(panic.as_ref()))))
}

/// Returns the message of a binding's panic, which names the missing function.
fn text_of(panic: &(dyn std::any::Any + Send)) -> String {
    panic
        .downcast_ref::<String>()
        .cloned()
        .or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
        .unwrap_or_else(|| "it panicked".to_owned())
}

const WARM_UPS: u32 = 3;
const SAMPLES: u32 = 15;
/// Launches per sample. Fewer than the driver's queue holds, otherwise this would measure device
/// time.
const LAUNCHES: u32 = 500;

fn measure_here(index: usize) -> Result<Ceilings, CeilingsError> {
    let context = CudaContext::new(index)?;
    let stream = context.default_stream();
    let (free, _) = context.mem_get_info()?;
    let l2 = context.attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)?;
    let bytes = copy_bytes(free, usize::try_from(l2).unwrap_or(0));
    let bench = Bench { context: &context, stream: &stream };
    let (copy_bandwidth, host_to_device, device_to_host) = bench.copies(bytes)?;
    let mut notes = Vec::new();
    let launch_seconds = match bench.launches() {
        Ok(seconds) => Some(seconds),
        Err(error) => {
            notes.push(format!("launch latency was not measured: {error}"));
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
}

impl Bench<'_> {
    fn copies(
        &self,
        bytes: usize,
    ) -> Result<(RateStatistics, RateStatistics, RateStatistics), CeilingsError> {
        let source = self.random_bytes(bytes)?;
        let mut target = self.stream.alloc_zeros::<u8>(bytes)?;
        let within = self.rate(2.0 * bytes as f64, || {
            self.stream.memcpy_dtod(&source, &mut target).map_err(Into::into)
        })?;
        let host_bytes = bytes.min(PINNED_BYTES);
        // SAFETY: every byte is written before anything but a copy reads the memory.
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

    fn launches(&self) -> Result<RateStatistics, CeilingsError> {
        let (major, minor) = self.context.compute_capability()?;
        let module = self.context.load_module(Ptx::from_src(empty_kernel(major, minor)))?;
        let kernel = module.load_function("nothing")?;
        let shape =
            LaunchConfig { grid_dim: (1, 1, 1), block_dim: (32, 1, 1), shared_mem_bytes: 0 };
        let mut samples = Vec::new();
        for round in 0..WARM_UPS + SAMPLES {
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
    ) -> Result<Vec<(Precision, RateStatistics)>, CeilingsError> {
        // SAFETY: as for the driver's library.
        if !unsafe { cublaslt::sys::is_culib_present() } {
            notes.push(
                "GEMM rates were not measured: cuBLASLt was not found in torch's packages \
                or on the library path"
                    .to_owned(),
            );
            return Ok(Vec::new());
        }
        let capability = self.context.compute_capability()?;
        let mut rates = Vec::new();
        for precision in Precision::ALL {
            if !precision.is_supported_by(capability) {
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

    /// Measures `amount` per second of device time, after warming up.
    fn rate(
        &self,
        amount: f64,
        mut work: impl FnMut() -> Result<(), CeilingsError>,
    ) -> Result<RateStatistics, CeilingsError> {
        let mut samples = Vec::new();
        for round in 0..WARM_UPS + SAMPLES {
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

    /// Device memory filled with copies of a block, so only one block has to be generated on the
    /// host.
    fn filled(&self, bytes: usize, block: &[u8]) -> Result<CudaSlice<u8>, CeilingsError> {
        let mut memory = self.stream.alloc_zeros::<u8>(bytes)?;
        let mut done = 0;
        while done < bytes && !block.is_empty() {
            let block = block.get(..bytes - done).unwrap_or(block);
            let mut part = memory.slice_mut(done..done + block.len());
            self.stream.memcpy_htod(block, &mut part)?;
            done += block.len();
        }
        self.stream.synchronize()?;
        Ok(memory)
    }
}

fn measured(samples: &[f64]) -> Result<RateStatistics, CeilingsError> {
    RateStatistics::of(samples)
        .ok_or_else(|| CeilingsError::Unexpected("its clock did not advance".to_owned()))
}

const PINNED_BYTES: usize = 256 << 20;
const BLOCK_BYTES: usize = 64 << 20;

/// Size of a copy: at most a gigabyte and an eighth of the free memory (there are two such blocks),
/// and far larger than the L2 cache if memory allows.
fn copy_bytes(free: usize, l2: usize) -> usize {
    let wanted = (l2.saturating_mul(16)).clamp(256 << 20, 1 << 30);
    wanted.min(free / 8).max(1 << 20)
}

/// Side length of a square matrix multiplication: three matrices fit in a quarter of the free
/// memory, at most 8192, which saturates every tensor core.
fn matmul_size(free: usize, element_bytes: usize) -> usize {
    let mut size = 8192;
    while size > 256 && 3 * size * size * element_bytes > free / 4 {
        size /= 2;
    }
    size
}

/// PTX for the oldest architecture that current drivers accept, and no newer than the device's. The
/// driver compiles it for the device.
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

/// SplitMix64 by Steele, Lea and Flood (OOPSLA 2014). Always the same numbers, so measurements are
/// comparable.
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

    /// Returns a number from -1 to 1.
    pub(crate) fn next_f32(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }
}

#[cfg(test)]
mod tests;
