//! What the table says about a type and its fields.

use std::fmt;
use std::sync::OnceLock;

use tidings_json::Value;

/// A struct of the Kubernetes API.
pub struct Type {
    /// The position in the table. Who keeps something for each type can keep it in a list.
    pub index: usize,
    /// The Go package, such as `core/v1`.
    pub package: &'static str,
    /// The API group of the package: empty for core.
    pub group: &'static str,
    /// The API version of the package.
    pub version: &'static str,
    /// The name: what `kind` says if it is a kind.
    pub name: &'static str,
    /// Whether objects of it have `kind` and `apiVersion`.
    pub is_kind: bool,
    /// Whether server-side apply takes a value of it as a whole. A field may say otherwise, see [`Field::atomic`].
    pub atomic: bool,
    /// Set once all types exist, as fields point to types and types can be recursive.
    pub(crate) fields: OnceLock<Box<[Field]>>,
    /// Where members are found by their names, made when it is first asked for.
    pub(crate) by_name: OnceLock<Names>,
    /// What encoding needs, made when it is first asked for.
    pub(crate) by_number: OnceLock<Box<[u16]>>,
    pub(crate) zero_message: OnceLock<Box<[u8]>>,
}

impl Type {
    /// The fields as declared, in the order of their JSON. The members of an inlined field are those of this type.
    pub fn fields(&self) -> &[Field] {
        self.fields.get().map_or(&[], |fields| fields)
    }

    /// The places of the fields that protobuf has, in the order of their numbers.
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

    /// The members of the JSON object in order, those of inlined fields among them.
    pub fn members(&self) -> Members<'_> {
        Members {
            fields: self.fields().iter(),
            inlined: None,
        }
    }

    /// The member of that name in JSON.
    pub fn field(&self, name: &str) -> Option<&Field> {
        let names = self.by_name.get_or_init(|| Names::of(self.fields()));
        let field = &self.fields()[names.find(name)?];
        match field.inlined() {
            Some(inner) => inner.field(name),
            None => Some(field),
        }
    }

    /// The field of that number in protobuf.
    pub fn field_by_number(&self, number: u32) -> Option<&Field> {
        self.fields().iter().find(|field| field.number == number)
    }
}

/// The names of the members of a type, spread over twice as many places: every value of an object is looked up here several times.
pub(crate) struct Names(Box<[Option<(&'static str, u16)>]>);

impl Names {
    fn of(fields: &[Field]) -> Names {
        let mut names: Vec<(&'static str, u16)> = Vec::new();
        for (place, field) in (0..).zip(fields) {
            match field.inlined() {
                Some(inner) => names.extend(inner.members().map(|member| (member.name, place))),
                None => names.push((field.name, place)),
            }
        }
        let places = (names.len() * 2).next_power_of_two();
        let mut spread = Names(vec![None; places].into());
        for (name, field) in names {
            // Where a name is there twice, the first counts.
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

    /// The field that is, or holds, the member of a name.
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

/// The members of a type, see [`Type::members`].
#[derive(Debug, Clone)]
pub struct Members<'a> {
    fields: std::slice::Iter<'a, Field>,
    /// Those of the inlined field that is being gone through.
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
    // Without the fields: these print their types, which would print most of the table.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.package, self.name)
    }
}

/// A field of a type.
#[derive(Debug)]
pub struct Field {
    /// The name in JSON: empty if the field is inlined.
    pub name: &'static str,
    /// The number in protobuf: 0 for `kind` and `apiVersion`, which the envelope has instead.
    pub number: u32,
    /// What it holds.
    pub kind: FieldKind,
    /// Whether absent differs from zero.
    pub pointer: bool,
    /// Whether Go writes it even if it is empty.
    pub keep: bool,
    /// Whether the OpenAPI document lists it as required.
    pub required: bool,
    /// How server-side apply merges it if it is a list.
    pub list: ListKind,
    /// Whether the OpenAPI document says how the list merges, or it follows from the patch strategy.
    pub list_declared: bool,
    /// Whether server-side apply takes it as a whole if it is a map or a struct.
    pub atomic: bool,
    /// How a strategic merge patch changes it.
    pub patch_strategy: PatchStrategy,
    /// The member by which a strategic merge patch finds the items of the list.
    pub merge_key: Option<&'static str>,
    /// The default of the OpenAPI document, as JSON.
    pub default: Option<&'static str>,
    /// See [`Field::keys`].
    pub(crate) keys: OnceLock<Box<[Key]>>,
}

/// A member by which items of a list are told apart, with its default.
pub type Key = (Box<str>, Option<Value>);

impl Field {
    /// What the field holds one or several of.
    pub fn item(&self) -> Item {
        match self.kind {
            FieldKind::One(item) | FieldKind::List(item) | FieldKind::Map(item) => item,
        }
    }

    /// The members by which the items of a [`ListKind::Map`] are told apart.
    pub fn keys(&self) -> &[Key] {
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

    /// The type of the field, or of the items of the list or map.
    pub fn struct_type(&self) -> Option<&'static Type> {
        match self.item() {
            Item::Struct(found) => Some(found),
            _ => None,
        }
    }

    /// The type whose members are members of the type around the field.
    pub fn inlined(&self) -> Option<&'static Type> {
        if self.name.is_empty() {
            self.struct_type()
        } else {
            None
        }
    }
}

/// What a field holds.
#[derive(Debug, Clone, Copy)]
pub enum FieldKind {
    /// One value.
    One(Item),
    /// A list.
    List(Item),
    /// A map of strings to values.
    Map(Item),
}

/// What a field holds one or several of.
#[derive(Debug, Clone, Copy)]
pub enum Item {
    /// Text.
    String,
    /// Binary data: base64 in JSON.
    Bytes,
    /// True or false.
    Bool,
    /// A signed integer of 32 bits.
    Int32,
    /// A signed integer of 64 bits.
    Int64,
    /// A number with a fraction.
    Double,
    /// A time in seconds.
    Time,
    /// A time in microseconds.
    MicroTime,
    /// An amount with a suffix: a string in JSON.
    Quantity,
    /// A number or a string, such as a port or a percentage.
    IntOrString,
    /// Any JSON.
    Raw,
    /// The set of fields that a manager owns: an object in JSON.
    Fields,
    /// A list of strings, where protobuf needs a message around it.
    Strings,
    /// A struct.
    Struct(&'static Type),
    /// A struct, or something else in its place. What reads JSON by the table may take it for any JSON, as OpenAPI does.
    Either(&'static Type, Other),
}

/// What may stand in the place of a struct: schemas of custom resources have such fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Other {
    /// True or false.
    Bool,
    /// A list of that struct.
    List,
    /// A list of strings.
    Strings,
}

/// How server-side apply merges a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListKind {
    /// Replaced as a whole: also what is no list.
    Atomic,
    /// A set of scalars.
    Set,
    /// A map whose items are found by these members.
    Map(Box<[&'static str]>),
}

/// How a strategic merge patch changes a field. Neither means that a list is replaced and an object merged.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PatchStrategy {
    /// The items of a list are merged instead of replaced.
    pub merge: bool,
    /// Members that the patch does not name in `$retainKeys` are dropped.
    pub retain_keys: bool,
    /// An object is replaced instead of merged.
    pub replace: bool,
}
