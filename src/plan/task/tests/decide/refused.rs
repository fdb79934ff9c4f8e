//! What keeps a task from starting, and that it starts once its cause is gone.

use super::*;

#[test]
fn a_refusal_is_recorded_once_then_leftovers_go() {
    let wrong = [
        (json!({"clusterName": "edge"}), Reason::ClusterNotFound),
        (json!({"repository": "team-b/shop"}), Reason::RepositoryNotAllowed),
        (
            json!({"registryRef": {"name": "other"}}),
            Reason::RegistryNotAllowed,
        ),
        (
            json!({"rendererClassName": "slides"}),
            Reason::RendererClassNotFound,
        ),
        (json!({"tag": "2"}), Reason::InvalidSpec),
    ];
    for (changes, reason) in wrong {
        for has_slot in [true, false] {
            let refused = Situation::of(task_of(spec_with(changes.clone()))).with(|s| s.has_slot = has_slot);
            assert_eq!(refused.label(), format!("write Pending {reason}"));
            let reported =
                Situation::of(written(&refused)).with(|s| (s.has_slot, s.now) = (has_slot, at(500)));
            assert_eq!(
                reported.label(),
                "rest",
                "{reason}: nothing more to say at a later time"
            );
            assert_eq!(
                reported.with(|s| s.secret = Some("s1")).label(),
                "delete s1",
                "{reason}"
            );
        }
    }
}

#[test]
fn what_holds_a_task_is_recorded_and_goes_with_its_cause() {
    for (held, label) in [
        (CreateBlocked::NameConflict, "write Pending NameConflict"),
        (CreateBlocked::JobRefused, "write Pending JobRefused"),
        (CreateBlocked::NotAdmitted, "write Pending Queued"),
    ] {
        let situation = fresh().with(|s| s.held = Some(held));
        assert_eq!(situation.label(), label);
        let reported = Situation::of(written(&situation)).with(|s| s.held = Some(held));
        let rests = if held == CreateBlocked::JobRefused {
            "rest until 105"
        } else {
            "rest"
        };
        assert_eq!(reported.label(), rests);
        assert_eq!(reported.with(|s| s.held = None).label(), "create");
    }
}

/// Holds: B31.
#[test]
fn a_task_in_the_rendering_namespace_is_not_served() {
    let task = super::super::task_in(
        "rendering",
        crate::api::names::TaskKind::RenderTask,
        super::super::spec(),
    );
    let situation = Situation::of(task);
    assert_eq!(situation.label(), "write Pending InvalidSpec");
    assert_eq!(Situation::of(written(&situation)).label(), "rest");
}

/// Holds: B28.
#[test]
fn nothing_is_made_for_a_class_whose_jobs_are_refused_here() {
    let mut refusing = platform();
    let class = CatalogClass {
        is_refused: true,
        ..class(json!({}), true)
    };
    refusing.classes.insert("default".to_owned(), class);
    let refused = fresh().with(|s| s.catalog = refusing);
    assert_eq!(refused.label(), "write Pending JobRefused");
    let task = written(&refused);
    let reported = || Situation::of(task.clone()).with(|s| s.catalog = refused.catalog.clone());
    check(vec![
        (reported().with(|s| s.secret = Some("s1")), "delete s1"),
        (reported(), "rest"),
        (Situation::of(task.clone()), "create"),
    ]);
}

#[test]
fn a_mended_platform_starts_a_refused_task() {
    let mut missing = platform();
    missing.registries.get_mut("main").unwrap().credential = CredentialState::Missing;
    let refused = fresh().with(|s| s.catalog = missing);
    assert_eq!(refused.label(), "write Pending PushSecretNotFound");
    let task = written(&refused);
    check(vec![
        (Situation::of(task.clone()), "create"),
        (Situation::of(task).with(|s| s.has_slot = false), "rest in line"),
    ]);
}
