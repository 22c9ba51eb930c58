//! The words of a call: in one buffer, each behind its length.

const LENGTH_BYTES: usize = size_of::<u32>();

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Words {
    count: usize,
    bytes: Vec<u8>,
}

impl Words {
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Bytes of memory.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = &self.bytes[..];
        std::iter::from_fn(move || {
            let (length, behind) = rest.split_first_chunk::<LENGTH_BYTES>()?;
            let (word, behind) = behind.split_at(u32::from_ne_bytes(*length) as usize);
            rest = behind;
            Some(word)
        })
    }
}

impl<'a> FromIterator<&'a [u8]> for Words {
    /// # Panics
    ///
    /// If a word has 4 GiB.
    fn from_iter<T: IntoIterator<Item = &'a [u8]>>(words: T) -> Words {
        let mut made = Words::default();
        for word in words {
            let length = u32::try_from(word.len()).expect("a word is in a command of limited size");
            made.count += 1;
            made.bytes.reserve(LENGTH_BYTES + word.len());
            made.bytes.extend_from_slice(&length.to_ne_bytes());
            made.bytes.extend_from_slice(word);
        }
        made
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_come_back_in_their_order() {
        let words: [&[u8]; 3] = [b"key", b"", b"0123456789"];
        let made = Words::from_iter(words);
        assert_eq!(made.iter().collect::<Vec<_>>(), words);
        assert_eq!((made.count(), made.bytes()), (3, 13 + 3 * LENGTH_BYTES));
        assert_eq!(Words::default().iter().count(), 0);
    }
}
