//! What can be chosen about a RocksDB engine, and what RocksDB is told.

use super::floor_filter::FloorFilter;
use super::format::{COMPLETIONS, MARKS, RECORDS, STATE};
use crate::policy::SyncPolicy;
use rocksdb::statistics::StatsLevel;
use rocksdb::{
    BlockBasedOptions, Cache, ColumnFamilyDescriptor, DBCompressionType, DBRecoveryMode,
    WriteBufferManager,
};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// Choices about a RocksDB engine.
///
/// Its memory is bounded by `block_cache_bytes + memtable_bytes`: one cache of that size holds
/// blocks, indexes and filters, and is charged for memtables; a writer that would exceed
/// `memtable_bytes` waits for a flush. On top come only blocks that running reads, scans and
/// compactions hold, and some 10 KB for each open file.
#[derive(Clone, Debug)]
pub struct Options {
    /// When groups are forced to the disk.
    pub sync: SyncPolicy,
    /// Bytes for blocks, indexes and bloom filters.
    pub block_cache_bytes: usize,
    /// Bytes for memtables.
    pub memtable_bytes: usize,
    /// Open table files at a time.
    pub max_open_files: u32,
    /// Threads for flushes and compactions.
    pub background_jobs: u32,
    /// Open a directory whose log is damaged in the middle: what was written after the damage is
    /// **lost**, acknowledged or not.
    pub salvage: bool,
    /// The time by which compactions drop expired records: milliseconds since the Unix epoch, kept
    /// up to date by the engine's owner. While it is 0, none are dropped.
    pub clock: Arc<AtomicU64>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            sync: SyncPolicy::Always,
            block_cache_bytes: 256 << 20,
            memtable_bytes: 64 << 20,
            max_open_files: 512,
            background_jobs: 2,
            salvage: false,
            clock: Arc::default(),
        }
    }
}

/// Memtables of records at a time: one fills while others are flushed.
const RECORD_MEMTABLES: usize = 3;
/// The share of each memtable of marks, completions and state; two of each of the three may exist.
const SMALL_SHARE: usize = 24;

/// RocksDB's options, and what must live as long as the database.
pub(crate) struct Tuning {
    pub(crate) db: rocksdb::Options,
    pub(crate) cache: Cache,
    families: Vec<(&'static str, rocksdb::Options)>,
}

impl Tuning {
    pub(crate) fn new(options: &Options, filter: FloorFilter) -> Tuning {
        let cache = Cache::new_lru_cache(options.block_cache_bytes + options.memtable_bytes);
        // No `allow_stall`: it would block a writer for ever when the disk is full and nothing can
        // be flushed. The bound comes from the number and size of memtables; the manager charges
        // them to the cache.
        let memtables = WriteBufferManager::new_write_buffer_manager_with_cache(
            options.memtable_bytes,
            false,
            cache.clone(),
        );
        let db = database(options, &memtables);
        let small_bytes = (options.memtable_bytes / SMALL_SHARE).max(64 << 10);
        let record_bytes = (options.memtable_bytes / 4).max(64 << 10);
        let mut records = family(&cache, record_bytes, RECORD_MEMTABLES);
        records.set_compaction_filter_factory(filter);
        // Without a reason to compact, dead tombstones of a quiet range would stay for RocksDB's
        // default of 30 days.
        records.set_periodic_compaction_seconds(7 * 24 * 3600);
        let mut families = vec![(RECORDS, records)];
        // RocksDB insists on a `default` family; nothing is in it. It must be small, too: after a
        // full disk, RocksDB waits for room for the largest memtable of any family.
        for name in [MARKS, COMPLETIONS, STATE, "default"] {
            families.push((name, family(&cache, small_bytes, 2)));
        }
        Tuning { db, cache, families }
    }

    pub(crate) fn families(&self) -> impl Iterator<Item = ColumnFamilyDescriptor> {
        self.families
            .iter()
            .map(|(name, options)| ColumnFamilyDescriptor::new(*name, options.clone()))
    }
}

fn database(options: &Options, memtables: &WriteBufferManager) -> rocksdb::Options {
    let mut db = rocksdb::Options::default();
    db.create_missing_column_families(true);
    db.set_write_buffer_manager(memtables);
    db.set_max_open_files(i32::try_from(options.max_open_files).unwrap_or(i32::MAX));
    db.set_max_background_jobs(i32::try_from(options.background_jobs.max(2)).unwrap_or(i32::MAX));
    db.set_paranoid_checks(true);
    // RocksDB's default would end the log at a damaged record and silently forget all after it. A
    // torn tail is not damage.
    db.set_wal_recovery_mode(match options.salvage {
        true => DBRecoveryMode::PointInTime,
        false => DBRecoveryMode::TolerateCorruptedTailRecords,
    });
    // Small families are seldom full; this flushes them before they keep old logs alive.
    db.set_max_total_wal_size(4 * options.memtable_bytes as u64);
    db.set_bytes_per_sync(1 << 20);
    db.set_keep_log_file_num(4);
    db.set_max_log_file_size(4 << 20);
    db.set_stats_dump_period_sec(0);
    db.enable_statistics();
    db.set_statistics_level(StatsLevel::ExceptHistogramOrTimers);
    db
}

fn family(cache: &Cache, memtable_bytes: usize, memtables: usize) -> rocksdb::Options {
    let mut blocks = BlockBasedOptions::default();
    blocks.set_block_cache(cache);
    blocks.set_bloom_filter(10.0, false);
    blocks.set_cache_index_and_filter_blocks(true);
    blocks.set_cache_index_and_filter_blocks_with_high_priority(true);
    blocks.set_pin_l0_filter_and_index_blocks_in_cache(true);
    let mut family = rocksdb::Options::default();
    family.set_block_based_table_factory(&blocks);
    family.set_compression_type(DBCompressionType::Lz4);
    family.set_write_buffer_size(memtable_bytes);
    family.set_max_write_buffer_number(i32::try_from(memtables).unwrap_or(2));
    family.set_memtable_whole_key_filtering(true);
    family.set_memtable_prefix_bloom_ratio(0.02);
    family
}
