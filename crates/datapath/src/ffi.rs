//! The border to `datapath/native.h`: all of this crate's `unsafe`.
//!
//! The layouts repeat those of native.h by hand; `tests/layout.rs` compares every size and number
//! with what C says.

use crate::{RouteBucket, RouteRange, Routes};
use std::ffi::{CStr, c_char};
use std::marker::PhantomData;
use std::ptr::{self, NonNull};
use switchback_wire::{Address, CACHED_VALUE_BYTES_MAX, KeyHash, PACKET_BYTES_MAX, Place};

pub(crate) const CLASSES_MAX: usize = 4;

#[repr(C)]
#[derive(Default)]
pub(crate) struct Config {
    pub(crate) features: u64,
    pub(crate) sampling: u64,
    pub(crate) class_count: u32,
    pub(crate) value_bytes: [u32; CLASSES_MAX],
    pub(crate) slots: [u32; CLASSES_MAX],
    pub(crate) lanes: u32,
    pub(crate) partitions: u32,
    pub(crate) nodes: u32,
    pub(crate) sketch_width: u32,
    pub(crate) threshold: u32,
    pub(crate) reports: u32,
    pub(crate) reserved: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct RawVerdict {
    pub(crate) kind: u8,
    pub(crate) reason: u8,
    pub(crate) count: u8,
    pub(crate) reserved: u8,
    pub(crate) nodes: [u16; 4],
    pub(crate) length: u32,
}

/// A packet for C.
#[repr(C)]
pub(crate) struct Item<'a> {
    bytes: *mut u8,
    from: *const Address,
    length: u32,
    random: u32,
    borrowed: PhantomData<(&'a mut Buffer, &'a Address)>,
}

impl<'a> Item<'a> {
    /// `length` is at most the buffer's.
    #[inline]
    pub(crate) fn new(
        bytes: &'a mut Buffer,
        length: usize,
        from: &'a Address,
        random: u32,
    ) -> Item<'a> {
        let (bytes, length) = (bytes.as_mut_ptr(), length as u32);
        Item { bytes, from, length, random, borrowed: PhantomData }
    }

    /// No packet; not to be processed.
    pub(crate) const fn none() -> Item<'a> {
        Item {
            bytes: ptr::null_mut(),
            from: ptr::null(),
            length: 0,
            random: 0,
            borrowed: PhantomData,
        }
    }
}

#[repr(C)]
#[derive(Clone)]
pub(crate) struct RecordImage {
    pub(crate) seq: u64,
    pub(crate) adm: u64,
    pub(crate) expiry_ms: u64,
    pub(crate) incarnation: u64,
    pub(crate) hash_high: u64,
    pub(crate) hash_low: u64,
    pub(crate) generation: u32,
    pub(crate) counter: u32,
    pub(crate) value_bytes: u16,
    pub(crate) key_bytes: u16,
    pub(crate) state: u8,
    pub(crate) reserved: [u8; 3],
    pub(crate) key: [u8; 128],
    pub(crate) value: [u8; CACHED_VALUE_BYTES_MAX],
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct LaneImage {
    pub(crate) request: u64,
    pub(crate) seq: u64,
    pub(crate) state: u8,
    pub(crate) status: u8,
    pub(crate) flags: u16,
    pub(crate) locked: u8,
    pub(crate) reserved: [u8; 3],
    pub(crate) epoch: u32,
    pub(crate) padding: u32,
}

/// `struct chain_place`: the bytes of [`Place::encode`], aligned as C has them.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
pub(crate) struct ChainPlace(pub(crate) [u8; Place::BYTES]);

impl Default for ChainPlace {
    fn default() -> ChainPlace {
        ChainPlace(Place::sole().encode())
    }
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct RegistersImage {
    pub(crate) epoch: u32,
    pub(crate) generation: u32,
    pub(crate) durable_generation: u32,
    pub(crate) snapshot_active: u32,
    pub(crate) place: ChainPlace,
}

#[repr(C)]
struct Number {
    name: *const c_char,
    number: u64,
}

#[repr(C)]
struct Opaque {
    _private: [u8; 0],
}

unsafe extern "C" {
    fn switchback_new(config: *const Config) -> *mut Opaque;
    fn switchback_free(handle: *mut Opaque);
    fn switchback_process(
        handle: *mut Opaque,
        items: *const Item<'_>,
        verdicts: *mut RawVerdict,
        count: u32,
        now_ms: u64,
        shard: u32,
    );
    fn switchback_inject(
        handle: *mut Opaque,
        bytes: *mut u8,
        length: u32,
        verdict: *mut RawVerdict,
    );
    fn switchback_lookup_insert(
        handle: *mut Opaque,
        hash_high: u64,
        hash_low: u64,
        location: u32,
    ) -> u32;
    fn switchback_lookup_remove(
        handle: *mut Opaque,
        hash_high: u64,
        hash_low: u64,
        location: u32,
    ) -> bool;
    fn switchback_set_routes(
        handle: *mut Opaque,
        buckets: *const RouteBucket,
        ranges: *const RouteRange,
        range_count: u32,
    );
    fn switchback_set_node(handle: *mut Opaque, node: u32, address: *const Address);
    fn switchback_set_place(handle: *mut Opaque, place: *const ChainPlace);
    fn switchback_neighbour(handle: *mut Opaque, is_before: bool, address: *mut Address);
    fn switchback_set_lanes(handle: *mut Opaque, granted: u32);
    fn switchback_set_counting(
        handle: *mut Opaque,
        sampling: u64,
        threshold: u32,
        offers: u32,
    ) -> u32;
    fn switchback_clear(handle: *mut Opaque);
    fn switchback_sequence_used(handle: *mut Opaque) -> u32;
    fn switchback_heard(handle: *mut Opaque, heard: *mut [u32; 4]);
    fn switchback_next_report(handle: *mut Opaque, bytes: *mut u8) -> u32;
    fn switchback_statistics(handle: *mut Opaque, sums: *mut u64);
    fn switchback_statistic(handle: *mut Opaque, index: u32) -> u64;
    fn switchback_statistic_name(index: u32) -> *const c_char;
    fn switchback_peek_record(handle: *mut Opaque, location: u32, image: *mut RecordImage) -> bool;
    fn switchback_poke_record(
        handle: *mut Opaque,
        location: u32,
        image: *const RecordImage,
    ) -> bool;
    fn switchback_peek_lane(handle: *mut Opaque, lane: u32, image: *mut LaneImage) -> bool;
    fn switchback_poke_lane(handle: *mut Opaque, lane: u32, image: *const LaneImage) -> bool;
    fn switchback_peek_registers(handle: *mut Opaque, image: *mut RegistersImage);
    fn switchback_poke_registers(handle: *mut Opaque, image: *const RegistersImage);
    fn switchback_peek_sequence(handle: *mut Opaque, hash_low: u64) -> u64;
    fn switchback_poke_sequence(handle: *mut Opaque, hash_low: u64, counter: u64);
    fn switchback_poke_sketch(handle: *mut Opaque, hash_high: u64, hash_low: u64, estimate: u32);
    fn switchback_layout(length: *mut u32) -> *const Number;
}

/// An instance of the pipeline. Methods that say so need a caller that lets in one thread at a
/// time.
pub(crate) struct Handle(NonNull<Opaque>);

// SAFETY: the instance holds no thread-local state; everything in it is reached by atomics, under
// its own locks, or by the one writer that native.h asks for and the callers in this crate ensure
// with a mutex.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

type Buffer = [u8; PACKET_BYTES_MAX];

impl Handle {
    pub(crate) fn new(config: &Config) -> Option<Handle> {
        assert_eq!(crate::statistics::COUNT, statistic_names().len());
        // SAFETY: reads the configuration during the call; NULL says that it failed.
        NonNull::new(unsafe { switchback_new(config) }).map(Handle)
    }

    /// `shard` is below 16 and used by one thread at a time.
    #[inline]
    pub(crate) fn process(
        &self,
        items: &[Item<'_>],
        verdicts: &mut [RawVerdict],
        now_ms: u64,
        shard: u32,
    ) {
        assert_eq!(items.len(), verdicts.len());
        // SAFETY: each item borrows a buffer of PACKET_BYTES_MAX bytes, as native.h asks, and an
        // address, for longer than the call; C keeps neither.
        unsafe {
            let (from, to, count) = (items.as_ptr(), verdicts.as_mut_ptr(), items.len() as u32);
            switchback_process(self.0.as_ptr(), from, to, count, now_ms, shard);
        }
    }

    pub(crate) fn inject(&self, bytes: &mut Buffer, length: usize) -> RawVerdict {
        let mut verdict = RawVerdict::default();
        // SAFETY: the buffer has PACKET_BYTES_MAX bytes, as native.h asks; the pointers live as
        // long as the call.
        unsafe {
            switchback_inject(self.0.as_ptr(), bytes.as_mut_ptr(), length as u32, &mut verdict)
        }
        verdict
    }

    /// One thread at a time.
    pub(crate) fn lookup_insert(&self, hash: &KeyHash, location: u32) -> u32 {
        // SAFETY: plain values; the caller lets in one writer.
        unsafe { switchback_lookup_insert(self.0.as_ptr(), hash.position(), hash.low(), location) }
    }

    /// One thread at a time.
    pub(crate) fn lookup_remove(&self, hash: &KeyHash, location: u32) -> bool {
        // SAFETY: plain values; the caller lets in one writer.
        unsafe { switchback_lookup_remove(self.0.as_ptr(), hash.position(), hash.low(), location) }
    }

    /// One thread at a time; made for this datapath's configuration.
    pub(crate) fn set_routes(&self, Routes { buckets, ranges }: &Routes) {
        let (from, count) = (ranges.as_ptr(), ranges.len() as u32);
        // SAFETY: C reads `count` ranges and a bucket for each partition there is room for, during
        // the call.
        unsafe { switchback_set_routes(self.0.as_ptr(), buckets.as_ptr(), from, count) }
    }

    /// One thread at a time; the node exists.
    pub(crate) fn set_node(&self, node: u16, address: &Address) {
        // SAFETY: reads the address during the call; C aborts if the node doesn't exist.
        unsafe { switchback_set_node(self.0.as_ptr(), node.into(), address) }
    }

    /// One thread at a time; a place that the scheme's switches can have.
    pub(crate) fn set_place(&self, place: &Place) {
        let place = ChainPlace(place.encode());
        // SAFETY: C reads the place during the call, and aborts if it makes no sense.
        unsafe { switchback_set_place(self.0.as_ptr(), &place) }
    }

    /// The switch before, or after, in the chain.
    pub(crate) fn neighbour(&self, is_before: bool) -> Address {
        let mut address = Address::default();
        // SAFETY: C writes an address during the call.
        unsafe { switchback_neighbour(self.0.as_ptr(), is_before, &mut address) }
        address
    }

    pub(crate) fn set_lanes(&self, granted: u32) {
        // SAFETY: plain values; C aborts if there are fewer.
        unsafe { switchback_set_lanes(self.0.as_ptr(), granted) }
    }

    pub(crate) fn set_counting(&self, sampling: u64, threshold: u32, offers: u32) -> u32 {
        // SAFETY: plain values.
        unsafe { switchback_set_counting(self.0.as_ptr(), sampling, threshold, offers) }
    }

    /// One thread at a time.
    pub(crate) fn clear(&self) {
        // SAFETY: the caller lets in one writer.
        unsafe { switchback_clear(self.0.as_ptr()) }
    }

    pub(crate) fn next_report(&self, bytes: &mut Buffer) -> usize {
        // SAFETY: the buffer has PACKET_BYTES_MAX bytes.
        unsafe { switchback_next_report(self.0.as_ptr(), bytes.as_mut_ptr()) as usize }
    }

    pub(crate) fn statistics(&self) -> [u64; crate::statistics::COUNT] {
        let mut sums = [0; crate::statistics::COUNT];
        // SAFETY: C writes one number for each name; `new` has checked that there is room for them.
        unsafe { switchback_statistics(self.0.as_ptr(), sums.as_mut_ptr()) }
        sums
    }

    pub(crate) fn sequence_used(&self) -> u32 {
        // SAFETY: the handle is valid.
        unsafe { switchback_sequence_used(self.0.as_ptr()) }
    }

    /// Probes of the switch before, short and full, then of the one after.
    pub(crate) fn heard(&self) -> [u32; 4] {
        let mut heard = [0; 4];
        // SAFETY: C writes four numbers during the call.
        unsafe { switchback_heard(self.0.as_ptr(), &mut heard) }
        heard
    }

    pub(crate) fn statistic(&self, index: usize) -> u64 {
        assert!(index < crate::statistics::COUNT);
        // SAFETY: there is a number of this index, as checked above.
        unsafe { switchback_statistic(self.0.as_ptr(), index as u32) }
    }

    pub(crate) fn peek_record(&self, location: u32) -> Option<RecordImage> {
        let mut image = RecordImage {
            seq: 0,
            adm: 0,
            expiry_ms: 0,
            incarnation: 0,
            hash_high: 0,
            hash_low: 0,
            generation: 0,
            counter: 0,
            value_bytes: 0,
            key_bytes: 0,
            state: 0,
            reserved: [0; 3],
            key: [0; 128],
            value: [0; CACHED_VALUE_BYTES_MAX],
        };
        // SAFETY: C writes into the image, during the call.
        unsafe { switchback_peek_record(self.0.as_ptr(), location, &mut image) }.then_some(image)
    }

    pub(crate) fn poke_record(&self, location: u32, image: &RecordImage) -> bool {
        // SAFETY: C reads the image during the call and checks its lengths.
        unsafe { switchback_poke_record(self.0.as_ptr(), location, image) }
    }

    pub(crate) fn peek_lane(&self, lane: u32) -> Option<LaneImage> {
        let mut image = LaneImage::default();
        // SAFETY: C writes into the image, during the call.
        unsafe { switchback_peek_lane(self.0.as_ptr(), lane, &mut image) }.then_some(image)
    }

    pub(crate) fn poke_lane(&self, lane: u32, image: &LaneImage) -> bool {
        // SAFETY: C reads the image during the call.
        unsafe { switchback_poke_lane(self.0.as_ptr(), lane, image) }
    }

    pub(crate) fn peek_registers(&self) -> RegistersImage {
        let mut image = RegistersImage::default();
        // SAFETY: C writes into the image, during the call.
        unsafe { switchback_peek_registers(self.0.as_ptr(), &mut image) }
        image
    }

    pub(crate) fn poke_registers(&self, image: &RegistersImage) {
        // SAFETY: C reads the image during the call.
        unsafe { switchback_poke_registers(self.0.as_ptr(), image) }
    }

    pub(crate) fn peek_sequence(&self, hash: &KeyHash) -> u64 {
        // SAFETY: plain values.
        unsafe { switchback_peek_sequence(self.0.as_ptr(), hash.low()) }
    }

    pub(crate) fn poke_sequence(&self, hash: &KeyHash, counter: u64) {
        // SAFETY: plain values.
        unsafe { switchback_poke_sequence(self.0.as_ptr(), hash.low(), counter) }
    }

    pub(crate) fn poke_sketch(&self, hash: &KeyHash, estimate: u32) {
        // SAFETY: plain values.
        unsafe { switchback_poke_sketch(self.0.as_ptr(), hash.position(), hash.low(), estimate) }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: made by switchback_new, and this was its only owner.
        unsafe { switchback_free(self.0.as_ptr()) }
    }
}

/// Names of the counters and drop reasons, in C's order.
pub(crate) fn statistic_names() -> Vec<&'static str> {
    let mut names = Vec::new();
    loop {
        // SAFETY: C returns NULL beyond the last, and static, ASCII, NUL-terminated strings before.
        let name = unsafe {
            let name = switchback_statistic_name(names.len() as u32);
            if name.is_null() {
                return names;
            }
            CStr::from_ptr(name)
        };
        names.push(name.to_str().expect("identifiers of C"));
    }
}

/// Names and numbers of the C headers.
pub(crate) fn layout() -> Vec<(&'static str, u64)> {
    let mut length = 0;
    // SAFETY: C returns a static array of `length` entries, whose names are static strings.
    let numbers =
        unsafe { std::slice::from_raw_parts(switchback_layout(&mut length), length as usize) };
    let entry = |number: &Number| {
        // SAFETY: as above.
        let name = unsafe { CStr::from_ptr(number.name) };
        (name.to_str().expect("identifiers of C"), number.number)
    };
    numbers.iter().map(entry).collect()
}

/// Sizes of the structs of this file, by their names in C.
pub(crate) const SIZES: &[(&str, usize)] = &[
    ("size.address", size_of::<Address>()),
    ("size.chain_place", size_of::<ChainPlace>()),
    ("size.range", size_of::<RouteRange>()),
    ("size.route_bucket", size_of::<RouteBucket>()),
    ("size.switchback_config", size_of::<Config>()),
    ("size.switchback_verdict", size_of::<RawVerdict>()),
    ("size.switchback_item", size_of::<Item<'_>>()),
    ("size.switchback_record_image", size_of::<RecordImage>()),
    ("size.switchback_lane_image", size_of::<LaneImage>()),
    ("size.switchback_registers_image", size_of::<RegistersImage>()),
    ("size.switchback_number", size_of::<Number>()),
];
