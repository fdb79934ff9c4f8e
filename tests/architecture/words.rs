//! What the programs may log and print: nothing that another program wrote.
//!
//! The text of a foreign error quotes what could not be read, a token of a kubeconfig or a line of a tenant's values. So no
//! foreign error is kept, and none is formatted; the programs report their own label for it.

use proc_macro2::{Literal, TokenStream, TokenTree};
use syn::visit::{self, Visit};

/// Names of values with foreign text, in any place of this source.
const FOREIGN_NAMES: [&str; 16] = [
    "error",
    "err",
    "e",
    "source",
    "cause",
    "status",
    "body",
    "answer",
    "response",
    "text",
    "secret",
    "credential",
    "password",
    "token",
    "message",
    "payload",
];
/// Crates, modules and types whose errors quote their input, or the network.
const FOREIGN_CRATES: [&str; 12] = [
    "kube",
    "kube_client",
    "kube_runtime",
    "watcher",
    "serde_json",
    "serde_saphyr",
    "hyper",
    "hyper_util",
    "http",
    "rustls",
    "io",
    "Utf8Error",
];
/// What may be printed all the same: file, name, and why no other program wrote it.
#[rustfmt::skip]
pub const ALLOWED: &[(&str, &str, &str)] = &[
    ("app/error.rs", "std::io::Error", "it is of our own listener and signals, and only its own sentence is told"),
    ("app/start.rs", "error", "an error of the Lease is a sentence of ours"),
    ("main.rs", "error", "the errors of settings and of the program are sentences of ours"),
    ("app/start.rs", "error", "what keeps a Lease from being read is a sentence of ours"),
    ("app/probe/error.rs", "String", "an address of the command line, told to who wrote it"),
    ("app/config.rs", "error", "clap quotes the command line to who wrote it, and no flag holds a secret"),
    ("renderer/auth.rs", "token", "it becomes the header of a request, marked as sensitive"),
    ("renderer/config.rs", "String", "the path of a field of the configuration, without the tenant's keys"),
    ("app/config/error.rs", "String", "a value of the command line, told to who wrote it"),
    ("bin/crdgen/reference.rs", "message", "a rule's message in the schema, which is ours"),
    ("bin/crdgen.rs", "text", "the generator writes what it made itself, on a developer's machine"),
    ("bin/crdgen.rs", "e", "the generator fails on a developer's machine"),
    ("bin/crdgen/reference.rs", "text", "the generator writes documentation"),
];

/// Walks a file, without its tests.
pub struct Words<'a> {
    path: &'a str,
    /// Line and complaint.
    pub problems: Vec<String>,
}

impl<'a> Words<'a> {
    /// Walks the source of the file.
    pub fn of(path: &'a str, text: &str) -> Vec<String> {
        let mut words = Words {
            path,
            problems: Vec::new(),
        };
        if let Ok(file) = syn::parse_file(text) {
            words.visit_file(&file);
        }
        words.problems
    }

    fn complain(&mut self, line: usize, name: &str, what: &str) {
        let is_allowed = ALLOWED
            .iter()
            .any(|(path, allowed, _)| *path == self.path && *allowed == name);
        if !is_allowed {
            self.problems.push(format!(
                "line {line}: {what} {name}, which somebody else may have written"
            ));
        }
    }

    /// `{name}` in a text, and `%name` or `?name` as a field of a log, at any depth.
    fn tokens(&mut self, tokens: TokenStream) {
        let mut before = None;
        for token in tokens {
            match &token {
                TokenTree::Group(group) => self.tokens(group.stream()),
                TokenTree::Literal(literal) => self.literal(literal),
                TokenTree::Ident(ident)
                    if matches!(before, Some('%' | '?')) && is_foreign(&ident.to_string()) =>
                {
                    self.complain(ident.span().start().line, &ident.to_string(), "logs");
                }
                _ => {}
            }
            before = match &token {
                TokenTree::Punct(punct) => Some(punct.as_char()),
                _ => None,
            };
        }
    }

    fn literal(&mut self, literal: &Literal) {
        for name in placeholders(&literal.to_string()) {
            if is_foreign(&name) {
                self.complain(literal.span().start().line, &name, "formats");
            }
        }
    }

    /// A field of an error may be neither a foreign error nor a text that was put together.
    fn kept(&mut self, ty: &syn::Type, is_error: bool) {
        let syn::Type::Path(path) = ty else { return };
        let names: Vec<String> = path.path.segments.iter().map(|s| s.ident.to_string()).collect();
        let Some((last, before)) = names.split_last() else {
            return;
        };
        let is_foreign =
            last.ends_with("Error") && before.iter().any(|name| FOREIGN_CRATES.contains(&name.as_str()));
        let is_text = is_error && ["String", "Value", "Bytes"].contains(&last.as_str());
        if is_foreign || is_text {
            let line = path.path.segments[0].ident.span().start().line;
            self.complain(line, &names.join("::"), "keeps");
        }
    }
}

/// The names between braces: `{error:?}` and `{error}`, not `{{` and not `{0}`.
fn placeholders(text: &str) -> Vec<String> {
    let bare = text.replace("{{", "");
    let after = bare.split('{').skip(1);
    let names = after.map(|rest| {
        rest.chars()
            .take_while(|c| c.is_alphanumeric() || *c == '_')
            .collect()
    });
    names.filter(|name: &String| !name.is_empty()).collect()
}

fn is_foreign(name: &str) -> bool {
    FOREIGN_NAMES.contains(&name)
}

fn derives_error(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        syn::Meta::List(list) if list.path.is_ident("derive") => list.tokens.to_string().contains("Error"),
        _ => false,
    })
}

impl<'ast> Visit<'ast> for Words<'_> {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !super::scan::is_test(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_enum(&mut self, item: &'ast syn::ItemEnum) {
        let is_error = derives_error(&item.attrs);
        for field in item.variants.iter().flat_map(|variant| &variant.fields) {
            self.kept(&field.ty, is_error);
        }
        visit::visit_item_enum(self, item);
    }

    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        let is_error = derives_error(&item.attrs);
        for field in &item.fields {
            self.kept(&field.ty, is_error);
        }
        visit::visit_item_struct(self, item);
    }

    fn visit_macro(&mut self, makro: &'ast syn::Macro) {
        self.tokens(makro.tokens.clone());
        visit::visit_macro(self, makro);
    }

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        let line = call.method.span().start().line;
        if let syn::Expr::Path(receiver) = &*call.receiver
            && let Some(name) = receiver.path.get_ident().map(ToString::to_string)
            && is_foreign(&name)
            && call.method == "to_string"
        {
            self.complain(line, &name, "formats");
        }
        // kube's `request` logs a response that it cannot decode; `request_text` does not decode it.
        if call.method == "request" && call.turbofish.is_some() {
            self.complain(line, "request", "lets kube decode the answer to a");
        }
        visit::visit_expr_method_call(self, call);
    }
}

/// Source with one fault each, and a part of the complaint.
#[rustfmt::skip]
pub const PLANTED: &[(&str, &str)] = &[
    ("fn f(error: kube::Error) -> String { format!(\"failed: {error}\") }", "formats error"),
    ("fn f(error: kube::Error) -> String { format!(\"failed: {error:#?}\") }", "formats error"),
    ("fn f(e: X) { let s = e.to_string(); }", "formats e"),
    ("fn f(err: X) { tracing::warn!(%err, \"failed\"); }", "logs err"),
    ("fn f(err: X) { tracing::warn!(error = ?err, \"failed\"); }", "logs err"),
    ("fn f(status: X) { tracing::warn!(said = %status.message, \"failed\"); }", "logs status"),
    ("fn f(body: X) { vec![write!(out, \"{body}\")]; }", "formats body"),
    ("fn f(secret: X) { panic!(\"{secret:?}\"); }", "formats secret"),
    ("enum E { Call(#[source] kube::Error) }", "keeps kube::Error"),
    ("enum E { Read { source: kube::runtime::watcher::Error } }", "keeps kube::runtime::watcher::Error"),
    ("struct S { why: serde_json::Error }", "keeps serde_json::Error"),
    ("#[derive(Debug, thiserror::Error)] #[error(\"{0}\")] struct S(String);", "keeps String"),
    ("#[derive(Debug, thiserror::Error)] enum E { #[error(\"{said}\")] A { said: String } }", "keeps String"),
    ("async fn f() { client.request::<Secret>(request).await; }", "lets kube decode"),
];
