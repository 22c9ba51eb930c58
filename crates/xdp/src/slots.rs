//! Where slots are in the map `chunks` of tables_bpf.h: a record, and its value behind it.

use crate::layout::place;
use switchback_datapath::Config;

/// Size classes that the pipeline has room for.
pub(crate) const CLASSES: usize = 4;
/// What the kernel allows an array's element to have, in any version.
const CHUNK_BYTES_MAX: u64 = 1 << 21;
const CACHE_LINE: u32 = 64;
/// A slot may be looked at as if its value were as long as `VALUE_BOUND` of tables_bpf.h, and a
/// little more.
const BEHIND_BYTES: u64 = 2048 + CACHE_LINE as u64;

/// The chunks of a configuration. Each has the same number of a class's slots, a power of two
/// unless there is one chunk.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Chunks {
    pub(crate) shift: [u32; CLASSES],
    pub(crate) base: [u32; CLASSES],
    pub(crate) slot_bytes: [u32; CLASSES],
    pub(crate) bytes: u32,
    pub(crate) count: u32,
}

impl Chunks {
    pub(crate) fn new(config: &Config) -> Chunks {
        (0..32)
            .map(|halvings| Chunks::halved(config, halvings))
            .find_map(|chunks| chunks)
            .unwrap_or_default()
    }

    /// With a 2^`halvings`th of each class in a chunk; none if that is too long.
    fn halved(config: &Config, halvings: u32) -> Option<Chunks> {
        let (mut chunks, mut bytes) = (Chunks { count: 1, ..Chunks::default() }, 0u64);
        for (i, class) in config.classes.iter().enumerate() {
            chunks.shift[i] =
                class.slots.div_ceil(1 << halvings).next_power_of_two().trailing_zeros();
            chunks.slot_bytes[i] =
                (place("size.record") as u32 + class.value_bytes).next_multiple_of(CACHE_LINE);
            chunks.base[i] = u32::try_from(bytes).ok()?;
            chunks.count = chunks.count.max(class.slots.div_ceil(1 << chunks.shift[i]));
            let slots = class.slots.min(1 << chunks.shift[i]);
            bytes += u64::from(slots) * u64::from(chunks.slot_bytes[i]);
        }
        bytes += BEHIND_BYTES;
        chunks.bytes = u32::try_from(bytes).ok()?;
        (bytes <= CHUNK_BYTES_MAX).then_some(chunks)
    }

    /// Where a slot begins.
    pub(crate) fn place(&self, class: usize, slot: u32) -> usize {
        let (chunk, index) = (slot >> self.shift[class], slot & ((1 << self.shift[class]) - 1));
        chunk as usize * self.bytes as usize
            + self.base[class] as usize
            + index as usize * self.slot_bytes[class] as usize
    }

    /// Bytes of all chunks.
    pub(crate) fn length(&self) -> usize {
        self.count as usize * self.bytes as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use switchback_datapath::ClassConfig;

    fn chunks(classes: &[(u32, u32)]) -> (Chunks, Vec<usize>) {
        let classes: Vec<_> = classes
            .iter()
            .map(|(value_bytes, slots)| ClassConfig { value_bytes: *value_bytes, slots: *slots })
            .collect();
        let chunks = Chunks::new(&Config { classes: classes.clone(), ..Config::default() });
        let mut places: Vec<_> = classes
            .iter()
            .enumerate()
            .flat_map(|(class, of)| (0..of.slots).map(move |slot| (class, slot)))
            .map(|(class, slot)| (chunks.place(class, slot), chunks.slot_bytes[class] as usize))
            .collect();
        places.sort_unstable();
        for pair in places.windows(2) {
            assert!(pair[0].0 + pair[0].1 <= pair[1].0, "two slots overlap: {pair:?}");
        }
        for (place, _) in &places {
            let in_chunk = place % chunks.bytes as usize;
            assert!(
                in_chunk + place_max() <= chunks.bytes as usize,
                "a slot is too near a chunk's end: {place}"
            );
            assert_eq!(place % CACHE_LINE as usize, 0);
            assert!(place + place_max() <= chunks.length());
        }
        (chunks, places.into_iter().map(|(place, _)| place).collect())
    }

    fn place_max() -> usize {
        place("size.record") + BEHIND_BYTES as usize
    }

    #[test]
    fn slots_of_all_classes_have_places_of_their_own() {
        let (one, _) = chunks(&[(128, 1000)]);
        assert_eq!((one.count, one.bytes), (1, 1000 * 320 + 2112));
        let (many, _) = chunks(&[(128, 1 << 16)]);
        assert_eq!((many.count, many.shift[0]), (16, 12));
        let (uneven, places) = chunks(&[(16, 1), (128, 70_000), (1000, 3), (1168, 20_001)]);
        assert!(uneven.bytes <= 1 << 21 && uneven.length() < 2 * places.len() * 1408);
        assert_eq!(chunks(&[(8, 1)]).0.count, 1);
    }

    #[test]
    fn many_slots_fit() {
        let class = ClassConfig { value_bytes: 1168, slots: 1 << 20 };
        let chunks = Chunks::new(&Config { classes: vec![class], ..Config::default() });
        assert!(chunks.count > 512 && chunks.length() >= (1 << 20) * 1408);
        assert!(chunks.length() < (1 << 20) * 1412);
    }
}
