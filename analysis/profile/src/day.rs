//! A calendar day such as `2026-11-20`: when something was measured, or when a price was valid.

use std::fmt;
use std::str::FromStr;

/// A day in UTC. Ordered by time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Day {
    year: u16,
    month: u8,
    day: u8,
}

impl Day {
    /// Returns the day that contains a moment, in seconds since 1970-01-01. Moments after the year
    /// 9999 give its last day. Algorithm: Howard Hinnant, "chrono-compatible low-level date
    /// algorithms", `civil_from_days`.
    pub fn of_unix_seconds(seconds: u64) -> Day {
        const LAST: u64 = 253_402_300_799;
        let days = seconds.min(LAST) / 86_400 + 719_468;
        let era = days / 146_097;
        let day_of_era = days % 146_097;
        let year_of_era =
            (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        // Years begin in March here, so the leap day is the last day.
        let from_march = (5 * day_of_year + 2) / 153;
        let day = day_of_year - (153 * from_march + 2) / 5 + 1;
        let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
        let year = year_of_era + era * 400 + u64::from(month <= 2);
        Day { year: year as u16, month: month as u8, day: day as u8 }
    }
}

impl fmt::Display for Day {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04}-{:02}-{:02}", self.year, self.month, self.day)
    }
}

/// The error for text that is not a day such as `2026-11-20`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is not a day such as `2026-11-20`")]
pub struct NotADay;

impl FromStr for Day {
    type Err = NotADay;

    fn from_str(text: &str) -> Result<Day, NotADay> {
        let parts: Vec<&str> = text.split('-').collect();
        let [year, month, day] = parts[..] else { return Err(NotADay) };
        let number = |part: &str, digits: usize| {
            let is_number = part.len() == digits && part.bytes().all(|byte| byte.is_ascii_digit());
            is_number.then(|| part.parse::<u16>().ok()).flatten().ok_or(NotADay)
        };
        let (year, month, day) = (number(year, 4)?, number(month, 2)?, number(day, 2)?);
        if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
            return Err(NotADay);
        }
        Ok(Day { year, month: month as u8, day: day as u8 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(seconds: u64, expected: &str) {
        let day = Day::of_unix_seconds(seconds);
        assert_eq!(day.to_string(), expected);
        assert_eq!(expected.parse(), Ok(day));
    }

    #[test]
    fn unix_seconds_convert_to_days() {
        check(0, "1970-01-01");
        check(86_399, "1970-01-01");
        check(951_782_400, "2000-02-29");
        check(951_868_800, "2000-03-01");
        check(1_795_478_400, "2026-11-24");
        check(4_107_542_400, "2100-03-01");
        check(u64::MAX, "9999-12-31");
    }

    #[test]
    fn malformed_days_are_rejected() {
        for text in
            ["", "yesterday", "2026-11", "2026-13-01", "2026-00-01", "2026-1-01", "+026-01-01"]
        {
            assert_eq!(text.parse::<Day>(), Err(NotADay), "{text}");
        }
    }
}
