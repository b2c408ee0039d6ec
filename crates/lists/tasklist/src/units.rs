//! Sizes, durations and rates as users write them.
//!
//! Arithmetic is exact in integers; a fraction of a byte or nanosecond is cut off. Letter case does not
//! matter. `2G` alone is refused: half of its readers think of 1000^3, the other half of 1024^3.

use crate::error::{Error, Result, shown};
use eyas_terms::needs::PARTS;
use std::time::Duration;

const BYTE_UNITS: &[(&str, u64)] = &[
    ("b", 1),
    ("kb", 1_000),
    ("mb", 1_000_000),
    ("gb", 1_000_000_000),
    ("tb", 1_000_000_000_000),
    ("pb", 1_000_000_000_000_000),
    ("kib", 1 << 10),
    ("mib", 1 << 20),
    ("gib", 1 << 30),
    ("tib", 1 << 40),
    ("pib", 1 << 50),
];

const TIME_UNITS: &[(&str, u64)] = &[
    ("ns", 1),
    ("us", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("min", 60_000_000_000),
    ("h", 3_600_000_000_000),
    ("d", 86_400_000_000_000),
];

/// Bytes in `512MiB`, `1.5 GB` or `1048576`.
pub fn parse_bytes(text: &str) -> Result<u64> {
    bytes(text).map_err(|reason| {
        Error::invalid(format!("{} is not a size: {reason}", shown(text))).hint(
            "write a number of bytes, or a number with KB, MB, GB, TB (1000) or KiB, MiB, GiB, TiB (1024)",
        )
    })
}

/// Thousandths of a number of cpus or gpus, rounded; `None` if that is less than one thousandth, or too many.
pub(crate) fn parts_of(n: f64) -> Option<u64> {
    let parts = (n * f64::from(PARTS)).round();
    (1.0..=f64::from(u32::MAX)).contains(&parts).then_some(parts as u64)
}

/// Thousandths in a number of cpus or gpus, such as `2` or `0.25`.
pub fn parse_parts(text: &str) -> Result<u64> {
    let is_plain = text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    let number = text.parse().ok().filter(|_| is_plain).and_then(parts_of);
    number
        .ok_or_else(|| Error::invalid(format!("{} is not a number above 0, such as 2 or 0.25", shown(text))))
}

/// Bytes per second in `20MB`, `20MB/s` or `1048576`; at least 1. A bare number below 1000 is refused: a user
/// who writes `5` means megabytes more often than bytes.
pub fn parse_rate(text: &str) -> Result<u64> {
    let size = text.trim().strip_suffix("/s").unwrap_or(text);
    let is_bare = size.trim().bytes().all(|b| b.is_ascii_digit() || b == b'.');
    match bytes(size) {
        Ok(0) => Err("it is 0".into()),
        Ok(n) if n < 1000 && is_bare => {
            let size = size.trim();
            let hint = format!("write {size}MB for megabytes, or {size}B if that is meant");
            let what = format!("{} as a rate is {n} B/s, which is hardly meant", shown(text));
            return Err(Error::invalid(what).hint(hint));
        }
        other => other,
    }
    .map_err(|reason| {
        Error::invalid(format!("{} is not a rate: {reason}", shown(text)))
            .hint("write bytes per second, like 20MB or 100MiB/s")
    })
}

/// The length of `90s`, `1h30m`, `1.5h`, `250ms`, or of a bare number of seconds.
pub fn parse_duration(text: &str) -> Result<Duration> {
    duration_ns(text).map(Duration::from_nanos).map_err(|reason| {
        Error::invalid(format!("{} is not a duration: {reason}", shown(text)))
            .hint("write seconds, or numbers with ms, s, m, h or d, like 90s, 5m or 1h30m")
    })
}

fn bytes(text: &str) -> std::result::Result<u64, String> {
    let (number, unit, rest) = split_first(text.trim())?;
    if !rest.is_empty() {
        return Err(format!("{} is left over", shown(rest)));
    }
    let unit_lower = unit.to_ascii_lowercase();
    let factor = match unit_lower.as_str() {
        "" => 1,
        "k" | "m" | "g" | "t" | "p" => {
            return Err(format!("{unit} can mean 1000s or 1024s; write {unit}B or {unit}iB"));
        }
        unit_lower => find(BYTE_UNITS, unit_lower).ok_or(format!("the unit {} is unknown", shown(unit)))?,
    };
    scale(number, factor)
}

fn duration_ns(text: &str) -> std::result::Result<u64, String> {
    let mut rest = text.trim();
    let mut total_ns: u64 = 0;
    let mut smallest = u64::MAX;
    loop {
        let (number, unit, after) = split_first(rest)?;
        let is_alone = smallest == u64::MAX && after.is_empty();
        let factor = match unit.to_ascii_lowercase().as_str() {
            "" if is_alone => 1_000_000_000,
            "" => return Err("a number has no unit".into()),
            unit_lower => {
                find(TIME_UNITS, unit_lower).ok_or(format!("the unit {} is unknown", shown(unit)))?
            }
        };
        if factor >= smallest {
            return Err("its units must go from large to small, each once".into());
        }
        smallest = factor;
        total_ns = scale(number, factor)?.checked_add(total_ns).ok_or("it is too large")?;
        rest = after.trim_start();
        if rest.is_empty() {
            return Ok(total_ns);
        }
    }
}

fn find(units: &[(&str, u64)], name: &str) -> Option<u64> {
    units.iter().find(|(n, _)| *n == name).map(|(_, factor)| *factor)
}

/// `1.5 GB rest` to `("1.5", "GB", " rest")`.
fn split_first(text: &str) -> std::result::Result<(&str, &str, &str), String> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, rest) = text.split_at(end);
    if !number.starts_with(|c: char| c.is_ascii_digit()) || number.ends_with('.') {
        return Err(if text.is_empty() { "it is empty".into() } else { "a number is missing".into() });
    }
    let unit = rest.trim_start();
    let end = unit.find(|c: char| !c.is_alphabetic()).unwrap_or(unit.len());
    let (unit, rest) = unit.split_at(end);
    Ok((number, unit, rest))
}

/// `number * factor`, exact, rounded down.
fn scale(number: &str, factor: u64) -> std::result::Result<u64, String> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if fraction.contains('.') {
        return Err("it has two decimal points".into());
    }
    let too_large = || "it is too large".to_string();
    let whole: u64 = whole.parse().map_err(|_| too_large())?;
    // More than 18 digits after the point make less than a nanosecond of a day and less than a byte of a PiB.
    let fraction = &fraction[..fraction.len().min(18)];
    let tail = match fraction {
        "" => 0,
        digits => {
            let value: u128 = digits.parse().map_err(|_| too_large())?;
            (value * u128::from(factor) / 10_u128.pow(digits.len() as u32)) as u64
        }
    };
    whole.checked_mul(factor).and_then(|n| n.checked_add(tail)).ok_or_else(too_large)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        for (text, expect) in [
            ("0", 0),
            ("1048576", 1 << 20),
            ("512MiB", 512 << 20),
            ("2GB", 2_000_000_000),
            ("1.5 gib", 3 << 29),
            (" 10kb ", 10_000),
            ("0.5B", 0),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(parse_bytes(text).unwrap(), expect, "{text}");
        }
        for (text, expect) in [
            ("", "it is empty"),
            ("2G", "write GB or GiB"),
            ("-1", "a number is missing"),
            ("1..2GB", "two decimal points"),
            ("1.GB", "a number is missing"),
            ("12 parsec", "the unit `parsec` is unknown"),
            ("1GB2", "left over"),
            ("99999999PiB", "too large"),
            ("99999999999999999999", "too large"),
        ] {
            let error = parse_bytes(text).unwrap_err().to_string();
            assert!(error.contains(expect) && error.contains("\nhint: "), "{text}: {error}");
        }
    }

    #[test]
    fn durations() {
        for (text, expect_ms) in [
            ("90", 90_000),
            ("90s", 90_000),
            ("5m", 300_000),
            ("1h30m", 5_400_000),
            ("1h 30m 5s", 5_405_000),
            ("1.5h", 5_400_000),
            ("250ms", 250),
            ("2d", 172_800_000),
            ("0.25", 250),
        ] {
            assert_eq!(parse_duration(text).unwrap(), Duration::from_millis(expect_ms), "{text}");
        }
        for (text, expect) in [
            ("", "it is empty"),
            ("soon", "a number is missing"),
            ("1h30", "no unit"),
            ("30m1h", "large to small"),
            ("1m1m", "large to small"),
            ("3 fortnights", "unknown"),
            ("600000000000h", "too large"),
        ] {
            let error = parse_duration(text).unwrap_err().to_string();
            assert!(error.contains(expect), "{text}: {error}");
        }
    }

    #[test]
    fn rates() {
        assert_eq!(parse_rate("20MB").unwrap(), 20_000_000);
        assert_eq!(parse_rate("1MiB/s").unwrap(), 1 << 20);
        assert!(parse_rate("0").unwrap_err().to_string().contains("it is 0"));
        assert_eq!(parse_rate("5B").unwrap(), 5);
        assert_eq!(parse_rate("1000").unwrap(), 1000);
        let error = parse_rate("5").unwrap_err().to_string();
        assert!(error.contains("5 B/s, which is hardly meant") && error.contains("5MB"), "{error}");
        assert!(parse_rate("20M").unwrap_err().to_string().contains("is not a rate"));
    }
}
