//! How durations, sizes and rates are written for people.

/// `4.2 ms`, `830 µs`, `1.30 s`: a duration in nanoseconds, three significant digits at the most.
pub fn duration(nanoseconds: f64) -> String {
    let (unit, one) = scale(nanoseconds);
    format!("{} {unit}", significant(nanoseconds / one))
}

/// The unit that a duration in nanoseconds is written in, and how many nanoseconds it has.
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

/// `86 MB`, `1.2 GB`: a size in bytes, in decimal units as GPU makers and disk makers use them.
pub fn bytes(bytes: f64) -> String {
    // There is no half of a byte.
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

/// `8%`, `0.4%`, `<0.1%`: a share between 0 and 1.
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

/// Two to three significant digits without an exponent: `4.2`, `12.5`, `312`, `4810`.
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

/// `+4%`, `−12%`, `×15`: by how much something changed, from the ratio of after to before.
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

/// `41 TFLOP/s`: a rate with the prefix that suits it.
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
    fn durations_are_short() {
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
}
