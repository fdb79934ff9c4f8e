//! Where the credential of a tenant goes, and which is not copied.

use super::*;

/// Holds: C1.
#[test]
fn a_tenants_credential_goes_into_its_own_config_secret_and_nowhere_else() {
    let found = situation(of_host()).with(|s| s.own = Some(Ok(own(json!({})))));
    let ReconcileStep::Create(resolved) = found.step() else {
        panic!("{}", found.label())
    };
    assert_eq!(
        resolved.reference.url(),
        "oci://registry.mine:5000/team-a/shop:1.0.0"
    );
    assert_eq!(resolved.ca, Some(CertificateSource::Copied("pem".to_owned())));
    let made = manifests(&place(), &found.task, &resolved);
    let name = made.secret.metadata.name.clone().unwrap();
    assert_eq!(resolved.credential, CredentialState::BasicAuth(name.clone()));
    let data = made.secret.data.unwrap();
    let keys: Vec<_> = data.keys().map(String::as_str).collect();
    assert_eq!(keys, ["ca.pem", "config.json", "password", "url", "username"]);
    assert_eq!(data["password"].0, PASSWORD.as_bytes());
    let job = serde_json::to_string(&made.job).unwrap();
    assert!(!job.contains(PASSWORD) && job.contains(&name));
    assert!(!format!("{resolved:?}").contains(PASSWORD), "nothing prints it");
}

#[test]
fn another_state_of_the_credential_is_another_destination() {
    let hash = |version: &str| {
        let mut own = own(json!({}));
        if let PushAccess::Copied(login) = &mut own.access {
            login.version = version.to_owned();
        }
        let found = situation(of_host()).with(|s| s.own = Some(Ok(own)));
        let ReconcileStep::Create(resolved) = found.step() else {
            panic!("{}", found.label())
        };
        let made = manifests(&place(), &found.task, &resolved);
        made.secret.metadata.annotations.unwrap()["renderhub.dev/destination"].clone()
    };
    assert_eq!(hash("u/1"), hash("u/1"));
    assert_ne!(hash("u/1"), hash("u/2"));
}

/// Holds: B18.
#[test]
fn a_secret_of_a_tenants_own_that_names_another_host_is_not_copied() {
    let secret = |annotations: Value| {
        let secret = json!({
            "metadata": {"name": "own-push", "annotations": annotations}, "type": "kubernetes.io/basic-auth",
            "data": {"username": "bWU=", "password": "c2VjcmV0"},
        });
        crate::plan::task::tenant::login(&serde_json::from_value(secret).unwrap(), "registry.mine:5000")
    };
    let named = |host: &str| secret(json!({crate::api::labels::REGISTRY_HOST: host}));
    assert!(secret(json!({})).is_ok() && named("registry.mine:5000").is_ok());
    for another in [
        "registry.mine",
        "registry.mine:443",
        "oci://registry.mine:5000",
        "",
    ] {
        let refusal = named(another).expect_err("it is refused");
        assert_eq!(refusal.reason, Reason::PushSecretInvalid, "{another}");
    }
}
