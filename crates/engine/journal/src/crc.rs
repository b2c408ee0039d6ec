//! CRC-32C (Castagnoli), eight bytes at a time with tables built at compile time.
//!
//! In: bytes, in any number of pieces. Out: the checksum of RFC 3720 §B.4.
//!
//! Why our own: it is forty lines without `unsafe` or a dependency, and at 1 to 2 GB/s it costs less for a
//! record of a few hundred bytes than copying it into the batch and locking. The polynomial is the one that
//! x86 and Arm have an instruction for, so a faster version can read the same files.

/// Reflected Castagnoli polynomial.
const POLYNOMIAL: u32 = 0x82F6_3B78;

/// `TABLES[k][b]` is the effect of byte `b` followed by `k` zero bytes.
static TABLES: [[u32; 256]; 8] = build_tables();

const fn build_tables() -> [[u32; 256]; 8] {
    let mut tables = [[0u32; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { (crc >> 1) ^ POLYNOMIAL } else { crc >> 1 };
            bit += 1;
        }
        tables[0][byte] = crc;
        byte += 1;
    }
    let mut k = 1;
    while k < 8 {
        let mut byte = 0;
        while byte < 256 {
            let shorter = tables[k - 1][byte];
            tables[k][byte] = (shorter >> 8) ^ tables[0][(shorter & 0xFF) as usize];
            byte += 1;
        }
        k += 1;
    }
    tables
}

/// A checksum that is not finished.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Crc(u32);

impl Crc {
    pub fn new() -> Self {
        Crc(u32::MAX)
    }

    pub fn update(self, bytes: &[u8]) -> Self {
        let mut crc = self.0;
        let mut chunks = bytes.chunks_exact(8);
        for chunk in &mut chunks {
            let low = crc ^ u32::from_le_bytes([chunk[0], chunk[1], chunk[2], chunk[3]]);
            crc = TABLES[7][(low & 0xFF) as usize]
                ^ TABLES[6][(low >> 8 & 0xFF) as usize]
                ^ TABLES[5][(low >> 16 & 0xFF) as usize]
                ^ TABLES[4][(low >> 24) as usize]
                ^ TABLES[3][chunk[4] as usize]
                ^ TABLES[2][chunk[5] as usize]
                ^ TABLES[1][chunk[6] as usize]
                ^ TABLES[0][chunk[7] as usize];
        }
        for &byte in chunks.remainder() {
            crc = (crc >> 8) ^ TABLES[0][((crc ^ u32::from(byte)) & 0xFF) as usize];
        }
        Crc(crc)
    }

    pub fn finish(self) -> u32 {
        !self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_the_published_vectors() {
        // RFC 3720 §B.4 and the usual check value.
        assert_eq!(Crc::new().update(b"123456789").finish(), 0xE306_9283);
        assert_eq!(Crc::new().update(&[0; 32]).finish(), 0x8A91_36AA);
        assert_eq!(Crc::new().update(&[0xFF; 32]).finish(), 0x62A8_AB43);
        let ascending: Vec<u8> = (0..32).collect();
        assert_eq!(Crc::new().update(&ascending).finish(), 0x46DD_794E);
    }

    #[test]
    fn pieces_give_the_same_sum_as_the_whole() {
        let bytes: Vec<u8> = (0..200u16).map(|i| (i * 37 % 251) as u8).collect();
        let whole = Crc::new().update(&bytes).finish();
        for cut in 0..bytes.len() {
            assert_eq!(Crc::new().update(&bytes[..cut]).update(&bytes[cut..]).finish(), whole);
        }
    }
}
