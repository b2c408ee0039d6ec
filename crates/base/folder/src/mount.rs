//! Where something is mounted, as the kernel tells it.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// A place of `/proc/self/mountinfo`. The kernel writes spaces, tabs, line breaks and backslashes as `\` with three octal digits.
pub fn place_of_mount(text: &[u8]) -> PathBuf {
    let mut place = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..3).filter(|digits| *first == b'\\' && digits.iter().all(u8::is_ascii_digit));
        let byte = digits.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        place.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { &after[3..] } else { after };
    }
    PathBuf::from(OsString::from_vec(place))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_octal_digits_are_a_byte() {
        for (text, place) in [(r"a\134\0\04", r"a\\0\04"), (r"/mnt/a\040b", "/mnt/a b"), (r"\+12", r"\+12")] {
            assert_eq!(place_of_mount(text.as_bytes()), PathBuf::from(place));
        }
    }
}
