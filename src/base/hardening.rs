//! What both programs do before they read anything secret: protect their memory, and silence the text of panics.
//!
//! A panic still unwinds. The hub turns it into an error of the one task whose pass it was; with `panic = "abort"` one object
//! could end the hub for all tenants, again and again.

use std::panic;

use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};

/// The machine does not let the process protect itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the process cannot be kept from being dumped")]
pub struct HardeningError;

/// No core file, and only root may read the process: no `/proc/<pid>/mem`, no `environ`, no ptrace.
///
/// # Errors
/// When the system refuses; a process that holds a credential should then not go on.
pub fn protect_memory() -> Result<(), HardeningError> {
    let none = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    setrlimit(Resource::Core, none).map_err(|_| HardeningError)?;
    set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(|_| HardeningError)
}

/// Reports the place of a panic and nothing else: its text may hold input.
pub fn silence_panics(report: impl Fn(&str) + Send + Sync + 'static) {
    panic::set_hook(Box::new(move |info| {
        let place = info.location().map(ToString::to_string).unwrap_or_default();
        report(&place);
    }));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    /// Holds: E1.
    #[test]
    fn a_panic_tells_its_place_and_not_its_text() {
        let before = panic::take_hook();
        let (said, received) = mpsc::channel();
        silence_panics(move |place| _ = said.send(place.to_owned()));
        let line = line!() + 1;
        let ended = panic::catch_unwind(|| panic!("canary {}", "text"));
        panic::set_hook(before);
        assert!(ended.is_err());
        // Another test may panic on purpose at this moment.
        let places: Vec<String> = received.try_iter().collect();
        assert!(
            places
                .iter()
                .any(|place| place.starts_with(&format!("src/base/hardening.rs:{line}:"))),
            "{places:?}"
        );
        assert!(places.iter().all(|place| !place.contains("canary")), "{places:?}");
    }
}
