//! What an object of the platform says whose spec this version of the hub cannot decode.

use crate::api::conditions::{ConditionType, DesiredCondition, Reason};

/// Its condition `Ready`; the message ends with what follows.
#[must_use]
pub fn undecodable(follows: &str) -> DesiredCondition {
    let message = format!(
        "this version of the hub cannot read the spec: a field is missing, or has a value of another type; correct it{follows}"
    );
    DesiredCondition::new(ConditionType::Ready, false, Reason::InvalidSpec, message)
}
