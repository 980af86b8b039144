//! Names that the server makes.

use uuid::Uuid;

/// A generated name: the prefix, cut so that the name is not too long, and five random characters without vowels, so that they form no
/// words (W137).
pub(super) fn generate_name(prefix: &str) -> String {
    let mut name: String = prefix.to_owned();
    while name.len() > 58 {
        name.pop();
    }
    name + &random_letters()
}

/// Five random letters and digits that form no words.
pub(super) fn random_letters() -> String {
    const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
    // A random UUID is the source of the random bytes.
    let random = Uuid::new_v4();
    let bytes = random.as_bytes()[..5].iter();
    let letters = bytes.map(|byte| char::from(ALPHABET[usize::from(*byte) % ALPHABET.len()]));
    letters.collect()
}

#[cfg(test)]
mod tests {
    use super::generate_name;

    #[test]
    fn w137_generated_names_are_cut_to_fit() {
        let name = generate_name("gen-");
        assert!(name.starts_with("gen-") && name.len() == 9, "{name}");
        assert_eq!(generate_name(&"x".repeat(100)).len(), 63);
        assert_ne!(generate_name("a"), generate_name("a"));
    }
}
