//! Bearer tokens from a file: `token,user,uid,"group1,group2"` on each line.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use crate::user::User;

/// The users of a file of tokens, by token.
#[derive(Clone, Default)]
pub struct TokenFile {
    users: HashMap<String, Arc<User>>,
}

impl fmt::Debug for TokenFile {
    /// Never shows tokens.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TokenFile({} tokens)", self.users.len())
    }
}

/// A line of a file of tokens that cannot be read. Quotes nothing of it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {why}")]
pub struct TokenFileError {
    /// Which line, from 1.
    pub line: usize,
    /// What is wrong, and what to change.
    pub why: &'static str,
}

impl TokenFile {
    /// Reads a file of tokens.
    ///
    /// # Errors
    /// With the first line that cannot be read.
    pub fn parse(text: &str) -> Result<TokenFile, TokenFileError> {
        let mut users = HashMap::new();
        for (line, fields) in records(text)? {
            let wrong = |why| Err(TokenFileError { line, why });
            let mut fields = fields.into_iter();
            let (Some(token), Some(name), Some(uid)) =
                (fields.next(), fields.next(), fields.next())
            else {
                return wrong(
                    "at least a token, a user name and a uid are needed, with commas between them",
                );
            };
            if token.is_empty() {
                return wrong("the token is empty: write one, or remove the line");
            }
            let groups = fields.next();
            let groups = groups.iter().flat_map(|groups| groups.split(','));
            let user = User {
                name,
                uid,
                groups: groups.map(ToOwned::to_owned).collect(),
                ..User::default()
            };
            if users
                .insert(token, Arc::new(user.authenticated()))
                .is_some()
            {
                return wrong("the token stands on an earlier line too: remove one of them");
            }
        }
        Ok(TokenFile { users })
    }

    /// The user of a token.
    pub fn user(&self, token: &str) -> Option<&Arc<User>> {
        self.users.get(token)
    }

    /// How many tokens there are.
    pub fn len(&self) -> usize {
        self.users.len()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.users.is_empty()
    }
}

/// The records of comma-separated values, each with its line. Empty lines are left out.
fn records(text: &str) -> Result<Vec<(usize, Vec<String>)>, TokenFileError> {
    let mut records = Vec::new();
    let mut lines = text.lines().zip(1..);
    while let Some((first, line)) = lines.next() {
        if first.trim().is_empty() {
            continue;
        }
        let (mut fields, mut rest) = (Vec::new(), first.to_owned());
        loop {
            let Some(quoted) = rest.strip_prefix('"') else {
                let (field, after) = match rest.split_once(',') {
                    Some((field, after)) => (field, Some(after.to_owned())),
                    None => (&*rest, None),
                };
                if field.contains('"') {
                    let why = "a quote stands inside a value: put the whole value in quotes, and write \"\" for a quote in it";
                    return Err(TokenFileError { line, why });
                }
                fields.push(field.to_owned());
                match after {
                    Some(after) => rest = after,
                    None => break,
                }
                continue;
            };
            let Some((field, after)) = quoted_field(quoted) else {
                // A quoted value may go on in the next line.
                let Some((next, _)) = lines.next() else {
                    let why = "a value in quotes has no end";
                    return Err(TokenFileError { line, why });
                };
                rest = format!("{rest}\n{next}");
                continue;
            };
            fields.push(field);
            match (after.is_empty(), after.strip_prefix(',')) {
                (true, _) => break,
                (_, Some(after)) => rest = after.to_owned(),
                _ => {
                    let why =
                        "something stands between the end of a quoted value and the next comma";
                    return Err(TokenFileError { line, why });
                }
            }
        }
        records.push((line, fields));
    }
    Ok(records)
}

/// A value up to its closing quote, and what stands after it.
fn quoted_field(text: &str) -> Option<(String, String)> {
    let (mut field, mut rest) = (String::new(), text);
    loop {
        let (before, after) = rest.split_once('"')?;
        field.push_str(before);
        match after.strip_prefix('"') {
            Some(after) => {
                field.push('"');
                rest = after;
            }
            None => return Some((field, after.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_name_users_with_uids_and_groups() {
        let text = "t1,ann,1\n\nt2,bob,2,\"a,b\"\r\nt3,\"c\"\"d\",3,a,more\nt4,e,,\n";
        let file = TokenFile::parse(text).unwrap();
        let show = |token: &str| {
            let user = file.user(token).unwrap();
            format!("{} {} {}", user.name, user.uid, user.groups.join(" "))
        };
        assert_eq!(file.len(), 4);
        assert_eq!(show("t1"), "ann 1 system:authenticated");
        assert_eq!(show("t2"), "bob 2 a b system:authenticated");
        assert_eq!(show("t3"), "c\"d 3 a system:authenticated");
        // An empty fourth value is an empty group, as in kube-apiserver.
        assert_eq!(show("t4"), "e   system:authenticated");
        assert_eq!(file.user("t"), None);
        assert_eq!(format!("{file:?}"), "TokenFile(4 tokens)");
        assert!(TokenFile::parse("").unwrap().is_empty());
    }

    #[test]
    fn a_wrong_line_is_named_and_not_quoted() {
        for (text, line) in [
            ("t,ann,1\nhunter2,bob", 2),
            ("hunter2", 1),
            (",ann,1", 1),
            ("hunter2,ann,1\nhunter2,bob,2", 2),
            ("a,b,c,\"hunter2", 1),
            ("a,b,c,hunter\"2", 1),
            ("a,b,c,\"hunter\"2", 1),
        ] {
            let error = TokenFile::parse(text).unwrap_err();
            assert_eq!(error.line, line, "{text}");
            assert!(!error.to_string().contains("hunter"), "{error}");
        }
    }
}
