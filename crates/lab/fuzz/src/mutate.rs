//! Changes to valid bytes: what a disk, a network, a careless hand or an attacker does.

use crate::Target;
use crate::rng::{EDGES, ODD_NAMES, Rng};
use serde_json::Value;

/// Inputs get no longer.
pub const BYTES_MAX: usize = 1 << 20;

/// `bytes` with some changes, or as they are once in a while.
pub fn mutate(mut bytes: Vec<u8>, target: &dyn Target, rng: &mut Rng) -> Vec<u8> {
    if rng.one_in(target.left_alone_one_in()) {
        return bytes;
    }
    if target.is_json() && !rng.one_in(4) {
        bytes = change_json(&bytes, rng).unwrap_or(bytes);
        if rng.one_in(2) {
            return bytes;
        }
    }
    let n_changes = 1 + rng.below(4);
    for _ in 0..n_changes {
        change(&mut bytes, target, rng);
        bytes.truncate(BYTES_MAX);
    }
    bytes
}

/// A piece of `bytes`, mostly short.
fn range(bytes: &[u8], rng: &mut Rng) -> std::ops::Range<usize> {
    let start = rng.below(bytes.len() + 1);
    let most = bytes.len() - start;
    let n = if rng.one_in(4) { rng.below(most + 1) } else { rng.below(most.min(16) + 1) };
    start..start + n
}

/// A line of `bytes` with its end.
fn line(bytes: &[u8], rng: &mut Rng) -> std::ops::Range<usize> {
    let at = rng.below(bytes.len() + 1);
    let start = bytes[..at].iter().rposition(|b| *b == b'\n').map_or(0, |p| p + 1);
    let end = bytes[at..].iter().position(|b| *b == b'\n').map_or(bytes.len(), |p| at + p + 1);
    start..end
}

fn change(bytes: &mut Vec<u8>, target: &dyn Target, rng: &mut Rng) {
    match rng.below(17) {
        0 if !bytes.is_empty() => {
            let at = rng.below(bytes.len());
            bytes[at] ^= 1 << rng.below(8);
        }
        1 if !bytes.is_empty() => {
            let at = rng.below(bytes.len());
            bytes[at] =
                *rng.pick(&[0, 1, 0x7f, 0x80, 0xff, b'\n', b'"', b'{', b'[', b'<', b'$', b'\'', b'\\', b':']);
        }
        2 => {
            let range = range(bytes, rng);
            bytes.drain(range);
        }
        3 => bytes.truncate(rng.below(bytes.len() + 1)),
        4 => {
            let piece = bytes[range(bytes, rng)].to_vec();
            insert(bytes, &piece, rng);
        }
        // Many times over: what grows faster than its text shows here.
        5 => {
            let piece = match rng.one_in(2) {
                true => bytes[line(bytes, rng)].to_vec(),
                false => bytes[range(bytes, rng)].to_vec(),
            };
            let n_times = rng.power(6, 15);
            let n_times = n_times.min(BYTES_MAX / piece.len().max(1));
            insert(bytes, &piece.repeat(n_times), rng);
        }
        6 if !bytes.is_empty() => {
            let from = line(bytes, rng);
            let piece: Vec<u8> = bytes.drain(from).collect();
            let to = line(bytes, rng).start;
            bytes.splice(to..to, piece);
        }
        7 => {
            let range = line(bytes, rng);
            bytes.drain(range);
        }
        8 => {
            let name = *rng.pick(&ODD_NAMES);
            replace(bytes, name.as_bytes(), rng);
        }
        9 if !target.words().is_empty() => {
            let word = *rng.pick(target.words());
            insert(bytes, word.as_bytes(), rng);
        }
        10 if !target.words().is_empty() => {
            let word = *rng.pick(target.words());
            replace(bytes, word.as_bytes(), rng);
        }
        // A number in the text.
        11 => {
            let starts: Vec<usize> = (0..bytes.len().min(4096))
                .filter(|i| bytes[*i].is_ascii_digit() && (*i == 0 || !bytes[i - 1].is_ascii_digit()))
                .collect();
            if !starts.is_empty() {
                let at = *rng.pick(&starts);
                let n = bytes[at..].iter().take_while(|b| b.is_ascii_digit()).count();
                let number = match rng.below(6) {
                    0 => "-1".to_owned(),
                    1 => "1e999".to_owned(),
                    2 => "0.5".to_owned(),
                    3 => "18446744073709551616".to_owned(),
                    _ => rng.number().to_string(),
                };
                bytes.splice(at..at + n, number.bytes());
            }
        }
        // A number in bytes.
        12 if bytes.len() >= 8 => {
            let at = rng.below(bytes.len() - 7);
            let n = *rng.pick(&[2, 4, 8]);
            let value = rng.pick(&EDGES).to_le_bytes();
            bytes[at..at + n].copy_from_slice(&value[..n]);
        }
        // A number of varying length, as postcard has them.
        13 => {
            let mut value = *rng.pick(&EDGES);
            let mut number = vec![];
            while value >= 0x80 {
                number.push(value as u8 | 0x80);
                value >>= 7;
            }
            number.push(value as u8);
            replace(bytes, &number, rng);
        }
        // Brackets in brackets.
        14 => {
            let (open, close) = *rng.pick(&[
                ("[", "]"),
                ("{\"a\":", "}"),
                ("<a>", "</a>"),
                ("$(", ")"),
                ("(", ")"),
                ("- ", ""),
            ]);
            let depth = rng.power(8, 15);
            let range = range(bytes, rng);
            let mut piece = open.repeat(depth).into_bytes();
            piece.extend_from_slice(&bytes[range.clone()]);
            piece.extend_from_slice(close.repeat(depth).as_bytes());
            bytes.splice(range, piece);
        }
        15 => {
            let n = rng.below(64);
            let noise: Vec<u8> = (0..n).map(|_| rng.next_u64() as u8).collect();
            insert(bytes, &noise, rng);
        }
        // A long word.
        _ => {
            let n = rng.power(10, 19);
            replace(bytes, "x".repeat(n).as_bytes(), rng);
        }
    }
}

fn insert(bytes: &mut Vec<u8>, piece: &[u8], rng: &mut Rng) {
    let at = rng.below(bytes.len() + 1);
    bytes.splice(at..at, piece.iter().copied());
}

/// In place of a word of the text, if there is one.
fn replace(bytes: &mut Vec<u8>, piece: &[u8], rng: &mut Rng) {
    let is_word = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-' | b'/');
    let mut range = range(bytes, rng);
    if rng.one_in(2) {
        let start = bytes[..range.start].iter().rposition(|b| !is_word(*b)).map_or(0, |p| p + 1);
        let n = bytes[range.start..].iter().take_while(|b| is_word(**b)).count();
        range = start..range.start + n;
    }
    bytes.splice(range, piece.iter().copied());
}

// ---------------------------------------------------------------- JSON

/// One value of a JSON text changed, or of one of its lines.
fn change_json(bytes: &[u8], rng: &mut Rng) -> Option<Vec<u8>> {
    let (at, mut value) = match serde_json::from_slice::<Value>(bytes) {
        Ok(value) => (0..bytes.len(), value),
        Err(_) => {
            let at = line(bytes, rng);
            let value = serde_json::from_slice(&bytes[at.clone()]).ok()?;
            (at, value)
        }
    };
    for _ in 0..1 + rng.below(3) {
        let n_values = count(&value);
        let mut number = rng.below(n_values);
        let donor = pick(&value, rng.below(n_values)).clone();
        change_value(&mut value, &mut number, &donor, rng);
    }
    let mut text = serde_json::to_vec(&value).ok()?;
    if at.end < bytes.len() || bytes.ends_with(b"\n") {
        text.push(b'\n');
    }
    let mut all = bytes.to_vec();
    all.splice(at, text);
    Some(all)
}

fn count(value: &Value) -> usize {
    1 + match value {
        Value::Array(list) => list.iter().map(count).sum(),
        Value::Object(map) => map.values().map(count).sum(),
        _ => 0,
    }
}

/// Value `number` of those in `value`, itself the first.
fn pick(value: &Value, mut number: usize) -> &Value {
    fn walk<'a>(value: &'a Value, number: &mut usize) -> Option<&'a Value> {
        if *number == 0 {
            return Some(value);
        }
        *number -= 1;
        match value {
            Value::Array(list) => list.iter().find_map(|v| walk(v, number)),
            Value::Object(map) => map.values().find_map(|v| walk(v, number)),
            _ => None,
        }
    }
    walk(value, &mut number).unwrap_or(value)
}

/// Changes value `number` of those in `value`. True when it was found.
fn change_value(value: &mut Value, number: &mut usize, donor: &Value, rng: &mut Rng) -> bool {
    if *number > 0 {
        *number -= 1;
        return match value {
            Value::Array(list) => list.iter_mut().any(|v| change_value(v, number, donor, rng)),
            Value::Object(map) => map.values_mut().any(|v| change_value(v, number, donor, rng)),
            _ => false,
        };
    }
    match (rng.below(8), value) {
        (0, Value::Object(map)) if !map.is_empty() => {
            let key = map.keys().nth(rng.below(map.len())).cloned().unwrap_or_default();
            map.remove(&key);
        }
        (1, Value::Object(map)) => {
            let key = match map.keys().nth(rng.below(map.len().max(1))) {
                Some(key) if rng.one_in(2) => key.clone(),
                _ => (*rng.pick(&ODD_NAMES)).to_owned(),
            };
            map.insert(key, donor.clone());
        }
        (0, Value::Array(list)) if !list.is_empty() => {
            list.remove(rng.below(list.len()));
        }
        (1, Value::Array(list)) => {
            let n_times = rng.power(4, 14);
            let donor_bytes = serde_json::to_string(donor).map_or(BYTES_MAX, |text| text.len());
            let n_times = n_times.min(1 + BYTES_MAX / 4 / donor_bytes.max(1));
            list.extend(std::iter::repeat_n(donor.clone(), n_times));
        }
        (2, Value::Array(list)) if list.len() > 1 => {
            let at = rng.below(list.len() - 1);
            list.swap(at, at + 1);
        }
        (3, value) => *value = donor.clone(),
        (4, value) => *value = Value::Array(vec![value.take()]),
        (5, value) => {
            *value = match rng.below(5) {
                0 => Value::Null,
                1 => Value::Bool(rng.one_in(2)),
                2 => serde_json::json!({}),
                3 => serde_json::json!([]),
                _ => serde_json::json!(-1.5e300),
            };
        }
        (_, Value::Number(number)) => *number = rng.number().into(),
        (_, Value::String(text)) => {
            *text = match rng.below(4) {
                0 => "x".repeat(1 << rng.below(16)),
                1 => rng.number().to_string(),
                2 => format!("{text}{}", rng.pick(&ODD_NAMES)),
                _ => rng.name(),
            };
        }
        (_, value) => *value = Value::String(rng.name()),
    }
    true
}
