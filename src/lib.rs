//! renderhub.
