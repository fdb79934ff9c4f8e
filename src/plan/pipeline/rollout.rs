//! A change of a Release that reaches a few of a Profile's Targets at a time.
//!
//! Nothing is remembered of a rollout: how far it is follows from the versions and tasks of the Targets, so a hub that starts
//! anew goes on where another ended. A Target is on its way from the moment that a version with the change is made, and holds one
//! of the places until its newest version is pushed. The free places are given to the first of those that are behind, in the order
//! of namespace and name; a version is made only for one that has a place.

mod index;
mod standing;
mod surveyed_profile;
mod turns;

pub use index::{RolloutChanges, RolloutIndex};
pub use standing::{RolloutInput, VersionsInMaking, held};
pub use turns::{RolloutPlan, RolloutStanding, RolloutTurn};
