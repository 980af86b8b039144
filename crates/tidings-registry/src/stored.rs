//! Reads stored objects: JSON that this server has written.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, Visitor};
use tidings_json::{Map, Plain, Value};
use tidings_merge::Managed;

/// A stored object with its managedFields apart: they are half of its bytes, and most writes do not read them.
pub(crate) struct StoredObject {
    /// The members, without `metadata.managedFields`.
    pub(crate) members: Map,
    /// `metadata.managedFields`.
    pub(crate) managed: Managed,
}

impl StoredObject {
    /// Reads an object.
    ///
    /// # Errors
    /// If it is not a JSON object, or its managedFields cannot be read.
    pub(crate) fn read(json: &[u8]) -> serde_json::Result<StoredObject> {
        StoredObject::read_with(json, "")
    }

    /// Reads an object. An entry of managedFields whose field set is the text `known` is recognised without being parsed.
    ///
    /// # Errors
    /// If it is not a JSON object, or its managedFields cannot be read.
    pub(crate) fn read_with(json: &[u8], known: &str) -> serde_json::Result<StoredObject> {
        // UTF-8 is checked once for the whole text, not for each string.
        let text = std::str::from_utf8(json).map_err(Error::custom)?;
        if let Some(stored) = StoredObject::read_plain(text, known) {
            return Ok(stored);
        }
        let mut reader = serde_json::Deserializer::from_str(text);
        let mut managed = Managed::default();
        let members = StoredPartReader {
            of: StoredPart::Object,
            managed: &mut managed,
        };
        let members = members.deserialize(&mut reader)?;
        reader.end()?;
        Ok(StoredObject { members, managed })
    }

    fn read_plain(text: &str, known: &str) -> Option<StoredObject> {
        let (mut members, mut managed) = (Map::new(), Managed::default());
        let mut reader = Plain::new(text);
        reader.members(|name, reader| {
            if name != "metadata" {
                return members.insert_new(name, reader.value()?);
            }
            let mut metadata = Map::new();
            reader.members(|name, reader| {
                if name != "managedFields" {
                    return metadata.insert_new(name, reader.value()?);
                }
                managed = Managed::read(reader, known)?;
                Some(())
            })?;
            members.insert_new(name, Value::Object(metadata))
        })?;
        reader.end()?;
        Some(StoredObject { members, managed })
    }
}

/// The part of a stored object that is being read.
#[derive(Clone, Copy)]
enum StoredPart {
    Object,
    Metadata,
}

/// Reads the members of a part, and puts managedFields into `managed`.
struct StoredPartReader<'a> {
    of: StoredPart,
    managed: &'a mut Managed,
}

impl<'de> DeserializeSeed<'de> for StoredPartReader<'_> {
    type Value = Map;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for StoredPartReader<'_> {
    type Value = Map;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut read: A) -> Result<Self::Value, A::Error> {
        let mut members = Map::new();
        while let Some(name) = read.next_key::<String>()? {
            let value = match (self.of, name.as_str()) {
                (StoredPart::Object, "metadata") => {
                    Value::Object(read.next_value_seed(StoredPartReader {
                        of: StoredPart::Metadata,
                        managed: self.managed,
                    })?)
                }
                (StoredPart::Metadata, "managedFields") => {
                    *self.managed = read.next_value()?;
                    continue;
                }
                _ => read.next_value()?,
            };
            members.insert(name, value);
        }
        Ok(members)
    }
}
