//! Parses JSON in one pass: docs/adr/0013-page-parsing.md.
//!
//! A page is mostly short strings, and finding their ends takes most of the time. So blocks of 64
//! bytes are scanned for the characters that can end a string, without branches, and the end of a
//! string is the next bit of that scan.
//!
//! Accepts what serde_json accepts, and returns the same values. serde_json itself reads what is
//! rare in a page: strings with escapes, and arrays and objects that no type wants.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::forward_to_deserialize_any;
use serde_json::value::RawValue;
use wide::u8x16;

/// The deepest nesting of arrays and objects that are not skipped. Equals the limit of serde_json.
const DEPTH_MAX: u8 = 127;
/// The name of the newtype by which [`Token`] asks for a value as it was sent.
const TOKEN: &str = "$bellbird::Token";
/// The name of the newtype by which [`none_if_invalid`] asks for an [`Attempt`].
const ATTEMPT: &str = "$bellbird::Attempt";
const BLOCK_BYTES: usize = 64;

/// Parses a text. The value can borrow from it.
pub fn from_str<'de, T: Deserialize<'de>>(text: &'de str) -> Result<T, Invalid> {
    let mut reader = Reader {
        text,
        at: 0,
        depth: 0,
        string_ends: 0,
        scanned: 0,
    };
    let value = T::deserialize(&mut reader)?;
    if reader.peek().is_some() {
        Err(Invalid)
    } else {
        Ok(value)
    }
}

/// The text is not JSON, or not of the requested type. Never holds a part of the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not the expected JSON")]
pub struct Invalid;

impl Error for Invalid {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Self
    }
}

/// A JSON value as it was sent, whatever its type. Works with serde_json too.
pub(crate) enum Token<'a> {
    Null,
    /// Borrowed if the string has no escapes.
    String(Cow<'a, str>),
    /// The text of a number, boolean, array or object, or of a string with half a surrogate pair.
    Other(&'a str),
}

impl<'de: 'a, 'a> Deserialize<'de> for Token<'a> {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        struct TokenVisitor;

        impl<'de> Visitor<'de> for TokenVisitor {
            type Value = Token<'de>;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("a value")
            }

            /// A string without escapes, from [`Reader`].
            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Token::String(Cow::Borrowed(text)))
            }

            /// The text of any other value, from [`Reader`].
            fn visit_borrowed_bytes<E: Error>(self, text: &'de [u8]) -> Result<Self::Value, E> {
                std::str::from_utf8(text).map(Token::of).map_err(E::custom)
            }

            /// Any other deserializer.
            fn visit_newtype_struct<D: Deserializer<'de>>(
                self,
                input: D,
            ) -> Result<Self::Value, D::Error> {
                <&RawValue>::deserialize(input).map(|raw| Token::of(raw.get()))
            }
        }

        input.deserialize_newtype_struct(TOKEN, TokenVisitor)
    }
}

impl<'a> Token<'a> {
    fn of(text: &'a str) -> Self {
        if text == "null" {
            return Self::Null;
        }
        match text
            .strip_prefix('"')
            .and_then(|rest| rest.strip_suffix('"'))
        {
            Some(plain) if !plain.contains('\\') => Self::String(Cow::Borrowed(plain)),
            Some(_) => serde_json::from_str(text)
                .map_or(Self::Other(text), |text| Self::String(Cow::Owned(text))),
            None => Self::Other(text),
        }
    }
}

/// Deserializes an optional member that must not fail its row: null and values of another type
/// become none. Works with serde_json too.
///
/// Use it in `deserialize_with` together with `default`.
pub(crate) fn none_if_invalid<'de, D, T>(input: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    struct AttemptVisitor<T>(PhantomData<T>);

    impl<'de, T: Deserialize<'de>> Visitor<'de> for AttemptVisitor<T> {
        type Value = Option<T>;

        fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
            out.write_str("a value")
        }

        /// From [`Reader`].
        fn visit_seq<A: SeqAccess<'de>>(self, mut attempt: A) -> Result<Self::Value, A::Error> {
            Ok(attempt.next_element::<Option<T>>()?.flatten())
        }

        /// Any other deserializer.
        fn visit_newtype_struct<D: Deserializer<'de>>(
            self,
            input: D,
        ) -> Result<Self::Value, D::Error> {
            let raw = <&RawValue>::deserialize(input)?;
            Ok(serde_json::from_str::<Option<T>>(raw.get()).ok().flatten())
        }
    }

    input.deserialize_newtype_struct(ATTEMPT, AttemptVisitor(PhantomData))
}

#[derive(Clone, Copy)]
struct Reader<'de> {
    text: &'de str,
    /// The position of the next byte to read.
    at: usize,
    depth: u8,
    /// A bit for each byte that can end a string, in the last block that was scanned.
    string_ends: u64,
    /// The end of that block.
    scanned: usize,
}

impl<'de> Reader<'de> {
    fn byte(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    /// The next byte that is not a space.
    fn peek(&mut self) -> Option<u8> {
        while let Some(b' ' | b'\n' | b'\t' | b'\r') = self.byte() {
            self.at += 1;
        }
        self.byte()
    }

    fn expect(&mut self, byte: u8) -> Result<(), Invalid> {
        if self.peek() != Some(byte) {
            return Err(Invalid);
        }
        self.at += 1;
        Ok(())
    }

    /// The first position from `at` on that can end a string. `at` never decreases, unless an
    /// [`Attempt`] restores the whole reader. A block begins where a string begins that the last
    /// block does not reach, so what lies between strings is often not scanned.
    #[inline]
    fn string_end(&mut self, mut at: usize) -> Option<usize> {
        loop {
            if at >= self.scanned {
                self.scan(at)?;
            }
            let ends = self.string_ends >> (BLOCK_BYTES - (self.scanned - at));
            if ends != 0 {
                return Some(at + ends.trailing_zeros() as usize);
            }
            at = self.scanned;
        }
    }

    /// Scans the block that begins at `at`. None at the end of the text.
    #[inline]
    fn scan(&mut self, at: usize) -> Option<()> {
        let rest = self
            .text
            .as_bytes()
            .get(at..)
            .filter(|rest| !rest.is_empty())?;
        self.string_ends = match rest.first_chunk() {
            Some(block) => string_ends(block),
            None => {
                let mut block = [b' '; BLOCK_BYTES];
                block
                    .iter_mut()
                    .zip(rest)
                    .for_each(|(to, from)| *to = *from);
                string_ends(&block)
            }
        };
        self.scanned = at + BLOCK_BYTES;
        Some(())
    }

    /// The content of the string that begins here. None if it has escapes: then `text_from` has it.
    #[inline]
    fn plain_string(&mut self) -> Result<Option<&'de str>, Invalid> {
        let start = self.at + 1;
        let end = self.string_end(start).ok_or(Invalid)?;
        match self.text.as_bytes().get(end) {
            Some(b'"') => {
                self.at = end + 1;
                self.text.get(start..end).map(Some).ok_or(Invalid)
            }
            Some(b'\\') => self.skip_by_serde_json().map(|()| None),
            _ => Err(Invalid),
        }
    }

    fn text_from(&self, start: usize) -> Result<&'de str, Invalid> {
        self.text.get(start..self.at).ok_or(Invalid)
    }

    /// Skips an array, an object or a string. It needs no recursion, so any depth is fine.
    #[cold]
    fn skip_by_serde_json(&mut self) -> Result<(), Invalid> {
        let rest = self.text.get(self.at..).ok_or(Invalid)?;
        let mut values = serde_json::Deserializer::from_str(rest).into_iter::<IgnoredAny>();
        values.next().ok_or(Invalid)?.map_err(|_| Invalid)?;
        self.at += values.byte_offset();
        Ok(())
    }

    fn string<V: Visitor<'de>>(&mut self, visitor: V) -> Result<V::Value, Invalid> {
        if self.peek() != Some(b'"') {
            return Err(Invalid);
        }
        let start = self.at;
        match self.plain_string()? {
            Some(text) => visitor.visit_borrowed_str(text),
            None => visitor
                .visit_string(serde_json::from_str(self.text_from(start)?).map_err(|_| Invalid)?),
        }
    }

    fn literal(&mut self, literal: &str) -> Result<(), Invalid> {
        let rest = self.text.as_bytes().get(self.at..).ok_or(Invalid)?;
        if !rest.starts_with(literal.as_bytes()) {
            return Err(Invalid);
        }
        self.at += literal.len();
        Ok(())
    }

    /// Skips a value and returns its text.
    fn skip(&mut self) -> Result<&'de str, Invalid> {
        let first = self.peek();
        let start = self.at;
        match first {
            Some(b'"') => self.plain_string().map(|_| ())?,
            Some(b'[' | b'{') => self.skip_by_serde_json()?,
            Some(b'n') => self.literal("null")?,
            Some(b't') => self.literal("true")?,
            Some(b'f') => self.literal("false")?,
            _ => self.skip_number()?,
        }
        self.text_from(start)
    }

    fn skip_number(&mut self) -> Result<(), Invalid> {
        self.skip_if(|byte| byte == b'-');
        if !self.skip_if(|byte| byte == b'0') {
            self.skip_digits()?;
        }
        if self.skip_if(|byte| byte == b'.') {
            self.skip_digits()?;
        }
        if self.skip_if(|byte| matches!(byte, b'e' | b'E')) {
            self.skip_if(|byte| matches!(byte, b'+' | b'-'));
            self.skip_digits()?;
        }
        Ok(())
    }

    fn skip_if(&mut self, is_wanted: impl Fn(u8) -> bool) -> bool {
        let is_found = self.byte().is_some_and(is_wanted);
        self.at += usize::from(is_found);
        is_found
    }

    fn skip_digits(&mut self) -> Result<(), Invalid> {
        let start = self.at;
        while self.skip_if(|byte| byte.is_ascii_digit()) {}
        if self.at > start {
            Ok(())
        } else {
            Err(Invalid)
        }
    }

    /// Reads an array or object whose first byte is `start`.
    fn items<T>(
        &mut self,
        (start, end): (u8, u8),
        read: impl FnOnce(&mut Items<'_, 'de>) -> Result<T, Invalid>,
    ) -> Result<T, Invalid> {
        self.expect(start)?;
        if self.depth == DEPTH_MAX {
            return Err(Invalid);
        }
        self.depth += 1;
        let mut items = Items {
            reader: self,
            end,
            is_first: true,
        };
        let value = read(&mut items)?;
        self.depth -= 1;
        self.expect(end)?;
        Ok(value)
    }
}

/// A bit for each byte that can end a string: a quote, a backslash, or a control character, which
/// is an error.
fn string_ends(block: &[u8; BLOCK_BYTES]) -> u64 {
    let (parts, _) = block.as_chunks();
    parts.iter().rev().fold(0, |bits, part| {
        let part = u8x16::new(*part);
        let is_control = part.min(u8x16::splat(0x1f)).simd_eq(part);
        let ends =
            part.simd_eq(u8x16::splat(b'"')) | part.simd_eq(u8x16::splat(b'\\')) | is_control;
        bits << 16 | u64::from(ends.to_bitmask())
    })
}

impl<'de> Deserializer<'de> for &mut Reader<'de> {
    type Error = Invalid;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Invalid> {
        match self.peek() {
            Some(b'"') => self.string(visitor),
            Some(b'[') => self.deserialize_seq(visitor),
            Some(b'{') => self.deserialize_map(visitor),
            Some(b'n') => self.literal("null").and_then(|()| visitor.visit_unit()),
            Some(b't') => self.literal("true").and_then(|()| visitor.visit_bool(true)),
            Some(b'f') => self
                .literal("false")
                .and_then(|()| visitor.visit_bool(false)),
            _ => serde_json::Deserializer::from_str(self.skip()?)
                .deserialize_any(visitor)
                .map_err(|_| Invalid),
        }
    }

    #[inline]
    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Invalid> {
        self.string(visitor)
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Invalid> {
        self.string(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Invalid> {
        match self.peek() {
            Some(b'n') => self.literal("null").and_then(|()| visitor.visit_none()),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Invalid> {
        self.skip()?;
        visitor.visit_unit()
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &str,
        visitor: V,
    ) -> Result<V::Value, Invalid> {
        match name {
            TOKEN => {}
            ATTEMPT => return visitor.visit_seq(Attempt(self)),
            _ => return visitor.visit_newtype_struct(self),
        }
        if self.peek() != Some(b'"') {
            return visitor.visit_borrowed_bytes(self.skip()?.as_bytes());
        }
        let start = self.at;
        match self.plain_string()? {
            Some(text) => visitor.visit_borrowed_str(text),
            None => visitor.visit_borrowed_bytes(self.text_from(start)?.as_bytes()),
        }
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Invalid> {
        self.items((b'[', b']'), |items| visitor.visit_seq(items))
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Invalid> {
        self.items((b'{', b'}'), |items| visitor.visit_map(items))
    }

    /// As with serde_json, a struct can also be an array of its members.
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Invalid> {
        if self.peek() == Some(b'[') {
            self.deserialize_seq(visitor)
        } else {
            self.deserialize_map(visitor)
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 char string bytes byte_buf unit unit_struct tuple tuple_struct enum
    }

    /// An amount is an `ExactNumber`.
    fn deserialize_f32<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Invalid> {
        Err(Invalid)
    }

    fn deserialize_f64<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Invalid> {
        Err(Invalid)
    }
}

/// The items of an array, or the members of an object.
struct Items<'r, 'de> {
    reader: &'r mut Reader<'de>,
    end: u8,
    is_first: bool,
}

impl Items<'_, '_> {
    /// Whether an item follows. Then it is next.
    fn has_next(&mut self) -> Result<bool, Invalid> {
        let is_first = std::mem::take(&mut self.is_first);
        match self.reader.peek() {
            Some(byte) if byte == self.end => return Ok(false),
            _ if is_first => {}
            Some(b',') => self.reader.at += 1,
            _ => return Err(Invalid),
        }
        Ok(true)
    }
}

impl<'de> SeqAccess<'de> for &mut Items<'_, 'de> {
    type Error = Invalid;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Invalid> {
        if self.has_next()? {
            seed.deserialize(&mut *self.reader).map(Some)
        } else {
            Ok(None)
        }
    }
}

impl<'de> MapAccess<'de> for &mut Items<'_, 'de> {
    type Error = Invalid;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Invalid> {
        if self.has_next()? {
            seed.deserialize(&mut *self.reader).map(Some)
        } else {
            Ok(None)
        }
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, Invalid> {
        self.reader.expect(b':')?;
        seed.deserialize(&mut *self.reader)
    }
}

/// One value, without brackets, as the only item of an array. It is read in place. If it has
/// another type, it is skipped, and the array is empty.
struct Attempt<'r, 'de>(&'r mut Reader<'de>);

impl<'de> SeqAccess<'de> for Attempt<'_, 'de> {
    type Error = Invalid;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Invalid> {
        let before = *self.0;
        match seed.deserialize(&mut *self.0) {
            Ok(value) => Ok(Some(value)),
            Err(Invalid) => {
                *self.0 = before;
                self.0.skip().map(|_| None)
            }
        }
    }
}

#[cfg(any(test, feature = "test-support"))]
pub mod test_support;
#[cfg(test)]
mod tests;
