//! From where a line is reached: its callers, and the layers that run it.

use ridgeline_base::units;
use ridgeline_profile::{LineCost, Profile};

use crate::page::{Page, name, strong, text};

/// The maximum number of callers, and of layers, listed.
const MAX_LISTED: usize = 3;

/// Places with their times, in nanoseconds.
type Times = Vec<(String, f64)>;

/// Writes the most expensive callers and layers of a statement, if it has several.
pub(super) fn write<'a>(
    page: &mut Page,
    profile: &Profile,
    lines: impl Iterator<Item = &'a LineCost>,
) {
    let (mut callers, mut layers) = (Times::new(), Times::new());
    for line in lines {
        for caller in &line.callers {
            let file = profile.files.get(caller.file.0 as usize);
            let place = file.map(|file| format!("{}:{}", file.path, caller.line));
            add(&mut callers, place, caller.time_ns);
        }
        for instance in &line.instances {
            let module = profile.modules.get(instance.module.0 as usize);
            let path = module.map(|module| match module.path.as_str() {
                "" => "the model".to_owned(),
                path => path.to_owned(),
            });
            add(&mut layers, path, instance.time_ns);
        }
    }
    list(page, "Called from:", callers);
    list(page, "By layer:", layers);
}

/// Adds a time to that of its place.
fn add(times: &mut Times, place: Option<String>, time_ns: f64) {
    let Some(place) = place else { return };
    match times.iter_mut().find(|(known, _)| *known == place) {
        Some((_, sum)) => *sum += time_ns,
        None => times.push((place, time_ns)),
    }
}

fn list(page: &mut Page, title: &str, mut times: Times) {
    if times.len() < 2 {
        return;
    }
    times.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    let mut pieces = vec![strong(title)];
    for (at, (place, time_ns)) in times.iter().take(MAX_LISTED).enumerate() {
        pieces.push(text(if at > 0 { " · " } else { " " }));
        pieces.push(name(place));
        pieces.push(text(format!(" {}", units::duration(*time_ns))));
    }
    if times.len() > MAX_LISTED {
        pieces.push(text(format!(" · {} more", times.len() - MAX_LISTED)));
    }
    page.line(&pieces);
}
