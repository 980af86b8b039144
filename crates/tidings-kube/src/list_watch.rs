//! Lists and watches a resource over HTTP.

use std::sync::Arc;

use bytes::Bytes;
use http::header::ACCEPT;
use http::{Request, Response};
use kube::client::Body;
use kube::core::ApiResource;
use tidings_api::{ListOptions, SplitOptions};
use tidings_informer::{
    BoxFuture, EventStream, ListStream, ListWatch, Lister, SourceError, Watcher,
};

use crate::body::Batches;
use crate::client::RestClient;
use crate::resource::{Form, Scope, collection_path};
use crate::response::check_json;

/// Lists and watches the objects of a resource through a [`RestClient`].
///
/// `metadata.managedFields` is left out while bodies are read, unless [`RestListWatch::keep_managed_fields`] is called.
#[derive(Debug, Clone)]
pub struct RestListWatch {
    client: RestClient,
    path: String,
    form: Form,
    split: SplitOptions,
}

impl RestListWatch {
    /// The objects of a resource: of one namespace, or all if that is empty.
    pub fn new(client: &RestClient, resource: &ApiResource, namespace: &str) -> RestListWatch {
        RestListWatch {
            client: client.clone(),
            path: collection_path(resource, namespace),
            form: Form::Whole,
            split: SplitOptions::default().without_managed_fields(),
        }
    }

    /// Asks for kind and metadata only.
    #[must_use]
    pub fn metadata_only(self) -> RestListWatch {
        self.form(Form::Metadata)
    }

    pub(crate) fn form(mut self, form: Form) -> RestListWatch {
        self.form = form;
        self
    }

    /// Keeps `metadata.managedFields`.
    #[must_use]
    pub fn keep_managed_fields(mut self) -> RestListWatch {
        self.split.drop_managed_fields = false;
        self
    }

    /// Refuses objects that are larger; 16 MiB if unset.
    #[must_use]
    pub fn object_bytes_max(mut self, bytes_max: usize) -> RestListWatch {
        self.split.object_bytes_max = bytes_max;
        self
    }

    /// With the selectors of a scope. Its namespace is in the path already.
    pub(crate) fn selected(self, scope: &Scope) -> ListWatch {
        ListWatch::over(Arc::new(self))
            .label_selector(&*scope.label_selector)
            .field_selector(&*scope.field_selector)
    }

    /// Sends the question, and sees that the answer is one.
    async fn ask(&self, options: &ListOptions) -> Result<Response<Body>, SourceError> {
        let query = form_urlencoded::Serializer::new(String::new())
            .extend_pairs(options.to_query())
            .finish();
        let question = if query.is_empty() { "" } else { "?" };
        let request = Request::get(format!("{}{question}{query}", self.path))
            .header(ACCEPT, self.form.accept(options.watch))
            .body(Bytes::new())
            .map_err(SourceError::transport)?;
        let response = self.client.request(request).await?;
        check_json(response.headers())?;
        Ok(response)
    }
}

impl Lister for RestListWatch {
    fn list(&self, mut options: ListOptions) -> BoxFuture<'_, Result<ListStream, SourceError>> {
        Box::pin(async move {
            options.watch = false;
            let response = self.ask(&options).await?;
            let list: ListStream = Box::pin(Batches::list(response, self.split.clone())?);
            Ok(list)
        })
    }
}

impl Watcher for RestListWatch {
    fn watch(&self, mut options: ListOptions) -> BoxFuture<'_, Result<EventStream, SourceError>> {
        Box::pin(async move {
            options.watch = true;
            let response = self.ask(&options).await?;
            let watch: EventStream = Box::pin(Batches::watch(response, self.split.clone())?);
            Ok(watch)
        })
    }
}

/// Lists and watches those objects of a resource that have certain fields: client-go's `NewListWatchFromClient`. An empty
/// namespace means all, an empty selector selects all.
pub fn list_watch_from_client(
    client: &RestClient,
    resource: &ApiResource,
    namespace: &str,
    field_selector: &str,
) -> ListWatch {
    let scope = Scope::namespace(namespace).fields(field_selector);
    RestListWatch::new(client, resource, namespace).selected(&scope)
}

/// Lists and watches a resource with options that a function changes: client-go's `NewFilteredListWatchFromClient`. See
/// [`ListWatch::modify_options`] for what it may change.
pub fn filtered_list_watch_from_client(
    client: &RestClient,
    resource: &ApiResource,
    namespace: &str,
    modifier: impl Fn(&mut ListOptions) + Send + Sync + 'static,
) -> ListWatch {
    let source = RestListWatch::new(client, resource, namespace);
    ListWatch::over(Arc::new(source)).modify_options(modifier)
}

/// client-go's constructors on [`ListWatch`] itself.
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
