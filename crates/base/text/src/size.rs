//! Numbers of bytes in the form that users read.

/// `1.5 GiB`
pub fn size(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1023.95 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}

/// `bytes` beside `other`: to the byte where both would read the same and are not.
pub fn size_beside(bytes: u64, other: u64) -> String {
    let text = size(bytes);
    if bytes != other && text == size(other) { format!("{bytes} B") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_well_at_their_edges() {
        let sizes =
            [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (1_048_575, "1.0 MiB"), (1 << 40, "1.0 TiB")];
        for (bytes, expect) in sizes {
            assert_eq!(size(bytes), expect);
        }
    }

    #[test]
    fn sizes_that_differ_by_little_are_shown_to_the_byte() {
        assert_eq!(size_beside(1 << 30, (1 << 30) - 1), "1073741824 B");
        assert_eq!(size_beside(1 << 30, 1 << 30), "1.0 GiB");
        assert_eq!(size_beside(1 << 30, 1 << 20), "1.0 GiB");
    }
}
