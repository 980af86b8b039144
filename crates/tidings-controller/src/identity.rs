//! Names of processes.

use std::hash::{BuildHasher, RandomState};

/// A name that no other process has: that of the Pod or host (or a given one), and a random number.
///
/// Random: process ids are equal in containers, and two leaders with one identity would both lead.
pub(crate) fn random_identity(given: Option<&str>) -> String {
    let random = RandomState::new().hash_one(std::process::id());
    format!("{}-{random:016x}", host(given))
}

/// The given name, or that of the Pod or host, with nothing that a name of an object cannot have.
fn host(given: Option<&str>) -> String {
    let variables = ["POD_NAME", "HOSTNAME"];
    let from_environment = || variables.iter().find_map(|name| std::env::var(name).ok());
    let host = given.map(str::to_owned).or_else(from_environment);
    let host: String = host
        .unwrap_or_default()
        .to_ascii_lowercase()
        .chars()
        .map(|letter| match letter {
            'a'..='z' | '0'..='9' => letter,
            _ => '-',
        })
        .take(50)
        .collect();
    match host.trim_matches('-') {
        "" => "process".to_owned(),
        host => host.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identities_are_names_and_differ() {
        let name = random_identity(Some("Web_0.example"));
        assert!(name.starts_with("web-0-example-"), "{name}");
        assert_ne!(name, random_identity(Some("Web_0.example")));
        assert!(random_identity(Some("--")).starts_with("process-"));
    }
}
