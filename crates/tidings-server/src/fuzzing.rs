//! Properties for fuzzers, which must hold for any bytes that clients send.

use crate::core::ContinueToken;

/// Decodes bytes as a continue token. An accepted token has a start key and a revision, and survives encoding and decoding.
///
/// # Panics
/// If one of these does not hold.
pub fn continue_token(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let Ok(token) = ContinueToken::read(text) else {
        return;
    };
    assert!(!token.start.is_empty() && token.rv != 0);
    // In a token a zero byte follows the last key.
    let key = token.start.trim_end_matches('\0');
    let key = key.strip_prefix('/').unwrap_or(key);
    if !key.is_empty()
        && key
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "-./".contains(c))
    {
        let again = ContinueToken::read(&ContinueToken::write(token.rv, key, "", token.t))
            .expect("it was made here");
        assert_eq!((again.rv, again.t), (token.rv, token.t));
        assert_eq!(again.start.strip_suffix('\0'), Some(key));
    }
}

/// The seed corpus.
pub fn tokens() -> Vec<Vec<u8>> {
    let token = |revision, key| {
        ContinueToken::write(revision, key, "default/", 1_700_000_000_000).into_bytes()
    };
    vec![
        token(17, "default/a"),
        token(-1, "default/web-0"),
        token(1, "kube-system/x.y"),
    ]
}
