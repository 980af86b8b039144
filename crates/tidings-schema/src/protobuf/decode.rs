//! Decodes protobuf messages into JSON by their types.

use std::borrow::Cow;
use std::io::Write as _;
use std::ops::Range;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use tidings_json::{Value, write_string};

use super::wire::{WirePayload, WireReader};
use super::{DecodeError, ZERO_TIME};
use crate::types::{Field, FieldKind, ItemType, StructAlternative, Type};

/// The maximum nesting of messages. Built-in types nest about 20 deep.
const DEPTH_MAX: usize = 100;

/// The maximum number of values of an object, because an empty message of two bytes can become a hundred times as much JSON. Real
/// objects have thousands of values.
const VALUES_MAX: usize = 500_000;

/// How the message of an object becomes JSON.
#[derive(Debug, Clone, Copy, Default)]
pub struct DecodeOptions<'a> {
    /// Written as the first members, unless they are empty: messages do not contain them.
    pub kind: &'a str,
    /// See [`DecodeOptions::kind`].
    pub api_version: &'a str,
    /// Leaves out `metadata.managedFields`.
    pub drop_managed_fields: bool,
}

/// What was noticed while an object was decoded.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Decoded<'a> {
    /// The message has fields that its type does not have. They are not in the JSON.
    pub has_unknown_fields: bool,
    /// The manager of the newest entry of `metadata.managedFields`, if they were left out.
    pub last_manager: Option<Cow<'a, str>>,
}

/// Where the value of a member stands in the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemberPlace {
    /// 1 for members of the object, 2 for members of its metadata.
    pub depth: usize,
    /// The name of the member.
    pub name: &'static str,
    /// The index of the first byte.
    pub start: usize,
    /// The index after the last byte.
    pub end: usize,
}

/// Decodes one object, with a bound on its depth and number of values.
pub(super) struct MessageDecoder<'a, 'o> {
    out: &'o mut Vec<u8>,
    on_member: &'o mut dyn FnMut(MemberPlace),
    drop_managed_fields: bool,
    /// The fields of the messages that are being decoded, the innermost message last.
    found: Vec<FoundField<'a>>,
    depth: usize,
    values: usize,
    occurrences: usize,
    in_metadata: bool,
    decoded: Decoded<'a>,
}

/// One occurrence of a field in a message.
#[derive(Clone, Copy)]
struct FoundField<'a> {
    /// The index in the fields of the type.
    place: u16,
    payload: WirePayload<'a>,
}

impl<'a, 'o> MessageDecoder<'a, 'o> {
    pub(super) fn new(
        out: &'o mut Vec<u8>,
        on_member: &'o mut dyn FnMut(MemberPlace),
        drop_managed_fields: bool,
    ) -> MessageDecoder<'a, 'o> {
        MessageDecoder {
            out,
            on_member,
            drop_managed_fields,
            found: Vec::with_capacity(16),
            depth: 0,
            values: 0,
            occurrences: 0,
            in_metadata: false,
            decoded: Decoded::default(),
        }
    }

    /// Decodes an object.
    pub(super) fn object(
        mut self,
        message_type: &Type,
        options: &DecodeOptions<'_>,
        bytes: &'a [u8],
    ) -> Result<Decoded<'a>, DecodeError> {
        self.out.push(b'{');
        for (name, text) in [("kind", options.kind), ("apiVersion", options.api_version)] {
            if !text.is_empty() {
                self.depth = 1;
                self.member_name(name);
                let start = self.out.len();
                write_string(self.out, text);
                self.member_end(name, start);
            }
        }
        self.depth = 0;
        self.members(message_type, bytes)?;
        self.close(b'}');
        Ok(self.decoded)
    }

    fn message(&mut self, message_type: &Type, bytes: &'a [u8]) -> Result<(), DecodeError> {
        self.out.push(b'{');
        self.members(message_type, bytes)?;
        self.close(b'}');
        Ok(())
    }

    /// Ends an object or a list. Each of its values has a comma after it.
    fn close(&mut self, bracket: u8) {
        match self.out.last_mut() {
            Some(comma) if *comma == b',' => *comma = bracket,
            _ => self.out.push(bracket),
        }
    }

    fn member_name(&mut self, name: &str) {
        self.out.push(b'"');
        // The names of fields have nothing to escape.
        self.out.extend_from_slice(name.as_bytes());
        self.out.extend_from_slice(b"\":");
    }

    fn member_end(&mut self, name: &'static str, start: usize) {
        if self.depth == 1 || (self.depth == 2 && self.in_metadata) {
            (self.on_member)(MemberPlace {
                depth: self.depth,
                name,
                start,
                end: self.out.len(),
            });
        }
        self.out.push(b',');
    }

    /// Writes the members of a message, in the order of the fields of its type.
    fn members(&mut self, message_type: &Type, bytes: &'a [u8]) -> Result<(), DecodeError> {
        if self.depth == DEPTH_MAX {
            return Err(DecodeError::Depth);
        }
        self.depth += 1;
        let outer = self.found.len();
        self.find_fields(message_type, bytes)?;
        let end = self.found.len();
        if !self.found[outer..].is_sorted_by_key(|found| found.place) {
            // Stable: the occurrences of a field stay in order.
            self.found[outer..].sort_by_key(|found| found.place);
        }
        let mut next = outer;
        for (place, field) in (0_u16..).zip(message_type.fields()) {
            let first = next;
            while next < end && self.found[next].place == place {
                next += 1;
            }
            self.member(field, first..next)?;
        }
        self.found.truncate(outer);
        self.depth -= 1;
        Ok(())
    }

    fn find_fields(&mut self, message_type: &Type, bytes: &'a [u8]) -> Result<(), DecodeError> {
        let fields = message_type.fields();
        let by_number = message_type.by_number();
        let number_at = |at: &u16| fields[usize::from(*at)].number;
        let mut at = 0;
        let mut reader = WireReader::new(bytes);
        while let Some((number, payload)) = reader.next()? {
            // Most messages have their fields in the order of the numbers.
            while by_number
                .get(at)
                .is_some_and(|place| number_at(place) < number)
            {
                at += 1;
            }
            let place = by_number
                .get(at)
                .filter(|place| number_at(place) == number)
                .or_else(|| {
                    let found = by_number.binary_search_by_key(&number, number_at);
                    by_number.get(found.ok()?)
                });
            match place {
                Some(&place) => {
                    self.count_occurrence()?;
                    self.found.push(FoundField { place, payload });
                }
                None => self.decoded.has_unknown_fields = true,
            }
        }
        Ok(())
    }

    /// Writes a member, given the occurrences of its field.
    fn member(&mut self, field: &Field, found: Range<usize>) -> Result<(), DecodeError> {
        if let Some(inlined) = field.inlined() {
            let last = self.found[found].last().map(|found| found.payload);
            let WirePayload::Bytes(bytes) = last.unwrap_or(WirePayload::Bytes(&[])) else {
                return Err(DecodeError::WireType(field.name));
            };
            self.count_value()?;
            return self.members(inlined, bytes);
        }
        if found.is_empty() && !field.keep {
            return Ok(());
        }
        let is_metadata = self.depth == 1 && field.name == "metadata";
        if self.drop_managed_fields && self.in_metadata && field.name == "managedFields" {
            self.decoded.last_manager = last_manager(field, &self.found[found])?;
            return Ok(());
        }
        let begin = self.out.len();
        self.member_name(field.name);
        let start = self.out.len();
        self.in_metadata |= is_metadata;
        if found.is_empty() {
            self.zero(field)?;
        } else {
            self.value(field, found)?;
        }
        self.in_metadata &= !is_metadata;
        // Protobuf contains zero values that `omitempty` leaves out of JSON.
        if !field.keep && !field.pointer && is_zero(&self.out[start..]) {
            self.out.truncate(begin);
        } else {
            self.member_end(field.name, start);
        }
        Ok(())
    }

    /// Writes the value of a field that occurs at least once.
    fn value(&mut self, field: &Field, found: Range<usize>) -> Result<(), DecodeError> {
        match field.kind {
            // Of several values the last counts.
            FieldKind::One(item) => self.item(field, item, self.found[found.end - 1].payload),
            FieldKind::List(item) => {
                self.out.push(b'[');
                for at in found {
                    self.list_items(field, item, self.found[at].payload)?;
                }
                self.close(b']');
                Ok(())
            }
            FieldKind::Map(item) => self.map(field, item, found),
        }
    }

    /// Writes the items that one occurrence of a list has.
    fn list_items(
        &mut self,
        field: &Field,
        item: ItemType,
        payload: WirePayload<'a>,
    ) -> Result<(), DecodeError> {
        match (item, payload) {
            // Numbers can be packed into one field.
            (ItemType::Bool | ItemType::Int32 | ItemType::Int64, WirePayload::Bytes(packed)) => {
                let mut packed = WireReader::new(packed);
                while !packed.is_empty() {
                    let payload = WirePayload::Varint(packed.varint()?);
                    self.item(field, item, payload)?;
                    self.out.push(b',');
                }
            }
            _ => {
                self.item(field, item, payload)?;
                self.out.push(b',');
            }
        }
        Ok(())
    }

    /// Writes a map, sorted by key as Go does.
    fn map(
        &mut self,
        field: &Field,
        item: ItemType,
        found: Range<usize>,
    ) -> Result<(), DecodeError> {
        let mut entries = Vec::with_capacity(found.len());
        for found in &self.found[found] {
            let WirePayload::Bytes(entry) = found.payload else {
                return Err(DecodeError::WireType(field.name));
            };
            entries.push(map_entry(field, item, entry)?);
        }
        entries.sort_by(|a, b| a.0.cmp(&b.0));
        self.out.push(b'{');
        for (at, (key, payload)) in entries.iter().enumerate() {
            // Of several values for one key the last counts.
            if entries.get(at + 1).is_some_and(|next| next.0 == *key) {
                continue;
            }
            write_string(self.out, key);
            self.out.push(b':');
            self.item(field, item, *payload)?;
            self.out.push(b',');
        }
        self.close(b'}');
        Ok(())
    }

    /// Counts a field of a message. Those that a later one replaces are no values, but take memory too.
    fn count_occurrence(&mut self) -> Result<(), DecodeError> {
        self.occurrences += 1;
        match self.occurrences > VALUES_MAX {
            true => Err(DecodeError::Values),
            false => Ok(()),
        }
    }

    fn count_value(&mut self) -> Result<(), DecodeError> {
        self.values += 1;
        match self.values > VALUES_MAX {
            true => Err(DecodeError::Values),
            false => Ok(()),
        }
    }

    fn item(
        &mut self,
        field: &Field,
        item: ItemType,
        payload: WirePayload<'a>,
    ) -> Result<(), DecodeError> {
        self.count_value()?;
        match (item, payload) {
            (ItemType::Bool, WirePayload::Varint(number)) => self.put(number != 0),
            // Negative numbers are sign-extended to 64 bits, also those of 32 bits.
            (ItemType::Int32, WirePayload::Varint(number)) => self.put(number as i32),
            (ItemType::Int64, WirePayload::Varint(number)) => self.put(number as i64),
            (ItemType::Double, WirePayload::Fixed64(bits)) => {
                self.double(field, f64::from_bits(bits))?;
            }
            (ItemType::String, WirePayload::Bytes(bytes)) => self.text(bytes),
            (ItemType::Bytes, WirePayload::Bytes(bytes)) => self.base64(bytes),
            (ItemType::Struct(inner), WirePayload::Bytes(bytes)) => self.message(inner, bytes)?,
            (ItemType::Time, WirePayload::Bytes(bytes)) => self.time(field, bytes)?,
            (ItemType::MicroTime, WirePayload::Bytes(bytes)) => self.micro_time(field, bytes)?,
            (ItemType::Quantity, WirePayload::Bytes(bytes)) => self.quantity(field, bytes)?,
            (ItemType::IntOrString, WirePayload::Bytes(bytes)) => {
                self.int_or_string(field, bytes)?;
            }
            (ItemType::Raw | ItemType::Fields, WirePayload::Bytes(bytes)) => {
                self.raw(field, bytes)?;
            }
            (ItemType::Strings, WirePayload::Bytes(bytes)) => self.strings(field, bytes)?,
            (ItemType::Either(inner, other), WirePayload::Bytes(bytes)) => {
                self.either(field, inner, other, bytes)?;
            }
            _ => return Err(DecodeError::WireType(field.name)),
        }
        Ok(())
    }

    fn put(&mut self, value: impl std::fmt::Display) {
        // Writing to a Vec cannot fail.
        let _ = write!(self.out, "{value}");
    }

    fn text(&mut self, bytes: &[u8]) {
        write_string(self.out, &text(bytes));
    }

    fn base64(&mut self, bytes: &[u8]) {
        self.out.push(b'"');
        let start = self.out.len();
        let length = base64::encoded_len(bytes.len(), true).unwrap_or_default();
        self.out.resize(start + length, 0);
        // Cannot fail: the room is exactly what it takes.
        let _ = STANDARD.encode_slice(bytes, &mut self.out[start..]);
        self.out.push(b'"');
    }

    fn strings(&mut self, field: &Field, bytes: &'a [u8]) -> Result<(), DecodeError> {
        let start = self.out.len();
        self.out.push(b'[');
        let mut reader = WireReader::new(bytes);
        while let Some((number, payload)) = reader.next()? {
            if number == 1 {
                self.item(field, ItemType::String, payload)?;
                self.out.push(b',');
            }
        }
        self.close(b']');
        // Protobuf cannot tell an empty list from an absent one.
        if self.out[start..] == *b"[]" {
            self.out.truncate(start);
            self.put("null");
        }
        Ok(())
    }

    /// Decodes the message of an [`ItemType::Either`], which has one field for the struct and one for the alternative.
    fn either(
        &mut self,
        field: &Field,
        inner: &'static Type,
        other: StructAlternative,
        bytes: &'a [u8],
    ) -> Result<(), DecodeError> {
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
                found = Some(payload);
            } else if number == other_number {
                self.count_occurrence()?;
                others.push(payload);
            }
        }
        // If both are set: a struct wins over a boolean, a list wins over a struct.
        match (other, found, &*others) {
            (StructAlternative::Bool, None, []) => self.put(false),
            (StructAlternative::Bool, None, [.., last]) => self.item(field, item, *last)?,
            (StructAlternative::Bool, Some(found), _) | (_, Some(found), []) => {
                self.item(field, ItemType::Struct(inner), found)?;
            }
            (_, None, []) => self.put("null"),
            (_, _, others) => {
                self.out.push(b'[');
                for payload in others {
                    self.item(field, item, *payload)?;
                    self.out.push(b',');
                }
                self.close(b']');
            }
        }
        Ok(())
    }

    /// Writes the JSON that Go writes for a field that is not set.
    fn zero(&mut self, field: &Field) -> Result<(), DecodeError> {
        match field.kind {
            FieldKind::One(ItemType::Bytes) => {}
            FieldKind::One(item) if !field.pointer => return self.item(field, item, empty(item)),
            _ => {}
        }
        self.put("null");
        Ok(())
    }

    /// Writes a number as Go does: whole numbers without a fraction.
    fn double(&mut self, field: &Field, number: f64) -> Result<(), DecodeError> {
        if let Some(whole) = tidings_go::whole_number(number) {
            Value::from(whole).write(self.out);
            return Ok(());
        }
        // JSON has no NaN and no infinity.
        let number =
            tidings_json::Number::from_f64(number).ok_or(DecodeError::Value(field.name))?;
        self.put(number);
        Ok(())
    }

    fn time(&mut self, field: &Field, bytes: &[u8]) -> Result<(), DecodeError> {
        let Some((seconds, _)) = seconds_and_nanos(field, bytes)? else {
            self.put("null");
            return Ok(());
        };
        let time = Timestamp::from_second(seconds).map_err(|_| DecodeError::Value(field.name))?;
        self.put(format_args!("\"{time}\""));
        Ok(())
    }

    fn micro_time(&mut self, field: &Field, bytes: &[u8]) -> Result<(), DecodeError> {
        let Some((seconds, nanos)) = seconds_and_nanos(field, bytes)? else {
            self.put("null");
            return Ok(());
        };
        let time = seconds
            .checked_mul(1_000_000)
            .and_then(|micros| micros.checked_add(i64::from(nanos / 1000)))
            .and_then(|micros| Timestamp::from_microsecond(micros).ok())
            .ok_or(DecodeError::Value(field.name))?;
        self.put(format_args!("\"{time:.6}\""));
        Ok(())
    }

    fn quantity(&mut self, field: &Field, bytes: &[u8]) -> Result<(), DecodeError> {
        match single(field, bytes)? {
            // Go refuses an empty quantity, but writes an unset one as 0.
            Some(b"") => return Err(DecodeError::Value(field.name)),
            Some(quantity) => self.text(quantity),
            None => self.put("\"0\""),
        }
        Ok(())
    }

    fn int_or_string(&mut self, field: &Field, bytes: &[u8]) -> Result<(), DecodeError> {
        let (mut kind, mut int, mut string) = (0, 0, &b""[..]);
        let mut reader = WireReader::new(bytes);
        while let Some((number, payload)) = reader.next()? {
            match (number, payload) {
                (1, WirePayload::Varint(number)) => kind = number,
                (2, WirePayload::Varint(number)) => int = number as i32,
                (3, WirePayload::Bytes(bytes)) => string = bytes,
                (1..=3, _) => return Err(DecodeError::WireType(field.name)),
                _ => {}
            }
        }
        match kind {
            0 => self.put(int),
            1 => self.text(string),
            _ => return Err(DecodeError::Value(field.name)),
        }
        Ok(())
    }

    fn raw(&mut self, field: &Field, bytes: &[u8]) -> Result<(), DecodeError> {
        let json = single(field, bytes)?.filter(|json| !json.is_empty());
        match json.map(serde_json::from_slice::<Value>) {
            None => self.put("null"),
            // Written anew: compact, and with the escapes of the rest.
            Some(Ok(value)) => value.write(self.out),
            Some(Err(_)) => return Err(DecodeError::Value(field.name)),
        }
        Ok(())
    }
}

/// The key and the value of an entry of a map. Either can be absent.
fn map_entry<'a>(
    field: &Field,
    item: ItemType,
    bytes: &'a [u8],
) -> Result<(Cow<'a, str>, WirePayload<'a>), DecodeError> {
    let mut key = Cow::Borrowed("");
    let mut value = empty(item);
    let mut reader = WireReader::new(bytes);
    while let Some((number, payload)) = reader.next()? {
        match (number, payload) {
            (1, WirePayload::Bytes(bytes)) => key = text(bytes),
            (1, _) => return Err(DecodeError::WireType(field.name)),
            (2, payload) => value = payload,
            _ => {}
        }
    }
    Ok((key, value))
}

/// The manager of the newest of the entries of `managedFields`. Times are of whole seconds: of several entries in one second the last counts.
fn last_manager<'a>(
    field: &Field,
    entries: &[FoundField<'a>],
) -> Result<Option<Cow<'a, str>>, DecodeError> {
    let number = |name| {
        let member = field.struct_type().and_then(|entry| entry.field(name));
        member.map_or(0, |member| member.number)
    };
    let (manager_number, time_number) = (number("manager"), number("time"));
    let mut newest: (Option<i64>, &[u8]) = (None, b"");
    for entry in entries {
        let WirePayload::Bytes(entry) = entry.payload else {
            return Err(DecodeError::WireType(field.name));
        };
        let mut found: (Option<i64>, &[u8]) = (None, b"");
        let mut reader = WireReader::new(entry);
        while let Some((number, payload)) = reader.next()? {
            match payload {
                WirePayload::Bytes(bytes) if number == manager_number => found.1 = bytes,
                WirePayload::Bytes(bytes) if number == time_number => {
                    found.0 = seconds_and_nanos(field, bytes)?.map(|(seconds, _)| seconds);
                }
                _ => {}
            }
        }
        if found.0 >= newest.0 {
            newest = found;
        }
    }
    Ok((!newest.1.is_empty()).then(|| text(newest.1)))
}

/// The payload of the zero value of an item.
fn empty(item: ItemType) -> WirePayload<'static> {
    match item {
        ItemType::Bool | ItemType::Int32 | ItemType::Int64 => WirePayload::Varint(0),
        ItemType::Double => WirePayload::Fixed64(0),
        _ => WirePayload::Bytes(&[]),
    }
}

fn is_zero(json: &[u8]) -> bool {
    matches!(json, b"null" | b"false" | b"0" | b"\"\"" | b"[]")
}

/// Text as in Go's JSON: each invalid byte becomes a replacement character.
pub(super) fn text(bytes: &[u8]) -> Cow<'_, str> {
    if let Ok(text) = std::str::from_utf8(bytes) {
        return text.into();
    }
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().iter().map(|_| char::REPLACEMENT_CHARACTER));
    }
    text.into()
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
