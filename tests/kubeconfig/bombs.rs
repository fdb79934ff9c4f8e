//! A document that is small and grows is refused before it has grown, which is counted in bytes of memory.

use allocation_counter::{AllocationInfo, measure};
use renderhub::remote::kubeconfig::KubeconfigError;
use renderhub::remote::kubeconfig::KubeconfigError::*;
use renderhub::remote::kubeconfig::{MAX_BYTES, decode};

use super::documents::valid;

/// Most memory at any one time, in bytes: the text a few times over.
const MOST: u64 = 1024 * 1024;
/// Most memory taken in all, in bytes, be it given back; what is more takes its time.
const IN_ALL: u64 = 8 * MOST;

/// A part again and again, up to the largest size there is.
fn flood(part: &str) -> String {
    part.repeat(MAX_BYTES / part.len())
}

/// What decoding costs, and how it ends.
fn cost(text: &str) -> (AllocationInfo, Option<KubeconfigError>) {
    assert!(text.len() <= MAX_BYTES);
    let mut outcome = None;
    let cost = measure(|| outcome = decode(text.as_bytes()).err());
    (cost, outcome)
}

#[track_caller]
fn cheap(what: &str, text: &str) -> Option<KubeconfigError> {
    let (cost, outcome) = cost(text);
    assert!(cost.bytes_max <= MOST, "{what} takes {} bytes", cost.bytes_max);
    assert!(
        cost.bytes_total <= IN_ALL,
        "{what} takes {} bytes in all",
        cost.bytes_total
    );
    outcome
}

/// A bomb in a place without a schema, cut to the largest size there is.
fn within(bomb: &str) -> String {
    let mut text = format!("extensions: [{{name: a, extension: {bomb}");
    text.truncate(MAX_BYTES);
    text
}

/// Lines in a place without a schema, cut to the largest size there is.
fn below(lines: impl Iterator<Item = String>) -> String {
    let mut text = String::from("extensions:\n- name: a\n  extension:\n");
    for line in lines {
        text.push_str("    ");
        text.push_str(&line);
        text.push('\n');
    }
    text.truncate(MAX_BYTES);
    text
}

/// Each anchor is a list of the one before, ten times.
fn laughs() -> String {
    let lines = (1..100).map(|level| {
        let alias = format!("*a{},", level - 1).repeat(10);
        format!("a{level}: &a{level} [{alias}]")
    });
    below(std::iter::once("a0: &a0 [x]".to_owned()).chain(lines))
}

/// Holds: K10.
#[test]
fn bombs_are_refused_before_they_grow() {
    let lines = |line: fn(usize) -> String| (0..20_000).map(line);
    let stairs = (0..700).map(|depth| format!("{}a:", " ".repeat(depth)));
    let nested = format!("{}{}", "[".repeat(14), "]".repeat(14));
    let table: Vec<(&str, String, KubeconfigError)> = vec![
        ("laughs", laughs(), Alias),
        ("an alias of itself", within("&a [*a]}]"), Alias),
        ("anchors", within(&format!("[{}", flood("&a x,"))), Alias),
        ("aliases", within(&format!("[{}", flood("*x,"))), Alias),
        ("merge keys", below(lines(|n| format!("<<: {{a{n}: 1}}"))), Alias),
        (
            "merge keys in a flow",
            within("{<<: [{<<: [{<<: {a: 1}}]}]}}]"),
            Alias,
        ),
        (
            "merge keys of a user",
            "users: [{name: a, user: {<<: {token: a}}}]".into(),
            Alias,
        ),
        ("lists in lists", within(&flood("[")), Unreadable),
        ("mappings in mappings", within(&flood("{a: ")), Unreadable),
        ("the same in JSON", within(&flood("{\"a\":")), Unreadable),
        (
            "lists in lists in one line",
            below(std::iter::once(flood("- "))),
            TooComplex,
        ),
        ("mappings in mappings in lines", below(stairs), TooComplex),
        ("keys of keys", below(std::iter::once(flood("? "))), TooComplex),
        (
            "deeper than ever needed",
            within(&format!("{nested}}}]")),
            TooComplex,
        ),
        ("items", below(lines(|n| format!("- a{n}"))), TooComplex),
        (
            "items in a flow",
            within(&format!("[{}", flood("a,"))),
            TooComplex,
        ),
        ("keys", below(lines(|n| format!("a{n}: 1"))), TooComplex),
        (
            "keys of a mapping that has none",
            lines(|n| format!("a{n}: 1\n")).collect(),
            UnknownField,
        ),
        (
            "users",
            format!("users:\n{}", "- name: a\n".repeat(20_000)),
            TooComplex,
        ),
        (
            "values of exec",
            format!("users: [{{name: a, user: {{exec: [{}", "a,".repeat(100_000)),
            TooComplex,
        ),
        ("documents", flood("---\n"), Unreadable),
        (
            "documents behind another",
            format!("kind: Config\n{}", "---\n".repeat(60_000)),
            SeveralDocuments,
        ),
        ("a long key", flood("a"), Unreadable),
        (
            "a long key in quotes",
            format!("\"{}\": 1", "\\x61".repeat(60_000)),
            Unreadable,
        ),
        (
            "a long number",
            format!("kind: {}", "9".repeat(200_000)),
            WrongKind,
        ),
        (
            "a long tag",
            within(&format!("!{} a}}]", "a".repeat(200_000))),
            Tag,
        ),
        ("tags", within(&flood("!a ")), Tag),
        (
            "directives",
            format!("{}\n---\nkind: Config", "%a b\n".repeat(50_000)),
            NoContext,
        ),
        ("blanks", flood(" "), NoContext),
        ("lines", flood("\r\n"), NoContext),
        ("tabs", flood("\t"), NoContext),
        ("marks of byte order", flood("\u{feff}"), NoContext),
        ("comments", flood("# a\n"), NoContext),
        ("one comment", format!("#{}", "a".repeat(200_000)), NoContext),
    ];
    let outcomes = table
        .iter()
        .map(|(what, text, error)| (what, cheap(what, text), Some(*error)));
    let wrong: Vec<_> = outcomes.filter(|(_, found, error)| found != error).collect();
    assert!(wrong.is_empty(), "found and expected: {wrong:#?}");
}

/// Holds: K10.
#[test]
fn padding_a_good_one_does_not_make_it_dear() {
    let good = serde_saphyr::to_string(&valid()).unwrap();
    let room = MAX_BYTES - good.len() - 100;
    let fill = |part: &str| part.repeat(room / part.len());
    for (what, text) in [
        ("comments before", format!("{}{good}", fill("# a\n"))),
        ("comments behind", format!("{good}{}", fill("# a\n"))),
        (
            "comments within",
            good.replacen("users:", &format!("{}users:", fill("# a\n")), 1),
        ),
        ("one comment", format!("# {}\n{good}", fill("a"))),
        ("lines", format!("{good}{}", fill("\n"))),
        (
            "a long text",
            good.replacen("namespace:", &format!("namespace: {} #", fill("a")), 1),
        ),
        (
            "a folded text",
            good.replacen(
                "namespace:",
                &format!("namespace: >-\n{}   #", fill("      a\n\n")),
                1,
            ),
        ),
        (
            "an escaped text",
            good.replacen("namespace:", &format!("namespace: \"{}\" #", fill("\\x61")), 1),
        ),
        (
            "a long token",
            good.replacen("token: another", &format!("token: {}", fill("a")), 1),
        ),
    ] {
        assert_eq!(cheap(what, &text), None, "{what}");
    }
}
