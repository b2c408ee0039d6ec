//! Numbers for people: rates, times of readable length, grouped digits. Sizes are those of [`eyas_text::size`].

pub use eyas_text::{count, plural};

const RATES: [(&str, f64); 4] =
    [("KiB/s", 1024.0), ("MiB/s", 1_048_576.0), ("GiB/s", 1_073_741_824.0), ("TiB/s", 1_099_511_627_776.0)];

/// The unit for rates up to `most` bytes per second, and how many bytes per second it is.
pub fn rate_unit(most: f64) -> (&'static str, f64) {
    RATES.into_iter().rev().find(|(_, size)| most >= *size * 0.99995).unwrap_or(RATES[0])
}

/// `9.5 MiB/s`
pub fn rate(bytes_per_s: f64) -> String {
    let (unit, size) = rate_unit(bytes_per_s);
    format!("{} {unit}", number(bytes_per_s / size))
}

/// `9.1 of 9.5 MiB/s`
pub fn rate_of(part: f64, whole: f64) -> String {
    let (unit, size) = rate_unit(whole);
    format!("{} of {} {unit}", number(part / size), number(whole / size))
}

/// The unit for times up to `most_ns`, and its nanoseconds. One column of a table has one unit.
pub fn time_unit(most_ns: u64) -> (&'static str, f64) {
    match most_ns {
        0..10_000_000 => ("ms", 1e6),
        _ => ("s", 1e9),
    }
}

/// The unit for sizes up to `most` bytes, and its bytes.
pub fn size_unit(most: u64) -> (&'static str, f64) {
    match most {
        0..1_048_576 => ("KiB", 1024.0),
        1_048_576..1_073_741_824 => ("MiB", 1_048_576.0),
        1_073_741_824..1_099_511_627_776 => ("GiB", 1_073_741_824.0),
        _ => ("TiB", 1_099_511_627_776.0),
    }
}

/// `35 ms`, `1.24 s`, `3 min 12 s`, `2 h 05 min`.
pub fn duration(ns: u64) -> String {
    let s = ns as f64 / 1e9;
    match ns {
        0 => "0 s".into(),
        1..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{:.0} µs", ns as f64 / 1e3),
        1_000_000..10_000_000 => format!("{:.1} ms", ns as f64 / 1e6),
        10_000_000..999_500_000 => format!("{:.0} ms", ns as f64 / 1e6),
        999_500_000..9_995_000_000 => format!("{s:.2} s"),
        9_995_000_000..119_950_000_000 => format!("{s:.1} s"),
        119_950_000_000..7_200_000_000_000 => {
            let s = s.round() as u64;
            format!("{} min {:02} s", s / 60, s % 60)
        }
        _ => {
            let min = (s / 60.0).round() as u64;
            format!("{} h {:02} min", count(min / 60), min % 60)
        }
    }
}

/// `2026-11-21 20:30:05 UTC` if the log's clock is the wall clock.
pub fn date(ns: u64) -> Option<String> {
    let s = ns / 1_000_000_000;
    if s < 1_000_000_000 {
        return None;
    }
    // Days to year, month, day: Hinnant, "chrono-Compatible Low-Level Date Algorithms".
    let z = (s / 86_400) as i64 + 719_468;
    let era = z / 146_097;
    let day_of_era = z % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_index = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_index + 2) / 5 + 1;
    let month = if month_index < 10 { month_index + 3 } else { month_index - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let (h, m, s) = (s / 3600 % 24, s / 60 % 60, s % 60);
    Some(format!("{year}-{month:02}-{day:02} {h:02}:{m:02}:{s:02} UTC"))
}

/// Three significant digits: `0.0123`, `1.23`, `12.3`, `1,234`.
pub fn number(x: f64) -> String {
    let size = x.abs();
    match size {
        _ if !x.is_finite() => "–".into(),
        _ if size == 0.0 => "0".into(),
        _ if size < 0.0001 => format!("{x:.1e}"),
        _ if size < 0.00995 => format!("{x:.4}"),
        _ if size < 0.0995 => format!("{x:.3}"),
        _ if size < 9.995 => format!("{x:.2}"),
        _ if size < 99.95 => format!("{x:.1}"),
        _ if x > 0.0 => count(x.round() as u64),
        _ => format!("{x:.0}"),
    }
}

/// `87.3 %`.
pub fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// `1st`, `2nd`, `11th`.
pub fn ordinal(n: u64) -> String {
    let end = match (n % 10, n % 100) {
        (1, x) if x != 11 => "st",
        (2, x) if x != 12 => "nd",
        (3, x) if x != 13 => "rd",
        _ => "th",
    };
    format!("{n}{end}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        let times = [
            (0, "0 s"),
            (800, "800 ns"),
            (35_000, "35 µs"),
            (1_500_000, "1.5 ms"),
            (35_000_000, "35 ms"),
            (1_240_000_000, "1.24 s"),
            (61_000_000_000, "61.0 s"),
            (192_000_000_000, "3 min 12 s"),
            (7_500_000_000_000, "2 h 05 min"),
        ];
        times.iter().for_each(|(ns, text)| assert_eq!(duration(*ns), *text));
        assert_eq!(
            (count(999), count(1_000), count(1_234_567)),
            ("999".into(), "1,000".into(), "1,234,567".into())
        );
        assert_eq!(
            [rate(0.0), rate(1024.0), rate(10e6), rate(3.5e9)],
            ["0 KiB/s", "1.00 KiB/s", "9.54 MiB/s", "3.26 GiB/s"]
        );
        assert_eq!(rate_of(1e6, 2e9), "0.0009 of 1.86 GiB/s");
        assert_eq!(
            [time_unit(9_000_000).0, time_unit(10_000_000).0, size_unit(5 << 20).0],
            ["ms", "s", "MiB"]
        );
        assert_eq!([number(0.0), number(0.5), number(12.34), number(1234.5)], ["0", "0.50", "12.3", "1,235"]);
        assert_eq!([1, 2, 3, 11, 12, 21].map(ordinal), ["1st", "2nd", "3rd", "11th", "12th", "21st"]);
    }
}
