//! What a datapath is made of: the scheme, the sizes of its tables.

use crate::{Error, TableError, ffi};
use switchback_wire::{CACHED_VALUE_BYTES_MAX, LAYERS_MAX, Place, Scheme};

/// Whether mechanisms can be left out in this build: not in the product.
pub const ABLATIONS: bool = cfg!(feature = "ablations");

macro_rules! features {
    ($($(#[$doc:meta])* $constant:ident $name:literal = $bit:literal,)*) => {
        impl Features {
            $($(#[$doc])* pub const $constant: Features = Features(1 << $bit);)*
            /// All bits and their names.
            pub const ALL: &'static [(&'static str, Features)] =
                &[$(($name, Features::$constant),)*];
        }
    };
}

/// Which scheme runs and which of its mechanisms: the mask of `datapath/call.h`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Features(pub u64);

features! {
    /// Look keys up at all.
    CACHE "cache" = 0,
    /// Absorb writes (FarReach).
    WRITE_BACK "write-back" = 1,
    /// Invalidate on write, take the node's update (NetCache).
    WRITE_THROUGH "write-through" = 2,
    /// Reads of an outdated dirty record under eviction carry it.
    EMBEDDING "embedding" = 3,
    /// Only what is newer is stored.
    SEQ_COMPARE "seq-compare" = 4,
    /// A record serves only after SET_VALID.
    VALIDITY "validity" = 5,
    /// A record that may be older than the node's doesn't answer.
    OUTDATED "outdated" = 6,
    /// Promotion by fenced reads.
    FENCE "fence" = 7,
    /// Control packets name the incarnation they mean.
    INCARNATION_CHECK "incarnation-check" = 8,
    /// Originals are reported before they are overwritten, while a snapshot is taken.
    SNAPSHOT_COW "snapshot-cow" = 9,
    /// Writes run at most once.
    COMPLETION "completion" = 10,
    /// Other epochs' packets are refused.
    EPOCH_FENCE "epoch-fence" = 11,
    /// A retry of a forwarded write goes on with its seq.
    RETRY_OLD_SEQ "retry-old-seq" = 12,
    /// A forwarded conditional write keeps older answers from promoting.
    CONDITION_ADM "condition-adm" = 13,
    /// A conditional write waits for the end of an eviction.
    CONDITION_WAIT "condition-wait" = 14,
    /// What can't report its original doesn't change.
    REPORT_FIRST "report-first" = 15,
    /// Chains may have several switches.
    LAYERS "layers" = 16,
    /// A chain's switches take packets of their neighbours only.
    NEIGHBOUR "neighbour" = 17,
    /// Keepers keep what the owner tells.
    KEEPING "keeping" = 18,
    /// Of it, what readers are told.
    READER_KEEPING "reader-keeping" = 19,
    /// And what conditions are refused by.
    REFUSAL_KEEPING "refusal-keeping" = 20,
    /// An answer from a lane is kept again.
    REPEAT_KEPT "repeat-kept" = 21,
    /// But not once a node has the record.
    REPEAT_LOOKUP "repeat-lookup" = 22,
    /// A write that was overwritten before it was stored is kept.
    SUPERSEDED_KEPT "superseded-kept" = 23,
    /// A keeper replaces what is older only.
    KEEP_NEWER "keep-newer" = 24,
    /// What a keeper can't keep it doesn't pass.
    KEEP_OR_DROP "keep-or-drop" = 25,
    /// The owner answers through its keepers.
    KEPT_FIRST "kept-first" = 26,
    /// A keeper answers nothing by itself.
    KEEPER_SILENCE "keeper-silence" = 27,
    /// Records and completions of another epoch don't count.
    RECORD_EPOCH "record-epoch" = 28,
    /// Clean is the version that a node has, no later one.
    CLEAN_COMPARE "clean-compare" = 29,
    /// Records are copies, which nodes fill and invalidate (DistCache).
    COPIES "copies" = 30,
}

impl Features {
    /// No bits.
    pub const NONE: Features = Features(0);

    const MECHANISMS: u64 = (1 << 30) - (1 << 3) - Features::LAYERS.0;

    /// What a scheme needs, with every mechanism. Without a cache every lookup misses; one whose
    /// switches keep nothing needs [`Features::LAYERS`] only where there are several.
    pub const fn of(scheme: Scheme) -> Features {
        let mut bits = Features::MECHANISMS;
        if scheme.caches() {
            bits |= Features::CACHE.0;
        }
        if scheme.absorbs_writes() {
            bits |= Features::WRITE_BACK.0;
        }
        if scheme.refreshes() {
            bits |= Features::WRITE_THROUGH.0;
        }
        if scheme.keeps_in_switches() {
            bits |= Features::LAYERS.0;
        }
        if scheme.has_copies() {
            bits |= Features::COPIES.0;
        }
        Features(bits)
    }

    /// The mask without these bits: an ablation. Only where the crate has its feature `ablations`
    /// can mechanisms be left out; elsewhere they are on whatever the mask says.
    pub const fn without(self, bits: Features) -> Features {
        Features(self.0 & !bits.0)
    }

    /// The mask with these bits.
    pub const fn with(self, bits: Features) -> Features {
        Features(self.0 | bits.0)
    }

    /// Whether all these bits are set.
    pub const fn has(self, bits: Features) -> bool {
        self.0 & bits.0 == bits.0
    }

    /// The bit (`"embedding"`) or the scheme (`"farreach"`) of this name.
    pub fn by_name(name: &str) -> Option<Features> {
        let scheme = || name.parse().ok().map(Features::of);
        Features::ALL
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, bits)| *bits)
            .or_else(scheme)
    }
}

/// Slots of one size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClassConfig {
    /// Longest value of a slot, to [`CACHED_VALUE_BYTES_MAX`].
    pub value_bytes: u32,
    /// How many.
    pub slots: u32,
}

/// Configuration of a [`crate::Datapath`].
#[derive(Clone, PartialEq, Debug)]
pub struct Config {
    /// The scheme and its mechanisms.
    pub features: Features,
    /// Up to four size classes.
    pub classes: Vec<ClassConfig>,
    /// Lanes there is room for. All are granted until [`crate::Datapath::set_lanes`].
    pub lanes: u32,
    /// Partitions there is room for: a power of two, to 65,536. As many equal ones are found in one
    /// step.
    pub partitions: u32,
    /// Nodes have the indices below this.
    pub nodes: u16,
    /// Counters in each of the four rows of the sketch: a power of two.
    pub sketch_width: u32,
    /// Share of the packets that are counted, 0 to 1, until [`crate::Datapath::set_counting`].
    pub sampling: f64,
    /// Estimate from which on a key counts as hot, until then.
    pub threshold: u32,
    /// Reports that wait for the agent at most; rounded up to a power of two.
    pub reports: u32,
}

impl Default for Config {
    fn default() -> Config {
        let class = |value_bytes| ClassConfig { value_bytes, slots: 8192 };
        Config {
            features: Features::of(Scheme::FarReach),
            classes: [128, 256, 512, CACHED_VALUE_BYTES_MAX as u32].map(class).to_vec(),
            lanes: 1 << 16,
            partitions: 1 << 12,
            nodes: 1 << 10,
            sketch_width: 1 << 16,
            sampling: 0.5,
            threshold: 20,
            reports: 1 << 12,
        }
    }
}

impl Config {
    /// Says what is wrong, if anything.
    pub fn check(&self) -> Result<(), Error> {
        self.to_c().map(|_| ())
    }

    /// A share of the packets, 0 to 1, as the pipeline has it: of 2^32.
    pub fn sampled(share: f64) -> u64 {
        (share.clamp(0.0, 1.0) * f64::from(1u32 << 31) * 2.0) as u64
    }

    /// Whether a switch of this scheme can have the place.
    ///
    /// # Errors
    /// One without its neighbours, or of several switches where the scheme has one layer.
    pub fn check_place(&self, place: &Place) -> Result<(), TableError> {
        let layers_max = match self.features {
            features if features.has(Features::LAYERS) => LAYERS_MAX,
            features if features.has(Features::COPIES) => 2,
            _ => 1,
        };
        let is_possible = place.is_sound() && place.length <= layers_max;
        if is_possible { Ok(()) } else { Err(TableError::Place) }
    }

    /// The C form, or what is wrong.
    pub(crate) fn to_c(&self) -> Result<ffi::Config, Error> {
        let refuse = |what| Err(Error::Config(what));
        if self.classes.len() > ffi::CLASSES_MAX {
            return refuse("more than four size classes");
        }
        for class in &self.classes {
            if class.value_bytes == 0 || class.value_bytes as usize > CACHED_VALUE_BYTES_MAX {
                return refuse("a class's values have 1 to 1168 bytes");
            }
            if class.slots == 0 || class.slots >= (1 << 30) - 1 {
                return refuse("a class has 1 to 2^30 - 2 slots");
            }
        }
        if self.lanes == 0 {
            return refuse("no lanes");
        }
        if !self.partitions.is_power_of_two() || self.partitions > 1 << 16 {
            return refuse("partitions are a power of two, to 65536");
        }
        if self.nodes == 0 || self.nodes == u16::MAX {
            return refuse("1 to 65534 nodes");
        }
        if !self.sketch_width.is_power_of_two() {
            return refuse("the sketch's width is a power of two");
        }
        if !(0.0..=1.0).contains(&self.sampling) {
            return refuse("sampling is a share, 0 to 1");
        }
        if self.reports == 0 || self.reports > 1 << 20 {
            return refuse("1 to 2^20 reports");
        }
        let mut c = ffi::Config {
            features: self.features.0,
            sampling: Config::sampled(self.sampling),
            class_count: self.classes.len() as u32,
            lanes: self.lanes,
            partitions: self.partitions,
            nodes: self.nodes.into(),
            sketch_width: self.sketch_width,
            threshold: self.threshold,
            reports: self.reports,
            ..ffi::Config::default()
        };
        for (i, class) in self.classes.iter().enumerate() {
            c.value_bytes[i] = class.value_bytes;
            c.slots[i] = class.slots;
        }
        Ok(c)
    }
}
