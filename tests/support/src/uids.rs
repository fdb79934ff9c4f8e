//! UIDs that say a short word, where a test is to read them and the hub wants those that an API server gives.

use renderhub::api::names::hex;

/// A UID that says a short word, as the hexadecimal digits of its bytes, with zeros behind it.
#[must_use]
pub fn uid(word: &str) -> String {
    format!("{:0<36}", hex(word.as_bytes()))
}

/// The word that a UID says.
///
/// # Panics
/// If it is none of [`uid`].
#[must_use]
pub fn word(uid: &str) -> String {
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    let bytes = uid.as_bytes().chunks(2).map(byte);
    String::from_utf8(bytes.take_while(|byte| *byte != 0).collect()).unwrap()
}
