//! The headline: throughput, time and peak memory of one iteration, on one line.
//!
//! Estimates have a `~` and the change from the measurement they are based on: `~318 samples/s, +4%
//! · ~98 ms · peak ~3.2 / 23.7 GB, +6%`. Numbers that an edit does not change are shown without
//! either.

use super::iteration_times;
use ridgeline_base::units;
use ridgeline_base::units::difference;
use ridgeline_profile::{Baseline, Estimate, Phase, Profile, Provenance};

/// Changes below this fraction are not shown: they are below the accuracy of the estimate.
const MIN_CHANGE: f64 = 0.005;

/// `312 samples/s · 102 ms · peak 3.1 / 23.7 GB`.
pub fn headline(profile: &Profile, provenance: Provenance) -> String {
    let mut parts = Vec::new();
    let iteration = &profile.iteration;
    let changes = Changes::of(profile, provenance);
    if let Some(rate) = iteration.samples_per_second() {
        let mark = if iteration.batch_guessed_from.is_some() { "~" } else { "" };
        let text = format!("{mark}{} {}", units::significant(rate), iteration.rate_unit());
        parts.push(changes.mark_with_change(text, rate, Baseline::samples_per_second));
    } else if iteration.found_by == "module" && iteration.time_ns > 0.0 {
        // The number of samples of a forward pass is unknown.
        let rate = 1e9 / iteration.mean_ns();
        let rate_before = |before: &Baseline| Some(1e9 / before.time_ns);
        let text = format!("{} iterations/s", units::significant(rate));
        parts.push(changes.mark(text, rate, rate_before));
    }
    if iteration.time_ns > 0.0 {
        let time_before = |before: &Baseline| Some(before.time_ns);
        let text = iteration_times::time(iteration);
        // The change in throughput already implies the change in time.
        let with_change = changes.mark_with_change(text.clone(), iteration.time_ns, time_before);
        let same_batch = changes.before.is_none_or(|it| it.batch_size == iteration.batch_size);
        let is_implied = iteration.samples_per_second().is_some() && same_batch;
        parts.push(if is_implied {
            changes.mark(text, iteration.time_ns, time_before)
        } else {
            with_change
        });
    }
    if profile.memory.peak_bytes > 0 {
        let bytes = profile.memory.peak_bytes as f64;
        let with_change =
            changes.mark_with_change(peak(profile), bytes, |before| Some(before.peak_bytes as f64));
        parts.push(format!("peak {with_change}"));
    }
    let target = profile.estimate.as_ref().and_then(|estimate| estimate.target.as_deref());
    if let Some(target) = target.filter(|_| !parts.is_empty()) {
        parts.push(format!("on {target}"));
    }
    let text = parts.join(" · ");
    if provenance == Provenance::Stale { with_provenance(text, provenance) } else { text }
}

/// The headline in fewer than `limit` characters: as much of it as fits, and at least the time.
pub(super) fn short_headline(
    profile: &Profile,
    provenance: Provenance,
    limit: usize,
    duration: impl Fn(f64) -> String,
) -> String {
    let iteration = &profile.iteration;
    let changes = Changes::of(profile, provenance);
    let time_of = |before: &Baseline| Some(before.time_ns);
    let average = if iteration.slow.is_some() { "avg " } else { "" };
    let time = format!("{average}{}", duration(iteration.mean_ns()));
    let time = changes.mark(time, iteration.time_ns, time_of);
    if provenance == Provenance::Stale {
        return with_provenance(time, provenance);
    }
    let Some(rate) = iteration.samples_per_second() else { return time };
    let text = format!("{}/s", units::significant(rate));
    let with_change = changes.mark_with_change(text.clone(), rate, Baseline::samples_per_second);
    let marked = changes.mark(text, rate, Baseline::samples_per_second);
    [format!("{time} · {with_change}"), with_change, format!("{time} · {marked}")]
        .into_iter()
        .find(|text| text.chars().count() < limit)
        .unwrap_or(time)
}

/// `3.1 / 23.7 GB`; without the capacity if it is unknown.
pub(super) fn peak(profile: &Profile) -> String {
    let peak = units::bytes(profile.memory.peak_bytes as f64);
    let Some(capacity) = profile.memory.capacity_bytes else { return peak };
    let capacity = units::bytes(capacity as f64);
    match (peak.split_once(' '), capacity.split_once(' ')) {
        (Some((value, unit)), Some((_, of))) if unit == of => format!("{value} / {capacity}"),
        _ => format!("{peak} / {capacity}"),
    }
}

/// The phase of the peak: `, in backward`; empty if unknown.
pub(super) fn moment_of_peak(profile: &Profile) -> String {
    let phase = profile.memory.peak_phase.filter(|phase| *phase != Phase::Other);
    phase.map_or_else(String::new, |phase| format!(", in {}", phase.name()))
}

/// `+4%`, `−12%`. `None` if the change is negligible or unknown.
fn change(before: f64, now: f64) -> Option<String> {
    let share = now / before - 1.0;
    let is_shown = share.is_finite() && share.abs() >= MIN_CHANGE;
    is_shown.then(|| difference(now / before))
}

/// The estimate behind a headline, and the measurement before it.
struct Changes<'a> {
    estimate: Option<&'a Estimate>,
    before: Option<&'a Baseline>,
}

impl<'a> Changes<'a> {
    fn of(profile: &'a Profile, provenance: Provenance) -> Changes<'a> {
        // Stale numbers do not describe the current text, so no change is shown.
        let estimate = profile.estimate.as_ref().filter(|_| provenance != Provenance::Stale);
        Changes { estimate, before: estimate.and_then(|estimate| estimate.before.as_ref()) }
    }

    /// Prefixes the number with `~` if it is estimated.
    fn mark(&self, text: String, now: f64, of: impl Fn(&Baseline) -> Option<f64>) -> String {
        let before = self.before.and_then(of);
        // For a device other than the measured one, every number is an estimate, even if unchanged.
        let other_device = self.estimate.is_some_and(|estimate| estimate.target.is_some());
        let same = !other_device && before.is_some_and(|before| (now / before - 1.0).abs() < 1e-9);
        if self.estimate.is_none() || same || text.starts_with('~') {
            text
        } else {
            format!("~{text}")
        }
    }

    /// Like [`Changes::mark`], with the change: `~318 samples/s, +4%`.
    fn mark_with_change(
        &self,
        text: String,
        now: f64,
        of: impl Fn(&Baseline) -> Option<f64>,
    ) -> String {
        let change = self.before.and_then(&of).and_then(|before| change(before, now));
        let text = self.mark(text, now, of);
        change.map_or(text.clone(), |change| format!("{text}, {change}"))
    }
}

/// Marks the origin of a number: `~48 ms`, `was 48 ms`.
pub(super) fn with_provenance(text: String, provenance: Provenance) -> String {
    match provenance {
        _ if text.is_empty() => text,
        Provenance::Measured => text,
        Provenance::Estimated => format!("~{text}"),
        Provenance::Stale => format!("was {text}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(estimate: Option<Estimate>) -> Profile {
        let mut profile = Profile { estimate, ..Profile::default() };
        profile.iteration.time_ns = 98e6;
        profile.iteration.batch_size = Some(32);
        profile.memory.peak_bytes = 3_200_000_000;
        profile.memory.capacity_bytes = Some(23_700_000_000);
        profile
    }

    fn before() -> Baseline {
        Baseline { time_ns: 102e6, batch_size: Some(32), peak_bytes: 3_020_000_000 }
    }

    #[track_caller]
    fn check(estimate: Option<Estimate>, expected: &str, short: &str) {
        let profile = profile(estimate);
        assert_eq!(headline(&profile, Provenance::Estimated), expected);
        let shown = short_headline(&profile, Provenance::Estimated, 20, units::duration);
        assert_eq!(shown, short);
    }

    #[test]
    fn an_estimate_shows_the_change() {
        check(None, "327 samples/s · 98 ms · peak 3.2 / 23.7 GB", "98 ms · 327/s");
        check(
            Some(Estimate { target: None, before: Some(before()) }),
            "~327 samples/s, +4% · ~98 ms · peak ~3.2 / 23.7 GB, +6%",
            "~327/s, +4%",
        );
    }

    #[test]
    fn a_program_that_does_not_train_has_its_own_unit() {
        let mut generates = profile(None);
        generates.iteration.found_by = "module".to_owned();
        generates.iteration.counts_tokens = true;
        let headline_of = |profile: &Profile| headline(profile, Provenance::Measured);
        assert_eq!(headline_of(&generates), "327 tokens/s · 98 ms · peak 3.2 / 23.7 GB");
        generates.iteration.batch_size = None;
        assert_eq!(headline_of(&generates), "10.2 iterations/s · 98 ms · peak 3.2 / 23.7 GB");
    }

    #[test]
    fn another_batch_size_shows_both_changes() {
        let before = Baseline { batch_size: Some(16), time_ns: 50e6, ..before() };
        check(
            Some(Estimate { target: None, before: Some(before) }),
            "~327 samples/s, +2% · ~98 ms, +96% · peak ~3.2 / 23.7 GB, +6%",
            "~327/s, +2%",
        );
    }

    #[test]
    fn unchanged_numbers_are_not_marked() {
        let same = Baseline { time_ns: 98e6, batch_size: Some(32), peak_bytes: 3_020_000_000 };
        check(
            Some(Estimate { target: None, before: Some(same) }),
            "327 samples/s · 98 ms · peak ~3.2 / 23.7 GB, +6%",
            "98 ms · 327/s",
        );
    }

    #[test]
    fn the_target_device_is_named() {
        let target = Some("H100-SXM5-80GB".to_owned());
        check(
            Some(Estimate { target, before: None }),
            "~327 samples/s · ~98 ms · peak ~3.2 / 23.7 GB · on H100-SXM5-80GB",
            "~98 ms · ~327/s",
        );
    }

    #[test]
    fn stale_numbers_show_no_change() {
        let profile = profile(Some(Estimate { target: None, before: Some(before()) }));
        let shown = headline(&profile, Provenance::Stale);
        assert_eq!(shown, "was 327 samples/s · 98 ms · peak 3.2 / 23.7 GB");
    }
}
