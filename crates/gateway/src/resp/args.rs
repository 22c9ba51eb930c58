//! A command's arguments: ranges of the buffer that they arrived in.

/// Where an argument is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Range {
    from: u32,
    to: u32,
}

impl Range {
    /// From byte `from` to before byte `to`. Input buffers are limited far below 4 GiB.
    pub fn new(from: usize, to: usize) -> Range {
        let narrow = |at: usize| u32::try_from(at).expect("buffers are shorter than 4 GiB");
        Range { from: narrow(from), to: narrow(to) }
    }

    /// First byte.
    pub fn from(self) -> usize {
        self.from as usize
    }

    /// Byte after the last.
    pub fn to(self) -> usize {
        self.to as usize
    }
}

/// The arguments of a command, its name included.
#[derive(Clone, Copy, Debug)]
pub struct Args<'a> {
    bytes: &'a [u8],
    ranges: &'a [Range],
}

impl<'a> Args<'a> {
    /// Arguments at `ranges` of `bytes`.
    #[inline]
    pub fn new(bytes: &'a [u8], ranges: &'a [Range]) -> Args<'a> {
        Args { bytes, ranges }
    }

    /// How many.
    #[inline]
    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Argument `at`, which must be there.
    #[inline]
    pub fn get(&self, at: usize) -> &'a [u8] {
        &self.bytes[self.ranges[at].from()..self.ranges[at].to()]
    }

    /// All from `first` on.
    pub fn from(self, first: usize) -> impl ExactSizeIterator<Item = &'a [u8]> {
        self.ranges[first..].iter().map(move |range| &self.bytes[range.from()..range.to()])
    }

    /// Their length in bytes together.
    pub fn bytes(&self) -> usize {
        self.ranges.iter().map(|range| range.to() - range.from()).sum()
    }
}
