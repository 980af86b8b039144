#![doc = include_str!("../README.md")]

mod cipher;
mod config;
mod envelope;
mod kms;
mod mark;
mod proto;
mod provider;
mod store;

pub use config::EncryptionConfig;
pub use mark::ValueMark;
pub use store::{EncryptedStore, EncryptionError, StoredResource};
