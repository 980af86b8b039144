//! [`NameRule`], the syntax of object names.

use tidings_api::validate;

/// The syntax of object names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameRule {
    /// A DNS subdomain.
    Subdomain,
    /// A DNS label.
    Label,
    /// A text that can be a segment of a URL path.
    Segment,
    /// An IP address.
    IpAddress,
}

impl NameRule {
    /// The reasons why a name does not follow the rule; empty if it does.
    pub(super) fn check(self, name: &str) -> Vec<String> {
        match self {
            NameRule::Subdomain => validate::dns1123_subdomain(name),
            NameRule::Label => validate::dns1123_label(name),
            NameRule::Segment => validate::path_segment(name),
            NameRule::IpAddress => match name.parse::<std::net::IpAddr>() {
                Ok(address) if address.to_string() == name => Vec::new(),
                Ok(address) => vec![format!("must be in canonical form (\"{address}\")")],
                Err(_) => {
                    vec!["must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)".into()]
                }
            },
        }
    }
}
