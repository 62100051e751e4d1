//! Formats durations, sizes and rates for display.

/// Formats a duration in nanoseconds with at most three significant digits: `4.2 ms`, `830 µs`,
/// `1.3 s`.
pub fn duration(nanoseconds: f64) -> String {
    let (unit, one) = scale(nanoseconds);
    format!("{} {unit}", significant(nanoseconds / one))
}

/// Returns the display unit for a duration in nanoseconds, and the nanoseconds per unit.
pub fn scale(nanoseconds: f64) -> (&'static str, f64) {
    if nanoseconds < 999.5 {
        ("ns", 1.0)
    } else if nanoseconds < 999.5e3 {
        ("µs", 1e3)
    } else if nanoseconds < 999.5e6 {
        ("ms", 1e6)
    } else {
        ("s", 1e9)
    }
}

/// Formats a size in bytes in decimal units, as vendors of GPUs and disks do: `86 MB`, `1.2 GB`.
pub fn bytes(bytes: f64) -> String {
    // Bytes have no decimals.
    if bytes < 999.5 {
        return format!("{bytes:.0} B");
    }
    let (value, unit) = if bytes < 999.5e3 {
        (bytes / 1e3, "kB")
    } else if bytes < 999.5e6 {
        (bytes / 1e6, "MB")
    } else {
        (bytes / 1e9, "GB")
    };
    format!("{} {unit}", significant(value))
}

/// Formats a share between 0 and 1: `8%`, `0.4%`, `<0.1%`.
pub fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if percent > 0.0 && percent < 0.1 {
        "<0.1%".to_owned()
    } else if percent < 0.95 {
        format!("{percent:.1}%")
    } else {
        format!("{percent:.0}%")
    }
}

/// Formats a number with two to three significant digits and no exponent: `4.2`, `12.5`, `312`,
/// `4810`.
pub fn significant(value: f64) -> String {
    if value >= 99.95 || value == 0.0 {
        format!("{value:.0}")
    } else if value >= 9.995 {
        let text = format!("{value:.1}");
        text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
    } else if value >= 0.995 {
        let text = format!("{value:.1}");
        text
    } else {
        format!("{value:.2}")
    }
}

/// Formats a number that was not measured, with three significant digits at most: `35500`.
pub fn estimated(value: f64) -> String {
    if !value.is_finite() || value < 1000.0 {
        return significant(value);
    }
    let unit = 10_f64.powf(value.log10().floor() - 2.0);
    significant((value / unit).round() * unit)
}

/// Formats a change from the ratio of after to before: `+4%`, `−12%`, `×15`.
pub fn difference(ratio: f64) -> String {
    let by = ratio - 1.0;
    if by.abs() < 0.0005 {
        "±0%".to_owned()
    } else if ratio >= 10.0 {
        format!("×{}", significant(ratio))
    } else {
        let sign = if by > 0.0 { '+' } else { '−' };
        format!("{sign}{}", percent(by.abs()))
    }
}

/// Formats a rate with a suitable unit prefix: `41 TFLOP/s`.
pub fn rate(value: f64, unit: &str) -> String {
    let (value, prefix) = match value {
        value if value < 1e3 => (value, ""),
        value if value < 1e6 => (value / 1e3, "k"),
        value if value < 1e9 => (value / 1e6, "M"),
        value if value < 1e12 => (value / 1e9, "G"),
        value if value < 1e15 => (value / 1e12, "T"),
        value => (value / 1e15, "P"),
    };
    format!("{} {prefix}{unit}", significant(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_few_digits() {
        assert_eq!(duration(0.0), "0 ns");
        assert_eq!(duration(4_200_000.0), "4.2 ms");
        assert_eq!(duration(830_400.0), "830 µs");
        assert_eq!(duration(999.6), "1.0 µs");
        assert_eq!(duration(999_600.0), "1.0 ms");
        assert_eq!(duration(12_000_000.0), "12 ms");
        assert_eq!(duration(1_304_000_000.0), "1.3 s");
    }

    #[test]
    fn sizes_and_shares() {
        assert_eq!(bytes(4.0), "4 B");
        assert_eq!(bytes(86_000_000.0), "86 MB");
        assert_eq!(bytes(3_123_000_000.0), "3.1 GB");
        assert_eq!(percent(0.08), "8%");
        assert_eq!(percent(0.004), "0.4%");
        assert_eq!(percent(0.0001), "<0.1%");
    }

    #[test]
    fn numbers_that_were_not_measured_have_three_digits() {
        assert_eq!(estimated(35_499.0), "35500");
        assert_eq!(estimated(999_999.0), "1000000");
        assert_eq!(estimated(1234.0), "1230");
        assert_eq!(estimated(99.4), "99.4");
        assert_eq!(estimated(f64::INFINITY), significant(f64::INFINITY));
    }
}
