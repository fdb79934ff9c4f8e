//! Which charts are planned anew.

use std::sync::Arc;

use super::decide::with_release;
use super::world::key;
use crate::api::pipeline::TargetSpec;
use crate::plan::pipeline::chart_cache::{ChartCache, REMEMBERED};
use crate::plan::pipeline::destination::{RenderDestination, destination};
use crate::plan::pipeline::object::ObjectKey;
use crate::plan::pipeline::resolution::AcceptedRelease;
use crate::plan::pipeline::source::SourceKey;

/// A Release that a Target gets, the Target, and where its charts go.
type Bound<'b> = (
    &'b AcceptedRelease<'b>,
    &'b ObjectKey,
    &'b TargetSpec,
    RenderDestination,
);

fn with_bound(check: impl FnOnce(Bound<'_>)) {
    let mut world = with_release();
    world.bind("edge", "a");
    let resolution = world.resolve("edge");
    let (key, target) = world.objects.targets.get_key_value(&key("edge")).unwrap();
    let spec = target.spec.as_ref().unwrap();
    let destination = destination(key, spec, &world.objects, &world.rules, &world.catalog).unwrap();
    check((&resolution.accepted[0], key, spec, destination));
}

#[test]
fn a_chart_is_planned_once_for_everything_that_it_depends_on() {
    with_bound(|(release, key, spec, destination)| {
        let charts = ChartCache::default();
        let planned = |spec, salt| charts.release_chart(release, key, spec, &destination, salt);
        let first = planned(spec, 0);
        assert!(Arc::ptr_eq(&first, &planned(spec, 0)));
        let mut as_another = spec.clone();
        as_another.service_account_name = Some("another".to_owned());
        for other in [planned(spec, 1), planned(&as_another, 0)] {
            assert!(!Arc::ptr_eq(&first, &other));
        }
        assert_eq!(charts.len(), 3);
    });
}

#[test]
fn what_is_said_of_a_release_is_made_once_for_everything_that_it_depends_on() {
    with_bound(|(release, target, spec, destination)| {
        let chart = ChartCache::default().release_chart(release, target, spec, &destination, 0);
        let said = |release, digest| {
            (
                chart.listed(release),
                chart.hydrated(release, &destination, Some(digest)),
            )
        };
        let (listed, hydrated) = said(release, "one");
        let (same_listed, same) = said(release, "one");
        assert!(Arc::ptr_eq(&listed, &same_listed) && Arc::ptr_eq(&hydrated, &same));
        let binding = key("binding");
        let bound_otherwise = AcceptedRelease {
            registry_bindings: [binding.clone()].into(),
            ..release.clone()
        };
        let put_by_another = AcceptedRelease {
            source: SourceKey {
                key: &binding,
                ..release.source
            },
            ..release.clone()
        };
        let other_digest = chart.hydrated(release, &destination, Some("two"));
        assert_eq!(other_digest.digest.as_deref(), Some("two"));
        let (_, of_binding) = said(&bound_otherwise, "two");
        assert_eq!(of_binding.registry_bindings[0].name, binding.name);
        let (by_another, of_another) = said(&put_by_another, "two");
        assert_eq!(
            (&by_another.source.name, &of_another.source.name),
            (&binding.name, &binding.name)
        );
    });
}

#[test]
fn only_so_many_charts_are_remembered() {
    with_bound(|(release, key, spec, mut destination)| {
        let charts = ChartCache::default();
        for number in 0..=REMEMBERED {
            destination.prefix = format!("prefix-{number}");
            charts.release_chart(release, key, spec, &destination, 0);
            assert!(charts.len() <= REMEMBERED);
        }
        assert!(!charts.is_empty());
    });
}
