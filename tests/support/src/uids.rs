//! UIDs that say a short word, where a test is to read them and the hub wants those that an API server gives.

use renderhub::api::names::hex;

/// A UID that says a short word of ASCII, as the hexadecimal digits of its bytes, with zeros behind it.
#[must_use]
pub fn uid(word: &str) -> String {
    format!("{:0<36}", hex(word.as_bytes()))
}

/// The word that a UID of [`uid`] says.
#[must_use]
pub fn word(uid: &str) -> String {
    let pairs = (0..uid.len()).step_by(2).filter_map(|at| uid.get(at..at + 2));
    let bytes = pairs.filter_map(|pair| u8::from_str_radix(pair, 16).ok());
    bytes.take_while(|byte| *byte != 0).map(char::from).collect()
}
