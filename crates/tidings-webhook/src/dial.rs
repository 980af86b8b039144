//! Where connections are opened to.

use std::error::Error;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::Uri;
use hyper_util::client::legacy::connect::HttpConnector;
use tower_service::Service;

/// Says to which host and port a connection is opened, as `10.0.0.1:443`, instead of those of the URL. `Err` is the reason why there is none.
pub type Dial = Arc<dyn Fn() -> Result<String, String> + Send + Sync>;

/// Opens connections to the host of a URL, or to where something else says.
#[derive(Clone)]
pub(crate) struct Dialer {
    pub(crate) http: HttpConnector,
    pub(crate) dial: Option<Dial>,
}

type DialError = Box<dyn Error + Send + Sync>;
type Connection = <HttpConnector as Service<Uri>>::Response;

impl Service<Uri> for Dialer {
    type Response = Connection;
    type Error = DialError;
    type Future = Pin<Box<dyn Future<Output = Result<Connection, DialError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), DialError>> {
        self.http.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let uri = match &self.dial {
            None => Ok(uri),
            Some(dial) => dial().and_then(|authority| {
                let there = Uri::builder().scheme("http").authority(authority);
                let there = there.path_and_query("/").build();
                there.map_err(|error| error.to_string())
            }),
        };
        match uri {
            Ok(uri) => {
                let connecting = self.http.call(uri);
                Box::pin(async { connecting.await.map_err(Into::into) })
            }
            Err(why) => Box::pin(async { Err(DialError::from(NotDialled(why))) }),
        }
    }
}

/// Why there is nowhere to connect to.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct NotDialled(pub(crate) String);
