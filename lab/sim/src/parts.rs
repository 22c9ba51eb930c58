//! How many parts a simulated rack may have.

use switchback_assembly::Parts;

/// The most of a run.
pub const PARTS: Parts = Parts { clients: 8, switches: 6, nodes: 16 };
/// How many these are.
pub const PARTS_MAX: usize = PARTS.count();
