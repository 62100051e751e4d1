//! Whether the machine is free for work that nobody waits for: it is on mains power, and its processors
//! and its GPU are not busy with something of the person's.

use std::fs;
use std::path::Path;
use std::time::Duration;

use ridgeline_gpu::devices;
use tokio::time::sleep;

/// The share of the processors' time that others may take; beyond it somebody trains, or compiles.
const MOST_BUSY: f64 = 0.5;
/// The same of the GPU, in percent. Nothing of ours is on it when it is asked.
const MOST_BUSY_GPU: u32 = 20;
/// How long the processors are looked at.
const INTERVAL: Duration = Duration::from_millis(500);

/// Why nothing is to be done in the background now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Needed {
    /// The battery is being used up.
    Battery,
    /// Others compute.
    Processors,
    /// Others compute on the GPU.
    Gpu,
}

impl Needed {
    /// What a person reads: `waiting: …`.
    pub(crate) fn why(self) -> &'static str {
        match self {
            Needed::Battery => "the machine is on battery",
            Needed::Processors => "the machine is busy",
            Needed::Gpu => "the GPU is busy",
        }
    }
}

/// What the machine is needed for, and the GPU of this name where that is to be used. Where the system
/// does not say, it is free. Looking takes half a second.
pub(crate) async fn needed(gpu: Option<&str>) -> Option<Needed> {
    if on_battery(Path::new("/sys/class/power_supply")) {
        return Some(Needed::Battery);
    }
    if let Some(name) = gpu {
        // A driver that hangs is not waited for.
        let found = devices::query_within(Duration::from_secs(2)).await;
        let mut found = found.gpus.into_iter().filter(|gpu| gpu.name == name);
        if found.any(|gpu| gpu.busy_percent.is_some_and(|percent| percent > MOST_BUSY_GPU)) {
            return Some(Needed::Gpu);
        }
    }
    let before = Times::now()?;
    sleep(INTERVAL).await;
    let share = Times::now()?.busy_since(before)?;
    (share > MOST_BUSY).then_some(Needed::Processors)
}

/// A battery is being used up, and no mains adapter is in. The batteries of a mouse or a headset do not
/// count.
fn on_battery(supplies: &Path) -> bool {
    let read = |folder: &Path, name: &str| {
        fs::read_to_string(folder.join(name)).map(|text| text.trim().to_owned()).unwrap_or_default()
    };
    let folders = fs::read_dir(supplies).into_iter().flatten().flatten();
    let folders: Vec<_> = folders.map(|entry| entry.path()).collect();
    let is_powered =
        folders.iter().any(|one| read(one, "type") != "Battery" && read(one, "online") == "1");
    let is_used_up = folders.iter().any(|one| {
        read(one, "type") == "Battery"
            && read(one, "scope") != "Device"
            && read(one, "status") == "Discharging"
    });
    is_used_up && !is_powered
}

/// What the processors did since the system started.
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
        // user, nice, system, idle, iowait, irq, softirq, steal; what follows is in the first two.
        let times = times.first_chunk::<8>()?;
        let [user, _, system, _, _, irq, softirq, steal] = *times;
        // What runs at low priority gives way by itself.
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
            fs::create_dir_all(&at).expect("made");
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
        // 60 of 200; what is nice does not count.
        assert_eq!(after.busy_since(before), Some(0.3));
        assert_eq!(before.busy_since(before), None);
        assert_eq!(before.busy_since(after), None);
        for broken in ["", "cpu", "cpu  1 2 3", "intr 1 2 3 4 5 6 7 8"] {
            assert_eq!(Times::parse(broken), None, "{broken:?}");
        }
    }
}
