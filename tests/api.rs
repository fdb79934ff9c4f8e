//! The API as an API server has it: schemas, admission policies, and what cannot be changed.

#[path = "api/admission.rs"]
mod admission;
#[path = "api/immutability.rs"]
mod immutability;
#[path = "api/limits.rs"]
mod limits;
#[path = "api/schema.rs"]
mod schema;
#[path = "api/served.rs"]
mod served;
