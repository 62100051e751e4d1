//! The GPUs of this machine, queried through the CUDA driver and NVML. Both are loaded at run time.
//! Either may be missing, broken or of another version without harm.
//!
//! No CUDA context is created: attributes need none, and a context costs hundreds of megabytes of
//! device memory.

use std::ffi::{CStr, c_char, c_int, c_uint};
use std::panic::catch_unwind;
use std::time::Duration;

use cudarc::driver::sys::{
    self,
    CUdevice_attribute::{self, *},
};
use nvml_wrapper::Nvml;

/// The GPUs of this machine and their drivers.
#[derive(Clone, Debug, PartialEq)]
pub struct Devices {
    pub driver: Driver,
    /// NVML's version of the kernel driver (`580.65.06`), or why it is unknown.
    pub nvml: Result<String, String>,
    /// The devices that the CUDA driver lists, in its order.
    pub gpus: Vec<Gpu>,
}

/// State of the CUDA driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Driver {
    /// `libcuda` is not installed.
    Absent,
    /// It works.
    Ready {
        /// The newest CUDA version that it supports, such as `(13, 0)`.
        cuda: (u32, u32),
    },
    /// It works, but sees no device (error 100).
    NoDevice,
    /// The versions of the library and the kernel module differ (error 803): reboot.
    Mismatch,
    /// It lacks a required function, so it is too old or not the real driver.
    Incomplete {
        /// The missing function.
        symbol: String,
    },
    /// Any other error.
    Failed {
        /// `CUresult`.
        code: u32,
    },
    /// It did not respond in time, or the query panicked.
    Unresponsive { reason: String },
}

/// A GPU: the properties of its model, and its current use.
#[derive(Clone, Debug, PartialEq)]
pub struct Gpu {
    /// The driver's index.
    pub index: u32,
    /// For example `NVIDIA H200`.
    pub name: String,
    /// Compute capability, such as `(9, 0)`.
    pub capability: Option<(u32, u32)>,
    /// Streaming multiprocessors.
    pub multiprocessors: Option<u32>,
    /// Memory in bytes.
    pub memory_bytes: Option<u64>,
    /// Memory bandwidth in bytes per second: clock times bus width, times two for double data rate.
    /// A peak computed from the driver's numbers, not a measurement.
    pub bandwidth: Option<f64>,
    /// L2 cache in bytes.
    pub l2_bytes: Option<u64>,
    /// The highest clock of the multiprocessors, in Hz.
    pub clock_hz: Option<u64>,
    /// Memory in use by all processes now, in bytes (NVML). For a MIG instance, the instance's.
    pub used_bytes: Option<u64>,
    /// The share of the last second in which any kernel ran, in percent (NVML).
    pub busy_percent: Option<u32>,
    /// Whether it is a MIG instance: a part of a GPU with its own memory and multiprocessors.
    pub is_mig_instance: bool,
    /// Whether the driver is the simulated one of `tests/gpu/simulated`.
    pub is_simulated: bool,
}

/// Queries the driver and NVML, for at most ten seconds. A driver that hangs blocks its thread for
/// ever, so query once and keep the result.
pub async fn query() -> Devices {
    query_within(TIMEOUT).await
}

/// Same as [`query`], with another timeout.
pub async fn query_within(timeout: Duration) -> Devices {
    let (sender, answer) = tokio::sync::oneshot::channel();
    let started = std::thread::Builder::new().name("device-query".into()).spawn(move || {
        let _ = sender.send(query_here());
    });
    if let Err(error) = started {
        return unresponsive(error.to_string());
    }
    match tokio::time::timeout(timeout, answer).await {
        Ok(Ok(devices)) => devices,
        Ok(Err(_)) => unresponsive("the query ended without a result".to_owned()),
        Err(_) => unresponsive(format!("no answer within {} seconds", timeout.as_secs_f32())),
    }
}

const TIMEOUT: Duration = Duration::from_secs(10);

fn unresponsive(reason: String) -> Devices {
    Devices {
        driver: Driver::Unresponsive { reason: reason.clone() },
        nvml: Err(reason),
        gpus: Vec::new(),
    }
}

fn query_here() -> Devices {
    // Missing functions are checked first. This is for what could not be foreseen, because a panic
    // must not end a session.
    let (driver, found) = catch_unwind(query_driver).unwrap_or_else(|_| {
        let reason = "the query of the CUDA driver panicked".to_owned();
        (Driver::Unresponsive { reason }, Vec::new())
    });
    let nvml = catch_unwind(|| query_nvml(&found))
        .unwrap_or_else(|_| Err("the NVML query panicked".to_owned()));
    let (nvml, states) = match nvml {
        Ok(facts) => (Ok(facts.driver_version), facts.states),
        Err(why) => (Err(why), Vec::new()),
    };
    let mut states = states.into_iter();
    let gpus = found.into_iter().map(|found| {
        let state = states.next().unwrap_or_default();
        let NvmlState { used_bytes, busy_percent, is_mig_instance } = state;
        Gpu { used_bytes, busy_percent, is_mig_instance, ..found.gpu }
    });
    Devices { driver, nvml, gpus: gpus.collect() }
}

type Code = u32;

/// The driver's functions that are used here. cudarc's own bindings panic if a function is missing,
/// and convert the result to a Rust enum, which is undefined behavior for an error code of a newer
/// driver.
struct Functions {
    init: unsafe extern "C" fn(c_uint) -> Code,
    driver_version: unsafe extern "C" fn(*mut c_int) -> Code,
    device_count: unsafe extern "C" fn(*mut c_int) -> Code,
    device: unsafe extern "C" fn(*mut c_int, c_int) -> Code,
    name: unsafe extern "C" fn(*mut c_char, c_int, c_int) -> Code,
    attribute: unsafe extern "C" fn(*mut c_int, c_int, c_int) -> Code,
    total_memory: unsafe extern "C" fn(*mut usize, c_int) -> Code,
    /// Drivers before CUDA 11.4 lack the first function, those before CUDA 9.2 both.
    uuid: Option<unsafe extern "C" fn(*mut Uuid, c_int) -> Code>,
    is_simulated: bool,
}

impl Functions {
    fn load() -> Result<Functions, Driver> {
        // SAFETY: loading the library runs its initializers, as in any CUDA program, and the types
        // above match CUDA's header `cuda.h`.
        unsafe {
            if !sys::is_culib_present() {
                return Err(Driver::Absent);
            }
            Ok(Functions {
                init: function("cuInit")?,
                driver_version: function("cuDriverGetVersion")?,
                device_count: function("cuDeviceGetCount")?,
                device: function("cuDeviceGet")?,
                name: function("cuDeviceGetName")?,
                attribute: function("cuDeviceGetAttribute")?,
                total_memory: function("cuDeviceTotalMem_v2")?,
                uuid: function("cuDeviceGetUuid_v2").or_else(|_| function("cuDeviceGetUuid")).ok(),
                // Only looked up, never called: no real driver has it.
                is_simulated: function::<*const ()>("simgpu_missing").is_ok(),
            })
        }
    }

    fn attribute(&self, device: c_int, attribute: CUdevice_attribute) -> Option<u64> {
        let mut value: c_int = 0;
        // SAFETY: `value` lives through the call.
        let code = unsafe { (self.attribute)(&raw mut value, attribute as c_int, device) };
        // Zero means that the driver does not know it, as with clocks since CUDA 13.
        (code == SUCCESS).then(|| u64::try_from(value).ok()).flatten().filter(|value| *value > 0)
    }

    fn name(&self, device: c_int) -> Option<String> {
        let mut name = [0u8; 256];
        // SAFETY: the driver writes at most the given length, with a NUL at the end.
        let code = unsafe { (self.name)(name.as_mut_ptr().cast(), 255, device) };
        let name = CStr::from_bytes_until_nul(&name).ok()?;
        (code == SUCCESS).then(|| name.to_string_lossy().into_owned())
    }

    fn total_memory(&self, device: c_int) -> Option<u64> {
        let mut bytes: usize = 0;
        // SAFETY: `bytes` lives through the call.
        let code = unsafe { (self.total_memory)(&raw mut bytes, device) };
        (code == SUCCESS).then_some(bytes as u64)
    }

    fn uuid(&self, device: c_int) -> Option<Uuid> {
        let mut uuid: Uuid = [0; 16];
        // SAFETY: `uuid` has the 16 bytes of a `CUuuid` and lives through the call.
        let code = unsafe { (self.uuid?)(&raw mut uuid, device) };
        (code == SUCCESS).then_some(uuid)
    }

    fn gpu(&self, index: c_int) -> Option<DriverGpu> {
        let mut device: c_int = 0;
        // SAFETY: `device` lives through the call.
        if unsafe { (self.device)(&raw mut device, index) } != SUCCESS {
            return None;
        }
        let query = |attribute| self.attribute(device, attribute);
        let number = |attribute| query(attribute).and_then(|value| u32::try_from(value).ok());
        // Version numbers may contain a zero, which elsewhere means "unknown".
        let capability = number(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR).map(|major| {
            (major, number(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR).unwrap_or(0))
        });
        let clock_khz = query(CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE);
        let bus_bits = query(CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH);
        let bandwidth =
            clock_khz.zip(bus_bits).map(|(khz, bits)| 2.0 * khz as f64 * 1e3 * bits as f64 / 8.0);
        let gpu = Gpu {
            index: u32::try_from(index).ok()?,
            name: self.name(device).unwrap_or_else(|| "unknown".to_owned()),
            capability,
            multiprocessors: number(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT),
            memory_bytes: self.total_memory(device),
            bandwidth,
            l2_bytes: query(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE),
            clock_hz: query(CU_DEVICE_ATTRIBUTE_CLOCK_RATE).map(|khz| khz.saturating_mul(1000)),
            used_bytes: None,
            busy_percent: None,
            is_mig_instance: false,
            is_simulated: self.is_simulated,
        };
        let bus = Bus {
            domain: number(CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID).unwrap_or(0),
            bus: number(CU_DEVICE_ATTRIBUTE_PCI_BUS_ID).unwrap_or(0),
            device: number(CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID).unwrap_or(0),
        };
        Some(DriverGpu { gpu, bus, uuid: self.uuid(device) })
    }
}

/// # Safety
/// `T` must be the function's type.
unsafe fn function<T: Copy>(name: &str) -> Result<T, Driver> {
    // SAFETY: the library is present (checked before), and is never unloaded.
    unsafe { sys::culib().get::<T>(name.as_bytes()) }
        .map(|found| *found)
        .map_err(|_| Driver::Incomplete { symbol: name.to_owned() })
}

const SUCCESS: Code = 0;
/// More than any machine has. A broken driver may return any number.
const MAX_GPUS: c_int = 64;

/// `CUuuid`. For a MIG instance, the instance's.
type Uuid = [u8; 16];

/// A GPU and its identifiers in NVML, because the driver and NVML number GPUs differently.
struct DriverGpu {
    gpu: Gpu,
    bus: Bus,
    uuid: Option<Uuid>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Bus {
    domain: u32,
    bus: u32,
    device: u32,
}

fn query_driver() -> (Driver, Vec<DriverGpu>) {
    match try_query_driver() {
        Ok((driver, gpus)) => (driver, gpus),
        Err(driver) => (driver, Vec::new()),
    }
}

fn try_query_driver() -> Result<(Driver, Vec<DriverGpu>), Driver> {
    let driver = Functions::load()?;
    let (mut version, mut count) = (0, 0);
    // SAFETY: `cuInit` is called first, as required, and the variables live through the calls.
    unsafe {
        succeeded((driver.init)(0))?;
        succeeded((driver.driver_version)(&raw mut version))?;
        succeeded((driver.device_count)(&raw mut count))?;
    }
    if count == 0 {
        return Err(Driver::NoDevice);
    }
    let gpus = (0..count.clamp(0, MAX_GPUS)).filter_map(|index| driver.gpu(index)).collect();
    let version = u32::try_from(version).unwrap_or(0);
    Ok((Driver::Ready { cuda: (version / 1000, version % 1000 / 10) }, gpus))
}

fn succeeded(code: Code) -> Result<(), Driver> {
    match code {
        SUCCESS => Ok(()),
        100 => Err(Driver::NoDevice),
        803 => Err(Driver::Mismatch),
        code => Err(Driver::Failed { code }),
    }
}

struct NvmlFacts {
    driver_version: String,
    /// One for each GPU that the driver listed, in its order.
    states: Vec<NvmlState>,
}

/// NVML's view of a GPU. The default if NVML does not know the GPU.
#[derive(Clone, Copy, Debug, Default)]
struct NvmlState {
    used_bytes: Option<u64>,
    busy_percent: Option<u32>,
    is_mig_instance: bool,
}

fn query_nvml(found: &[DriverGpu]) -> Result<NvmlFacts, String> {
    let nvml = Nvml::init().map_err(|error| error.to_string())?;
    let driver_version = nvml.sys_driver_version().map_err(|error| error.to_string())?;
    let states = found.iter().map(|gpu| nvml_state(&nvml, gpu).unwrap_or_default()).collect();
    Ok(NvmlFacts { driver_version, states })
}

fn nvml_state(nvml: &Nvml, found: &DriverGpu) -> Option<NvmlState> {
    let by_uuid = |prefix: &str| {
        let name = format!("{prefix}-{}", uuid_text(&found.uuid?));
        nvml.device_by_uuid(name).ok()
    };
    let (device, is_mig_instance) = match (by_uuid("GPU"), by_uuid("MIG")) {
        (Some(device), _) => (device, false),
        (None, Some(instance)) => (instance, true),
        (None, None) => (by_bus(nvml, found.bus)?, false),
    };
    let used_bytes = device.memory_info().ok().map(|memory| memory.used);
    // MIG instances have no utilization.
    let busy_percent = device.utilization_rates().ok().map(|rates| rates.gpu);
    Some(NvmlState { used_bytes, busy_percent, is_mig_instance })
}

/// Finds a GPU by its bus, for drivers without UUIDs. Ignores GPUs in MIG mode: an instance has the
/// bus of its GPU, but not its memory.
fn by_bus(nvml: &Nvml, bus: Bus) -> Option<nvml_wrapper::Device<'_>> {
    let count = nvml.device_count().unwrap_or(0).min(MAX_GPUS.unsigned_abs());
    let mut devices = (0..count).filter_map(|index| nvml.device_by_index(index).ok());
    let device = devices.find(|device| {
        let pci = device.pci_info().ok();
        pci.is_some_and(|pci| Bus { domain: pci.domain, bus: pci.bus, device: pci.device } == bus)
    })?;
    let in_mig_mode = device.mig_mode().is_ok_and(|mode| mode.current != 0);
    (!in_mig_mode).then_some(device)
}

/// Formats a UUID as NVML does: `3f2504e0-4f89-11d3-9a0c-0305e82c3301`.
fn uuid_text(uuid: &Uuid) -> String {
    let mut text = String::with_capacity(36);
    for (index, byte) in uuid.iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.push_str(&format!("{byte:02x}"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_is_written_as_nvml_does() {
        let uuid = *b"\x3f\x25\x04\xe0\x4f\x89\x11\xd3\x9a\x0c\x03\x05\xe8\x2c\x33\x01";
        assert_eq!(uuid_text(&uuid), "3f2504e0-4f89-11d3-9a0c-0305e82c3301");
    }
}
