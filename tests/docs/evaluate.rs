//! Amounts: numbers and times, as the code writes them and as people do.

use std::collections::BTreeMap;
use std::fmt;

/// A number of things or bytes, a time, or several of either.
#[derive(Clone, Debug, PartialEq)]
pub enum Amount {
    /// Things, or bytes.
    Number(f64),
    /// Milliseconds.
    Time(f64),
    /// One after the other.
    Several(Vec<Self>),
}

impl Amount {
    /// As a number; of several, the first.
    pub fn number(&self) -> f64 {
        match self {
            Self::Number(number) | Self::Time(number) => *number,
            Self::Several(all) => all.first().map_or(0.0, Self::number),
        }
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Time(time) => write!(f, "{time} ms"),
            Self::Several(all) => {
                let all: Vec<_> = all.iter().map(ToString::to_string).collect();
                f.write_str(&all.join(", "))
            }
        }
    }
}

/// Units as people write them: of bytes, and of time in milliseconds.
const BYTES: [(&str, f64); 3] = [("KiB", 1_024.0), ("MiB", 1_048_576.0), ("GiB", 1_073_741_824.0)];
const TIMES: [(&str, f64); 5] = [
    ("ms", 1.0),
    ("s", 1_000.0),
    ("min", 60_000.0),
    ("m", 60_000.0),
    ("h", 3_600_000.0),
];

/// An amount as the page or a flag writes it: `20,000`, `24 MiB`, `5 s, 1 min`, `15m`.
pub fn written(text: &str) -> Option<Amount> {
    let text = text.trim().trim_matches('`');
    let parts: Vec<&str> = text.split(", ").collect();
    if parts.len() > 1 {
        let all: Option<Vec<_>> = parts.into_iter().map(written).collect();
        return all.map(Amount::Several);
    }
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != ',' && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let number: f64 = number.replace(',', "").parse().ok()?;
    let times = |units: &[(&str, f64)]| {
        units
            .iter()
            .find(|(name, _)| *name == unit.trim())
            .map(|(_, n)| n * number)
    };
    match unit.trim() {
        "" => Some(Amount::Number(number)),
        _ => times(&BYTES)
            .map(Amount::Number)
            .or_else(|| times(&TIMES).map(Amount::Time)),
    }
}

/// A quantity as Kubernetes writes it: `256Mi`, `20000`.
pub fn quantity(text: &str) -> Option<Amount> {
    let text = ["Ki", "Mi", "Gi"]
        .iter()
        .find(|unit| text.ends_with(**unit))
        .map_or_else(|| text.to_owned(), |_| format!("{text}B"));
    written(&text)
}

/// The value of a constant's expression, as far as it is made of numbers, times and other constants of its file.
pub fn constant(expr: &syn::Expr, known: &BTreeMap<String, &syn::Expr>) -> Option<Amount> {
    match expr {
        syn::Expr::Lit(literal) => number(&literal.lit).map(Amount::Number),
        syn::Expr::Paren(inner) => constant(&inner.expr, known),
        syn::Expr::Group(inner) => constant(&inner.expr, known),
        syn::Expr::Cast(cast) => constant(&cast.expr, known),
        syn::Expr::Unary(unary) if matches!(unary.op, syn::UnOp::Neg(_)) => {
            Some(Amount::Number(-plain(&unary.expr, known)?))
        }
        syn::Expr::Binary(binary) => {
            let (left, right) = (plain(&binary.left, known)?, plain(&binary.right, known)?);
            calculate(left, &binary.op, right).map(Amount::Number)
        }
        syn::Expr::Array(array) => {
            let all: Option<Vec<_>> = array.elems.iter().map(|item| constant(item, known)).collect();
            all.map(Amount::Several)
        }
        syn::Expr::Path(path) => {
            let name = path.path.segments.last()?.ident.to_string();
            constant(known.get(&name)?, known)
        }
        syn::Expr::Field(field) => of_struct(field, known),
        syn::Expr::Call(call) => time(call, known).map(Amount::Time),
        _ => None,
    }
}

/// The value of a field of a constant that is a struct's literal.
fn of_struct(access: &syn::ExprField, known: &BTreeMap<String, &syn::Expr>) -> Option<Amount> {
    let syn::Expr::Path(path) = &*access.base else {
        return None;
    };
    let syn::Expr::Struct(literal) = known.get(&path.path.get_ident()?.to_string())? else {
        return None;
    };
    let field = literal
        .fields
        .iter()
        .find(|field| field.member == access.member)?;
    constant(&field.expr, known)
}

fn plain(expr: &syn::Expr, known: &BTreeMap<String, &syn::Expr>) -> Option<f64> {
    match constant(expr, known)? {
        Amount::Number(number) => Some(number),
        _ => None,
    }
}

fn number(literal: &syn::Lit) -> Option<f64> {
    match literal {
        syn::Lit::Int(int) => int.base10_digits().parse().ok(),
        syn::Lit::Float(float) => float.base10_digits().parse().ok(),
        _ => None,
    }
}

fn calculate(left: f64, operator: &syn::BinOp, right: f64) -> Option<f64> {
    match operator {
        syn::BinOp::Add(_) => Some(left + right),
        syn::BinOp::Sub(_) => Some(left - right),
        syn::BinOp::Mul(_) => Some(left * right),
        syn::BinOp::Div(_) => Some((left / right).floor()),
        syn::BinOp::Shl(_) => Some(left * right.exp2()),
        _ => None,
    }
}

/// Milliseconds of `Duration::from_secs(…)` and its like.
fn time(call: &syn::ExprCall, known: &BTreeMap<String, &syn::Expr>) -> Option<f64> {
    let syn::Expr::Path(function) = &*call.func else {
        return None;
    };
    let name = function.path.segments.last()?.ident.to_string();
    let unit = match name.as_str() {
        "from_millis" => 1.0,
        "from_secs" => 1_000.0,
        "from_mins" => 60_000.0,
        "from_hours" => 3_600_000.0,
        _ => return None,
    };
    Some(plain(call.args.first()?, known)? * unit)
}

#[test]
fn amounts_are_read_as_people_write_them() {
    for (text, amount) in [
        ("20,000", Amount::Number(20_000.0)),
        ("24 MiB", Amount::Number(25_165_824.0)),
        ("`15m`", Amount::Time(900_000.0)),
        ("250 ms", Amount::Time(250.0)),
        (
            "16, 4",
            Amount::Several(vec![Amount::Number(16.0), Amount::Number(4.0)]),
        ),
    ] {
        assert_eq!(written(text), Some(amount), "{text}");
    }
    for text in ["", "none", "0.0.0.0:8080", "5 parsecs", "info"] {
        assert_eq!(written(text), None, "{text}");
    }
    assert_eq!(quantity("256Mi"), written("256 MiB"));
}
