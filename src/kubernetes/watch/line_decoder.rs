//! Decodes the lines of a watch, each bounded, from parts that may be split anywhere.

use bytes::{Buf, Bytes, BytesMut};

/// A line is longer than the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineTooLong;

/// Joins parts into lines. Between two lines it holds nothing.
#[derive(Debug, Default)]
pub struct LineDecoder {
    /// The rest of the last part.
    part: Bytes,
    /// The beginning of a line.
    begin: BytesMut,
}

impl LineDecoder {
    /// Takes the next part; the previous one must be used up.
    pub fn push(&mut self, part: Bytes) {
        self.part = part;
    }

    /// Bytes of the incomplete line.
    pub fn held(&self) -> usize {
        self.begin.len()
    }

    /// The next line without its end, `None` where another part is needed. Empty lines are skipped.
    ///
    /// # Errors
    /// If a line has more bytes than `max`.
    pub fn next(&mut self, max: usize) -> Result<Option<Bytes>, LineTooLong> {
        loop {
            let end = self.part.iter().position(|byte| *byte == b'\n');
            let len = self.begin.len() + end.unwrap_or(self.part.len());
            if len > max {
                return Err(LineTooLong);
            }
            let Some(end) = end else {
                self.begin.extend_from_slice(&self.part);
                self.part = Bytes::new();
                return Ok(None);
            };
            let rest = self.part.split_to(end);
            self.part.advance(1);
            let line = if self.begin.is_empty() {
                rest
            } else {
                self.begin.extend_from_slice(&rest);
                std::mem::take(&mut self.begin).freeze()
            };
            if !line.is_empty() {
                return Ok(Some(line));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(parts: &[&[u8]], max: usize) -> Result<Vec<Bytes>, LineTooLong> {
        let (mut lines, mut found) = (LineDecoder::default(), Vec::new());
        for part in parts {
            lines.push(Bytes::copy_from_slice(part));
            while let Some(line) = lines.next(max)? {
                found.push(line);
            }
        }
        Ok(found)
    }

    #[test]
    fn a_line_may_be_split_anywhere_and_has_a_longest_length() {
        assert_eq!(
            read(&[b"ab", b"c\n\nde\nf", b"", b"\n"], 3).unwrap(),
            ["abc", "de", "f"]
        );
        assert_eq!(read(&[b"abcd\n"], 3), Err(LineTooLong));
        assert_eq!(
            read(&[b"ab", b"cd"], 3),
            Err(LineTooLong),
            "before its end is there"
        );
        assert!(read(&[b"abc", b"\n"], 3).is_ok());
    }

    proptest! {
        #[test]
        fn cuts_make_no_difference(text in "[ab\n]{0,60}", cuts in proptest::collection::vec(0_usize..60, 0..8)) {
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(text.len())).collect();
            cuts.extend([0, text.len()]);
            cuts.sort_unstable();
            let parts: Vec<&[u8]> = cuts.windows(2).map(|pair| &text.as_bytes()[pair[0]..pair[1]]).collect();
            let whole = text.rsplit_once('\n').map_or("", |(before, _)| before);
            let expected: Vec<&str> = whole.split('\n').filter(|line| !line.is_empty()).collect();
            prop_assert_eq!(read(&parts, 60).unwrap(), expected);
        }
    }
}
