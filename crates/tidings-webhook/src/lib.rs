#![doc = include_str!("../README.md")]

mod client;
mod kubeconfig;

pub use client::{Webhook, WebhookAnswer, WebhookError};
