//! Object keys and their order.

use std::fmt;
use std::sync::Arc;

/// The key of an object within its resource: `namespace/name`, or `name` for cluster-scoped resources.
///
/// Keys are ordered bytewise on the joined text (W25), not on the pair: because `-` sorts before `/`, the objects of the
/// namespace `ns-a` come before those of `ns`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectKey(Arc<str>);

impl ObjectKey {
    /// The key of an object; the namespace of cluster-scoped objects is empty.
    pub fn new(namespace: &str, name: &str) -> ObjectKey {
        if namespace.is_empty() {
            ObjectKey(name.into())
        } else {
            ObjectKey(format!("{namespace}/{name}").into())
        }
    }

    /// A key that is joined already. Any text is a key: it may serve as a bound of a range.
    pub fn from_joined(joined: &str) -> ObjectKey {
        ObjectKey(joined.into())
    }

    /// Reads a joined key.
    ///
    /// # Errors
    /// If it has more than one slash, or no name.
    pub fn parse(joined: &str) -> Result<ObjectKey, KeyError> {
        let name = joined.split_once('/').map_or(joined, |(_, name)| name);
        if name.is_empty() || name.contains('/') {
            return Err(KeyError(joined.to_owned()));
        }
        Ok(ObjectKey::from_joined(joined))
    }

    /// The joined text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The namespace, or empty.
    pub fn namespace(&self) -> &str {
        self.0
            .split_once('/')
            .map_or("", |(namespace, _)| namespace)
    }

    /// The name.
    pub fn name(&self) -> &str {
        self.0.split_once('/').map_or(&self.0, |(_, name)| name)
    }
}

/// A text that is no key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unexpected key format: {0:?}")]
pub struct KeyError(pub String);

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::borrow::Borrow<str> for ObjectKey {
    fn borrow(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::ObjectKey;

    #[test]
    fn w25_order_is_bytewise_on_the_joined_key() {
        let mut keys = [
            ObjectKey::new("ns", "a"),
            ObjectKey::new("ns-a", "z"),
            ObjectKey::new("ns.b", "a"),
        ];
        keys.sort();
        assert_eq!(
            keys.map(|key| key.namespace().to_owned()),
            ["ns-a", "ns.b", "ns"]
        );
    }
}
