//! Any value of any type that can be read: a deserializer that reads from random numbers.
//!
//! The types themselves say what there is to choose (fields, variants, lengths), so a message or record that is added
//! is fuzzed without a word here.

use crate::Rng;
use serde::de::{self, DeserializeOwned, DeserializeSeed, IntoDeserializer, Visitor};
use std::fmt;

/// Values in values.
const DEPTH_MAX: u32 = 12;

/// A value of `T`; `None` where the type refuses what came.
pub fn value<T: DeserializeOwned>(rng: &mut Rng, is_human_readable: bool) -> Option<T> {
    let mut budget = 400;
    T::deserialize(Any { rng, budget: &mut budget, depth: 0, is_human_readable }).ok()
}

struct Any<'a> {
    rng: &'a mut Rng,
    /// Values that may still come.
    budget: &'a mut u32,
    depth: u32,
    is_human_readable: bool,
}

#[derive(Debug)]
struct Refused;

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("refused")
    }
}
impl std::error::Error for Refused {}
impl de::Error for Refused {
    fn custom<T: fmt::Display>(_: T) -> Refused {
        Refused
    }
}

impl Any<'_> {
    fn inner(&mut self) -> Any<'_> {
        *self.budget = self.budget.saturating_sub(1);
        Any {
            rng: self.rng,
            budget: self.budget,
            depth: self.depth + 1,
            is_human_readable: self.is_human_readable,
        }
    }

    fn len(&mut self) -> usize {
        if self.depth > DEPTH_MAX || *self.budget == 0 {
            return 0;
        }
        match self.rng.below(10) {
            0 => self.rng.below(20),
            n => n % 4,
        }
    }

    fn seq<'de, V: Visitor<'de>>(mut self, n: usize, visitor: V) -> Result<V::Value, Refused> {
        visitor.visit_seq(Items { any: self.inner(), left: n })
    }
}

macro_rules! number {
    ($($method:ident $visit:ident $type:ty),*) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
            visitor.$visit(self.rng.number() as $type)
        })*
    };
}

impl<'de> de::Deserializer<'de> for Any<'_> {
    type Error = Refused;

    fn is_human_readable(&self) -> bool {
        self.is_human_readable
    }

    number!(deserialize_i8 visit_i8 i8, deserialize_i16 visit_i16 i16, deserialize_i32 visit_i32 i32,
        deserialize_i64 visit_i64 i64, deserialize_u8 visit_u8 u8, deserialize_u16 visit_u16 u16,
        deserialize_u32 visit_u32 u32, deserialize_u64 visit_u64 u64, deserialize_f32 visit_f32 f32,
        deserialize_f64 visit_f64 f64, deserialize_i128 visit_i128 i128, deserialize_u128 visit_u128 u128);

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        self.deserialize_string(visitor)
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        visitor.visit_bool(self.rng.one_in(2))
    }

    fn deserialize_char<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        visitor.visit_char(*self.rng.pick(&['a', 'é', '\u{1b}']))
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        self.deserialize_string(visitor)
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        visitor.visit_string(match self.rng.below(10) {
            // Digests are hexadecimal where people can read them.
            0 => format!("{:064x}", self.rng.below(8)),
            1 => format!("{}:{}", self.rng.name(), self.rng.number()),
            2 => format!("run:{}", self.rng.name()),
            _ => self.rng.name(),
        })
    }

    fn deserialize_bytes<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        self.deserialize_byte_buf(visitor)
    }

    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        let n = self.rng.below(40);
        visitor.visit_byte_buf((0..n).map(|_| self.rng.next_u64() as u8).collect())
    }

    fn deserialize_option<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, Refused> {
        match self.depth > DEPTH_MAX || *self.budget == 0 || self.rng.one_in(2) {
            true => visitor.visit_none(),
            false => visitor.visit_some(self.inner()),
        }
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        visitor.visit_unit()
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Refused> {
        visitor.visit_unit()
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        mut self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Refused> {
        visitor.visit_newtype_struct(self.inner())
    }

    fn deserialize_seq<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, Refused> {
        let n = self.len();
        self.seq(n, visitor)
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, n: usize, visitor: V) -> Result<V::Value, Refused> {
        self.seq(n, visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        n: usize,
        visitor: V,
    ) -> Result<V::Value, Refused> {
        self.seq(n, visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, Refused> {
        let n = self.len();
        visitor.visit_map(Items { any: self.inner(), left: n })
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Refused> {
        self.seq(fields.len(), visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        mut self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Refused> {
        let variant = self.rng.below(variants.len()) as u32;
        visitor.visit_enum(Variant { any: self.inner(), variant })
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        self.deserialize_string(visitor)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        visitor.visit_unit()
    }
}

struct Items<'a> {
    any: Any<'a>,
    left: usize,
}

impl<'de> de::SeqAccess<'de> for Items<'_> {
    type Error = Refused;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Refused> {
        let Some(left) = self.left.checked_sub(1) else { return Ok(None) };
        self.left = left;
        seed.deserialize(self.any.inner()).map(Some)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.left)
    }
}

impl<'de> de::MapAccess<'de> for Items<'_> {
    type Error = Refused;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Refused> {
        let Some(left) = self.left.checked_sub(1) else { return Ok(None) };
        self.left = left;
        seed.deserialize(self.any.inner()).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Refused> {
        seed.deserialize(self.any.inner())
    }
}

struct Variant<'a> {
    any: Any<'a>,
    variant: u32,
}

impl<'de, 'a> de::EnumAccess<'de> for Variant<'a> {
    type Error = Refused;
    type Variant = Any<'a>;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Any<'a>), Refused> {
        let variant: de::value::U32Deserializer<Refused> = self.variant.into_deserializer();
        Ok((seed.deserialize(variant)?, self.any))
    }
}

impl<'de> de::VariantAccess<'de> for Any<'_> {
    type Error = Refused;

    fn unit_variant(self) -> Result<(), Refused> {
        Ok(())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(mut self, seed: T) -> Result<T::Value, Refused> {
        seed.deserialize(self.inner())
    }

    fn tuple_variant<V: Visitor<'de>>(self, n: usize, visitor: V) -> Result<V::Value, Refused> {
        self.seq(n, visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Refused> {
        self.seq(fields.len(), visitor)
    }
}
