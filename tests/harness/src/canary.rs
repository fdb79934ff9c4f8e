//! Canaries: a secret that shows in a text is found there, in whatever dress.
//!
//! Each field of a credential gets a value of its own, so that a hit says which one leaked. A value is looked for as it is
//! and as programs dress text up: base64 of both alphabets at each of the three places where it can begin inside something
//! longer, hexadecimal, percent-encoded, escaped once or twice as in JSON or a `Debug`, in other case, and backwards.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use serde_json::Value;

/// Where a secret was found, without a letter of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hit {
    /// The canary's name.
    pub canary: String,
    /// How it was dressed.
    pub form: &'static str,
    /// The text it was found in.
    pub place: String,
}

impl fmt::Display for Hit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} as {} in {}", self.canary, self.form, self.place)
    }
}

struct Canary {
    name: String,
    forms: Vec<(&'static str, String)>,
}

/// The canaries of a test.
#[derive(Default)]
pub struct Canaries {
    all: Vec<Canary>,
}

impl fmt::Debug for Canaries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.all.iter().map(|c| &c.name)).finish()
    }
}

/// Shortest value that is looked for: shorter ones are found by chance.
const SHORTEST: usize = 8;

impl Canaries {
    /// None yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// With one more, by the name of the field that holds it.
    ///
    /// # Panics
    /// If the value has less than eight bytes.
    #[must_use]
    pub fn with(mut self, name: &str, value: &str) -> Self {
        assert!(value.len() >= SHORTEST, "{name} is too short to be looked for");
        self.all.push(Canary {
            name: name.to_owned(),
            forms: forms(value),
        });
        self
    }

    /// Whether any of them is in the text.
    #[must_use]
    pub fn show_in(&self, text: &str) -> bool {
        !self.find("a text", text).is_empty()
    }

    /// Every canary that is in the text, once per form.
    #[must_use]
    pub fn find(&self, place: &str, text: &str) -> Vec<Hit> {
        let folded = text.to_lowercase();
        let is_in = |(form, dressed): &&(&'static str, String)| match *form {
            // Escapes and digits of either case, and text of any.
            "text" | "hexadecimal" | "percent-encoded" => folded.contains(dressed.as_str()),
            _ => text.contains(dressed.as_str()),
        };
        let of_one = |canary: &Canary| -> Vec<Hit> {
            let found = canary.forms.iter().filter(is_in);
            found
                .map(|(form, _)| Hit {
                    canary: canary.name.clone(),
                    form,
                    place: place.to_owned(),
                })
                .collect()
        };
        self.all.iter().flat_map(of_one).collect()
    }
}

/// The dresses of a value, those without case in lower case.
fn forms(value: &str) -> Vec<(&'static str, String)> {
    let once = escaped(value);
    let mut forms = vec![
        ("text", value.to_lowercase()),
        ("JSON", once.clone()),
        ("JSON in JSON", escaped(&once)),
        ("JSON of code points", code_points(value)),
        ("Debug", value.escape_debug().to_string()),
        ("hexadecimal", bytes(value, "")),
        ("percent-encoded", bytes(value, "%")),
        ("percent-encoded", percent_encoded(value).to_lowercase()),
        ("reversed", value.chars().rev().collect()),
    ];
    for skip in 0..3 {
        let standard = inside(&STANDARD_NO_PAD.encode(shifted(value, skip)), skip);
        let url_safe = inside(&URL_SAFE_NO_PAD.encode(shifted(value, skip)), skip);
        // As the `auth` of a docker config in the data of a Secret.
        for more in 0..3 {
            let again = STANDARD_NO_PAD.encode(shifted(&standard, more));
            forms.push(("base64 in base64", inside(&again, more)));
        }
        forms.push(("base64", standard));
        forms.push(("base64url", url_safe));
    }
    forms.sort_unstable();
    forms.dedup_by(|a, b| a.1 == b.1);
    forms
}

fn escaped(value: &str) -> String {
    let quoted = Value::from(value).to_string();
    quoted[1..quoted.len() - 1].to_owned()
}

fn code_points(value: &str) -> String {
    let units: Vec<_> = value
        .encode_utf16()
        .map(|unit| format!("\\u{unit:04x}"))
        .collect();
    units.concat()
}

fn bytes(value: &str, mark: &str) -> String {
    let all: Vec<_> = value.bytes().map(|byte| format!("{mark}{byte:02x}")).collect();
    all.concat()
}

/// As a query has it: all but the unreserved characters.
fn percent_encoded(value: &str) -> String {
    let encode = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => char::from(byte).to_string(),
        _ => format!("%{byte:02x}"),
    };
    value.bytes().map(encode).collect()
}

/// The value behind `skip` bytes of something else.
fn shifted(value: &str, skip: usize) -> Vec<u8> {
    [&vec![0; skip], value.as_bytes()].concat()
}

/// The letters of a base64 text that depend on the value alone, and not on the text before and after it.
fn inside(encoded: &str, skip: usize) -> String {
    let before = (skip * 8).div_ceil(6);
    let after = usize::from(!encoded.len().is_multiple_of(4));
    encoded[before..encoded.len() - after].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::engine::general_purpose::{STANDARD, URL_SAFE};

    const VALUE: &str = "cAnary\\pass/w+rd\"~é?>";

    fn found(text: &str) -> Vec<Hit> {
        Canaries::new().with("password", VALUE).find("here", text)
    }

    #[test]
    fn every_dress_is_seen_through() {
        let json = serde_json::json!({"password": VALUE});
        let in_a_file = |before: &str| format!("{before}{VALUE} and more");
        let mut texts = vec![
            format!("a {VALUE} b"),
            VALUE.to_uppercase(),
            json.to_string(),
            serde_json::json!({"body": json.to_string()}).to_string(),
            format!("{:?}", Some(VALUE)),
            code_points(VALUE),
            bytes(VALUE, ""),
            bytes(VALUE, "").to_uppercase(),
            bytes(VALUE, "%").to_uppercase(),
            percent_encoded(VALUE),
            VALUE.chars().rev().collect(),
        ];
        for before in ["", "u", "u:", "us:", "user:", "user::"] {
            texts.push(STANDARD.encode(in_a_file(before)));
            texts.push(URL_SAFE.encode(in_a_file(before)));
            texts.push(STANDARD.encode(format!("{before}{VALUE}")));
            texts.push(URL_SAFE.encode(format!("{before}{VALUE}")));
            let auth = STANDARD.encode(format!("{before}{VALUE}"));
            for more in ["", "x", "xx"] {
                texts.push(STANDARD.encode(format!("{more}{{\"auth\":\"{auth}\"}}")));
            }
        }
        for text in texts {
            assert!(!found(&text).is_empty(), "{text}");
        }
    }

    #[test]
    fn every_form_is_needed_and_nothing_is_found_by_chance() {
        for (form, dressed) in forms(VALUE) {
            let hits = found(&dressed);
            assert!(hits.iter().any(|hit| hit.form == form), "{form}: {hits:?}");
            assert!(dressed.len() >= SHORTEST, "{form} is too short: {dressed}");
            assert_eq!(
                hits[0].to_string(),
                format!("password as {} in here", hits[0].form)
            );
        }
        assert_eq!(found(&VALUE[..VALUE.len() - 4]), []);
        assert_eq!(found(&STANDARD.encode(&VALUE[..VALUE.len() - 4])), []);
        assert_eq!(found(""), []);
        assert_eq!(
            format!("{:?}", Canaries::new().with("password", VALUE)),
            "[\"password\"]"
        );
    }
}
