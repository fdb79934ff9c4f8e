//! A Profile whose rollout is looked at, and what binds its Release before it does.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use crate::api::pipeline::{ProfileSpec, ReleaseBindingSpec, ReleaseSourceKind};
use crate::plan::pipeline::object::{ObjectKey, within};
use crate::plan::pipeline::objects::PipelineObjects;
use crate::plan::pipeline::references::ReferenceRules;
use crate::plan::pipeline::selector::matches;
use crate::plan::pipeline::source::{SourceKey, TargetView, is_target, may_reach};

/// A Profile whose Targets are looked at.
pub(super) struct SurveyedProfile<'o> {
    /// It as a source.
    pub source: SourceKey<'o>,
    /// Its Release.
    pub release: ObjectKey,
    /// What else binds the Release, and comes before the Profile.
    earlier: Vec<EarlierSource<'o>>,
}

/// What binds a Release before a Profile does.
enum EarlierSource<'o> {
    Binding(&'o ObjectKey, &'o ReleaseBindingSpec),
    Profile(&'o ObjectKey, &'o LabelSelector),
}

impl<'o> SurveyedProfile<'o> {
    /// A Profile, and what comes before it.
    pub fn of(key: &'o ObjectKey, spec: &ProfileSpec, objects: &'o PipelineObjects) -> Self {
        let (namespace, name) = (&key.namespace, &spec.release_ref.name);
        // The order of sources: by name, a ReleaseBinding before a Profile.
        let bindings =
            within(&objects.release_bindings, namespace).filter(|(other, _)| other.name <= key.name);
        let bindings = bindings.filter_map(|(other, binding)| {
            let spec = binding
                .spec
                .as_ref()
                .filter(|spec| spec.release_ref.name == *name)?;
            Some(EarlierSource::Binding(other, spec))
        });
        let profiles = within(&objects.profiles, namespace).filter(|(other, _)| other.name < key.name);
        let profiles = profiles.filter_map(|(other, profile)| {
            let spec = profile
                .spec
                .as_ref()
                .filter(|spec| spec.release_ref.name == *name)?;
            Some(EarlierSource::Profile(other, &spec.target_selector))
        });
        Self {
            source: SourceKey {
                key,
                kind: ReleaseSourceKind::Profile,
            },
            release: ObjectKey::new(namespace, name),
            earlier: bindings.chain(profiles).collect(),
        }
    }

    /// Whether something else binds the Release to the Target before the Profile does.
    pub fn is_preceded(
        &self,
        target: TargetView<'_>,
        objects: &PipelineObjects,
        rules: &ReferenceRules,
    ) -> bool {
        let reaches = |kind, key| may_reach(kind, key, target.key, objects, rules);
        self.earlier.iter().any(|earlier| match earlier {
            EarlierSource::Binding(key, spec) => {
                is_target(&spec.target_ref, key, target.key)
                    && reaches(ReleaseSourceKind::ReleaseBinding, key)
            }
            EarlierSource::Profile(key, selector) => {
                matches(selector, &target.object.labels) && reaches(ReleaseSourceKind::Profile, key)
            }
        })
    }
}
