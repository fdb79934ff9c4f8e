//! Where the chart of a task goes.

use super::observed::ObservedTask;
use super::refusal::Refusal;
use super::tenant::TenantDestination;
use super::validate::validate;
use crate::api::RenderTaskSpec;
use crate::plan::platform::catalog::ResolvedTask;

/// The destination and the renderer that the task gets now.
pub(super) fn resolve(
    o: &ObservedTask<'_>,
    spec: &RenderTaskSpec,
    own: Option<&TenantDestination>,
) -> Result<ResolvedTask, Refusal> {
    let target = o.target.and_then(|target| target.as_ref().ok());
    o.catalog.resolve(o.task, spec, own, target)
}

/// Whether the URL that a Job on another cluster carries is the one that the task has.
fn is_its_url(o: &ObservedTask<'_>, url: &str) -> bool {
    let Ok(spec) = validate(o.task) else { return false };
    let own = o.tenant_destination.and_then(|own| own.as_ref().ok());
    resolve(o, spec, own).is_ok_and(|resolved| resolved.reference.url() == url)
}

/// Where the chart goes: the Job says it, but of a Job on another cluster nothing is repeated that others may have written.
pub(super) fn chart_url(o: &ObservedTask<'_>) -> Option<String> {
    if o.target.is_none() {
        return o.job.chart_url();
    }
    let recorded = o.task.status.chart_url.clone();
    recorded.or_else(|| o.job.chart_url().filter(|url| is_its_url(o, url)))
}
