//! The order of versions by stability and number.

use std::cmp::Ordering;

/// Orders versions as discovery and warnings do: stable versions are greater than beta, beta greater than alpha, then the numbers
/// count. Names that are no Kubernetes versions are less than all others, in reverse alphabetical order.
pub fn compare_versions(left: &str, right: &str) -> Ordering {
    match (parse(left), parse(right)) {
        (Some(left), Some(right)) => left.cmp(&right),
        (Some(_), None) => Ordering::Greater,
        (None, Some(_)) => Ordering::Less,
        (None, None) => right.cmp(left),
    }
}

/// Stability, major and minor number of a version such as `v1` or `v2beta3`.
fn parse(text: &str) -> Option<(u8, u64, u64)> {
    let rest = text.strip_prefix('v')?;
    let end = rest
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(rest.len());
    let (major, rest) = rest.split_at(end);
    let number = |digits: &str| {
        let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| digits.parse().ok()).flatten()
    };
    let (stability, minor) = if rest.is_empty() {
        (2, 0)
    } else if let Some(minor) = rest.strip_prefix("beta") {
        (1, number(minor)?)
    } else {
        (0, number(rest.strip_prefix("alpha")?)?)
    };
    Some((stability, number(major)?, minor))
}
