//! Feature gates: features that are off until an operator turns them on.

use std::collections::BTreeMap;

/// Something that can be turned on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FeatureGate {
    /// A task may name a kubeconfig in a Secret of its own namespace. Alpha.
    ExternalClusterReference,
    /// The same in another namespace, where a `ReferenceGrant` allows it. Alpha; implies the first.
    ExternalClusterReferenceCrossNamespace,
}

impl FeatureGate {
    /// Every gate.
    pub const ALL: [Self; 2] = [
        Self::ExternalClusterReference,
        Self::ExternalClusterReferenceCrossNamespace,
    ];

    /// Its name on the command line.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ExternalClusterReference => "ExternalClusterReference",
            Self::ExternalClusterReferenceCrossNamespace => "ExternalClusterReferenceCrossNamespace",
        }
    }
}

/// Which gates are open. All are closed by default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FeatureGates(BTreeMap<FeatureGate, bool>);

/// Why text is no list of gates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FeatureGateError {
    /// A part is not `Name=true` or `Name=false`.
    #[error("each part must be Name=true or Name=false")]
    Shape,
    /// No gate has the name.
    #[error("the gates are ExternalClusterReference and ExternalClusterReferenceCrossNamespace")]
    Unknown,
}

impl FeatureGates {
    /// The gates that these parts set, each `Name=true` or `Name=false`; of several for one gate the last counts.
    ///
    /// # Errors
    /// A part that is no such pair, or names no gate.
    pub fn parse<'a>(parts: impl IntoIterator<Item = &'a str>) -> Result<Self, FeatureGateError> {
        let mut gates = Self::default();
        for part in parts.into_iter().map(str::trim).filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=').ok_or(FeatureGateError::Shape)?;
            let gate = FeatureGate::ALL
                .into_iter()
                .find(|gate| gate.as_str() == name.trim());
            let is_open = value.trim().parse().map_err(|_| FeatureGateError::Shape)?;
            gates.0.insert(gate.ok_or(FeatureGateError::Unknown)?, is_open);
        }
        Ok(gates)
    }

    /// Whether a gate is open, by itself or by one that implies it.
    #[must_use]
    pub fn is_open(&self, gate: FeatureGate) -> bool {
        let set = |gate: FeatureGate| self.0.get(&gate).copied().unwrap_or_default();
        set(gate)
            || gate == FeatureGate::ExternalClusterReference
                && set(FeatureGate::ExternalClusterReferenceCrossNamespace)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Row<'a> = (&'a [&'a str], Result<(bool, bool), FeatureGateError>);

    #[test]
    fn gates_open_as_their_flags_say() {
        let [own, cross] = FeatureGate::ALL;
        let table: [Row<'_>; 9] = [
            (&[], Ok((false, false))),
            (&["ExternalClusterReference=true"], Ok((true, false))),
            (&["ExternalClusterReferenceCrossNamespace=true"], Ok((true, true))),
            (
                &["ExternalClusterReference=true", "ExternalClusterReference=false"],
                Ok((false, false)),
            ),
            (&[" ExternalClusterReference = true ", ""], Ok((true, false))),
            (&["ExternalClusterReference"], Err(FeatureGateError::Shape)),
            (&["ExternalClusterReference=yes"], Err(FeatureGateError::Shape)),
            (&["externalclusterreference=true"], Err(FeatureGateError::Unknown)),
            (&["AllAlpha=true"], Err(FeatureGateError::Unknown)),
        ];
        for (parts, expected) in table {
            let gates = FeatureGates::parse(parts.iter().copied());
            let open = gates.map(|gates| (gates.is_open(own), gates.is_open(cross)));
            assert_eq!(open, expected, "{parts:?}");
        }
    }
}
