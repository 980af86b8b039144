//! A type of the table and its fields.

use std::borrow::Cow;
use std::fmt;
use std::sync::OnceLock;

use tidings_json::Value;

/// A struct of the Kubernetes API.
pub struct Type {
    /// The position in the table: an index for lists with an entry for each type.
    pub index: usize,
    /// The Go package, such as `core/v1`.
    pub package: &'static str,
    /// The API group of the package; empty for core.
    pub group: &'static str,
    /// The API version of the package.
    pub version: &'static str,
    /// The name of the type; the value of `kind` if it is a kind.
    pub name: &'static str,
    /// True if its objects have `kind` and `apiVersion`.
    pub is_kind: bool,
    /// True if values merge as one in server-side apply. A field can override this, see [`Field::atomic`].
    pub atomic: bool,
    /// Set after all types exist, because fields refer to types and types can be recursive.
    pub(crate) fields: OnceLock<Box<[Field]>>,
    /// Finds members by name; computed at first use.
    pub(crate) by_name: OnceLock<MemberNames>,
    /// The indexes of fields in the order of their protobuf numbers; computed at first use.
    pub(crate) by_number: OnceLock<Box<[u16]>>,
    /// The protobuf message of the zero value; computed at first use.
    pub(crate) zero_message: OnceLock<Box<[u8]>>,
}

impl Type {
    /// The fields as declared, in the order of their JSON. An inlined field is one field; its members are members of this type.
    pub fn fields(&self) -> &[Field] {
        self.fields.get().map_or(&[], |fields| fields)
    }

    /// The indexes of the fields that protobuf has, in the order of their numbers.
    pub(crate) fn by_number(&self) -> &[u16] {
        self.by_number.get_or_init(|| {
            let fields = self.fields();
            let mut places: Vec<u16> = (0..u16::try_from(fields.len()).unwrap_or(u16::MAX))
                .filter(|place| fields[usize::from(*place)].number != 0)
                .collect();
            places.sort_by_key(|place| fields[usize::from(*place)].number);
            places.into()
        })
    }

    /// The members of the JSON object in order, including the members of inlined fields.
    pub fn members(&self) -> Members<'_> {
        Members {
            fields: self.fields().iter(),
            inlined: None,
        }
    }

    /// The member with this name in JSON.
    pub fn field(&self, name: &str) -> Option<&Field> {
        self.field_and_inlined(name).map(|(field, _)| field)
    }

    /// The member with this name in JSON, and the type of the inlined field that it is a member of.
    pub(crate) fn field_and_inlined(&self, name: &str) -> Option<(&Field, Option<&'static Type>)> {
        let names = self.by_name.get_or_init(|| MemberNames::of(self.fields()));
        let field = &self.fields()[names.find(name)?];
        match field.inlined() {
            Some(inner) => Some((inner.field(name)?, Some(inner))),
            None => Some((field, None)),
        }
    }
}

/// A hash table of member names, at most half full. It must be fast: each value of an object is looked up several times.
pub(crate) struct MemberNames(Box<[Option<(&'static str, u16)>]>);

impl MemberNames {
    fn of(fields: &[Field]) -> MemberNames {
        let mut names: Vec<(&'static str, u16)> = Vec::new();
        for (place, field) in (0..).zip(fields) {
            match field.inlined() {
                Some(inner) => names.extend(inner.members().map(|member| (member.name, place))),
                None => names.push((field.name, place)),
            }
        }
        let places = (names.len() * 2).next_power_of_two();
        let mut spread = MemberNames(vec![None; places].into());
        for (name, field) in names {
            // Of duplicate names the first counts.
            if spread.find(name).is_none() {
                let mut at = spread.first(name);
                while spread.0[at].is_some() {
                    at = spread.next(at);
                }
                spread.0[at] = Some((name, field));
            }
        }
        spread
    }

    /// The index of the field that is the member of this name, or of the inlined field that contains it.
    fn find(&self, name: &str) -> Option<usize> {
        let mut at = self.first(name);
        while let Some((known, field)) = self.0[at] {
            if known == name {
                return Some(field.into());
            }
            at = self.next(at);
        }
        None
    }

    /// The slot where the search for a name starts.
    fn first(&self, name: &str) -> usize {
        let bytes = name.as_bytes();
        let middle = bytes
            .get(bytes.len() / 2)
            .map_or(0, |byte| usize::from(*byte));
        let last = bytes.last().map_or(0, |byte| usize::from(*byte));
        (bytes.len() + middle * 5 + last * 11) & (self.0.len() - 1)
    }

    fn next(&self, at: usize) -> usize {
        (at + 1) & (self.0.len() - 1)
    }
}

/// Iterates over the members of a type, see [`Type::members`].
#[derive(Debug, Clone)]
pub struct Members<'a> {
    fields: std::slice::Iter<'a, Field>,
    /// The remaining members of the current inlined field.
    inlined: Option<Box<Members<'a>>>,
}

impl<'a> Iterator for Members<'a> {
    type Item = &'a Field;

    fn next(&mut self) -> Option<&'a Field> {
        loop {
            if let Some(member) = self.inlined.as_mut().and_then(Iterator::next) {
                return Some(member);
            }
            let field = self.fields.next()?;
            match field.inlined() {
                Some(inner) => self.inlined = Some(Box::new(inner.members())),
                None => return Some(field),
            }
        }
    }
}

impl fmt::Debug for Type {
    // Without the fields, which would print their types and so most of the table.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.package, self.name)
    }
}

/// A field of a type.
#[derive(Debug)]
pub struct Field {
    /// The name in JSON; empty if the field is inlined.
    pub name: &'static str,
    /// The number in protobuf; 0 for `kind` and `apiVersion`, which are in the envelope.
    pub number: u32,
    /// Whether the field is a single value, a list or a map, and the type of its values.
    pub kind: FieldKind,
    /// True if the field is a pointer in Go, so that absent differs from zero.
    pub pointer: bool,
    /// True if Go writes the field to JSON even if it is empty.
    pub keep: bool,
    /// True if the OpenAPI document lists the field as required.
    pub required: bool,
    /// How server-side apply merges the field if it is a list.
    pub list: ListKind,
    /// True if the OpenAPI document has the list type; false if `list` follows from the patch strategy.
    pub list_declared: bool,
    /// True if a map or struct merges as one in server-side apply.
    pub atomic: bool,
    /// How a strategic merge patch changes the field.
    pub patch_strategy: PatchStrategy,
    /// The member that identifies items of the list in a strategic merge patch.
    pub merge_key: Option<&'static str>,
    /// The default of the OpenAPI document, as JSON.
    pub default: Option<&'static str>,
    /// The name of the type in Go, if it does not follow from `kind`. See [`Field::go_type`].
    pub(crate) go_name: Option<&'static str>,
    /// The result of [`Field::keys`]; computed at first use.
    pub(crate) keys: OnceLock<Box<[ListKey]>>,
}

/// A member that identifies items of a list, with its default.
pub type ListKey = (Box<str>, Option<Value>);

impl Field {
    /// The type of the field's value, or of the items of the list or map.
    pub fn item(&self) -> ItemType {
        match self.kind {
            FieldKind::One(item) | FieldKind::List(item) | FieldKind::Map(item) => item,
        }
    }

    /// The members that identify items of a [`ListKind::Map`], with their defaults.
    pub fn keys(&self) -> &[ListKey] {
        self.keys.get_or_init(|| {
            let ListKind::Map(keys) = &self.list else {
                return Box::default();
            };
            let default = |key: &str| {
                let default = self.struct_type()?.field(key)?.default?;
                serde_json::from_str(default).ok()
            };
            let keys = keys.iter();
            keys.map(|key| ((*key).into(), default(key))).collect()
        })
    }

    /// The type of the field in Go's messages, without a pointer: `v1.SecretType`, `[]string`.
    pub fn go_type(&self) -> Cow<'static, str> {
        match (self.go_name, self.kind) {
            (Some(name), _) => name.into(),
            (None, FieldKind::One(item)) => item.go_type(),
            (None, FieldKind::List(item)) => format!("[]{}", item.go_type()).into(),
            (None, FieldKind::Map(item)) => format!("map[string]{}", item.go_type()).into(),
        }
    }

    /// The type of the field's value, or of the items of the list or map, in Go's messages.
    pub fn item_go_type(&self) -> Cow<'static, str> {
        let named = self.go_name.and_then(|name| match self.kind {
            FieldKind::One(_) => Some(name),
            FieldKind::List(_) => name.strip_prefix("[]"),
            // A map can have a name of its own, such as `v1.ResourceList`.
            FieldKind::Map(_) => Some(name.strip_prefix("map[")?.split_once(']')?.1),
        });
        named.map_or_else(|| self.item().go_type(), Cow::Borrowed)
    }

    /// The struct type of the field's value, or of the items of the list or map.
    pub fn struct_type(&self) -> Option<&'static Type> {
        match self.item() {
            ItemType::Struct(found) => Some(found),
            _ => None,
        }
    }

    /// The type of an inlined field: its members are members of the type that contains the field.
    pub fn inlined(&self) -> Option<&'static Type> {
        if self.name.is_empty() {
            self.struct_type()
        } else {
            None
        }
    }
}

/// Whether a field is a single value, a list or a map.
#[derive(Debug, Clone, Copy)]
pub enum FieldKind {
    /// One value.
    One(ItemType),
    /// A list.
    List(ItemType),
    /// A map of strings to values.
    Map(ItemType),
}

/// The type of a single value, of the items of a list, or of the values of a map.
#[derive(Debug, Clone, Copy)]
pub enum ItemType {
    /// Text.
    String,
    /// Binary data: base64 in JSON.
    Bytes,
    /// A boolean.
    Bool,
    /// A signed integer of 32 bits.
    Int32,
    /// A signed integer of 64 bits.
    Int64,
    /// A floating-point number.
    Double,
    /// A time in seconds.
    Time,
    /// A time in microseconds.
    MicroTime,
    /// A number with a suffix such as `Mi`: a string in JSON.
    Quantity,
    /// A number or a string, such as a port or a percentage.
    IntOrString,
    /// Any JSON.
    Raw,
    /// The field set of a manager: an object in JSON.
    Fields,
    /// A list of strings that protobuf wraps in a message.
    Strings,
    /// A struct.
    Struct(&'static Type),
    /// A struct or an alternative type. Readers of JSON may treat it as any JSON, as OpenAPI does.
    Either(&'static Type, StructAlternative),
}

impl ItemType {
    /// The type in Go's messages. Go decodes a time as a string first.
    pub(crate) fn go_type(self) -> Cow<'static, str> {
        match self {
            ItemType::String | ItemType::Time | ItemType::MicroTime => "string".into(),
            ItemType::Bytes => "[]uint8".into(),
            ItemType::Bool => "bool".into(),
            ItemType::Int32 | ItemType::IntOrString => "int32".into(),
            ItemType::Int64 => "int64".into(),
            ItemType::Double => "float64".into(),
            ItemType::Quantity => "resource.Quantity".into(),
            ItemType::Raw => "runtime.RawExtension".into(),
            ItemType::Fields => "v1.FieldsV1".into(),
            ItemType::Strings => "v1.ExtraValue".into(),
            ItemType::Struct(of) | ItemType::Either(of, _) => {
                format!("{}.{}", of.version, of.name).into()
            }
        }
    }
}

/// The alternative to a struct in [`ItemType::Either`]; fields of JSONSchemaProps have such types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StructAlternative {
    /// A boolean.
    Bool,
    /// A list of that struct.
    List,
    /// A list of strings.
    Strings,
}

/// How server-side apply merges a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListKind {
    /// The list is replaced as one. Also for fields that are no lists.
    Atomic,
    /// A set of scalars.
    Set,
    /// A list of structs that these members identify.
    Map(Box<[&'static str]>),
}

/// How a strategic merge patch changes a field. By default it replaces a list and merges an object.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PatchStrategy {
    /// The items of a list are merged instead of replaced.
    pub merge: bool,
    /// Members that the patch does not name in `$retainKeys` are dropped.
    pub retain_keys: bool,
    /// An object is replaced instead of merged.
    pub replace: bool,
}
