//! Schema fragments that the kinds share: what a name, a host or a repository may look like, and how long it may be.
//!
//! Each function is named by a field's `schema_with`; the field's doc comment becomes the description.

use schemars::{Schema, SchemaGenerator, json_schema};

/// A DNS subdomain (RFC 1123), as object names are.
const DNS_SUBDOMAIN: &str = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";
/// A DNS label (RFC 1123), as namespaces are.
const DNS_LABEL: &str = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$";
/// A DNS subdomain, or nothing.
const OBJECT_NAME_OR_NONE: &str = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*)?$";
/// A DNS label, or nothing.
const DNS_LABEL_OR_NONE: &str = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$";
/// A DNS label, or `*`.
const DNS_LABEL_OR_ALL: &str = r"^(\*|[a-z0-9]([-a-z0-9]*[a-z0-9])?)$";
/// Host name, IPv4 or bracketed IPv6 address, and an optional port; no scheme, user or path.
const HOST: &str = r"^([a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?(\.[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)*|\[[0-9a-f:.]+\])(:([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5]))?$";
/// Repository of the OCI distribution specification: lower-case segments, none of them empty or `..`.
const REPOSITORY: &str = r"^[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*(/[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*)*$";
/// One segment of a repository.
const REPOSITORY_SEGMENT: &str = r"^[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*$";
/// A repository that may contain `{namespace}`, with an optional slash at its end; nothing is the whole registry.
const REPOSITORY_PREFIX: &str = r"^(([a-z0-9]|\{namespace\})+((\.|_|__|-+)([a-z0-9]|\{namespace\})+)*(/([a-z0-9]|\{namespace\})+((\.|_|__|-+)([a-z0-9]|\{namespace\})+)*)*/?)?$";
/// Tag of the OCI distribution specification.
const TAG: &str = r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$";
/// A `SemVer` as Helm reads it: a leading `v` and fewer than three numbers are fine.
const CHART_VERSION: &str = r"^v?(0|[1-9][0-9]*)(\.(0|[1-9][0-9]*)){0,2}(-[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?(\+[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?$";
/// Key of a Secret or `ConfigMap`, which becomes a file name.
const DATA_KEY: &str = r"^[-._a-zA-Z0-9]+$";
/// Printable text without spaces.
const WORD: &str = r"^[!-~]+$";
/// Kind of a Kubernetes object.
const KIND: &str = r"^[A-Z][A-Za-z0-9]*$";
/// `https` or `http` URL with a host, and without user or fragment.
const URL: &str = r"^https?://[^/@#\s]+(/[^@#\s]*)?$";
/// Value of a label; may be empty.
const LABEL_VALUE: &str = r"^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$";
/// What puts a Release on a Target: a kind, a namespace or none, and a name.
const RELEASE_SOURCE: &str = r"^(ReleaseBinding|Profile)(/[a-z0-9]([-a-z0-9]*[a-z0-9])?)?/[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";
/// Digest of a manifest.
const DIGEST: &str = r"^sha256:[0-9a-f]{64}$";
/// An HMAC-SHA256.
const SEAL: &str = r"^[0-9a-f]{64}$";
/// Type of a condition, as `metav1.Condition` has it.
const CONDITION_TYPE: &str = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$";
/// Reason of a condition, as `metav1.Condition` has it.
const CONDITION_REASON: &str = r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$";

/// Longest name of an object.
const NAME_MAX: u32 = 253;
/// Longest DNS label.
const LABEL_MAX: u32 = 63;
/// Longest source of a Release: the longer kind, a namespace and a name, with slashes.
const RELEASE_SOURCE_MAX: u32 = 14 + 1 + LABEL_MAX + 1 + NAME_MAX;

macro_rules! texts {
    ($($(#[$doc:meta])* $name:ident = $pattern:ident, $max:expr;)+) => {
        $($(#[$doc])*
        pub(super) fn $name(_: &mut SchemaGenerator) -> Schema {
            json_schema!({ "type": "string", "minLength": 1, "maxLength": $max, "pattern": $pattern })
        })+
    };
}

/// A text whose rule has a message; for a plain pattern the API server shows only the pattern.
fn text_with_rule(max: u32, pattern: &str, message: &str) -> Schema {
    json_schema!({
        "type": "string", "minLength": 1, "maxLength": max,
        "x-kubernetes-validations": [{ "rule": format!("self.matches(r'{pattern}')"), "message": message }],
    })
}

macro_rules! texts_with_rules {
    ($($(#[$doc:meta])* $name:ident = $pattern:ident, $max:expr, $message:literal;)+) => {
        $($(#[$doc])*
        pub(super) fn $name(_: &mut SchemaGenerator) -> Schema {
            text_with_rule($max, $pattern, $message)
        })+
    };
}

texts_with_rules! {
    /// Host of a registry, with an optional port.
    host = HOST, 259, "must be a host without scheme or path, in lower case, e.g. registry.example.com:5000";
    /// Repository of a registry, without host.
    repository = REPOSITORY, 255, "must be a repository without host and tag, in lower case, e.g. team-a/shop";
    /// One segment of a repository: the name of a chart, which is the last one.
    chart_name = REPOSITORY_SEGMENT, 128, "must be lower-case letters, digits and single '.', '_' or '-' between them, e.g. my-shop";
    /// Tag of a chart.
    tag = TAG, 128, "must be a tag of letters, digits, '.', '_' and '-', e.g. 1.0.0; write '_' for the '+' of a version";
    /// Version of a chart that is made.
    chart_version = CHART_VERSION, 128, "must be a semantic version, e.g. 1.0.0";
    /// URL of a token service.
    url = URL, 1024, "must be a URL of https or http with a host, without user and fragment, e.g. https://auth.example.com/token";
}

texts! {
    /// Name of an object.
    object_name = DNS_SUBDOMAIN, NAME_MAX;
    /// Name of a namespace.
    namespace = DNS_LABEL, LABEL_MAX;
    /// Key of a Secret or `ConfigMap`.
    data_key = DATA_KEY, NAME_MAX;
    /// Reference to an artifact or image: checked by the program that pulls it.
    reference = WORD, 512;
    /// A short name that is only compared.
    word = WORD, NAME_MAX;
    /// Kind of an object.
    kind = KIND, LABEL_MAX;
    /// Version of a chart that the hub made; a person who writes one gets a message from [`chart_version`].
    made_version = CHART_VERSION, 128;
    /// URL of a pushed chart.
    chart_url = WORD, 1024;
    /// What puts a Release on a Target.
    release_source = RELEASE_SOURCE, RELEASE_SOURCE_MAX;
    /// Digest of a pushed manifest.
    digest = DIGEST, 71;
    /// What the hub proves with that it wrote something.
    seal = SEAL, 64;
}

/// Namespace of an object; empty for one without.
pub(super) fn namespace_or_none(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "maxLength": LABEL_MAX, "pattern": DNS_LABEL_OR_NONE })
}

/// Name of an object; empty for none, as writers that leave nothing out put it.
pub(super) fn object_name_or_none(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "maxLength": NAME_MAX, "pattern": OBJECT_NAME_OR_NONE })
}

/// Tag, digest or version range of an artifact: checked by the program that pulls it.
pub(super) fn resource_tag(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "maxLength": 256 })
}

/// Start of the repositories of a registry.
pub(super) fn repository_prefix(_: &mut SchemaGenerator) -> Schema {
    let rule = format!("self.matches(r'{REPOSITORY_PREFIX}')");
    let message = "must be the beginning of a repository, in lower case, in which {namespace} may stand, e.g. {namespace}/";
    json_schema!({
        "type": "string", "maxLength": 255,
        "x-kubernetes-validations": [{ "rule": rule, "message": message }],
    })
}

/// One line of prose.
pub(super) fn line(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "maxLength": 1024 })
}

/// A version that is shown, not compared.
pub(super) fn shown_version(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "maxLength": 128 })
}

/// Text of a template.
pub(super) fn template(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "maxLength": 262_144 })
}

/// A message of the hub.
pub(super) fn message(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "maxLength": 4096 })
}

/// Any JSON, kept as it is.
pub(super) fn free_form(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "x-kubernetes-preserve-unknown-fields": true })
}

/// A number from 1, or a percentage from 1 to 100.
pub(super) fn number_or_percentage(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "x-kubernetes-int-or-string": true, "anyOf": [{ "type": "integer" }, { "type": "string" }],
        "maximum": i32::MAX, "minLength": 2, "maxLength": 4,
        "x-kubernetes-validations": [{
            "rule": "type(self) == int ? self >= 1 : self.matches('^([1-9][0-9]?|100)%$')",
            "message": "must be a number of at least 1, or a percentage from 1% to 100%",
        }],
    })
}

/// Names of namespaces, or `*`.
pub(super) fn allowed_namespaces(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array", "maxItems": 1024, "x-kubernetes-list-type": "set",
        "items": { "type": "string", "minLength": 1, "maxLength": LABEL_MAX, "pattern": DNS_LABEL_OR_ALL },
    })
}

/// Names of objects.
pub(super) fn object_names(generator: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array", "maxItems": 256, "x-kubernetes-list-type": "set", "items": object_name(generator),
    })
}

/// UIDs of namespaces by name.
pub(super) fn namespace_uids(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object", "maxProperties": 1024,
        "additionalProperties": { "type": "string", "minLength": 1, "maxLength": 64, "pattern": WORD },
        "x-kubernetes-validations": [{
            "rule": "self.all(key, size(key) <= 63)", "message": "a namespace's name has at most 63 characters",
        }],
    })
}

/// A command line, one argument for each item.
pub(super) fn command_line(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array", "maxItems": 64, "x-kubernetes-list-type": "atomic",
        "items": { "type": "string", "maxLength": 1024 },
    })
}

/// Names of Secrets.
pub(super) fn secret_names(generator: &mut SchemaGenerator) -> Schema {
    let mut name = object_name(generator);
    name.insert("description".to_owned(), "Name of the Secret.".into());
    json_schema!({
        "type": "array", "maxItems": 16, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
        "items": {
            "type": "object", "required": ["name"], "x-kubernetes-map-type": "atomic",
            "properties": { "name": name },
        },
    })
}

/// Labels a node must have.
pub(super) fn node_selector(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object", "maxProperties": 32, "x-kubernetes-map-type": "atomic",
        "additionalProperties": { "type": "string", "maxLength": LABEL_MAX, "pattern": LABEL_VALUE },
        "x-kubernetes-validations": [{
            "rule": "self.all(key, size(key) <= 317)", "message": "a label's key has at most 317 characters",
        }],
    })
}

/// Labels that objects are selected by: those of the core API.
pub(super) fn label_selector(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object", "x-kubernetes-map-type": "atomic",
        "properties": {
            "matchLabels": {
                "description": "Labels that an object must have.",
                "type": "object", "maxProperties": 16,
                "additionalProperties": { "type": "string", "maxLength": LABEL_MAX, "pattern": LABEL_VALUE },
                "x-kubernetes-validations": [{
                    "rule": "self.all(key, size(key) <= 317)", "message": "a label's key has at most 317 characters",
                }],
            },
            "matchExpressions": {
                "description": "Requirements that an object must meet, all of them.",
                "type": "array", "maxItems": 16, "x-kubernetes-list-type": "atomic",
                "items": {
                    "type": "object", "required": ["key", "operator"],
                    "properties": {
                        "key": { "description": "Key of the label.", "type": "string", "minLength": 1, "maxLength": 317 },
                        "operator": {
                            "description": "How the label's value and `values` are compared.",
                            "type": "string", "enum": ["In", "NotIn", "Exists", "DoesNotExist"],
                        },
                        "values": {
                            "description": "Values that the label is compared with; none with Exists and DoesNotExist.",
                            "type": "array", "maxItems": 32, "x-kubernetes-list-type": "atomic",
                            "items": { "type": "string", "maxLength": LABEL_MAX, "pattern": LABEL_VALUE },
                        },
                    },
                    "x-kubernetes-validations": [{
                        "rule": "(self.operator in ['In', 'NotIn']) == (has(self.values) && size(self.values) > 0)",
                        "message": "values is required with In and NotIn, and forbidden with Exists and DoesNotExist",
                    }],
                },
            },
        },
    })
}

/// Taints a pod tolerates: the fields of the core API that are stable.
pub(super) fn tolerations(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array", "maxItems": 32, "x-kubernetes-list-type": "atomic",
        "items": {
            "type": "object",
            "properties": {
                "key": { "description": "Key of the taint. Default: every key.", "type": "string", "maxLength": 317 },
                "operator": {
                    "description": "How `value` is compared. Default `Equal`.",
                    "type": "string", "enum": ["Equal", "Exists"],
                },
                "value": {
                    "description": "Value of the taint.",
                    "type": "string", "maxLength": LABEL_MAX, "pattern": LABEL_VALUE,
                },
                "effect": {
                    "description": "Effect of the taint. Default: every effect.",
                    "type": "string", "enum": ["NoSchedule", "PreferNoSchedule", "NoExecute"],
                },
                "tolerationSeconds": {
                    "description": "Seconds a `NoExecute` taint is tolerated. Default: for ever.",
                    "type": "integer", "format": "int64", "minimum": 0, "maximum": 31_536_000,
                },
            },
        },
    })
}

/// Requests and limits of a container.
pub(super) fn resources(_: &mut SchemaGenerator) -> Schema {
    let quantities = |description: &str| {
        json_schema!({
            "description": description,
            "type": "object", "maxProperties": 16,
            "additionalProperties": {
                "x-kubernetes-int-or-string": true, "anyOf": [{ "type": "integer" }, { "type": "string" }],
                "maxLength": 32, "pattern": "^[0-9]+(\\.[0-9]+)?([KMGTPE]i|[numkMGTPE])?$",
            },
            "x-kubernetes-validations": [{
                "rule": "self.all(key, size(key) <= 317)", "message": "a resource's name has at most 317 characters",
            }],
        })
    };
    json_schema!({
        "type": "object",
        "properties": {
            "limits": quantities("Most that a container may use, by resource."),
            "requests": quantities("Least that a node must have free, by resource."),
        },
    })
}

/// Conditions, with the limits of `metav1.Condition`.
pub(super) fn conditions(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array", "maxItems": 16,
        "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"],
        "items": {
            "type": "object",
            "required": ["type", "status", "reason", "message", "lastTransitionTime"],
            "properties": {
                "type": {
                    "description": "Type of the condition.",
                    "type": "string", "maxLength": 316, "pattern": CONDITION_TYPE,
                },
                "status": {
                    "description": "Whether it holds.", "type": "string", "enum": ["True", "False", "Unknown"],
                },
                "reason": {
                    "description": "Why, as one word; docs/reasons/WORD.md of the documentation says what to do.",
                    "type": "string", "minLength": 1, "maxLength": 1024, "pattern": CONDITION_REASON,
                },
                "message": {
                    "description": "Why, and what to do about it.", "type": "string", "maxLength": 32_768,
                },
                "observedGeneration": {
                    "description": "Generation of the spec that the condition speaks of.",
                    "type": "integer", "format": "int64", "minimum": 0,
                },
                "lastTransitionTime": {
                    "description": "When the status changed last.", "type": "string", "format": "date-time",
                },
            },
        },
    })
}
