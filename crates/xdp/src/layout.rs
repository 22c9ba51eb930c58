//! Where C has the fields of what lies in maps: asked of C, so that nothing here repeats it.

use std::collections::HashMap;
use std::sync::LazyLock;

static PLACES: LazyLock<HashMap<&'static str, u64>> =
    LazyLock::new(|| switchback_datapath::layout().into_iter().collect());

/// Offset or size of this name (`record.seq`, `size.record`).
pub(crate) fn place(name: &str) -> usize {
    *PLACES.get(name).unwrap_or_else(|| panic!("datapath/native.c says nothing of {name}")) as usize
}

/// A struct of C's in bytes.
pub(crate) struct Fields<'a> {
    pub(crate) of: &'static str,
    pub(crate) bytes: &'a [u8],
}

impl<'a> Fields<'a> {
    fn array<const N: usize>(&self, name: &str) -> [u8; N] {
        let at = place(&format!("{}.{name}", self.of));
        self.bytes[at..at + N].try_into().expect("of this length")
    }

    pub(crate) fn u8(&self, name: &str) -> u8 {
        self.array::<1>(name)[0]
    }

    pub(crate) fn u16(&self, name: &str) -> u16 {
        u16::from_ne_bytes(self.array(name))
    }

    pub(crate) fn u32(&self, name: &str) -> u32 {
        u32::from_ne_bytes(self.array(name))
    }

    pub(crate) fn u64(&self, name: &str) -> u64 {
        u64::from_ne_bytes(self.array(name))
    }

    pub(crate) fn bytes(&self, name: &str, length: usize) -> &'a [u8] {
        let at = place(&format!("{}.{name}", self.of));
        &self.bytes[at..at + length]
    }
}

/// A struct of C's being written.
pub(crate) struct FieldsMut<'a> {
    pub(crate) of: &'static str,
    pub(crate) bytes: &'a mut [u8],
}

impl FieldsMut<'_> {
    pub(crate) fn set(&mut self, name: &str, value: &[u8]) {
        let at = place(&format!("{}.{name}", self.of));
        self.bytes[at..at + value.len()].copy_from_slice(value);
    }
}
