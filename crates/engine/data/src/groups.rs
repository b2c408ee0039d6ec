//! Parts of an object, each of which can be compared with the object's digest by itself.
//!
//! BLAKE3 hashes a tree: the digest of the whole is made of the chaining values of its subtrees. An object is cut into groups of
//! [`GROUP_BYTES`], and [`Groups`] has the chaining value of each. Whoever has them, from whomever, can check that they give the
//! digest, and then each group that arrives by its own value. So a part of an object is verified without the rest.
//!
//! A group is cut into blocks of [`BLOCK_BYTES`] in the same way: with the chaining values of the subtrees beside it
//! ([`values_beside`]), a block is compared with the value of its group without their bytes.
//!
//! Source: the BLAKE3 paper (O'Connor, Aumasson, Neves, Wilcox-O'Hearn), §2.1, and `blake3::hazmat`. A group is a power of two of chunks
//! (1 KiB), hence a whole subtree wherever it lies.

use crate::digest::Digest;
use blake3::hazmat::{ChainingValue, HasherExt, Mode, merge_subtrees_non_root, merge_subtrees_root};
use std::fs::File;
use std::io::{self, Read, Seek};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

/// Bytes of a group; the last one of an object may have fewer.
pub const GROUP_BYTES: u64 = 64 << 10;
/// Bytes of a block, the smallest part that is verified by itself; the last one of a group may have fewer.
pub const BLOCK_BYTES: u64 = 4 << 10;

/// The chaining values by which some bytes of an object's `n`-th group are verified without the others ([`Groups::is_part`]): those of
/// the largest subtrees that have none of them, in their order. `wanted` counts from the group's beginning.
pub fn values_beside(n: u64, group: &[u8], wanted: &Range<usize>) -> Vec<[u8; 32]> {
    fn add(start: u64, first: usize, bytes: &[u8], wanted: &Range<usize>, values: &mut Vec<ChainingValue>) {
        if first + bytes.len() <= wanted.start || wanted.end <= first {
            values.push(value_at(start + first as u64, bytes));
        } else if bytes.len() > BLOCK_BYTES as usize {
            let (left, right) = bytes.split_at(left_bytes(bytes.len()));
            add(start, first, left, wanted, values);
            add(start, first + left.len(), right, wanted, values);
        }
    }
    let mut values = vec![];
    add(n * GROUP_BYTES, 0, group, wanted, &mut values);
    values
}

/// How many bytes of a subtree of more than one block are in its left half.
fn left_bytes(n_bytes: usize) -> usize {
    left_of(n_bytes.div_ceil(BLOCK_BYTES as usize)) * BLOCK_BYTES as usize
}

/// The chaining values of an object's groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Groups {
    size_bytes: u64,
    /// Empty where the object is one group, whose value is the digest itself.
    values: Vec<ChainingValue>,
    digest: Digest,
}

/// Bytes that a thread reads at once, a multiple of [`GROUP_BYTES`] that fits into a processor's own cache; bytes that a thread takes at
/// least; and most threads. From eight on, memory is the limit.
const SPAN_BYTES: u64 = 128 << 10;
const TAKEN_BYTES: u64 = 1 << 20;
const THREADS_MAX: usize = 8;

/// How many groups an object has.
pub fn n_groups(size_bytes: u64) -> u64 {
    size_bytes.div_ceil(GROUP_BYTES).max(1)
}

impl Groups {
    /// Reads an object through, whose size in bytes is known.
    ///
    /// # Errors
    /// It cannot be read, or has another size.
    pub fn read(from: &mut dyn Read, size_bytes: u64) -> io::Result<Groups> {
        let mut group = vec![0; usize::try_from(GROUP_BYTES.min(size_bytes)).unwrap_or(0)];
        let mut values = vec![];
        let mut whole = None;
        for n in 0..n_groups(size_bytes) {
            let bytes = &mut group[..Groups::range_of(n, size_bytes).count()];
            from.read_exact(bytes)?;
            match size_bytes > GROUP_BYTES {
                true => values.push(value_of(n, bytes)),
                false => whole = Some(Digest::of(bytes)),
            }
        }
        if from.read(&mut [0])? > 0 {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "it is longer than it should be"));
        }
        let digest = whole.unwrap_or_else(|| root(&values));
        Ok(Groups { size_bytes, values, digest })
    }

    /// The same for a file, by several threads.
    ///
    /// # Errors
    /// As above.
    pub fn read_file(file: &File, size_bytes: u64) -> io::Result<Groups> {
        let n_spans = size_bytes.div_ceil(SPAN_BYTES);
        let n_taken = usize::try_from(size_bytes.div_ceil(TAKEN_BYTES)).unwrap_or(usize::MAX);
        // How many threads there may be takes longer to find out than to read a small file.
        let n_threads =
            || thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX).min(n_taken);
        let n_threads = if n_taken < 2 { 1 } else { n_threads() };
        if n_threads < 2 {
            // Whoever had it before may have read it to its end.
            let mut file = file;
            file.rewind()?;
            return Groups::read(&mut file, size_bytes);
        }
        if file.metadata()?.len() != size_bytes {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "it has another size"));
        }
        let next = AtomicU64::new(0);
        let read = || {
            let mut span = vec![0; SPAN_BYTES as usize];
            let mut found = vec![];
            loop {
                let n = next.fetch_add(1, Ordering::Relaxed);
                let start = n * SPAN_BYTES;
                if n >= n_spans {
                    return Ok(found);
                }
                let bytes = &mut span[..SPAN_BYTES.min(size_bytes - start) as usize];
                file.read_exact_at(bytes, start)?;
                let first = start / GROUP_BYTES;
                let groups = (first..).zip(bytes.chunks(GROUP_BYTES as usize));
                found.push((n, groups.map(|(n, group)| value_of(n, group)).collect()));
            }
        };
        let mut spans: Vec<(u64, Vec<ChainingValue>)> = vec![];
        thread::scope(|scope| {
            let threads: Vec<_> = (0..n_threads).map(|_| scope.spawn(read)).collect();
            threads.into_iter().try_for_each(|thread| {
                let found: io::Result<_> = thread.join().expect("reading does not panic");
                found.map(|found| spans.extend::<Vec<_>>(found))
            })
        })?;
        spans.sort_unstable_by_key(|(n, _)| *n);
        let values: Vec<ChainingValue> = spans.into_iter().flat_map(|(_, values)| values).collect();
        let digest = root(&values);
        Ok(Groups { size_bytes, values, digest })
    }

    /// The groups of the object of this digest, by values that somebody says are theirs. `None`: they are not.
    pub fn check(digest: Digest, size_bytes: u64, values: Vec<[u8; 32]>) -> Option<Groups> {
        if size_bytes <= GROUP_BYTES {
            return values.is_empty().then_some(Groups { size_bytes, values, digest });
        }
        let is_it = values.len() as u64 == n_groups(size_bytes) && root(&values) == digest;
        is_it.then_some(Groups { size_bytes, values, digest })
    }

    /// The digest of the whole object.
    pub fn digest(&self) -> Digest {
        self.digest
    }

    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// The chaining values, for [`Groups::check`].
    pub fn values(&self) -> &[[u8; 32]] {
        &self.values
    }

    /// The bytes of a group.
    pub fn range(&self, n: u64) -> Range<u64> {
        Groups::range_of(n, self.size_bytes)
    }

    fn range_of(n: u64, size_bytes: u64) -> Range<u64> {
        (n * GROUP_BYTES).min(size_bytes)..((n + 1) * GROUP_BYTES).min(size_bytes)
    }

    /// Whether these are the bytes of the `n`-th group.
    pub fn is_group(&self, n: u64, bytes: &[u8]) -> bool {
        let range = self.range(n);
        if bytes.len() as u64 != range.end - range.start {
            return false;
        }
        match self.values.get(usize::try_from(n).unwrap_or(usize::MAX)) {
            Some(value) => value_of(n, bytes) == *value,
            None => n == 0 && self.values.is_empty() && Digest::of(bytes) == self.digest,
        }
    }

    /// Whether these are bytes of the `n`-th group, from a place in it on, by the values that somebody says are beside them
    /// ([`values_beside`]). They are whole blocks, or go to the group's end. An object of one group is compared as a whole only.
    pub fn is_part(&self, n: u64, first: usize, bytes: &[u8], beside: &[[u8; 32]]) -> bool {
        let Some(value) = self.values.get(usize::try_from(n).unwrap_or(usize::MAX)) else { return false };
        let Range { start, end } = self.range(n);
        let n_bytes = (end - start) as usize;
        let last = first.saturating_add(bytes.len());
        let is_whole = |place: usize| place.is_multiple_of(BLOCK_BYTES as usize) || place == n_bytes;
        if bytes.is_empty() || last > n_bytes || !is_whole(first) || !is_whole(last) {
            return false;
        }
        let part = Part { start, first, bytes };
        let mut beside = beside.iter();
        part.value(0, n_bytes, &mut beside) == Some(*value) && beside.next().is_none()
    }
}

/// The groups of an object whose bytes come one after the other.
#[derive(Default)]
pub struct Grouping {
    size_bytes: u64,
    values: Vec<ChainingValue>,
    /// The digest of an object of one group.
    whole: Option<Digest>,
}

impl Grouping {
    /// Adds the next bytes: whole groups, but for the last ones.
    pub fn add(&mut self, bytes: &[u8], are_last: bool) {
        if are_last && self.size_bytes == 0 && bytes.len() as u64 <= GROUP_BYTES {
            self.whole = Some(Digest::of(bytes));
        } else {
            let first = self.size_bytes / GROUP_BYTES;
            let groups = (first..).zip(bytes.chunks(GROUP_BYTES as usize));
            self.values.extend(groups.map(|(n, group)| value_of(n, group)));
        }
        self.size_bytes += bytes.len() as u64;
    }

    /// The groups of all that was added.
    pub fn end(mut self) -> Groups {
        if let ([_], None) = (&self.values[..], self.whole) {
            unreachable!("the only group of an object was not added as the last one");
        }
        let digest = self.whole.unwrap_or_else(|| root(&self.values));
        self.values.shrink_to_fit();
        Groups { size_bytes: self.size_bytes, values: self.values, digest }
    }
}

/// Bytes of a group whose others are known by values.
struct Part<'a> {
    /// Where the group begins in the object.
    start: u64,
    /// Where the bytes begin in the group.
    first: usize,
    bytes: &'a [u8],
}

impl Part<'_> {
    /// The chaining value of the subtree that has `n_bytes` of the group from `at` on.
    fn value(
        &self,
        at: usize,
        n_bytes: usize,
        beside: &mut std::slice::Iter<'_, ChainingValue>,
    ) -> Option<ChainingValue> {
        let (end, last) = (at + n_bytes, self.first + self.bytes.len());
        if end <= self.first || last <= at {
            return beside.next().copied();
        }
        if self.first <= at && end <= last {
            return Some(value_at(self.start + at as u64, &self.bytes[at - self.first..end - self.first]));
        }
        // A block is in the part or beside it.
        let left = left_bytes(n_bytes);
        let values = (self.value(at, left, beside)?, self.value(at + left, n_bytes - left, beside)?);
        Some(merge_subtrees_non_root(&values.0, &values.1, Mode::Hash))
    }
}

fn value_of(n: u64, bytes: &[u8]) -> ChainingValue {
    value_at(n * GROUP_BYTES, bytes)
}

/// The chaining value of a subtree whose bytes begin at `start` in the object.
fn value_at(start: u64, bytes: &[u8]) -> ChainingValue {
    blake3::Hasher::new().set_input_offset(start).update(bytes).finalize_non_root()
}

/// The digest of an object of two groups and more.
fn root(values: &[ChainingValue]) -> Digest {
    let (left, right) = values.split_at(left_of(values.len()));
    Digest(*merge_subtrees_root(&subtree(left), &subtree(right), Mode::Hash).as_bytes())
}

fn subtree(values: &[ChainingValue]) -> ChainingValue {
    match values {
        [value] => *value,
        values => {
            let (left, right) = values.split_at(left_of(values.len()));
            merge_subtrees_non_root(&subtree(left), &subtree(right), Mode::Hash)
        }
    }
}

/// How many of `n` groups are in the left subtree: the largest power of two that is less than `n`.
fn left_of(n: usize) -> usize {
    n.div_ceil(2).next_power_of_two()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(size: u64) -> Vec<u8> {
        (0..size).map(|n| (n * n % 251) as u8).collect()
    }

    #[test]
    fn groups_give_the_digest_of_the_whole() {
        let group = GROUP_BYTES;
        for size in [
            0,
            1,
            1024,
            1025,
            group - 1,
            group,
            group + 1,
            2 * group,
            3 * group + 7,
            9 * group,
            64 * group + 1,
        ] {
            let bytes = bytes(size);
            let groups = Groups::read(&mut &*bytes, size).unwrap();
            assert_eq!(groups.digest(), Digest::of(&bytes), "{size}");
            let known = Groups::check(Digest::of(&bytes), size, groups.values().to_vec()).unwrap();
            assert_eq!(known, groups);
            for n in 0..n_groups(size) {
                let range = groups.range(n);
                let mut part = bytes[range.start as usize..range.end as usize].to_vec();
                assert!(groups.is_group(n, &part), "{size} {n}");
                assert!(!groups.is_group(n + 1, &part) || part.is_empty());
                if let Some(byte) = part.last_mut() {
                    *byte ^= 1;
                    assert!(!groups.is_group(n, &part), "{size} {n}");
                    part.pop();
                    assert!(!groups.is_group(n, &part), "{size} {n}");
                }
            }
        }
    }

    #[test]
    fn groups_of_bytes_that_come_in_pieces_are_the_same() {
        for size in
            [0, 1, GROUP_BYTES, GROUP_BYTES + 1, 4 * GROUP_BYTES, 9 * GROUP_BYTES + 5, 12 * GROUP_BYTES]
        {
            let object = bytes(size);
            let expected = Groups::read(&mut &object[..], size).unwrap();
            let mut grouping = Grouping::default();
            let mut rest = &object[..];
            while rest.len() as u64 >= 4 * GROUP_BYTES {
                let (piece, after) = rest.split_at(4 * GROUP_BYTES as usize);
                grouping.add(piece, false);
                rest = after;
            }
            grouping.add(rest, true);
            assert_eq!(grouping.end(), expected, "{size}");
        }
    }

    #[test]
    fn several_threads_find_the_same() {
        let dir = tempfile::tempdir().unwrap();
        for size in [0, 5, SPAN_BYTES, SPAN_BYTES + 1, 3 * SPAN_BYTES, 3 * SPAN_BYTES + GROUP_BYTES + 9] {
            let path = dir.path().join(size.to_string());
            let bytes = bytes(size);
            std::fs::write(&path, &bytes).unwrap();
            let file = File::open(&path).unwrap();
            let expect = Groups::read(&mut &*bytes, size).unwrap();
            assert_eq!(Groups::read_file(&file, size).unwrap(), expect, "{size}");
            assert!(Groups::read_file(&file, size + 1).is_err());
            assert!(size == 0 || Groups::read_file(&File::open(&path).unwrap(), size - 1).is_err());
        }
    }

    #[test]
    fn values_of_another_object_are_refused() {
        let bytes = bytes(5 * GROUP_BYTES + 3);
        let size = bytes.len() as u64;
        let digest = Digest::of(&bytes);
        let groups = Groups::read(&mut &*bytes, size).unwrap();
        for n in 0..6 {
            let mut values = groups.values().to_vec();
            values[n][0] ^= 1;
            assert_eq!(Groups::check(digest, size, values), None);
        }
        assert_eq!(Groups::check(digest, size, groups.values()[1..].to_vec()), None);
        assert_eq!(Groups::check(digest, size, vec![]), None);
        assert_eq!(Groups::check(digest, 3 * GROUP_BYTES, groups.values().to_vec()), None);
        assert_eq!(Groups::check(digest, 10, groups.values().to_vec()), None);
        let mut swapped = groups.values().to_vec();
        swapped.swap(0, 1);
        assert_eq!(Groups::check(digest, size, swapped), None);
    }

    #[test]
    fn blocks_are_verified_without_the_rest_of_their_group() {
        let block = BLOCK_BYTES as usize;
        for size in [GROUP_BYTES + 1, 2 * GROUP_BYTES, 3 * GROUP_BYTES + 5 * BLOCK_BYTES + 7] {
            let bytes = bytes(size);
            let groups = Groups::read(&mut &*bytes, size).unwrap();
            for n in 0..n_groups(size) {
                let Range { start, end } = groups.range(n);
                let group = &bytes[start as usize..end as usize];
                let n_blocks = group.len().div_ceil(block);
                for first in 0..n_blocks {
                    for end in first + 1..=n_blocks {
                        let wanted = first * block..(end * block).min(group.len());
                        let (part, beside) = (&group[wanted.clone()], values_beside(n, group, &wanted));
                        assert!(groups.is_part(n, wanted.start, part, &beside), "{size} {n} {wanted:?}");
                        assert!(beside.len() <= 8, "two paths through a tree of four levels");
                        check_lies(&groups, n, wanted.start, part, &beside);
                    }
                }
            }
        }
        let one = Groups::read(&mut &[7_u8; 9000][..], 9000).unwrap();
        assert!(!one.is_part(0, 0, &[7; 9000], &[]), "it has no values of groups");
    }

    /// Whatever differs from what is right is refused.
    fn check_lies(groups: &Groups, n: u64, first: usize, part: &[u8], beside: &[[u8; 32]]) {
        let is_part = |n, first, part: &[u8], beside: &[[u8; 32]]| groups.is_part(n, first, part, beside);
        assert!(!is_part(n + 1, first, part, beside) || part.is_empty());
        assert!(!is_part(n, first + BLOCK_BYTES as usize, part, beside));
        assert!(!is_part(n, first, &part[1..], beside) && !is_part(n, first + 1, &part[1..], beside));
        assert!(!is_part(n, first, &part[..part.len() - 1], beside));
        assert!(!is_part(n, first, &[], beside) && !is_part(n, usize::MAX, part, beside));
        let mut other = part.to_vec();
        *other.last_mut().unwrap() ^= 1;
        assert!(!is_part(n, first, &other, beside));
        assert!(!is_part(n, first, part, &[beside, &[[0; 32]]].concat()));
        if let [.., last] = beside {
            let mut lie = beside.to_vec();
            *lie.last_mut().unwrap() = last.map(|byte| byte ^ 1);
            assert!(!is_part(n, first, part, &lie) && !is_part(n, first, part, &beside[1..]));
        }
    }

    #[test]
    fn another_size_is_an_error() {
        let bytes = bytes(GROUP_BYTES + 5);
        for size in [0, 5, GROUP_BYTES, GROUP_BYTES + 4, GROUP_BYTES + 6, 3 * GROUP_BYTES] {
            assert!(Groups::read(&mut &*bytes, size).is_err(), "{size}");
        }
    }
}
