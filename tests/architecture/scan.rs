//! Reads what a source file names, and how long its functions are.

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};

/// Most lines of a function's body, without blanks and comments, as clippy counts them.
pub const FUNCTION_LINES: usize = 40;

/// Walks a file, without its tests.
pub struct Scan<'a> {
    /// Module the walk is in.
    here: Vec<String>,
    lines: Vec<&'a str>,
    /// Line and full path of all that is named: `crate::…` for this crate, else as written.
    pub imports: Vec<(usize, String)>,
    /// What is wrong by itself.
    pub problems: Vec<String>,
}

impl<'a> Scan<'a> {
    /// Walks the source of the module.
    pub fn of(module: &[String], text: &'a str) -> Self {
        let is_root = matches!(module, [only] if only == "lib" || only == "main");
        let mut scan = Self {
            here: if is_root { Vec::new() } else { module.to_vec() },
            lines: text.lines().collect(),
            imports: Vec::new(),
            problems: Vec::new(),
        };
        match syn::parse_file(text) {
            Ok(file) => scan.visit_file(&file),
            Err(error) => scan.problems.push(format!("is no Rust: {error}")),
        }
        scan
    }

    fn name(&mut self, line: usize, parts: &[String]) {
        let Some(first) = parts.first() else { return };
        let up = parts.iter().take_while(|part| *part == "super").count();
        let path = match first.as_str() {
            "crate" | "renderhub" => own(&[], &parts[1..]),
            "self" => own(&self.here, &parts[1..]),
            "super" => own(&self.here[..self.here.len().saturating_sub(up)], &parts[up..]),
            _ => parts.join("::"),
        };
        self.imports.push((line, path));
    }

    fn use_tree(&mut self, line: usize, before: &[String], tree: &syn::UseTree) {
        let with = |ident: &syn::Ident| [before, &[ident.to_string()]].concat();
        match tree {
            syn::UseTree::Path(path) => self.use_tree(line, &with(&path.ident), &path.tree),
            syn::UseTree::Group(group) => {
                for item in &group.items {
                    self.use_tree(line, before, item);
                }
            }
            syn::UseTree::Name(name) if name.ident == "self" => self.name(line, before),
            syn::UseTree::Name(name) => self.name(line, &with(&name.ident)),
            syn::UseTree::Rename(rename) => self.name(line, &with(&rename.ident)),
            syn::UseTree::Glob(_) => self.name(line, before),
        }
    }

    /// A macro's arguments are no syntax yet, so paths are read off the tokens.
    fn tokens(&mut self, tokens: TokenStream) {
        let mut path: Vec<String> = Vec::new();
        let mut line = 0;
        let mut colons = 0;
        for token in tokens {
            match &token {
                TokenTree::Ident(ident) if colons == 2 || path.is_empty() => {
                    line = ident.span().start().line;
                    path.push(ident.to_string());
                    colons = 0;
                    continue;
                }
                TokenTree::Punct(punct) if punct.as_char() == ':' && !path.is_empty() => {
                    colons += 1;
                    continue;
                }
                TokenTree::Group(group) => self.tokens(group.stream()),
                _ => {}
            }
            self.end_of_path(line, &mut path);
            colons = 0;
            if let TokenTree::Ident(ident) = &token {
                path.push(ident.to_string());
            }
        }
        self.end_of_path(line, &mut path);
    }

    fn end_of_path(&mut self, line: usize, path: &mut Vec<String>) {
        if path.len() > 1 {
            self.name(line, path);
        }
        path.clear();
    }

    fn function(&mut self, name: &syn::Ident, body: &syn::Block) {
        let braces = body.brace_token.span;
        let (first, last) = (braces.open().start().line, braces.close().start().line);
        let inside = self.lines.get(first..last.saturating_sub(1)).unwrap_or_default();
        let code = |line: &&&str| !line.trim().is_empty() && !line.trim_start().starts_with("//");
        let lines = inside.iter().filter(code).count();
        if lines > FUNCTION_LINES {
            self.problems.push(format!(
                "line {first}: {name} has {lines} lines, at most {FUNCTION_LINES}"
            ));
        }
    }
}

/// `crate::` and the path.
fn own(module: &[String], rest: &[String]) -> String {
    [&["crate".to_owned()], module, rest].concat().join("::")
}

/// Whether an item is there for tests only.
pub fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("test")
            || attribute.path().is_ident("cfg")
                && attribute
                    .parse_args::<syn::Ident>()
                    .is_ok_and(|word| word == "test")
    })
}

impl<'ast> Visit<'ast> for Scan<'_> {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !is_test(&item.attrs) {
            self.here.push(item.ident.to_string());
            visit::visit_item_mod(self, item);
            self.here.pop();
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.use_tree(item.use_token.span.start().line, &[], &item.tree);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let parts: Vec<String> = path.segments.iter().map(|s| s.ident.to_string()).collect();
        if parts.len() > 1 {
            self.name(path.segments[0].ident.span().start().line, &parts);
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, makro: &'ast syn::Macro) {
        self.tokens(makro.tokens.clone());
        visit::visit_macro(self, makro);
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        if !is_test(&item.attrs) {
            self.function(&item.sig.ident, &item.block);
            visit::visit_item_fn(self, item);
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if !is_test(&item.attrs) {
            self.function(&item.sig.ident, &item.block);
            visit::visit_impl_item_fn(self, item);
        }
    }

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        if call.method == "unwrap" {
            let line = call.method.span().start().line;
            self.problems.push(format!("line {line}: unwrap"));
        }
        visit::visit_expr_method_call(self, call);
    }
}
