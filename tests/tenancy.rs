//! What tenants can do to each other, to the platform and to its secrets, on a real API server.

#[path = "tenancy/disclosure.rs"]
mod disclosure;
#[path = "tenancy/forgery.rs"]
mod forgery;
#[path = "tenancy/hub_only.rs"]
mod hub_only;
#[path = "tenancy/namespaces.rs"]
mod namespaces;
#[path = "tenancy/status_forgery.rs"]
mod status_forgery;
#[path = "tenancy/tenants.rs"]
mod tenants;
