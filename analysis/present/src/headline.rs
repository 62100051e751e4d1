//! The headline: throughput, time and peak memory of one iteration, on one line.
//!
//! What was estimated has a `~`, and beside it the change against what it was estimated from:
//! `~318 samples/s, +4% · ~98 ms · peak ~3.2 / 23.7 GB, +6%`. A number that an edit leaves as it was
//! stays as it was written.

use super::iteration_times;
use ridgeline_base::units;
use ridgeline_base::units::difference;
use ridgeline_profile::{Before, Estimate, Phase, Profile, Provenance};

/// Changes below this share are not told: the estimate knows no better, and they would be noise.
const LEAST_CHANGE: f64 = 0.005;

/// `312 samples/s · 102 ms · peak 3.1 / 23.7 GB`.
pub fn headline(profile: &Profile, provenance: Provenance) -> String {
    let mut parts = Vec::new();
    let iteration = &profile.iteration;
    let changes = Changes::of(profile, provenance);
    if let Some(rate) = iteration.samples_per_second() {
        let mark = if iteration.batch_guessed_from.is_some() { "~" } else { "" };
        let text = format!("{mark}{} {}", units::significant(rate), iteration.rate_unit());
        parts.push(changes.tell(text, rate, Before::samples_per_second));
    } else if iteration.found_by == "module" && iteration.time_ns > 0.0 {
        // Nothing tells how much a forward pass takes in.
        let rate = 1e9 / iteration.mean_ns();
        let of = |before: &Before| Some(1e9 / before.time_ns);
        let text = format!("{} iterations/s", units::significant(rate));
        parts.push(changes.mark(text, rate, of));
    }
    if iteration.time_ns > 0.0 {
        let change = |before: &Before| Some(before.time_ns);
        let text = iteration_times::time(iteration);
        // Beside the throughput's change, the time's says the same again.
        let told = changes.tell(text.clone(), iteration.time_ns, change);
        let same_batch = changes.before.is_none_or(|it| it.batch_size == iteration.batch_size);
        let is_known = iteration.samples_per_second().is_some() && same_batch;
        parts.push(if is_known { changes.mark(text, iteration.time_ns, change) } else { told });
    }
    if profile.memory.peak_bytes > 0 {
        let bytes = profile.memory.peak_bytes as f64;
        let told = changes.tell(peak(profile), bytes, |before| Some(before.peak_bytes as f64));
        parts.push(format!("peak {told}"));
    }
    let target = profile.estimate.as_ref().and_then(|estimate| estimate.target.as_deref());
    if let Some(target) = target.filter(|_| !parts.is_empty()) {
        parts.push(format!("on {target}"));
    }
    let text = parts.join(" · ");
    if provenance == Provenance::Stale { told(text, provenance) } else { text }
}

/// The headline within `limit` characters, its end included: as much of it as fits, the time at the
/// least.
pub(super) fn short_headline(
    profile: &Profile,
    provenance: Provenance,
    limit: usize,
    duration: impl Fn(f64) -> String,
) -> String {
    let iteration = &profile.iteration;
    let changes = Changes::of(profile, provenance);
    let time_of = |before: &Before| Some(before.time_ns);
    let average = if iteration.slow.is_some() { "avg " } else { "" };
    let time = format!("{average}{}", duration(iteration.mean_ns()));
    let time = changes.mark(time, iteration.time_ns, time_of);
    if provenance == Provenance::Stale {
        return told(time, provenance);
    }
    let Some(rate) = iteration.samples_per_second() else { return time };
    let text = format!("{}/s", units::significant(rate));
    let told = changes.tell(text.clone(), rate, Before::samples_per_second);
    let marked = changes.mark(text, rate, Before::samples_per_second);
    [format!("{time} · {told}"), told, format!("{time} · {marked}")]
        .into_iter()
        .find(|text| text.chars().count() < limit)
        .unwrap_or(time)
}

/// `3.1 / 23.7 GB`; without the capacity where that is not known.
pub(super) fn peak(profile: &Profile) -> String {
    let peak = units::bytes(profile.memory.peak_bytes as f64);
    let Some(capacity) = profile.memory.capacity_bytes else { return peak };
    let capacity = units::bytes(capacity as f64);
    match (peak.split_once(' '), capacity.split_once(' ')) {
        (Some((value, unit)), Some((_, of))) if unit == of => format!("{value} / {capacity}"),
        _ => format!("{peak} / {capacity}"),
    }
}

/// When the peak is: `, in backward`; empty where that is not known.
pub(super) fn moment_of_peak(profile: &Profile) -> String {
    let phase = profile.memory.peak_phase.filter(|phase| *phase != Phase::Other);
    phase.map_or_else(String::new, |phase| format!(", in {}", phase.name()))
}

/// `+4%`, `−12%`; nothing where nothing changed, or nobody knows.
fn change(before: f64, now: f64) -> Option<String> {
    let share = now / before - 1.0;
    let is_told = share.is_finite() && share.abs() >= LEAST_CHANGE;
    is_told.then(|| difference(now / before))
}

/// What is estimated of a headline.
struct Changes<'a> {
    estimate: Option<&'a Estimate>,
    before: Option<&'a Before>,
}

impl<'a> Changes<'a> {
    fn of(profile: &'a Profile, provenance: Provenance) -> Changes<'a> {
        // What is out of date is neither an estimate nor a change of today's text.
        let estimate = profile.estimate.as_ref().filter(|_| provenance != Provenance::Stale);
        Changes { estimate, before: estimate.and_then(|estimate| estimate.before.as_ref()) }
    }

    /// The number with a `~`, where it is estimated.
    fn mark(&self, text: String, now: f64, of: impl Fn(&Before) -> Option<f64>) -> String {
        let before = self.before.and_then(of);
        // On another device than the program ran on, all is estimated, whatever was before.
        let elsewhere = self.estimate.is_some_and(|estimate| estimate.target.is_some());
        let same = !elsewhere && before.is_some_and(|before| (now / before - 1.0).abs() < 1e-9);
        if self.estimate.is_none() || same || text.starts_with('~') {
            text
        } else {
            format!("~{text}")
        }
    }

    /// The same with its change: `~318 samples/s, +4%`.
    fn tell(&self, text: String, now: f64, of: impl Fn(&Before) -> Option<f64>) -> String {
        let change = self.before.and_then(&of).and_then(|before| change(before, now));
        let text = self.mark(text, now, of);
        change.map_or(text.clone(), |change| format!("{text}, {change}"))
    }
}

/// Says where a number comes from: `~48 ms`, `was 48 ms`.
pub(super) fn told(text: String, provenance: Provenance) -> String {
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

    fn before() -> Before {
        Before { time_ns: 102e6, batch_size: Some(32), peak_bytes: 3_020_000_000 }
    }

    #[track_caller]
    fn check(estimate: Option<Estimate>, expected: &str, short: &str) {
        let profile = profile(estimate);
        assert_eq!(headline(&profile, Provenance::Estimated), expected);
        let told = short_headline(&profile, Provenance::Estimated, 20, units::duration);
        assert_eq!(told, short);
    }

    #[test]
    fn an_estimate_tells_the_change() {
        check(None, "327 samples/s · 98 ms · peak 3.2 / 23.7 GB", "98 ms · 327/s");
        check(
            Some(Estimate { target: None, before: Some(before()) }),
            "~327 samples/s, +4% · ~98 ms · peak ~3.2 / 23.7 GB, +6%",
            "~327/s, +4%",
        );
    }

    #[test]
    fn a_program_that_trains_nothing_has_its_own_unit() {
        let mut generates = profile(None);
        generates.iteration.found_by = "module".to_owned();
        generates.iteration.counts_tokens = true;
        let told = |profile: &Profile| headline(profile, Provenance::Measured);
        assert_eq!(told(&generates), "327 tokens/s · 98 ms · peak 3.2 / 23.7 GB");
        generates.iteration.batch_size = None;
        assert_eq!(told(&generates), "10.2 iterations/s · 98 ms · peak 3.2 / 23.7 GB");
    }

    #[test]
    fn another_batch_changes_time_and_throughput_apart() {
        let before = Before { batch_size: Some(16), time_ns: 50e6, ..before() };
        check(
            Some(Estimate { target: None, before: Some(before) }),
            "~327 samples/s, +2% · ~98 ms, +96% · peak ~3.2 / 23.7 GB, +6%",
            "~327/s, +2%",
        );
    }

    #[test]
    fn what_stays_as_it_was_is_no_noise() {
        let same = Before { time_ns: 98e6, batch_size: Some(32), peak_bytes: 3_020_000_000 };
        check(
            Some(Estimate { target: None, before: Some(same) }),
            "327 samples/s · 98 ms · peak ~3.2 / 23.7 GB, +6%",
            "98 ms · 327/s",
        );
    }

    #[test]
    fn a_device_that_is_not_there_is_named() {
        let target = Some("H100-SXM5-80GB".to_owned());
        check(
            Some(Estimate { target, before: None }),
            "~327 samples/s · ~98 ms · peak ~3.2 / 23.7 GB · on H100-SXM5-80GB",
            "~98 ms · ~327/s",
        );
    }

    #[test]
    fn what_is_out_of_date_tells_no_change() {
        let profile = profile(Some(Estimate { target: None, before: Some(before()) }));
        let told = headline(&profile, Provenance::Stale);
        assert_eq!(told, "was 327 samples/s · 98 ms · peak 3.2 / 23.7 GB");
    }
}
