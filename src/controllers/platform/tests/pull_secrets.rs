//! Classes whose pull Secrets are not read yet.

use kube::api::DynamicObject;
use kube::runtime::watcher::Event;
use serde_json::json;

use super::catalog_loop;
use crate::api::RendererClass;
use crate::api::conditions::ConditionType;
use crate::controllers::platform::state::{CatalogController, PlatformKind};

/// A class that names pull Secrets, one of them twice.
fn class() -> DynamicObject {
    let object = json!({
        "metadata": {"name": "main", "uid": "1", "generation": 1, "resourceVersion": "1"},
        "spec": {"image": "registry.test/renderer:1", "imagePullSecrets": [{"name": "a"}, {"name": "b"}, {"name": "a"}]},
    });
    serde_json::from_value(object).unwrap()
}

fn published(catalog: &CatalogController) -> Vec<String> {
    let published = catalog.out.borrow().clone().unwrap();
    let named = published.classes["main"].pull_secrets.iter();
    named.map(|named| named.name.clone()).collect()
}

/// Jobs that start before the first read must not be made without them: they read each themselves.
#[tokio::test]
async fn a_class_has_its_pull_secrets_before_they_could_be_read() {
    let mut catalog = catalog_loop(&[]);
    catalog.handle_object_event::<RendererClass>(Event::Apply(class()));
    catalog.reconcile().await;
    assert!(
        catalog.images.unread.contains(&Some("main".to_owned())),
        "no API server answers"
    );
    assert_eq!(published(&catalog), ["a", "b"]);
}

#[tokio::test]
async fn what_a_class_said_of_its_pull_secrets_stays_until_they_are_read_again() {
    let mut catalog = catalog_loop(&[]);
    catalog.handle_object_event::<RendererClass>(Event::Apply(class()));
    let takes_back = |catalog: &CatalogController| {
        let class = catalog.stores.classes.get("main").unwrap();
        let conditions = RendererClass::conditions(catalog, "main", class).unwrap();
        conditions.absent.contains(&ConditionType::PullSecretsResolved)
    };
    assert!(!takes_back(&catalog));
    catalog.images.unread.clear();
    assert!(
        takes_back(&catalog),
        "a class that names none says nothing of them"
    );
}
