//! Compares secrets.

/// Compares in constant time: the time does not depend on where the first difference is. An empty secret is the same as none.
pub fn is_same_secret(presented: &[u8], known: &[u8]) -> bool {
    let difference = presented
        .iter()
        .zip(known)
        .fold(0, |difference, (a, b)| difference | (a ^ b));
    difference == 0 && presented.len() == known.len() && !known.is_empty()
}
