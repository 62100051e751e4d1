//! Whether the machine is free for background work: it is on mains power, and other programs do not
//! keep its CPU or GPU busy.

use std::fs;
use std::path::Path;
use std::time::Duration;

use ridgeline_gpu::devices;
use tokio::time::sleep;

/// The share of CPU time that other programs may use. More means that the user is training or
/// compiling.
const BUSY_LIMIT: f64 = 0.5;
/// The maximum utilization of the GPU, in percent. None of our work runs on it when it is queried.
const BUSY_GPU_PERCENT_LIMIT: u32 = 20;
/// The time over which CPU use is measured.
const INTERVAL: Duration = Duration::from_millis(500);

/// Why background work should not run now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BusyReason {
    /// The machine runs on battery.
    Battery,
    /// Other programs keep the CPU busy.
    Cpu,
    /// Other programs keep the GPU busy.
    Gpu,
}

impl BusyReason {
    /// Returns the reason, as shown to the user: `waiting: …`.
    pub(crate) fn message(self) -> &'static str {
        match self {
            BusyReason::Battery => "the machine is on battery",
            BusyReason::Cpu => "the machine is busy",
            BusyReason::Gpu => "the GPU is busy",
        }
    }
}

/// Checks whether the machine, and the GPU of this name if one is to be used, are needed for
/// something else. If the system does not report it, they count as free. Takes half a second.
pub(crate) async fn busy_reason(gpu: Option<&str>) -> Option<BusyReason> {
    if on_battery(Path::new("/sys/class/power_supply")) {
        return Some(BusyReason::Battery);
    }
    if let Some(name) = gpu {
        // With a timeout, because a driver may hang.
        let found = devices::query_within(Duration::from_secs(2)).await;
        let mut found = found.gpus.into_iter().filter(|gpu| gpu.name == name);
        if found.any(|gpu| gpu.busy_percent.is_some_and(|percent| percent > BUSY_GPU_PERCENT_LIMIT))
        {
            return Some(BusyReason::Gpu);
        }
    }
    let before = Times::now()?;
    sleep(INTERVAL).await;
    let share = Times::now()?.busy_since(before)?;
    (share > BUSY_LIMIT).then_some(BusyReason::Cpu)
}

/// Returns whether a battery is discharging and no mains adapter is connected. Batteries of a mouse
/// or headset do not count.
fn on_battery(supplies: &Path) -> bool {
    let read = |folder: &Path, name: &str| {
        fs::read_to_string(folder.join(name)).map(|text| text.trim().to_owned()).unwrap_or_default()
    };
    let folders = fs::read_dir(supplies).into_iter().flatten().flatten();
    let folders: Vec<_> = folders.map(|entry| entry.path()).collect();
    let is_powered =
        folders.iter().any(|one| read(one, "type") != "Battery" && read(one, "online") == "1");
    let is_discharging = folders.iter().any(|one| {
        read(one, "type") == "Battery"
            && read(one, "scope") != "Device"
            && read(one, "status") == "Discharging"
    });
    is_discharging && !is_powered
}

/// CPU time since the system started, in clock ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Times {
    busy: u64,
    all: u64,
}

impl Times {
    fn now() -> Option<Times> {
        Times::parse(&fs::read_to_string("/proc/stat").ok()?)
    }

    fn parse(stat: &str) -> Option<Times> {
        let line = stat.lines().next()?.strip_prefix("cpu ")?;
        let times: Vec<u64> =
            line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        // user, nice, system, idle, iowait, irq, softirq, steal. The rest is included in the first
        // two.
        let times = times.first_chunk::<8>()?;
        let [user, _, system, _, _, irq, softirq, steal] = *times;
        // Low-priority processes give way by themselves.
        let busy = user + system + irq + softirq + steal;
        Some(Times { busy, all: times.iter().sum() })
    }

    fn busy_since(self, before: Times) -> Option<f64> {
        let all = self.all.checked_sub(before.all).filter(|all| *all > 0)?;
        Some(self.busy.saturating_sub(before.busy) as f64 / all as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_laptop_without_its_adapter_is_on_battery() {
        let folder = tempfile::tempdir().expect("a folder");
        let write = |supply: &str, files: &[(&str, &str)]| {
            let at = folder.path().join(supply);
            fs::create_dir_all(&at).expect("created");
            for (name, text) in files {
                fs::write(at.join(name), text).expect("written");
            }
        };
        assert!(!on_battery(folder.path()));
        assert!(!on_battery(&folder.path().join("none")));
        let mouse = [("type", "Battery\n"), ("scope", "Device\n"), ("status", "Discharging\n")];
        write("hidpp_battery_0", &mouse);
        assert!(!on_battery(folder.path()));
        write("BAT0", &[("type", "Battery\n"), ("status", "Discharging\n")]);
        assert!(on_battery(folder.path()));
        write("AC", &[("type", "Mains\n"), ("online", "0\n")]);
        assert!(on_battery(folder.path()));
        write("AC", &[("online", "1\n")]);
        assert!(!on_battery(folder.path()));
    }

    #[test]
    fn the_share_of_busy_time() {
        let before = Times::parse("cpu  100 50 20 800 10 1 2 3 0 0\ncpu0 1 2 3\n").expect("times");
        let after = Times::parse("cpu  160 90 20 900 10 1 2 3 0 0\n").expect("times");
        // 60 of 200. Low-priority time does not count.
        assert_eq!(after.busy_since(before), Some(0.3));
        assert_eq!(before.busy_since(before), None);
        assert_eq!(before.busy_since(after), None);
        for broken in ["", "cpu", "cpu  1 2 3", "intr 1 2 3 4 5 6 7 8"] {
            assert_eq!(Times::parse(broken), None, "{broken:?}");
        }
    }
}
