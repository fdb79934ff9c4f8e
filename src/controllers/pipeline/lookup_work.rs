//! Asks a registry for one chart, and looks for what it was made of where it is not there.

use std::sync::Arc;

use crate::controllers::prune::{PruneError, Pruner};
use crate::kubernetes::apply::{CallError, HubClient};
use crate::plan::pipeline::lookups::{
    ChartAnswer, ChartQuestion, ChartSources, FoundChart, LookupFailure, LookupRequest, made_of,
};

/// One question, for a worker.
pub(super) struct LookupWork {
    pub question: ChartQuestion,
    /// What the registry is asked, or why it cannot be asked.
    pub request: Result<LookupRequest, LookupFailure>,
    /// The tasks that push to the place of the chart.
    pub sources: ChartSources,
    pub pruner: Pruner,
    pub client: HubClient,
}

impl LookupWork {
    /// Asks, and says what came of it.
    pub async fn run(self) -> ChartAnswer {
        match self.found().await {
            Ok(found) => ChartAnswer::Found(found),
            Err(failure) => {
                let (namespace, release) = (&self.question.namespace, self.question.release.to_string());
                tracing::warn!(
                    namespace,
                    release,
                    why = failure.explained(),
                    "a registry was asked for a chart of an earlier version, and it is not known whether it has it; it is asked again"
                );
                ChartAnswer::Unknown(failure)
            }
        }
    }

    async fn found(&self) -> Result<FoundChart, LookupFailure> {
        let request = self.request.as_ref().map_err(|failure| *failure)?;
        let digest = self.pruner.find(request).await.map_err(|error| match error {
            PruneError::Registry(failure) => LookupFailure::Registry(failure),
            PruneError::Call(_) => LookupFailure::Call,
        })?;
        let mut found = FoundChart {
            digest: digest.map(|digest| digest.to_string()),
            made_of: None,
            pushed: self.sources.pushed.clone(),
        };
        if !found.is_what_was_recorded(&self.question) {
            found.made_of = self.content().await.map_err(|_| LookupFailure::Call)?;
        }
        Ok(found)
    }

    /// What the chart was made of, from the first of the tasks that has it.
    async fn content(&self) -> Result<Option<Arc<str>>, CallError> {
        for id in &self.sources.tasks {
            let Some(task) = self.client.get_task(id).await? else {
                continue;
            };
            if made_of(&self.question.version, &task.decoded.config).is_some() {
                return Ok(Some(Arc::clone(&task.decoded.config)));
            }
        }
        Ok(None)
    }
}
