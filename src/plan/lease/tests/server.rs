//! An API server, as far as Leases go.

use super::*;

/// The Leases, each with the version of its last write.
#[derive(Default)]
pub struct Server {
    pub leases: BTreeMap<String, Lease>,
    version: u64,
}

impl Server {
    pub fn serve(&mut self, call: LeaseRequest) -> LeaseResponse {
        match call {
            LeaseRequest::List => LeaseResponse::Listed(self.leases.values().cloned().collect()),
            LeaseRequest::Get(name) => match self.leases.get(&name) {
                Some(lease) => LeaseResponse::Lease(Box::new(lease.clone())),
                None => LeaseResponse::Failed(LeaseRequestError::NotFound),
            },
            LeaseRequest::Create(lease) => {
                let name = lease.metadata.name.clone().unwrap();
                if self.leases.contains_key(&name) {
                    return LeaseResponse::Failed(LeaseRequestError::Conflict);
                }
                self.store(name, *lease)
            }
            LeaseRequest::Replace(lease) => {
                let name = lease.metadata.name.clone().unwrap();
                let Some(known) = self.leases.get(&name) else {
                    return LeaseResponse::Failed(LeaseRequestError::NotFound);
                };
                // As the API server does: a write without a version replaces any.
                let named = &lease.metadata.resource_version;
                if named.is_some() && *named != known.metadata.resource_version {
                    return LeaseResponse::Failed(LeaseRequestError::Conflict);
                }
                self.store(name, *lease)
            }
        }
    }

    fn store(&mut self, name: String, mut lease: Lease) -> LeaseResponse {
        self.version += 1;
        lease.metadata.resource_version = Some(self.version.to_string());
        self.leases.insert(name, lease.clone());
        LeaseResponse::Lease(Box::new(lease))
    }
}
