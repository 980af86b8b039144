//! Encodes JSON objects as protobuf messages by their types, byte for byte as Go does.
//!
//! Go writes fields in the order of their numbers. It always writes a field that is not a pointer, if need be as its zero value.
//! Pointers, lists and maps are written only if they are set.

use std::borrow::Cow;

use jiff::Timestamp;
use tidings_go::decode_base64;
use tidings_json::{Outline, OutlineIndex, unquote};

use super::EncodeError;
use super::wire;
use crate::types::{Field, FieldKind, ItemType, StructAlternative, Type};

/// Encodes one document.
pub(super) struct MessageEncoder<'a> {
    outline: Outline<'a>,
    /// A stack of the field values of all open messages, the innermost message last.
    values: Vec<Option<OutlineIndex>>,
    out: &'a mut Vec<u8>,
}

impl<'a> MessageEncoder<'a> {
    pub(super) fn new(json: &'a [u8], out: &'a mut Vec<u8>) -> Result<Self, EncodeError> {
        let outline = Outline::read(json).map_err(|_| EncodeError::Json)?;
        Ok(Self {
            outline,
            values: Vec::new(),
            out,
        })
    }

    /// Appends the whole document as a message.
    pub(super) fn document(mut self, message_type: &Type) -> Result<(), EncodeError> {
        let top = self.outline.top();
        if self.outline.members(top).is_none() {
            return Err(EncodeError::Value(message_type.name));
        }
        self.message(message_type, message_type.name, top)
    }

    fn message(
        &mut self,
        message_type: &Type,
        name: &'static str,
        object: OutlineIndex,
    ) -> Result<(), EncodeError> {
        let first = self.values.len();
        self.find_values(message_type, name, object)?;
        for place in message_type.by_number().iter().copied().map(usize::from) {
            let (Some(field), Some(value)) = (
                message_type.fields().get(place),
                self.values.get(first + place).copied(),
            ) else {
                continue;
            };
            match field.inlined() {
                Some(inner) => {
                    self.tag(field, wire::LENGTH_DELIMITED);
                    self.delimited(|encoder| encoder.message(inner, name, object))?;
                }
                None => self.field(field, value)?,
            }
        }
        self.values.truncate(first);
        Ok(())
    }

    /// Pushes the position of each field's value to `values`. `null` counts as absent.
    fn find_values(
        &mut self,
        message_type: &Type,
        name: &'static str,
        object: OutlineIndex,
    ) -> Result<(), EncodeError> {
        let fields = message_type.fields();
        let first = self.values.len();
        self.values.resize(first + fields.len(), None);
        let members = self.outline.members(object);
        let members = members.ok_or(EncodeError::Value(name))?;
        // Members are mostly in the order of the fields, so the search starts after the last match.
        let mut likely = 0;
        for (key, value) in members {
            let key = unquote(self.outline.text(key)).ok_or(EncodeError::Json)?;
            let known = (likely..fields.len()).chain(0..likely).find(|place| {
                let name = fields[*place].name;
                !name.is_empty() && name.as_bytes() == &*key
            });
            if let Some(place) = known {
                likely = place + 1;
                let is_null = self.outline.text(value) == b"null";
                self.values[first + place] = (!is_null).then_some(value);
            }
        }
        Ok(())
    }

    fn field(&mut self, field: &Field, value: Option<OutlineIndex>) -> Result<(), EncodeError> {
        match (field.kind, value) {
            (FieldKind::One(item), Some(value)) => self.item(field, item, value),
            (FieldKind::One(ItemType::Bytes), None) => Ok(()),
            (FieldKind::One(item), None) if !field.pointer => self.zero(field, item),
            (_, None) => Ok(()),
            (FieldKind::List(item), Some(list)) => {
                for place in self.elements(field, list)? {
                    self.item_or_zero(field, item, place)?;
                }
                Ok(())
            }
            (FieldKind::Map(item), Some(map)) => self.map(field, item, map),
        }
    }

    fn elements(
        &self,
        field: &Field,
        list: OutlineIndex,
    ) -> Result<Vec<OutlineIndex>, EncodeError> {
        let elements = self.outline.elements(list);
        Ok(elements.ok_or(EncodeError::Value(field.name))?.collect())
    }

    /// Appends a map: its entries are messages of a key and a value, sorted by key.
    fn map(&mut self, field: &Field, item: ItemType, map: OutlineIndex) -> Result<(), EncodeError> {
        let members = self.outline.members(map);
        let members = members.ok_or(EncodeError::Value(field.name))?;
        let mut entries = Vec::new();
        for (key, value) in members {
            let key = unquote(self.outline.text(key)).ok_or(EncodeError::Json)?;
            entries.push((key, value));
        }
        // Of duplicate members the last counts.
        entries.sort_by(|(a, _), (b, _)| a.cmp(b));
        entries.reverse();
        entries.dedup_by(|(a, _), (b, _)| a == b);
        for (key, value) in entries.into_iter().rev() {
            self.tag(field, wire::LENGTH_DELIMITED);
            self.delimited(|encoder| {
                encoder.out.push(wire::tag_byte(1, wire::LENGTH_DELIMITED));
                wire::put_bytes(encoder.out, &key);
                encoder.entry_value(field, item, value)
            })?;
        }
        Ok(())
    }

    fn entry_value(
        &mut self,
        field: &Field,
        item: ItemType,
        value: OutlineIndex,
    ) -> Result<(), EncodeError> {
        if matches!(item, ItemType::Bytes) && self.is_null(value) {
            return Ok(());
        }
        self.numbered(2, field, item, Some(value).filter(|_| !self.is_null(value)))
    }

    fn item_or_zero(
        &mut self,
        field: &Field,
        item: ItemType,
        value: OutlineIndex,
    ) -> Result<(), EncodeError> {
        if self.is_null(value) {
            return self.zero(field, item);
        }
        self.item(field, item, value)
    }

    fn item(
        &mut self,
        field: &Field,
        item: ItemType,
        value: OutlineIndex,
    ) -> Result<(), EncodeError> {
        self.numbered(field.number, field, item, Some(value))
    }

    fn zero(&mut self, field: &Field, item: ItemType) -> Result<(), EncodeError> {
        self.numbered(field.number, field, item, None)
    }

    /// Writes a value, or the zero value of its type, as the field with this number.
    fn numbered(
        &mut self,
        number: u32,
        field: &Field,
        item: ItemType,
        value: Option<OutlineIndex>,
    ) -> Result<(), EncodeError> {
        let wire_type = match item {
            ItemType::Bool | ItemType::Int32 | ItemType::Int64 => wire::VARINT,
            ItemType::Double => wire::FIXED64,
            _ => wire::LENGTH_DELIMITED,
        };
        wire::put_varint(self.out, u64::from(number) << 3 | wire_type);
        let Some(value) = value else {
            return self.zero_payload(field, item);
        };
        let bad = || EncodeError::Value(field.name);
        let text = self.outline.text(value);
        match item {
            ItemType::Bool => self.out.push(truth(text).ok_or_else(bad)?),
            ItemType::Int32 => {
                let number: i32 = parsed(text).ok_or_else(bad)?;
                wire::put_varint(self.out, i64::from(number) as u64);
            }
            ItemType::Int64 => {
                let number: i64 = parsed(text).ok_or_else(bad)?;
                wire::put_varint(self.out, number as u64);
            }
            ItemType::Double => {
                let number: f64 = parsed(text).ok_or_else(bad)?;
                self.out.extend_from_slice(&number.to_le_bytes());
            }
            ItemType::String => wire::put_bytes(self.out, &unquote(text).ok_or_else(bad)?),
            ItemType::Bytes => {
                let text = unquote(text).ok_or_else(bad)?;
                let bytes = decode_base64(&text).map_err(|_| bad())?;
                wire::put_bytes(self.out, &bytes);
            }
            ItemType::Struct(inner) => {
                return self.delimited(|encoder| encoder.message(inner, field.name, value));
            }
            ItemType::Either(inner, other) => {
                return self.delimited(|encoder| encoder.either(field, inner, other, value));
            }
            ItemType::Time | ItemType::MicroTime => {
                let text = unquote(text).ok_or_else(bad)?;
                let text = std::str::from_utf8(&text).map_err(|_| bad())?;
                let time: Timestamp = text.parse().map_err(|_| bad())?;
                self.time(item, time);
            }
            ItemType::Quantity => {
                let quantity = match text.first() {
                    Some(b'"') => unquote(text).ok_or_else(bad)?,
                    Some(b'-' | b'+' | b'0'..=b'9') => text.into(),
                    _ => return Err(bad()),
                };
                self.single(&quantity);
            }
            ItemType::IntOrString => self.int_or_string(field, text)?,
            ItemType::Raw | ItemType::Fields => self.single(text),
            ItemType::Strings => {
                let elements = self.elements(field, value)?;
                return self.delimited(|encoder| {
                    for element in elements {
                        let text = match encoder.outline.text(element) {
                            b"null" => Some(Cow::default()),
                            text => unquote(text),
                        };
                        encoder.out.push(wire::tag_byte(1, wire::LENGTH_DELIMITED));
                        wire::put_bytes(encoder.out, &text.ok_or(EncodeError::Value(field.name))?);
                    }
                    Ok(())
                });
            }
        }
        Ok(())
    }

    fn zero_payload(&mut self, field: &Field, item: ItemType) -> Result<(), EncodeError> {
        match item {
            ItemType::Struct(inner) => wire::put_bytes(self.out, zero_message(inner)),
            ItemType::Quantity => self.single(b"0"),
            ItemType::IntOrString => self.int_or_string(field, b"0")?,
            ItemType::Double => self.out.extend_from_slice(&0_f64.to_le_bytes()),
            ItemType::Either(_, StructAlternative::Bool) => {
                wire::put_bytes(self.out, &[wire::tag_byte(1, wire::VARINT), 0]);
            }
            // An empty text or message, zero or false: one zero byte.
            _ => self.out.push(0),
        }
        Ok(())
    }

    /// Writes the message of an [`ItemType::Either`]: a struct, or its alternative.
    fn either(
        &mut self,
        field: &Field,
        inner: &'static Type,
        other: StructAlternative,
        value: OutlineIndex,
    ) -> Result<(), EncodeError> {
        let text = self.outline.text(value);
        let is_struct = text.first() == Some(&b'{');
        let is_list = text.first() == Some(&b'[');
        match other {
            StructAlternative::Bool => {
                // A struct implies `allows: true`.
                let allows = if is_struct { Some(1) } else { truth(text) };
                let allows = allows.ok_or(EncodeError::Value(field.name))?;
                self.out.push(wire::tag_byte(1, wire::VARINT));
                self.out.push(allows);
                if is_struct {
                    self.numbered(2, field, ItemType::Struct(inner), Some(value))?;
                }
            }
            _ if is_struct => self.numbered(1, field, ItemType::Struct(inner), Some(value))?,
            _ if is_list => {
                let item = match other {
                    StructAlternative::Strings => ItemType::String,
                    _ => ItemType::Struct(inner),
                };
                for element in self.elements(field, value)? {
                    let element = Some(element).filter(|element| !self.is_null(*element));
                    self.numbered(2, field, item, element)?;
                }
            }
            // Go ignores any other value.
            _ => {}
        }
        Ok(())
    }

    fn time(&mut self, item: ItemType, time: Timestamp) {
        // Nanoseconds count up from the full second below, also before 1970.
        let nanos = time.as_nanosecond();
        let seconds = nanos.div_euclid(NANOS) as i64;
        let nanos = match item {
            ItemType::MicroTime => nanos.rem_euclid(NANOS) as u64 / 1000 * 1000,
            _ => 0,
        };
        let message = wire::open(self.out);
        if (seconds, nanos) != (super::ZERO_TIME, 0) {
            self.out.push(wire::tag_byte(1, wire::VARINT));
            wire::put_varint(self.out, seconds as u64);
            self.out.push(wire::tag_byte(2, wire::VARINT));
            wire::put_varint(self.out, nanos);
        }
        wire::close(self.out, message);
    }

    fn int_or_string(&mut self, field: &Field, text: &[u8]) -> Result<(), EncodeError> {
        let bad = || EncodeError::Value(field.name);
        let (kind, number, string) = if text.first() == Some(&b'"') {
            (1, 0_i32, unquote(text).ok_or_else(bad)?)
        } else {
            (0, parsed(text).ok_or_else(bad)?, Cow::default())
        };
        let message = wire::open(self.out);
        self.out.push(wire::tag_byte(1, wire::VARINT));
        self.out.push(kind);
        self.out.push(wire::tag_byte(2, wire::VARINT));
        wire::put_varint(self.out, i64::from(number) as u64);
        self.out.push(wire::tag_byte(3, wire::LENGTH_DELIMITED));
        wire::put_bytes(self.out, &string);
        wire::close(self.out, message);
        Ok(())
    }

    /// Appends a message whose only field is number 1.
    fn single(&mut self, bytes: &[u8]) {
        let message = wire::open(self.out);
        self.out.push(wire::tag_byte(1, wire::LENGTH_DELIMITED));
        wire::put_bytes(self.out, bytes);
        wire::close(self.out, message);
    }

    fn delimited(
        &mut self,
        write: impl FnOnce(&mut Self) -> Result<(), EncodeError>,
    ) -> Result<(), EncodeError> {
        let message = wire::open(self.out);
        write(self)?;
        wire::close(self.out, message);
        Ok(())
    }

    fn tag(&mut self, field: &Field, wire_type: u64) {
        wire::put_varint(self.out, u64::from(field.number) << 3 | wire_type);
    }

    fn is_null(&self, value: OutlineIndex) -> bool {
        self.outline.text(value) == b"null"
    }
}

const NANOS: i128 = 1_000_000_000;

/// The message of a struct without any value set. Every Pod contains large ones, so they are cached.
fn zero_message(message_type: &Type) -> &[u8] {
    message_type.zero_message.get_or_init(|| {
        let mut out = Vec::new();
        // An empty object always encodes.
        let _ =
            MessageEncoder::new(b"{}", &mut out).and_then(|encoder| encoder.document(message_type));
        out.into()
    })
}

fn truth(text: &[u8]) -> Option<u8> {
    match text {
        b"true" => Some(1),
        b"false" => Some(0),
        _ => None,
    }
}

fn parsed<N: std::str::FromStr>(text: &[u8]) -> Option<N> {
    std::str::from_utf8(text).ok()?.parse().ok()
}
