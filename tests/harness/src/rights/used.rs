//! Rights compared with the audit log: which of them no request needed.

use std::collections::BTreeSet;

use super::Rights;
use crate::audit::Event;

/// One thing that a rule allows: a verb on a resource, of one name where the rule has names.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Grant {
    /// Where; `None` is the whole cluster.
    pub namespace: Option<String>,
    /// The API group, empty for the core group.
    pub group: String,
    /// The resource, with its subresource: `rendertasks/status`.
    pub resource: String,
    /// Which object; `None` is any.
    pub name: Option<String>,
    /// What may be done.
    pub verb: String,
}

impl Grant {
    fn allows(&self, asked: &Self) -> bool {
        let covers = |own: &Option<String>, asked: &Option<String>| own.is_none() || own == asked;
        covers(&self.namespace, &asked.namespace)
            && covers(&self.name, &asked.name)
            && (&self.group, &self.resource, &self.verb) == (&asked.group, &asked.resource, &asked.verb)
    }

    /// A right on one object is narrower than one on a namespace, and that than one on the cluster.
    fn width(&self) -> (bool, bool) {
        (self.name.is_none(), self.namespace.is_none())
    }
}

impl std::fmt::Display for Grant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let place = self.namespace.as_deref().unwrap_or("the cluster");
        let slash = if self.group.is_empty() { "" } else { "/" };
        let (verb, group, resource) = (&self.verb, &self.group, &self.resource);
        write!(f, "{verb} {group}{slash}{resource}")?;
        if let Some(name) = &self.name {
            write!(f, " {name}")?;
        }
        write!(f, " in {place}")
    }
}

impl Rights {
    /// Everything that the rules allow, one by one.
    #[must_use]
    pub fn grants(&self) -> BTreeSet<Grant> {
        let mut all = BTreeSet::new();
        for bound in &self.bound {
            for rule in &bound.rules {
                let names: Vec<_> = rule.resource_names.iter().flatten().cloned().map(Some).collect();
                let names = if names.is_empty() { vec![None] } else { names };
                for group in rule.api_groups.iter().flatten() {
                    for resource in rule.resources.iter().flatten() {
                        for (verb, name) in rule
                            .verbs
                            .iter()
                            .flat_map(|verb| names.iter().map(move |name| (verb, name)))
                        {
                            all.insert(Grant {
                                namespace: bound.namespace.clone(),
                                group: group.clone(),
                                resource: resource.clone(),
                                name: name.clone(),
                                verb: verb.clone(),
                            });
                        }
                    }
                }
            }
        }
        all
    }

    /// The grants that none of these requests needed. A request counts for the narrowest grant that allows it, so that a wide one
    /// beside it shows as unused.
    #[must_use]
    pub fn unused(&self, requests: &[Event]) -> BTreeSet<Grant> {
        let all = self.grants();
        let mut left = all.clone();
        for asked in requests.iter().filter_map(asked) {
            let allowing = all.iter().filter(|grant| grant.allows(&asked));
            if let Some(narrowest) = allowing.min_by_key(|grant| grant.width()) {
                left.remove(narrowest);
            }
        }
        left
    }

    /// What these requests needed and none of the grants allows, those that were refused left out.
    #[must_use]
    pub fn exceeded(&self, requests: &[Event]) -> BTreeSet<Grant> {
        let all = self.grants();
        let needed = requests.iter().filter_map(asked);
        needed
            .filter(|asked| !all.iter().any(|grant| grant.allows(asked)))
            .collect()
    }
}

/// What a request needed; `None` where it was refused.
fn asked(event: &Event) -> Option<Grant> {
    if matches!(event.code, 401 | 403) {
        return None;
    }
    let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    // As another user: the right to impersonate was needed, and everything else is that user's.
    if let Some(other) = &event.impersonated_user {
        let (namespace, name) = other.strip_prefix("system:serviceaccount:")?.split_once(':')?;
        return Some(Grant {
            namespace: some(namespace),
            group: String::new(),
            resource: "serviceaccounts".to_owned(),
            name: some(name),
            verb: "impersonate".to_owned(),
        });
    }
    let slash = if event.subresource.is_empty() { "" } else { "/" };
    Some(Grant {
        namespace: some(&event.namespace),
        group: event.group.clone(),
        resource: format!("{}{slash}{}", event.resource, event.subresource),
        name: some(&event.name),
        verb: event.verb.clone(),
    })
}

#[cfg(test)]
mod tests {
    use k8s_openapi::jiff::Timestamp;
    use serde_json::{Value, json};

    use super::*;
    use crate::rights::Bound;

    fn bound(namespace: Option<&str>, rules: Value) -> Bound {
        Bound {
            namespace: namespace.map(str::to_owned),
            role: "role".to_owned(),
            is_cluster_role: true,
            labels: json!({}),
            rules: serde_json::from_value(rules).unwrap(),
        }
    }

    fn rights() -> Rights {
        let jobs = json!([{"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["get", "list"]}]);
        let names = json!([
            {"apiGroups": [""], "resources": ["namespaces"], "resourceNames": ["a", "b"], "verbs": ["get"]},
            {"apiGroups": ["renderhub.dev"], "resources": ["rendertasks/status"], "verbs": ["patch"]},
        ]);
        let become_them = json!([
            {"apiGroups": [""], "resources": ["serviceaccounts"], "resourceNames": ["builder"], "verbs": ["impersonate"]},
        ]);
        Rights {
            bound: vec![
                bound(None, names),
                bound(Some("rendering"), jobs),
                bound(Some("team"), become_them),
            ],
        }
    }

    /// `verb group resource namespace name code`, with `-` for nothing.
    fn event(text: &str, impersonated: Option<&str>) -> Event {
        let words: Vec<_> = text
            .split(' ')
            .map(|word| if word == "-" { "" } else { word }.to_owned())
            .collect();
        let (resource, subresource) = words[2].split_once('/').unwrap_or((&words[2], ""));
        Event {
            verb: words[0].clone(),
            user: "hub".to_owned(),
            impersonated_user: impersonated.map(str::to_owned),
            impersonated_groups: Vec::new(),
            user_agent: String::new(),
            group: words[1].clone(),
            resource: resource.to_owned(),
            subresource: subresource.to_owned(),
            namespace: words[3].clone(),
            name: words[4].clone(),
            code: words[5].parse().unwrap(),
            stage: "ResponseComplete".to_owned(),
            uri: String::new(),
            received: Timestamp::UNIX_EPOCH,
            reached: Timestamp::UNIX_EPOCH,
        }
    }

    fn all_used() -> Vec<Event> {
        vec![
            event("get batch jobs rendering x 200", None),
            event("list batch jobs rendering - 200", None),
            event("get - namespaces a a 404", None),
            event("get - namespaces b b 200", None),
            event("patch renderhub.dev rendertasks/status team t 200", None),
            event(
                "get - secrets team s 200",
                Some("system:serviceaccount:team:builder"),
            ),
        ]
    }

    fn unused(rights: &Rights, requests: &[Event]) -> Vec<String> {
        rights.unused(requests).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn what_was_used_is_not_reported_and_what_was_not_is() {
        assert!(unused(&rights(), &all_used()).is_empty());
        for (at, grant) in [
            (0, "get batch/jobs in rendering"),
            (1, "list batch/jobs in rendering"),
            (2, "get namespaces a in the cluster"),
            (3, "get namespaces b in the cluster"),
            (4, "patch renderhub.dev/rendertasks/status in the cluster"),
            (5, "impersonate serviceaccounts builder in team"),
        ] {
            let mut requests = all_used();
            requests.remove(at);
            assert_eq!(unused(&rights(), &requests), [grant]);
        }
    }

    #[test]
    fn a_planted_grant_is_seen() {
        let mut planted = rights();
        let rules = json!([{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]);
        planted.bound.push(bound(None, rules));
        // Read as another user, it is no use of the hub's own right.
        assert_eq!(unused(&planted, &all_used()), ["get secrets in the cluster"]);
    }

    #[test]
    fn a_wide_grant_beside_a_narrow_one_is_unused() {
        let mut planted = rights();
        let rules = json!([{"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["get"]}]);
        planted.bound.push(bound(None, rules));
        assert_eq!(unused(&planted, &all_used()), ["get batch/jobs in the cluster"]);
    }

    #[test]
    fn what_no_grant_allows_is_told() {
        let more = [
            event("get - secrets team s 200", None),
            event("list batch jobs team - 403", None),
            event("get batch jobs team x 404", None),
        ];
        let requests = [all_used(), more.to_vec()].concat();
        let exceeded: Vec<_> = rights()
            .exceeded(&requests)
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(exceeded, ["get secrets s in team", "get batch/jobs x in team"]);
        assert!(rights().exceeded(&all_used()).is_empty());
    }

    #[test]
    fn a_refused_request_and_one_elsewhere_use_nothing() {
        let mut requests = all_used();
        requests[0] = event("get batch jobs rendering x 403", None);
        requests.push(event("get batch jobs team x 200", None));
        requests.push(event("get batch jobs/status rendering x 200", None));
        assert_eq!(unused(&rights(), &requests), ["get batch/jobs in rendering"]);
    }
}
