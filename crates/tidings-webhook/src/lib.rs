#![doc = include_str!("../README.md")]

mod client;
mod dial;
mod failure;
mod kubeconfig;

pub use client::{Webhook, WebhookAnswer, WebhookError};
pub use dial::Dial;
