//! `Warning` headers (W10).

use http::Response;
use http::header::{HeaderValue, WARNING};

/// If all warnings together have more characters than this, each is cut to `CUT_TO`, and those beyond the total are dropped.
const TOTAL_MAX: usize = 4096;
/// How many characters of each warning are kept if all together are too long.
const CUT_TO: usize = 256;

/// Adds a `Warning` header for each different warning.
pub(crate) fn warn<B>(response: &mut Response<B>, warnings: &[String]) {
    let mut texts: Vec<&str> = Vec::new();
    for warning in warnings {
        if !texts.contains(&warning.as_str()) {
            texts.push(warning);
        }
    }
    let total: usize = texts.iter().map(|text| text.chars().count()).sum();
    let longest = if total > TOTAL_MAX {
        CUT_TO
    } else {
        usize::MAX
    };
    let mut left = TOTAL_MAX;
    for text in texts {
        let cut: String = text
            .chars()
            .take(longest)
            .filter(|c| !c.is_control())
            .collect();
        let length = cut.chars().count();
        if length > left {
            return;
        }
        left -= length;
        let escaped = cut.replace('\\', "\\\\").replace('"', "\\\"");
        if let Ok(value) = HeaderValue::from_str(&format!("299 - \"{escaped}\"")) {
            response.headers_mut().append(WARNING, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(warnings: &[String]) -> Vec<String> {
        let mut response = Response::new(());
        warn(&mut response, warnings);
        let values = response.headers().get_all(WARNING);
        values
            .iter()
            .map(|value| value.to_str().unwrap().to_owned())
            .collect()
    }

    #[test]
    fn w10_repeated_warnings_are_sent_once_and_escaped() {
        let twice = [
            r#"unknown field "a\b""#.to_owned(),
            r#"unknown field "a\b""#.to_owned(),
        ];
        assert_eq!(headers(&twice), [r#"299 - "unknown field \"a\\b\"""#]);
    }

    #[test]
    fn w10_long_warnings_are_cut() {
        let many: Vec<String> = (0..20)
            .map(|at| format!("{at:02}{}", "x".repeat(400)))
            .collect();
        let cut = headers(&many);
        assert_eq!(cut.len(), 16, "4096 characters in all");
        assert!(
            cut.iter()
                .all(|value| value.len() == 256 + "299 - \"\"".len())
        );
    }
}
