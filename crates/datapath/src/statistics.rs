//! What the pipeline counts, in the order of `datapath/call.h`.

use std::fmt;
use std::iter::Sum;

macro_rules! drop_reasons {
    ($($(#[$doc:meta])* $variant:ident $name:literal,)*) => {
        /// Why a packet was dropped.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum DropReason { $($(#[$doc])* $variant,)* }

        impl DropReason {
            /// All of them; the index is the number.
            pub const ALL: &'static [DropReason] = &[$(DropReason::$variant,)*];

            /// Its name, as vectors and metrics have it.
            pub const fn name(self) -> &'static str {
                match self { $(DropReason::$variant => $name,)* }
            }
        }
    };
}

drop_reasons! {
    /// Never: the number 0 is kept free.
    None "none",
    /// Not even a header.
    Short "short",
    /// Not a Switchback packet.
    Magic "magic",
    /// Another version.
    Version "version",
    /// Unknown, or not one that a switch takes.
    Operation "operation",
    /// Lengths don't add up.
    Length "length",
    /// The key is empty or too long.
    Key "key",
    /// A control operation from the wire, or one that makes no sense.
    Control "control",
    /// Only a node may say this.
    Sender "sender",
    /// Another epoch, or none yet.
    Epoch "epoch",
    /// The partition has no node.
    Route "route",
    /// The lane isn't granted.
    Lane "lane",
    /// A packet of the lane is being processed.
    Busy "busy",
    /// The lane is at a later request.
    OldRequest "old_request",
    /// The lane doesn't wait for this answer.
    NotPending "not_pending",
    /// A record stayed locked.
    Contended "contended",
    /// The epoch's sequence numbers are used up.
    SeqExhausted "seq_exhausted",
    /// A conditional write has to wait for an eviction.
    Evicting "evicting",
    /// The frame can't grow.
    Room "room",
    /// No room for the report that has to come before the change.
    Unreported "unreported",
    /// It has passed as many switches as it may.
    Ttl "ttl",
    /// In a chain, not from the switch that may send it.
    Neighbour "neighbour",
    /// A keeper has no place for what it must keep.
    Unkept "unkept",
}

impl DropReason {
    #[inline]
    /// The reason of this number; [`DropReason::None`] if there is none.
    pub fn from_number(number: u8) -> DropReason {
        DropReason::ALL.get(usize::from(number)).copied().unwrap_or(DropReason::None)
    }
}

impl fmt::Display for DropReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

macro_rules! statistics {
    ($($(#[$doc:meta])* $field:ident,)*) => {
        /// Counters, summed over the shards. They only rise; those of several switches add up.
        #[derive(Clone, PartialEq, Eq, Debug, Default)]
        pub struct Statistics {
            $($(#[$doc])* pub $field: u64,)*
            /// Dropped packets, by [`DropReason`].
            pub drops: [u64; DropReason::ALL.len()],
        }

        const COUNTERS: &[&str] = &[$(stringify!($field),)*];

        /// The counters' places in C's order.
        #[allow(non_upper_case_globals)]
        pub(crate) mod place {
            #[allow(non_camel_case_types, dead_code)]
            enum Order { $($field,)* }
            $(#[allow(dead_code)] pub(crate) const $field: usize = Order::$field as usize;)*
        }

        /// How many numbers there are.
        pub const COUNT: usize = COUNTERS.len() + DropReason::ALL.len();

        impl Statistics {
            /// From numbers in C's order.
            pub fn from_numbers(numbers: &[u64; COUNT]) -> Statistics {
                let (counters, reasons) = numbers.split_at(COUNTERS.len());
                let mut counters = counters.iter().copied();
                let mut next = || counters.next().unwrap_or(0);
                let mut drops = [0; DropReason::ALL.len()];
                drops.copy_from_slice(reasons);
                Statistics { $($field: next(),)* drops }
            }

            fn add(mut self, other: &Statistics) -> Statistics {
                $(self.$field += other.$field;)*
                for (drops, of_other) in self.drops.iter_mut().zip(&other.drops) {
                    *drops += of_other;
                }
                self
            }

            /// All counters by name; those of drops are called `drop_` and the reason.
            pub fn iter(&self) -> impl Iterator<Item = (String, u64)> {
                let counters = [$((stringify!($field), self.$field),)*];
                let named =
                    |(reason, count): (&DropReason, &u64)| (format!("drop_{reason}"), *count);
                let drops: Vec<_> =
                    DropReason::ALL.iter().zip(&self.drops).skip(1).map(named).collect();
                counters.into_iter().map(|(name, count)| (name.to_owned(), count)).chain(drops)
            }
        }
    };
}

statistics! {
    /// Requests taken.
    read,
    /// Requests taken.
    write,
    /// Requests taken.
    delete,
    /// Requests taken.
    fragment,
    /// Requests taken.
    read_fragment,
    /// Requests taken.
    scan,
    /// Answers of nodes.
    read_reply,
    /// Answers of nodes.
    write_reply,
    /// Answers of nodes.
    fragment_reply,
    /// Answers of nodes.
    read_fragment_reply,
    /// Answers of nodes.
    scan_reply,
    /// Bounces of nodes.
    bounce,
    /// NetCache and DistCache: updates of nodes.
    cache_update,
    /// DistCache: copies that nodes invalidate.
    invalidate,
    /// Probes of neighbours in the chain.
    probe,
    /// Control packets.
    control,
    /// Reads that found a valid record.
    read_hits,
    /// Reads that didn't.
    read_misses,
    /// New writes that found a valid record.
    write_hits,
    /// New writes that didn't.
    write_misses,
    /// Conservative reads: forwarded with a fence.
    fenced_reads,
    /// Reads forwarded with the evicted record.
    embedded_reads,
    /// Reads of an outdated record forwarded as if there were none.
    plain_reads,
    /// Writes answered here.
    absorbed_writes,
    /// Writes forwarded, retries included.
    forwarded_writes,
    /// Retries answered again.
    repeated_answers,
    /// Bounces that ran as new writes.
    bounces_executed,
    /// Records that a read's answer made latest.
    promotions,
    /// NetCache: updates that made a record latest.
    cache_updates_applied,
    /// Conditional writes that failed, here or at the node.
    condition_failures,
    /// Records that outgrew their slot.
    self_evictions,
    /// Sampled misses of hot keys.
    hot_misses,
    /// Reports to the agent.
    reports,
    /// Packets that a keeper passed on, up or down.
    passed,
    /// Versions that a keeper stored.
    kept,
}

impl Sum for Statistics {
    fn sum<I: Iterator<Item = Statistics>>(all: I) -> Statistics {
        all.fold(Statistics::default(), |sum, one| sum.add(&one))
    }
}

impl Statistics {
    /// What the switches of a rack did for requests; true: one of the last layer. Those count what
    /// the others haven't answered or dropped: DistCache's spines answer reads.
    pub fn of_rack(switches: impl Iterator<Item = (bool, Statistics)>) -> Statistics {
        let counted = |(is_last, counted): (bool, Statistics)| {
            let (reads, drops) = (counted.cached_reads(), counted.drops);
            let of_spine =
                Statistics { read: reads, read_hits: reads, drops, ..Statistics::default() };
            if is_last { counted } else { of_spine }
        };
        switches.map(counted).sum()
    }

    /// Reads that the cache answered.
    pub fn cached_reads(&self) -> u64 {
        self.read_hits.saturating_sub(self.conservative_reads())
    }

    /// Reads of cached keys that went to the node nevertheless.
    pub fn conservative_reads(&self) -> u64 {
        self.fenced_reads + self.embedded_reads + self.plain_reads
    }

    /// Requests that the cache answered.
    pub fn answered(&self) -> u64 {
        self.cached_reads() + self.absorbed_writes + self.repeated_answers
    }

    /// How many packets were dropped for this reason.
    pub fn dropped(&self, reason: DropReason) -> u64 {
        self.drops[reason as usize]
    }
}

/// The names in the order of the numbers, to compare with C's.
pub(crate) fn names() -> Vec<&'static str> {
    COUNTERS.iter().copied().chain(DropReason::ALL.iter().map(|reason| reason.name())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_that_a_spine_passes_on_counts_once() {
        let mut spine =
            Statistics { read: 10, read_hits: 7, plain_reads: 3, ..Statistics::default() };
        spine.drops[DropReason::Epoch as usize] = 5;
        let leaf = Statistics { read: 6, read_hits: 2, read_misses: 4, ..Statistics::default() };
        let rack = Statistics::of_rack([(false, spine), (true, leaf)].into_iter());
        assert_eq!((rack.read, rack.answered(), rack.conservative_reads()), (10, 6, 0));
        assert_eq!(rack.dropped(DropReason::Epoch), 5);
    }
}
