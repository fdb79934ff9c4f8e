//! What the page about logs says that `debug` shows is what the code writes there, and nothing is missing.

use std::collections::BTreeSet;

use proc_macro2::TokenTree;
use syn::parse::Parser as _;
use syn::punctuated::Punctuated;
use syn::visit::Visit;
use syn::{Attribute, Expr, ExprLit, ItemMod, Lit, Macro, Token};

use super::{files, read};

/// The messages of one level in code that is not of tests.
struct Messages<'m> {
    level: &'m str,
    found: BTreeSet<String>,
}

fn is_of_tests(attribute: &Attribute) -> bool {
    attribute.path().is_ident("cfg")
        && attribute
            .parse_args::<syn::Path>()
            .is_ok_and(|path| path.is_ident("test"))
}

impl Visit<'_> for Messages<'_> {
    fn visit_item_mod(&mut self, module: &ItemMod) {
        if !module.attrs.iter().any(is_of_tests) {
            syn::visit::visit_item_mod(self, module);
        }
    }

    fn visit_macro(&mut self, call: &Macro) {
        let names: Vec<_> = call
            .path
            .segments
            .iter()
            .map(|part| part.ident.to_string())
            .collect();
        if names != ["tracing", self.level] {
            return;
        }
        let message = message(call.tokens.clone());
        self.found
            .insert(message.unwrap_or_else(|| panic!("a log line without a message: {}", call.tokens)));
    }
}

/// The last argument, where it is a text. Fields before it, such as `error = %error`, are no expressions, so they are cut off.
fn message(tokens: proc_macro2::TokenStream) -> Option<String> {
    let last = tokens
        .into_iter()
        .filter(|token| !matches!(token, TokenTree::Punct(comma) if comma.as_char() == ','))
        .last()?;
    let parser = Punctuated::<Expr, Token![,]>::parse_terminated;
    match parser.parse2(last.into()).ok()?.pop()?.into_value() {
        Expr::Lit(ExprLit {
            lit: Lit::Str(text), ..
        }) => Some(text.value()),
        _ => None,
    }
}

fn messages(level: &str, sources: impl IntoIterator<Item = String>) -> BTreeSet<String> {
    let mut messages = Messages {
        level,
        found: BTreeSet::new(),
    };
    for source in sources {
        messages.visit_file(&syn::parse_file(&source).unwrap());
    }
    messages.found
}

/// The messages in the first column of the table; a row may have several.
fn listed(page: &str) -> BTreeSet<String> {
    let (_, table) = page.split_once("| message | fields |").unwrap();
    let rows = table
        .lines()
        .skip(1)
        .take_while(|line| line.is_empty() || line.starts_with('|'));
    let cells = rows.filter_map(|row| row.split(" |").next());
    cells
        .flat_map(|cell| cell.split('`').skip(1).step_by(2))
        .map(str::to_owned)
        .collect()
}

#[test]
fn what_debug_shows_is_listed_and_what_is_listed_is_shown() {
    let own = files("rs").into_iter().filter(|path| path.starts_with("src"));
    let shown = messages("debug", own.map(|path| read(&path.to_string_lossy())));
    let listed = listed(&read("docs/operations/logs.md"));
    let missing: Vec<_> = shown.difference(&listed).collect();
    let unknown: Vec<_> = listed.difference(&shown).collect();
    assert!(
        missing.is_empty() && unknown.is_empty(),
        "without a row in logs.md: {missing:?}; no log line of src: {unknown:?}"
    );
    assert!(shown.len() > 10, "{shown:?}");
}

/// What each line has beside its fields; a field of that name would be written twice, and a reader of JSON keeps only one of both.
const OF_EACH_LINE: [&str; 6] = ["timestamp", "level", "message", "target", "span", "spans"];

/// Fields in log lines and spans whose names each line has already.
#[derive(Default)]
struct Hidden(Vec<String>);

impl Visit<'_> for Hidden {
    fn visit_macro(&mut self, call: &Macro) {
        if call
            .path
            .segments
            .first()
            .is_none_or(|first| first.ident != "tracing")
        {
            return;
        }
        let tokens: Vec<_> = call.tokens.clone().into_iter().collect();
        let is = |token: Option<&TokenTree>, signs: &[char]| match token {
            Some(TokenTree::Punct(sign)) => signs.contains(&sign.as_char()),
            _ => false,
        };
        for (at, token) in tokens.iter().enumerate() {
            let TokenTree::Ident(name) = token else { continue };
            let before = at.checked_sub(1).map(|before| &tokens[before]);
            let sign = usize::from(is(before, &['%', '?']));
            let begins = at == sign || is(tokens.get(at - sign - 1), &[',']);
            let ends = is(tokens.get(at + 1), &['=', ',']);
            if begins && ends && OF_EACH_LINE.iter().any(|known| name == known) {
                self.0.push(call.tokens.to_string());
            }
        }
    }
}

fn hidden(source: &str) -> Vec<String> {
    let mut hidden = Hidden::default();
    hidden.visit_file(&syn::parse_file(source).unwrap());
    hidden.0
}

#[test]
fn no_field_hides_behind_what_each_line_has() {
    let own = files("rs").into_iter().filter(|path| path.starts_with("src"));
    let found: Vec<_> = own
        .flat_map(|path| hidden(&read(&path.to_string_lossy())))
        .collect();
    assert!(found.is_empty(), "{found:#?}");
    let planted = |fields: &str| hidden(&format!("fn f() {{ tracing::info!({fields}, \"m\"); }}"));
    assert_eq!(planted("target = name").len(), 1);
    assert_eq!(planted("kind, level").len(), 1);
    assert_eq!(planted("%message").len(), 1);
    assert_eq!(planted("kind, ?level").len(), 1);
    assert!(planted("target: \"x\", kind = target").is_empty());
}

#[test]
fn messages_are_found_behind_fields_and_not_in_tests() {
    let source = r#"
        fn f(error: E) {
            tracing::debug!(task = %error.task, kind, "one");
            tracing::debug!("two",);
            tracing::info!("three");
        }
        #[cfg(test)]
        mod tests { fn g() { tracing::debug!("four"); } }
    "#;
    let found = messages("debug", [source.to_owned()]);
    assert_eq!(found.into_iter().collect::<Vec<_>>(), ["one", "two"]);
    let page = "| message | fields |\n|---|---|\n| `one`, `two` | `no` |\n| `three` | |\n";
    let listed = listed(page);
    assert_eq!(listed.into_iter().collect::<Vec<_>>(), ["one", "three", "two"]);
}
