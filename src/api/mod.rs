//! The words renderhub's programs share.

pub mod docker_config;
pub mod oci;
pub mod termination;
