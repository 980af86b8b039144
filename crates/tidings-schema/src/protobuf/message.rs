//! Decodes protobuf messages into JSON objects by their types.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use tidings_json::{Map, Value};

use super::wire::{WirePayload, WireReader};
use super::{DecodeError, ZERO_TIME};
use crate::types::{Field, FieldKind, ItemType, StructAlternative, Type};

/// The maximum nesting of messages. Built-in types nest about 20 deep.
const DEPTH_MAX: usize = 100;

/// The maximum number of values of an object, because an empty message of two bytes can become a hundred times as much JSON. Real
/// objects have thousands of values.
const VALUES_MAX: usize = 500_000;

/// Decodes one object, with a bound on its depth and number of values.
pub(super) struct MessageDecoder {
    depth: usize,
    values: usize,
}

impl MessageDecoder {
    pub(super) fn new() -> Self {
        Self {
            depth: 0,
            values: 0,
        }
    }

    /// Decodes a message.
    pub(super) fn message(
        &mut self,
        message_type: &Type,
        bytes: &[u8],
    ) -> Result<Map, DecodeError> {
        if self.depth == DEPTH_MAX {
            return Err(DecodeError::Depth);
        }
        self.depth += 1;
        let mut object = Map::new();
        let values = self.values_by_field(message_type, bytes)?;
        for (field, value) in message_type.fields().iter().zip(values) {
            let value = match value {
                Some(value) => sorted(field, value),
                None if field.keep || field.inlined().is_some() => self.zero(field)?,
                None => continue,
            };
            match value {
                Value::Object(members) if field.inlined().is_some() => object.extend(members),
                // Protobuf contains zero values that `omitempty` leaves out of JSON.
                value if !field.keep && !field.pointer && is_zero(&value) => {}
                value => {
                    object.insert(field.name.to_owned(), value);
                }
            }
        }
        self.depth -= 1;
        Ok(object)
    }

    fn values_by_field(
        &mut self,
        message_type: &Type,
        bytes: &[u8],
    ) -> Result<Vec<Option<Value>>, DecodeError> {
        let fields = message_type.fields();
        let mut values = vec![None; fields.len()];
        let mut reader = WireReader::new(bytes);
        while let Some((number, payload)) = reader.next()? {
            let known = fields
                .iter()
                .zip(&mut values)
                .find(|(field, _)| field.number == number);
            if let Some((field, value)) = known {
                self.add(field, payload, value)?;
            }
        }
        Ok(values)
    }

    /// Adds one occurrence of a field to the value so far.
    fn add(
        &mut self,
        field: &Field,
        payload: WirePayload<'_>,
        value: &mut Option<Value>,
    ) -> Result<(), DecodeError> {
        match field.kind {
            FieldKind::One(item) => *value = Some(self.item(field, item, payload)?),
            FieldKind::List(item) => {
                let list = value.get_or_insert_with(|| Value::Array(Vec::new()));
                let Value::Array(list) = list else {
                    return Ok(());
                };
                match (item, payload) {
                    // Numbers can be packed into one field.
                    (
                        ItemType::Bool | ItemType::Int32 | ItemType::Int64,
                        WirePayload::Bytes(packed),
                    ) => {
                        let mut packed = WireReader::new(packed);
                        while !packed.is_empty() {
                            let payload = WirePayload::Varint(packed.varint()?);
                            list.push(self.item(field, item, payload)?);
                        }
                    }
                    _ => list.push(self.item(field, item, payload)?),
                }
            }
            FieldKind::Map(item) => {
                let map = value.get_or_insert_with(|| Value::Object(Map::new()));
                if let (Value::Object(map), WirePayload::Bytes(entry)) = (map, payload) {
                    let (key, value) = self.entry(field, item, entry)?;
                    map.insert(key, value);
                } else {
                    return Err(DecodeError::WireType(field.name));
                }
            }
        }
        Ok(())
    }

    fn entry(
        &mut self,
        field: &Field,
        item: ItemType,
        bytes: &[u8],
    ) -> Result<(String, Value), DecodeError> {
        let mut key = String::new();
        let mut value = None;
        let mut reader = WireReader::new(bytes);
        while let Some((number, payload)) = reader.next()? {
            match (number, payload) {
                (1, WirePayload::Bytes(bytes)) => key = text(bytes),
                (1, _) => return Err(DecodeError::WireType(field.name)),
                (2, payload) => value = Some(self.item(field, item, payload)?),
                _ => {}
            }
        }
        let value = match value {
            Some(value) => value,
            None => self.item(field, item, empty(item))?,
        };
        Ok((key, value))
    }

    fn item(
        &mut self,
        field: &Field,
        item: ItemType,
        payload: WirePayload<'_>,
    ) -> Result<Value, DecodeError> {
        self.values += 1;
        if self.values > VALUES_MAX {
            return Err(DecodeError::Values);
        }
        Ok(match (item, payload) {
            (ItemType::Bool, WirePayload::Varint(number)) => (number != 0).into(),
            // Negative numbers are sign-extended to 64 bits, also those of 32 bits.
            (ItemType::Int32, WirePayload::Varint(number)) => (number as i32).into(),
            (ItemType::Int64, WirePayload::Varint(number)) => (number as i64).into(),
            (ItemType::Double, WirePayload::Fixed64(bits)) => double(field, f64::from_bits(bits))?,
            (ItemType::String, WirePayload::Bytes(bytes)) => text(bytes).into(),
            (ItemType::Bytes, WirePayload::Bytes(bytes)) => STANDARD.encode(bytes).into(),
            (ItemType::Struct(inner), WirePayload::Bytes(bytes)) => {
                self.message(inner, bytes)?.into()
            }
            (ItemType::Time, WirePayload::Bytes(bytes)) => time(field, bytes)?,
            (ItemType::MicroTime, WirePayload::Bytes(bytes)) => micro_time(field, bytes)?,
            (ItemType::Quantity, WirePayload::Bytes(bytes)) => quantity(field, bytes)?,
            (ItemType::IntOrString, WirePayload::Bytes(bytes)) => int_or_string(field, bytes)?,
            (ItemType::Raw | ItemType::Fields, WirePayload::Bytes(bytes)) => raw(field, bytes)?,
            (ItemType::Strings, WirePayload::Bytes(bytes)) => self.strings(field, bytes)?,
            (ItemType::Either(inner, other), WirePayload::Bytes(bytes)) => {
                self.either(field, inner, other, bytes)?
            }
            _ => return Err(DecodeError::WireType(field.name)),
        })
    }

    fn strings(&mut self, field: &Field, bytes: &[u8]) -> Result<Value, DecodeError> {
        let mut list = Vec::new();
        let mut reader = WireReader::new(bytes);
        while let Some((number, payload)) = reader.next()? {
            if number == 1 {
                list.push(self.item(field, ItemType::String, payload)?);
            }
        }
        // Protobuf cannot tell an empty list from an absent one.
        Ok(if list.is_empty() {
            Value::Null
        } else {
            list.into()
        })
    }

    /// Decodes the message of an [`ItemType::Either`], which has one field for the struct and one for the alternative.
    fn either(
        &mut self,
        field: &Field,
        inner: &'static Type,
        other: StructAlternative,
        bytes: &[u8],
    ) -> Result<Value, DecodeError> {
        let (struct_number, other_number, item) = match other {
            StructAlternative::Bool => (2, 1, ItemType::Bool),
            StructAlternative::List => (1, 2, ItemType::Struct(inner)),
            StructAlternative::Strings => (1, 2, ItemType::String),
        };
        let mut found = None;
        let mut others = Vec::new();
        let mut reader = WireReader::new(bytes);
        while let Some((number, payload)) = reader.next()? {
            if number == struct_number {
                found = Some(self.item(field, ItemType::Struct(inner), payload)?);
            } else if number == other_number {
                others.push(self.item(field, item, payload)?);
            }
        }
        // If both are set: a struct wins over a boolean, a list wins over a struct.
        Ok(match other {
            StructAlternative::Bool => found.or(others.pop()).unwrap_or(Value::Bool(false)),
            _ if !others.is_empty() => others.into(),
            _ => found.unwrap_or_default(),
        })
    }

    /// The JSON that Go writes for a field that is not set.
    fn zero(&mut self, field: &Field) -> Result<Value, DecodeError> {
        match field.kind {
            FieldKind::One(ItemType::Bytes) => Ok(Value::Null),
            FieldKind::One(item) if !field.pointer => self.item(field, item, empty(item)),
            _ => Ok(Value::Null),
        }
    }
}

/// The payload of the zero value of an item.
fn empty(item: ItemType) -> WirePayload<'static> {
    match item {
        ItemType::Bool | ItemType::Int32 | ItemType::Int64 => WirePayload::Varint(0),
        ItemType::Double => WirePayload::Fixed64(0),
        _ => WirePayload::Bytes(&[]),
    }
}

/// Sorts a map by key, as Go does.
fn sorted(field: &Field, mut value: Value) -> Value {
    if let (FieldKind::Map(_), Value::Object(map)) = (field.kind, &mut value) {
        map.sort_keys();
    }
    value
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(number) => number.as_i64() == Some(0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(_) => false,
    }
}

/// Text as in Go's JSON: each invalid byte becomes a replacement character.
pub(super) fn text(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().iter().map(|_| char::REPLACEMENT_CHARACTER));
    }
    text
}

/// A number as Go writes it: whole numbers without a fraction.
fn double(field: &Field, number: f64) -> Result<Value, DecodeError> {
    if let Some(whole) = tidings_go::whole_number(number) {
        return Ok(whole.into());
    }
    // JSON has no NaN and no infinity.
    match tidings_json::Number::from_f64(number) {
        Some(number) => Ok(number.into()),
        None => Err(DecodeError::Value(field.name)),
    }
}

fn time(field: &Field, bytes: &[u8]) -> Result<Value, DecodeError> {
    match seconds_and_nanos(field, bytes)? {
        None => Ok(Value::Null),
        Some((seconds, _)) => {
            let time =
                Timestamp::from_second(seconds).map_err(|_| DecodeError::Value(field.name))?;
            Ok(time.to_string().into())
        }
    }
}

fn micro_time(field: &Field, bytes: &[u8]) -> Result<Value, DecodeError> {
    let Some((seconds, nanos)) = seconds_and_nanos(field, bytes)? else {
        return Ok(Value::Null);
    };
    seconds
        .checked_mul(1_000_000)
        .and_then(|micros| micros.checked_add(i64::from(nanos / 1000)))
        .and_then(|micros| Timestamp::from_microsecond(micros).ok())
        .map(|time| format!("{time:.6}").into())
        .ok_or(DecodeError::Value(field.name))
}

/// Seconds and nanoseconds of a time; `None` for Go's zero time, which is `null` in JSON.
fn seconds_and_nanos(field: &Field, bytes: &[u8]) -> Result<Option<(i64, i32)>, DecodeError> {
    if bytes.is_empty() {
        return Ok(None);
    }
    let (mut seconds, mut nanos) = (0, 0);
    let mut reader = WireReader::new(bytes);
    while let Some((number, payload)) = reader.next()? {
        match (number, payload) {
            (1, WirePayload::Varint(number)) => seconds = number as i64,
            (2, WirePayload::Varint(number)) => nanos = number as i32,
            (1 | 2, _) => return Err(DecodeError::WireType(field.name)),
            _ => {}
        }
    }
    Ok((seconds != ZERO_TIME || nanos != 0).then_some((seconds, nanos)))
}

fn quantity(field: &Field, bytes: &[u8]) -> Result<Value, DecodeError> {
    Ok(match single(field, bytes)? {
        // Go refuses an empty quantity, but writes an unset one as 0.
        Some(b"") => return Err(DecodeError::Value(field.name)),
        Some(quantity) => text(quantity).into(),
        None => "0".into(),
    })
}

fn int_or_string(field: &Field, bytes: &[u8]) -> Result<Value, DecodeError> {
    let (mut kind, mut int, mut string) = (0, 0, String::new());
    let mut reader = WireReader::new(bytes);
    while let Some((number, payload)) = reader.next()? {
        match (number, payload) {
            (1, WirePayload::Varint(number)) => kind = number,
            (2, WirePayload::Varint(number)) => int = number as i32,
            (3, WirePayload::Bytes(bytes)) => string = text(bytes),
            (1..=3, _) => return Err(DecodeError::WireType(field.name)),
            _ => {}
        }
    }
    match kind {
        0 => Ok(int.into()),
        1 => Ok(string.into()),
        _ => Err(DecodeError::Value(field.name)),
    }
}

fn raw(field: &Field, bytes: &[u8]) -> Result<Value, DecodeError> {
    match single(field, bytes)? {
        None | Some(b"") => Ok(Value::Null),
        Some(json) => serde_json::from_slice(json).map_err(|_| DecodeError::Value(field.name)),
    }
}

/// The bytes of a message whose only field is number 1.
fn single<'a>(field: &Field, bytes: &'a [u8]) -> Result<Option<&'a [u8]>, DecodeError> {
    let mut found = None;
    let mut reader = WireReader::new(bytes);
    while let Some((number, payload)) = reader.next()? {
        match (number, payload) {
            (1, WirePayload::Bytes(bytes)) => found = Some(bytes),
            (1, _) => return Err(DecodeError::WireType(field.name)),
            _ => {}
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests;
