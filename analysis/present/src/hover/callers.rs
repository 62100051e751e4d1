//! From where a line is reached: its callers, and the layers that run it.

use ridgeline_base::units;
use ridgeline_profile::{LineCost, Profile};

use crate::page::{Page, Piece, name, strong, text};

/// The maximum number of callers, and of layers, listed.
const MAX_LISTED: usize = 3;

/// Places with their times, in nanoseconds.
type Times = Vec<(Place, f64)>;

/// A line or a layer.
#[derive(Clone, Debug, PartialEq)]
struct Place {
    name: String,
    /// The URI of a line, if the editor follows links.
    link: Option<String>,
}

/// Writes the most expensive callers and layers of a statement, if it has several. `files` are the
/// URIs of the profile's files, if the editor follows links.
pub(super) fn write<'a>(
    page: &mut Page,
    profile: &Profile,
    files: &[Option<String>],
    lines: impl Iterator<Item = &'a LineCost>,
) {
    let (mut callers, mut layers) = (Times::new(), Times::new());
    for line in lines {
        for caller in &line.callers {
            let index = caller.file.0 as usize;
            let Some(file) = profile.files.get(index) else { continue };
            let uri = files.get(index).and_then(Option::as_ref);
            let link = uri.map(|uri| format!("{uri}#L{}", caller.line));
            let name = format!("{}:{}", file.path, caller.line);
            add(&mut callers, Place { name, link }, caller.time_ns);
        }
        for instance in &line.instances {
            let Some(module) = profile.modules.get(instance.module.0 as usize) else { continue };
            let name = if module.path.is_empty() { "the model" } else { &module.path };
            add(&mut layers, Place { name: name.to_owned(), link: None }, instance.time_ns);
        }
    }
    list(page, "Called from:", callers);
    list(page, "By layer:", layers);
}

/// Adds a time to that of its place.
fn add(times: &mut Times, place: Place, time_ns: f64) {
    match times.iter_mut().find(|(known, _)| *known == place) {
        Some((_, sum)) => *sum += time_ns,
        None => times.push((place, time_ns)),
    }
}

fn list(page: &mut Page, title: &str, mut times: Times) {
    if times.len() < 2 {
        return;
    }
    times.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.name.cmp(&b.0.name)));
    let mut pieces = vec![strong(title)];
    for (at, (place, time_ns)) in times.iter().take(MAX_LISTED).enumerate() {
        pieces.push(text(if at > 0 { " · " } else { " " }));
        pieces.push(match &place.link {
            Some(link) => Piece::Link(place.name.clone(), link.clone()),
            None => name(&place.name),
        });
        pieces.push(text(format!(" {}", units::duration(*time_ns))));
    }
    if times.len() > MAX_LISTED {
        pieces.push(text(format!(" · {} more", times.len() - MAX_LISTED)));
    }
    page.line(&pieces);
}
