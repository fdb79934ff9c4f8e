//! Selectors of labels, as Kubernetes reads them, without a copy of them being made.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};

/// Labels of an object.
type Labels = BTreeMap<String, String>;

/// Whether a selector matches labels; one that Kubernetes would refuse matches nothing.
#[must_use]
pub fn matches(selector: &LabelSelector, labels: &Labels) -> bool {
    let mut equal = selector.match_labels.iter().flatten();
    let mut required = selector.match_expressions.iter().flatten();
    equal.all(|(key, value)| labels.get(key) == Some(value))
        && required.all(|required| meets(required, labels).unwrap_or(false))
        && is_valid(selector)
}

/// Whether labels meet a requirement; `None` where Kubernetes would refuse it.
fn meets(required: &LabelSelectorRequirement, labels: &Labels) -> Option<bool> {
    let label = labels.get(&required.key);
    let is_listed = || {
        let values = required.values.as_ref()?;
        Some(label.is_some_and(|label| values.contains(label)))
    };
    match required.operator.as_str() {
        "In" => is_listed(),
        "NotIn" => is_listed().map(|is_listed| !is_listed),
        "Exists" => Some(label.is_some()),
        "DoesNotExist" => Some(label.is_none()),
        _ => None,
    }
}

/// Whether Kubernetes would accept a selector.
#[must_use]
pub fn is_valid(selector: &LabelSelector) -> bool {
    let mut required = selector.match_expressions.iter().flatten();
    required.all(|required| meets(required, &Labels::new()).is_some())
}

/// Labels of which an object that a selector matches has at least one, each as [`label`] writes it; none where the selector asks
/// for no label in particular.
#[must_use]
pub fn required_labels(selector: &LabelSelector) -> Vec<String> {
    let equal = selector.match_labels.iter().flatten().next();
    if let Some((key, value)) = equal {
        return vec![label(key, value)];
    }
    let required = selector.match_expressions.iter().flatten();
    let mut listed = required.filter(|required| required.operator == "In");
    let first = listed.next();
    let values = first.into_iter().flat_map(|required| {
        let values = required.values.iter().flatten();
        values.map(|value| label(&required.key, value))
    });
    values.collect()
}

/// A label in one word. No key of a label holds the sign between.
#[must_use]
pub fn label(key: &str, value: &str) -> String {
    format!("{key}={value}")
}

#[cfg(test)]
mod tests {
    use kube::core::{Selector, SelectorExt as _};
    use proptest::prelude::*;

    use super::*;

    fn words() -> impl Strategy<Value = String> {
        "[abc]"
    }

    fn labels() -> impl Strategy<Value = Labels> {
        proptest::collection::btree_map(words(), words(), 0..3)
    }

    fn requirement() -> impl Strategy<Value = LabelSelectorRequirement> {
        let operators = prop_oneof![
            Just("In"),
            Just("NotIn"),
            Just("Exists"),
            Just("DoesNotExist"),
            Just("Unknown")
        ];
        let values = proptest::option::of(proptest::collection::vec(words(), 0..3));
        (words(), operators, values).prop_map(|(key, operator, values)| LabelSelectorRequirement {
            key,
            operator: operator.to_owned(),
            values,
        })
    }

    fn selector() -> impl Strategy<Value = LabelSelector> {
        let required = proptest::option::of(proptest::collection::vec(requirement(), 0..3));
        (proptest::option::of(labels()), required).prop_map(|(match_labels, match_expressions)| {
            LabelSelector {
                match_labels,
                match_expressions,
            }
        })
    }

    proptest! {
        #[test]
        fn a_selector_matches_what_it_matches_in_kubernetes(selector in selector(), labels in labels()) {
            let known = Selector::try_from(selector.clone()).is_ok_and(|known| known.matches(&labels));
            prop_assert_eq!(matches(&selector, &labels), known, "{:?} {:?}", selector, labels);
        }

        #[test]
        fn what_a_selector_matches_has_one_of_the_labels_that_it_requires(selector in selector(), labels in labels()) {
            let required = required_labels(&selector);
            let has = |required: &String| labels.iter().any(|(key, value)| label(key, value) == *required);
            prop_assert!(!matches(&selector, &labels) || required.is_empty() || required.iter().any(has));
        }
    }
}
