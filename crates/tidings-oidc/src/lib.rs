#![doc = include_str!("../README.md")]

mod claims;
mod config;
mod issuer;
mod written;

pub use config::{AnonymousRule, AuthenticationConfig};
pub use issuer::{TokenIssuers, read_keys};
