//! The bytes of every message are what they were when [`PROTOCOL`] got its number: `golden.txt` has a digest for each variant of each kind
//! of message.
//!
//! The samples come from the types themselves, by [`Sampler`], so a new variant is in the list from its first day on, and what is nested in
//! a message is in its digest.

use crate::frame::PROTOCOL;
use crate::message::{
    FromExecutor, FromMember, Hello, Reply, ReplyBody, Request, RequestBody, ToExecutor, Welcome,
};
use serde::de::{self, DeserializeOwned, DeserializeSeed, Deserializer, IntoDeserializer, Visitor};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

const GOLDEN: &str = include_str!("golden.txt");
const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/golden.txt");

/// Texts that samples have. Where a text is the word for a state, the first one of these that is such a word is taken.
const WORDS: [&str; 3] = ["", "draining", "running"];
/// More samples of one variant are not made: its types would be nested without an end.
const SAMPLES_MAX: usize = 10_000;
/// Below this, lists are empty and what may be absent is, so that a type that holds itself has an end.
const DEPTH_MAX: usize = 24;

type Failed = de::value::Error;

/// Makes values of any type that can be read, of what the type says of itself.
///
/// A number, a text or a byte follows from the name of its field: two fields of one type that change places have other bytes. Lists have one
/// element, and what may be absent is there. Of an enum, each variant has its turn.
struct Sampler {
    /// The field that is made now.
    field: String,
    word: &'static str,
    depth: usize,
    /// The variant of the outermost enum, until it is taken.
    first: Option<u32>,
    /// For each enum, by its name and the field where it stands: variants that were taken, and how many there are.
    turns: BTreeMap<String, (u32, u32)>,
}

impl Sampler {
    fn number(&self) -> u8 {
        1 + blake3::hash(self.field.as_bytes()).as_bytes()[0] % 100
    }

    fn text(&self) -> String {
        if self.word.is_empty() { self.field.clone() } else { self.word.into() }
    }

    fn is_deep(&self) -> bool {
        self.depth > DEPTH_MAX
    }

    /// Makes what belongs to a field of this name.
    fn within<T>(&mut self, field: &str, make: impl FnOnce(&mut Sampler) -> T) -> T {
        let outer = std::mem::replace(&mut self.field, field.to_owned());
        self.depth += 1;
        let made = make(self);
        self.depth -= 1;
        self.field = outer;
        made
    }

    fn has_had_all(&self) -> bool {
        self.turns.values().all(|(n_taken, n_variants)| n_taken >= n_variants)
    }
}

macro_rules! numbers {
    ($($method:ident $visit:ident)*) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failed> {
            visitor.$visit(self.number().into())
        })*
    };
}

impl<'de> Deserializer<'de> for &mut Sampler {
    type Error = Failed;

    fn is_human_readable(&self) -> bool {
        false
    }

    numbers! {
        deserialize_u8 visit_u8 deserialize_u16 visit_u16 deserialize_u32 visit_u32 deserialize_u64 visit_u64
        deserialize_i16 visit_i16 deserialize_i32 visit_i32 deserialize_i64 visit_i64
        deserialize_f32 visit_f32 deserialize_f64 visit_f64 deserialize_u128 visit_u128 deserialize_i128 visit_i128
        deserialize_char visit_char
    }

    fn deserialize_i8<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failed> {
        visitor.visit_i8(self.number().cast_signed())
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failed> {
        visitor.visit_bool(self.number().is_multiple_of(2))
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failed> {
        visitor.visit_string(self.text())
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failed> {
        visitor.visit_string(self.text())
    }

    fn deserialize_bytes<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failed> {
        visitor.visit_byte_buf(vec![self.number()])
    }

    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failed> {
        visitor.visit_byte_buf(vec![self.number()])
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failed> {
        if self.is_deep() { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failed> {
        visitor.visit_unit()
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Failed> {
        visitor.visit_unit()
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Failed> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failed> {
        let n = usize::from(!self.is_deep());
        visitor.visit_seq(Items { sampler: self, names: Names::Places(0..n) })
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, n: usize, visitor: V) -> Result<V::Value, Failed> {
        visitor.visit_seq(Items { sampler: self, names: Names::Places(0..n) })
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        n: usize,
        visitor: V,
    ) -> Result<V::Value, Failed> {
        self.deserialize_tuple(n, visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failed> {
        let n = usize::from(!self.is_deep());
        visitor.visit_map(Items { sampler: self, names: Names::Places(0..n) })
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Failed> {
        visitor.visit_seq(Items { sampler: self, names: Names::Fields(fields.iter()) })
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Failed> {
        let n_variants = u32::try_from(variants.len()).expect("an enum has few variants");
        let variant = match self.first.take() {
            Some(first) => first,
            None => {
                let turn = self.turns.entry(format!("{name} {}", self.field)).or_insert((0, n_variants));
                turn.0 += 1;
                (turn.0 - 1) % n_variants
            }
        };
        visitor.visit_enum(Chosen { sampler: self, variant })
    }

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Failed> {
        Err(de::Error::custom("postcard has no type whose form stands in its bytes"))
    }

    serde::forward_to_deserialize_any! { identifier ignored_any }
}

/// The names of what follows one another: of a struct's fields, or numbers.
enum Names {
    Fields(std::slice::Iter<'static, &'static str>),
    Places(std::ops::Range<usize>),
}

struct Items<'a> {
    sampler: &'a mut Sampler,
    names: Names,
}

impl Items<'_> {
    fn next(&mut self) -> Option<String> {
        match &mut self.names {
            Names::Fields(fields) => fields.next().map(|field| (*field).to_owned()),
            Names::Places(places) => places.next().map(|place| format!("{}{place}", self.sampler.field)),
        }
    }
}

impl<'de> de::SeqAccess<'de> for Items<'_> {
    type Error = Failed;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Failed> {
        let Some(name) = self.next() else { return Ok(None) };
        self.sampler.within(&name, |sampler| seed.deserialize(sampler).map(Some))
    }
}

impl<'de> de::MapAccess<'de> for Items<'_> {
    type Error = Failed;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Failed> {
        let Some(name) = self.next() else { return Ok(None) };
        self.sampler.within(&name, |sampler| seed.deserialize(sampler).map(Some))
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Failed> {
        seed.deserialize(&mut *self.sampler)
    }
}

struct Chosen<'a> {
    sampler: &'a mut Sampler,
    variant: u32,
}

impl<'de> de::EnumAccess<'de> for Chosen<'_> {
    type Error = Failed;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Self), Failed> {
        let variant = IntoDeserializer::<Failed>::into_deserializer(self.variant);
        seed.deserialize(variant).map(|value| (value, self))
    }
}

impl<'de> de::VariantAccess<'de> for Chosen<'_> {
    type Error = Failed;

    fn unit_variant(self) -> Result<(), Failed> {
        Ok(())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Failed> {
        self.sampler.within("0", |sampler| seed.deserialize(sampler))
    }

    fn tuple_variant<V: Visitor<'de>>(self, n: usize, visitor: V) -> Result<V::Value, Failed> {
        self.sampler.deserialize_tuple(n, visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Failed> {
        self.sampler.deserialize_struct("", fields, visitor)
    }
}

/// The names of an enum's variants, by failing to read it.
struct VariantsOf(&'static [&'static str]);

impl<'de> Deserializer<'de> for &mut VariantsOf {
    type Error = Failed;

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, Failed> {
        self.0 = variants;
        Err(de::Error::custom("the names are known"))
    }

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Failed> {
        Err(de::Error::custom("it is no enum"))
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct newtype_struct seq
        tuple tuple_struct map struct identifier ignored_any
    }
}

/// Samples of a type in which all that is nested in it has had its turn. Of an enum, those of the variant `first`.
fn samples<T: DeserializeOwned>(first: Option<u32>, name: &str) -> Vec<T> {
    let of_word = |word| {
        let mut sampler = Sampler { field: String::new(), word, depth: 0, first, turns: BTreeMap::new() };
        let mut samples = vec![];
        loop {
            sampler.first = first;
            samples.push(T::deserialize(&mut sampler)?);
            assert!(samples.len() < SAMPLES_MAX, "{name} has more than {SAMPLES_MAX} forms");
            if sampler.has_had_all() {
                return Ok(samples);
            }
        }
    };
    let made: Vec<Result<Vec<T>, Failed>> = WORDS.into_iter().map(of_word).collect();
    let why = format!("{:?}", made.iter().filter_map(|made| made.as_ref().err()).collect::<Vec<_>>());
    let made = made.into_iter().find_map(Result::ok);
    made.unwrap_or_else(|| panic!("no sample of {name} can be made: {why}; a word of it has to be in WORDS"))
}

/// The line of a variant in `golden.txt`.
fn line<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(
    name: &str,
    first: Option<u32>,
) -> String {
    let (mut digest, mut n_bytes) = (blake3::Hasher::new(), 0);
    let samples = samples::<T>(first, name);
    for sample in &samples {
        let bytes = postcard::to_allocvec(sample).expect("messages hold nothing that postcard cannot write");
        assert_eq!(&postcard::from_bytes::<T>(&bytes).expect("it was just written"), sample, "{name}");
        n_bytes += bytes.len();
        digest.update(&bytes);
    }
    format!(
        "{name}: samples {}, bytes {n_bytes}, digest {}",
        samples.len(),
        &digest.finalize().to_hex()[..32]
    )
}

fn lines_of<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(name: &str) -> Vec<String> {
    let mut names = VariantsOf(&[]);
    let _ = T::deserialize(&mut names);
    let variants = names.0.iter().zip(0..);
    variants.map(|(variant, n)| line::<T>(&format!("{name}::{variant}"), Some(n))).collect()
}

fn golden_now() -> String {
    let mut text = format!("protocol {PROTOCOL}\n");
    let kinds = [
        lines_of::<Hello>("Hello"),
        lines_of::<Welcome>("Welcome"),
        lines_of::<ToExecutor>("ToExecutor"),
        lines_of::<FromExecutor>("FromExecutor"),
        lines_of::<FromMember>("FromMember"),
        // What is in all of them is in the lines of their bodies.
        vec![line::<Request>("Request", Some(0))],
        lines_of::<RequestBody>("RequestBody"),
        vec![line::<Reply>("Reply", Some(0))],
        lines_of::<ReplyBody>("ReplyBody"),
    ];
    for line in kinds.into_iter().flatten() {
        let _ = writeln!(text, "{line}");
    }
    text
}

#[test]
fn the_bytes_of_messages_change_with_the_number_of_the_protocol() {
    let now = golden_now();
    if now == GOLDEN {
        return;
    }
    let new = std::env::temp_dir().join("eyas-golden-messages.txt");
    std::fs::write(&new, &now).expect("a file for the new text");
    let renew = format!("cp {} {PATH}", new.display());
    let of_protocol = GOLDEN.lines().next().unwrap_or_default();
    assert_eq!(
        of_protocol,
        format!("protocol {PROTOCOL}"),
        "frame::PROTOCOL has a new number, and golden.txt is of an old one. Renew it by: {renew}"
    );
    let (old, new) = (GOLDEN.lines().collect::<BTreeSet<_>>(), now.lines().collect::<BTreeSet<_>>());
    let changed = old.symmetric_difference(&new).filter_map(|line| Some(line.split_once(": ")?.0));
    panic!(
        "these messages have other bytes, or fields of other names, and frame::PROTOCOL is {PROTOCOL} as before: {:?}. A program of before would \
         misread them. Give PROTOCOL a new number, and then renew golden.txt by: {renew}. Where nothing but the name of a field has changed, \
         no new number is needed",
        changed.collect::<BTreeSet<_>>()
    );
}

#[test]
fn a_sample_tells_fields_of_one_type_apart() {
    #[derive(Serialize, Deserialize, PartialEq, Debug)]
    struct Before {
        stdout: u64,
        stderr: u64,
        state: Option<Result<String, Vec<u8>>>,
    }
    #[derive(Serialize, Deserialize, PartialEq, Debug)]
    struct After {
        stderr: u64,
        stdout: u64,
        state: Option<Result<String, Vec<u8>>>,
    }
    let (before, after) = (line::<Before>("both", None), line::<After>("both", None));
    assert!(before.starts_with("both: samples 2, "), "a text, and bytes: {before}");
    assert_ne!(before, after);
    assert_eq!(before, line::<Before>("both", None));
}
