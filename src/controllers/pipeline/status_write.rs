//! Statuses that are decided with their namespace, on their way to the API server.

use futures::FutureExt as _;
use futures::future::BoxFuture;

use crate::kubernetes::apply::CallError;
use crate::plan::pipeline::object::ObjectKey;
use crate::plan::pipeline::status::StatusInput;

use super::kind::PipelineKind;
use super::writes::PipelineWriter;

/// Writes a status, and then records the event about it.
pub(super) type PendingStatus =
    Box<dyn for<'w> FnOnce(&'w PipelineWriter) -> BoxFuture<'w, Result<(), CallError>> + Send>;

/// The write of the status that an object should have, where it has another.
pub(super) fn pending_status<K: PipelineKind>(
    key: &ObjectKey,
    input: &StatusInput<'_>,
) -> Option<PendingStatus> {
    let (key, object) = K::map(input.objects).get_key_value(key)?;
    let status = K::status(key, object, input).filter(|status| *status != object.status)?;
    let report = K::report(&object.status, &status);
    let seen = (key.clone(), object.uid.clone());
    Some(Box::new(move |writer| {
        let write = async move {
            writer.write_status::<K>(&seen, &status).await?;
            if let Some(report) = report {
                writer.record(K::KIND, &seen, &report);
            }
            Ok(())
        };
        write.boxed()
    }))
}
