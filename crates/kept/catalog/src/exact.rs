//! Numbers and moments as texts whose order, byte by byte, is the order of what they stand for. So both databases compare them
//! exactly, however many digits they have.

/// Most digits that count. A longer number is text.
const DIGITS_MAX: usize = 1000;
/// A number with more digits than this before its point, or more zeros behind it, is text.
const PLACE_MAX: i64 = 1_000_000_000;

/// A number without rounding. Equal numbers are equal, however they were written.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Exact(String);

impl Exact {
    /// The number that a text is: digits with at most one point, a sign before them and an exponent behind them; not `inf`, `nan` or
    /// `0x10`. `None`: it is none, or is too long to be one.
    pub(crate) fn of(text: &str) -> Option<Exact> {
        let (is_negative, text) = match text.as_bytes().first()? {
            b'-' => (true, &text[1..]),
            b'+' => (false, &text[1..]),
            _ => (false, text),
        };
        let (digits, exponent) = match text.split_once(['e', 'E']) {
            Some((digits, exponent)) => (digits, exponent.parse::<i64>().ok()?),
            None => (text, 0),
        };
        let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
        let digits = format!("{whole}{part}");
        if digits.is_empty() || !digits.bytes().all(|c| c.is_ascii_digit()) {
            return None;
        }
        let counting = digits.trim_start_matches('0');
        let n_leading = digits.len() - counting.len();
        // The number is 0.COUNTING × 10^place.
        let place = exponent.checked_add(whole.len() as i64 - n_leading as i64)?;
        let counting = counting.trim_end_matches('0');
        if counting.is_empty() {
            return Some(Exact("1".into()));
        }
        if counting.len() > DIGITS_MAX || !(-PLACE_MAX..=PLACE_MAX).contains(&place) {
            return None;
        }
        let key = format!("{:010}{counting}", place + PLACE_MAX);
        Some(Exact(match is_negative {
            false => format!("2{key}"),
            // What is larger without its sign comes first, and so does what is longer.
            true => format!("0{}~", key.bytes().map(|c| char::from(b'9' - (c - b'0'))).collect::<String>()),
        }))
    }

    /// As the database keeps it.
    pub(crate) fn key(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers_compare_without_rounding() {
        // Each one is less than the next.
        let order = [
            "-1e1000000",
            "-18446744073709551617",
            "-18446744073709551616",
            "-10.5",
            "-10",
            "-9.99",
            "-0.5",
            "-1e-400",
            "0",
            "1e-400",
            "0.1",
            "0.10000000000000000000000000001",
            "0.5",
            "9007199254740992",
            "9007199254740993",
            "9007199254740993.5",
            "12345678901234567890",
            "12345678901234567891",
            "1e400",
            "1e999999999",
        ];
        for pair in order.windows(2) {
            assert!(Exact::of(pair[0]).unwrap() < Exact::of(pair[1]).unwrap(), "{pair:?}");
        }
        for equal in [
            ["0", "-0"],
            ["0", "0.00e7"],
            ["1", "01"],
            ["1", "+1.0"],
            ["1e3", "1000"],
            ["1E10", "10e9"],
            [".5", "0.5"],
            ["5.", "5"],
            ["-1.50", "-15e-1"],
            ["1e-3", "0.001"],
        ] {
            assert_eq!(Exact::of(equal[0]).unwrap(), Exact::of(equal[1]).unwrap(), "{equal:?}");
        }
        let long = "1".repeat(DIGITS_MAX + 1);
        for none in [
            "",
            "-",
            ".",
            "e5",
            "1e",
            "1e1.5",
            "1e--5",
            "--1",
            "1.2.3",
            "0x10",
            "inf",
            "nan",
            "1 ",
            "1e99999999999",
            "1e9999999999999999999999",
            &long,
        ] {
            assert_eq!(Exact::of(none), None, "{none}");
        }
    }

    proptest! {
        #[test]
        fn the_order_is_that_of_the_numbers(a in -1_000_000_i128..1_000_000, b in any::<i64>(), shift in 0_usize..5, zeros in 0_usize..3) {
            // Decimals of a fixed number of places are integers of the smallest one.
            let written = |n: i128, places: usize| {
                let digits = format!("{:0>1$}", n.unsigned_abs(), places + 1);
                let (whole, part) = digits.split_at(digits.len() - places);
                let sign = if n < 0 { "-" } else { "" };
                format!("{sign}{}{whole}.{part}{}", "0".repeat(zeros), "0".repeat(zeros))
            };
            let b = i128::from(b);
            let of = |text: String| Exact::of(&text).unwrap();
            prop_assert_eq!(of(written(a, shift)).cmp(&of(written(b, shift))), a.cmp(&b));
            prop_assert_eq!(of(written(a, shift)).cmp(&of(format!("{b}e-{shift}"))), a.cmp(&b));
            prop_assert_eq!(of(written(a, shift)), of(format!("{a}e-{shift}")));
        }
    }
}
