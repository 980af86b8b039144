//! Lists and watches a resource over HTTP.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{ACCEPT, HeaderName};
use http::{HeaderValue, Request, Response};
use kube::client::Body;
use kube::core::ApiResource;
use tidings_api::{ListOptions, ListSplitter, SplitOptions, WatchSplitter};
use tidings_informer::{
    BoxFuture, EventStream, ListStream, ListWatch, Lister, SourceError, Watcher,
};

use crate::body::BodyBatches;
use crate::client::RestClient;
use crate::protobuf::{ProtobufAllowed, ProtobufListSplitter, ProtobufWatchSplitter};
use crate::resource::{ObjectForm, Scope, collection_path};
use crate::response::BodyFormat;

/// Lists and watches the objects of a resource through a [`RestClient`].
///
/// `metadata.managedFields` is removed while bodies are read, unless [`RestListWatch::keep_managed_fields`] is called.
///
/// Objects of built-in kinds come as protobuf from servers that keep them so, such as kube-apiserver, and become JSON here. A server that
/// keeps JSON is asked for JSON, and so is one that sends fields in protobuf that this version does not know: nothing is lost.
#[derive(Debug, Clone)]
pub struct RestListWatch {
    client: RestClient,
    path: String,
    form: ObjectForm,
    split: SplitOptions,
    /// The type of whole objects is in the table of types.
    is_builtin: bool,
    protobuf: ProtobufAllowed,
}

/// Asks a server for that of the accepted formats in which it keeps objects, because it is the cheapest (RFC 7240). Servers that do not know the
/// preference ignore it and send the first format.
const PREFER: HeaderName = HeaderName::from_static("prefer");
const STORED_FORMAT: HeaderValue = HeaderValue::from_static("format=stored");

impl RestListWatch {
    /// Lists and watches a resource in one namespace, or in all if it is empty.
    pub fn new(client: &RestClient, resource: &ApiResource, namespace: &str) -> RestListWatch {
        RestListWatch {
            client: client.clone(),
            path: collection_path(resource, namespace),
            form: ObjectForm::Whole,
            split: SplitOptions::default().without_managed_fields(),
            is_builtin: tidings_schema::find(&resource.group, &resource.version, &resource.kind)
                .is_some(),
            protobuf: ProtobufAllowed::new(true),
        }
    }

    /// Requests JSON even from servers that have protobuf.
    #[must_use]
    pub fn json_only(mut self) -> RestListWatch {
        self.protobuf = ProtobufAllowed::new(false);
        self
    }

    /// Requests kind and metadata only.
    #[must_use]
    pub fn metadata_only(self) -> RestListWatch {
        self.form(ObjectForm::Metadata)
    }

    pub(crate) fn form(mut self, form: ObjectForm) -> RestListWatch {
        self.form = form;
        self
    }

    /// Keeps `metadata.managedFields`.
    #[must_use]
    pub fn keep_managed_fields(mut self) -> RestListWatch {
        self.split.drop_managed_fields = false;
        self
    }

    /// Sets the largest object that is accepted; the default is 16 MiB.
    #[must_use]
    pub fn object_bytes_max(mut self, bytes_max: usize) -> RestListWatch {
        self.split.object_bytes_max = bytes_max;
        self
    }

    /// Adds the selectors of a scope. Its namespace is already in the path.
    pub fn selected(self, scope: &Scope) -> ListWatch {
        let selected = ListWatch::over(Arc::new(self))
            .label_selector(&*scope.label_selector)
            .field_selector(&*scope.field_selector);
        match &scope.shard {
            Some(shard) => selected.shard(shard.clone()),
            None => selected,
        }
    }

    /// Sends the request. Returns the response and the format of its body.
    async fn ask(
        &self,
        options: &ListOptions,
    ) -> Result<(Response<Body>, BodyFormat), SourceError> {
        let query = form_urlencoded::Serializer::new(String::new())
            .extend_pairs(options.to_query())
            .finish();
        let question = if query.is_empty() { "" } else { "?" };
        let protobuf =
            self.protobuf.get() && (self.is_builtin || self.form == ObjectForm::Metadata);
        let mut request = Request::get(format!("{}{question}{query}", self.path))
            .header(ACCEPT, self.form.accept(options.watch, protobuf));
        if protobuf {
            request = request.header(PREFER, STORED_FORMAT);
        }
        let request = request.body(Bytes::new()).map_err(SourceError::transport)?;
        let response = self.client.request(request).await?;
        let format = BodyFormat::of(response.headers())?;
        Ok((response, format))
    }
}

impl Lister for RestListWatch {
    fn list(&self, mut options: ListOptions) -> BoxFuture<'_, Result<ListStream, SourceError>> {
        Box::pin(async move {
            options.watch = false;
            let (response, format) = self.ask(&options).await?;
            let split = self.split.clone();
            let list: ListStream = match format {
                BodyFormat::Json => {
                    Box::pin(BodyBatches::list(response, ListSplitter::new(split))?)
                }
                BodyFormat::Protobuf => {
                    let splitter = ProtobufListSplitter::new(split, self.protobuf.clone());
                    Box::pin(BodyBatches::list(response, splitter)?)
                }
            };
            Ok(list)
        })
    }
}

impl Watcher for RestListWatch {
    fn watch(&self, mut options: ListOptions) -> BoxFuture<'_, Result<EventStream, SourceError>> {
        Box::pin(async move {
            options.watch = true;
            let (response, format) = self.ask(&options).await?;
            let split = self.split.clone();
            let watch: EventStream = match format {
                BodyFormat::Json => {
                    Box::pin(BodyBatches::watch(response, WatchSplitter::new(split))?)
                }
                BodyFormat::Protobuf => {
                    let splitter = ProtobufWatchSplitter::new(split, self.protobuf.clone());
                    Box::pin(BodyBatches::watch(response, splitter)?)
                }
            };
            Ok(watch)
        })
    }
}

/// Lists and watches the objects of a resource that a field selector matches: client-go's `NewListWatchFromClient`. An empty
/// namespace means all namespaces, an empty selector all objects.
pub fn list_watch_from_client(
    client: &RestClient,
    resource: &ApiResource,
    namespace: &str,
    field_selector: &str,
) -> ListWatch {
    let scope = Scope::namespace(namespace).fields(field_selector);
    RestListWatch::new(client, resource, namespace).selected(&scope)
}

/// Lists and watches a resource with options that a function changes: client-go's `NewFilteredListWatchFromClient`.
/// [`ListWatch::modify_options`] says which options it may change.
pub fn filtered_list_watch_from_client(
    client: &RestClient,
    resource: &ApiResource,
    namespace: &str,
    modifier: impl Fn(&mut ListOptions) + Send + Sync + 'static,
) -> ListWatch {
    let source = RestListWatch::new(client, resource, namespace);
    ListWatch::over(Arc::new(source)).modify_options(modifier)
}

/// client-go's constructors as methods of [`ListWatch`].
pub trait ListWatchExt {
    /// See [`list_watch_from_client`].
    fn from_client(
        client: &RestClient,
        resource: &ApiResource,
        namespace: &str,
        field_selector: &str,
    ) -> ListWatch {
        list_watch_from_client(client, resource, namespace, field_selector)
    }

    /// See [`filtered_list_watch_from_client`].
    fn filtered_from_client(
        client: &RestClient,
        resource: &ApiResource,
        namespace: &str,
        modifier: impl Fn(&mut ListOptions) + Send + Sync + 'static,
    ) -> ListWatch {
        filtered_list_watch_from_client(client, resource, namespace, modifier)
    }
}

impl ListWatchExt for ListWatch {}
