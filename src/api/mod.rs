//! The words renderhub's programs share.

pub mod oci;
pub mod termination;
