//! How many parts a simulated rack may have.

use switchback_assembly::Parts;
use switchback_wire::Scheme;

/// The most of a run with one layer.
pub const PARTS: Parts = Parts { clients: 8, switches: 6, nodes: 16 };
/// The most of a run with several: chains of as many switches, and a spare for each layer.
pub const PARTS_IN_LAYERS: Parts =
    Parts { switches: (LAYERS_MAX * (CHAINS_MAX + 1)) as u16, ..PARTS };
/// Layers and chains of a run.
pub const LAYERS_MAX: u64 = 4;
/// Chains of a run.
pub const CHAINS_MAX: u64 = 4;

/// The most of a run of this scheme.
pub fn parts_of(scheme: Scheme) -> Parts {
    if scheme.layers_max() > 1 { PARTS_IN_LAYERS } else { PARTS }
}
