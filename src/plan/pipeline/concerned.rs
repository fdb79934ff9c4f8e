//! Whom a change concerns: the Targets that may be decided about otherwise, and the objects whose status may change.
//!
//! It is asked before and after an object changes, and what both say is looked at again. It may name too many and never too few.

mod found;
mod grants;
mod search;

pub use found::{Concerned, StatusObject};
pub use search::{ConcernSearch, PROFILES_MATCHED};
