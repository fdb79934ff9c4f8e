//! Requests that write, as they are sent: with as little work for the API server as the hub has use for.

use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderValue, Method, Request as HttpRequest, Uri};
use kube::api::{Patch, PatchParams};
use kube::core::Request;
use kube::core::request::Error;
use serde::Serialize;
use serde_json::{Value, json};

use crate::plan::task::finalizer_summary::FinalizerSummary;

use super::response::manager;

/// Asks for the metadata of what is written, or as a last resort for all of it: the answer to a write repeats the object, a
/// config Secret of up to 1 MiB. An API server answers each write so since it knows this form.
pub(super) const METADATA_ONLY: HeaderValue =
    HeaderValue::from_static("application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json");
/// The format of RFC 6902.
const JSON_PATCH: HeaderValue = HeaderValue::from_static("application/json-patch+json");
/// Keeps the API server from looking for unknown and doubled fields, of which it would warn; the hub sends none, and reads no warning.
const NO_WARNINGS: &str = "fieldValidation=Ignore";

/// An operation of a JSON patch.
#[derive(Serialize)]
struct Operation<'a, T> {
    op: &'static str,
    path: &'static str,
    value: &'a T,
}

/// A write that is answered with the metadata of its object alone, and without warnings.
///
/// # Errors
/// That of the request.
pub fn lean_write(request: Result<HttpRequest<Vec<u8>>, Error>) -> Result<HttpRequest<Vec<u8>>, Error> {
    let mut request = request?;
    request.headers_mut().insert(ACCEPT, METADATA_ONLY);
    if request.method() != Method::DELETE {
        let separator = if request.uri().query().is_some() { '&' } else { '?' };
        let uri = format!("{}{separator}{NO_WARNINGS}", request.uri());
        *request.uri_mut() = Uri::try_from(uri).map_err(|error| Error::BuildRequest(error.into()))?;
    }
    Ok(request)
}

/// Changes an object by the operations of a JSON patch, which are written as they are: kube makes values of them, and then text.
///
/// # Errors
/// They cannot be written as JSON.
pub fn json_patch(
    requests: &Request,
    subresource: Option<&str>,
    name: &str,
    parameters: &PatchParams,
    operations: &impl Serialize,
) -> Result<HttpRequest<Vec<u8>>, Error> {
    // Any kind that is written as it is; the header below says which it is.
    let patch = Patch::Merge(operations);
    let mut request = match subresource {
        Some(subresource) => requests.patch_subresource(subresource, name, parameters, &patch)?,
        None => requests.patch(name, parameters, &patch)?,
    };
    request.headers_mut().insert(CONTENT_TYPE, JSON_PATCH);
    Ok(request)
}

/// Puts a whole status in the place of any other, of the object with this UID and of no other of the name.
///
/// Unlike a merge, it leaves nothing of what others wrote; unlike a PUT, it needs no read before, and takes from no manager the fields
/// that it does not send.
///
/// # Errors
/// The status cannot be written as JSON.
pub fn status_patch(
    requests: &Request,
    name: &str,
    uid: &str,
    status: &impl Serialize,
) -> Result<HttpRequest<Vec<u8>>, Error> {
    let same = Operation {
        op: "replace",
        path: "/metadata/uid",
        value: &uid,
    };
    let whole = Operation {
        op: "add",
        path: "/status",
        value: status,
    };
    json_patch(requests, Some("status"), name, &manager(), &(same, whole))
}

/// Puts the hub's finalizer `own` on an object, or takes it off, if the object has this UID and version still; `None` where there is
/// nothing to take off. It sends none of the object's other finalizers, of which there may be 1.4 MB.
pub(super) fn finalizer_patch(
    own: &str,
    (uid, version, finalizers): (&str, &str, FinalizerSummary),
    is_wanted: bool,
) -> Option<Vec<Value>> {
    let mut operations = vec![
        json!({"op": "replace", "path": "/metadata/uid", "value": uid}),
        json!({"op": "replace", "path": "/metadata/resourceVersion", "value": version}),
    ];
    if !is_wanted {
        let path = format!("/metadata/finalizers/{}", finalizers.hub_index?);
        operations.push(json!({"op": "test", "path": path, "value": own}));
        operations.push(json!({"op": "remove", "path": path}));
    } else if finalizers.count == 0 {
        operations.push(json!({"op": "add", "path": "/metadata/finalizers", "value": [own]}));
    } else {
        operations.push(json!({"op": "add", "path": "/metadata/finalizers/-", "value": own}));
    }
    Some(operations)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_sent_as_a_patch_of_the_object_with_the_uid() {
        let request = status_patch(
            &Request::new("/apis/tasks"),
            "shop",
            "7",
            &json!({"phase": "Running"}),
        );
        let request = lean_write(request).unwrap();
        assert_eq!(request.method(), Method::PATCH);
        assert_eq!(request.uri().path(), "/apis/tasks/shop/status");
        let query = request.uri().query().unwrap();
        assert!(
            query.ends_with("fieldManager=renderhub&fieldValidation=Ignore"),
            "{query}"
        );
        assert_eq!(request.headers()[CONTENT_TYPE], JSON_PATCH);
        assert_eq!(request.headers()[ACCEPT], METADATA_ONLY);
        let sent: Value = serde_json::from_slice(request.body()).unwrap();
        assert_eq!(
            sent,
            json!([
                {"op": "replace", "path": "/metadata/uid", "value": "7"},
                {"op": "add", "path": "/status", "value": {"phase": "Running"}},
            ])
        );
    }
}
