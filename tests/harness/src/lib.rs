//! Real Kubernetes control planes, nodes and registries for tests.
