//! The weights of namespaces: slots for one slot of a namespace without a policy.

use std::collections::HashMap;

use crate::api::QueuePolicySpec;

/// The largest weight.
pub const HEAVIEST: u32 = 100;
/// Every namespace.
const EVERY: &str = "*";

/// The weight of each namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespaceWeights {
    named: HashMap<String, u32>,
    /// Of all others, the platform's own tasks among them.
    others: u32,
}

impl Default for NamespaceWeights {
    fn default() -> Self {
        Self {
            named: HashMap::new(),
            others: 1,
        }
    }
}

impl NamespaceWeights {
    /// The policies together: one that names a namespace wins over `*`, then the larger weight wins.
    #[must_use]
    pub fn new<'a>(policies: impl IntoIterator<Item = &'a QueuePolicySpec>) -> Self {
        let mut named: HashMap<String, u32> = HashMap::new();
        let mut others = None;
        for policy in policies {
            let weight = u32::try_from(policy.weight).unwrap_or(1).clamp(1, HEAVIEST);
            for name in &policy.namespaces {
                if name == EVERY {
                    others = others.max(Some(weight));
                } else {
                    let known = named.entry(name.clone()).or_default();
                    *known = weight.max(*known);
                }
            }
        }
        Self {
            named,
            others: others.unwrap_or(1),
        }
    }

    /// The weight of a namespace; an empty name is that of the platform's own tasks.
    #[must_use]
    pub fn of(&self, namespace: &str) -> u32 {
        self.named.get(namespace).copied().unwrap_or(self.others)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn weights(policies: &[(&[&str], i32)]) -> NamespaceWeights {
        let policies: Vec<QueuePolicySpec> = policies
            .iter()
            .map(|(names, weight)| QueuePolicySpec {
                namespaces: names.iter().map(ToString::to_string).collect(),
                weight: *weight,
            })
            .collect();
        let there: Vec<&QueuePolicySpec> = policies.iter().collect();
        let back: Vec<&QueuePolicySpec> = policies.iter().rev().collect();
        let weights = NamespaceWeights::new(there);
        assert_eq!(
            weights,
            NamespaceWeights::new(back),
            "the order of the policies decides nothing"
        );
        weights
    }

    #[test]
    fn who_names_a_namespace_wins_then_the_larger_weight_does() {
        let weights = weights(&[
            (&["*"], 50),
            (&["a", "b"], 2),
            (&["b"], 7),
            (&["c", "*"], 60),
            (&["c"], 3),
        ]);
        let of = |name| weights.of(name);
        assert_eq!((of("a"), of("b"), of("c"), of("d"), of("")), (2, 7, 60, 60, 60));
    }

    #[test]
    fn every_namespace_has_a_weight_and_none_more_than_the_largest() {
        assert_eq!(weights(&[]).of("a"), 1);
        assert_eq!(weights(&[(&["a"], 5)]).of("b"), 1);
        assert_eq!(
            weights(&[(&["a"], 0), (&["b"], -3), (&["c"], i32::MAX)]).of("a"),
            1
        );
        assert_eq!(weights(&[(&["c"], i32::MAX)]).of("c"), HEAVIEST);
    }
}
