//! Caching schemes: which requests of cached keys the switch answers itself.

use crate::place::LAYERS_MAX;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::Index;
use std::str::FromStr;

/// Which paper's policy a rack runs. What it means is said by its properties: other code asks for
/// these.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scheme {
    /// Routing only: a baseline.
    NoCache,
    /// Write-around: a baseline, what an application does that deletes a cached record when it
    /// writes (cache-aside).
    WriteAround,
    /// Write-through: a baseline (Jin et al., "NetCache", SOSP 2017).
    NetCache,
    /// Write-through in two layers, with a copy of a record in each (Liu et al., "DistCache", FAST
    /// 2019).
    DistCache,
    /// Write-back (Sheng et al., "FarReach", USENIX ATC 2023).
    FarReach,
    /// Write-back in each layer of a chain of switches (Sheng et al., "DistReach", the extended
    /// version of FarReach).
    DistReach,
}

/// What tells one scheme from another.
struct Properties {
    name: &'static str,
    policy: &'static str,
    system: Option<&'static str>,
    summary: &'static str,
    caches: bool,
    absorbs_writes: bool,
    refreshes: bool,
    layers_max: u8,
}

impl Scheme {
    /// All of them, baselines first; each at the index of its declaration.
    pub const ALL: [Scheme; 6] = [
        Scheme::NoCache,
        Scheme::WriteAround,
        Scheme::NetCache,
        Scheme::DistCache,
        Scheme::FarReach,
        Scheme::DistReach,
    ];

    /// What is compared where chains have one switch: FarReach, after its baselines.
    pub const OF_ONE_LAYER: [Scheme; 4] =
        [Scheme::NoCache, Scheme::WriteAround, Scheme::NetCache, Scheme::FarReach];

    /// What FarReach is compared with: the others of one layer.
    pub fn baselines() -> impl Iterator<Item = Scheme> {
        Scheme::OF_ONE_LAYER.into_iter().filter(|scheme| *scheme != Scheme::FarReach)
    }

    /// What is compared where there are several layers: DistReach, after its baselines. NoCache is
    /// what its paper calls DistNoCache.
    pub const OF_LAYERS: [Scheme; 3] = [Scheme::NoCache, Scheme::DistCache, Scheme::DistReach];

    const fn properties(self) -> Properties {
        match self {
            Scheme::NoCache => Properties {
                name: "nocache",
                policy: "no cache",
                system: None,
                summary: "Routing only",
                caches: false,
                absorbs_writes: false,
                refreshes: false,
                layers_max: LAYERS_MAX,
            },
            Scheme::WriteAround => Properties {
                name: "writearound",
                policy: "write-around",
                system: None,
                summary: "Write-around: writes go to the node, the next read fetches the record",
                caches: true,
                absorbs_writes: false,
                refreshes: false,
                layers_max: 1,
            },
            Scheme::NetCache => Properties {
                name: "netcache",
                policy: "write-through",
                system: Some("NetCache"),
                summary: "Write-through: writes go to the node, which updates the cache",
                caches: true,
                absorbs_writes: false,
                refreshes: true,
                layers_max: 1,
            },
            Scheme::DistCache => Properties {
                name: "distcache",
                policy: "write-through in layers",
                system: Some("DistCache"),
                summary: "Write-through, with a copy in each of two layers: reads go to the less loaded",
                caches: true,
                absorbs_writes: false,
                refreshes: true,
                layers_max: 2,
            },
            Scheme::FarReach => Properties {
                name: "farreach",
                policy: "write-back",
                system: Some("FarReach"),
                summary: "Write-back: the cache absorbs writes",
                caches: true,
                absorbs_writes: true,
                refreshes: false,
                layers_max: 1,
            },
            Scheme::DistReach => Properties {
                name: "distreach",
                policy: "write-back in layers",
                system: Some("DistReach"),
                summary: "Write-back in a chain of switches: each layer keeps what is answered",
                caches: true,
                absorbs_writes: true,
                refreshes: false,
                layers_max: LAYERS_MAX,
            },
        }
    }

    /// Whether its switches keep what they tell until nodes have it, each for all others of its
    /// chain.
    pub const fn keeps_in_switches(self) -> bool {
        self.absorbs_writes() && self.layers_max() > 1
    }

    /// Whether its records are copies, which nodes fill and invalidate: up to one in each layer.
    pub const fn has_copies(self) -> bool {
        self.refreshes() && self.layers_max() > 1
    }

    /// As the command line, `rack.toml` and reports spell it.
    pub const fn name(self) -> &'static str {
        self.properties().name
    }

    /// The usual name of its caching policy: `write-back`.
    pub const fn policy(self) -> &'static str {
        self.properties().policy
    }

    /// The system that a paper describes under it: `FarReach`.
    pub const fn system(self) -> Option<&'static str> {
        self.properties().system
    }

    /// One line for help texts.
    pub const fn summary(self) -> &'static str {
        self.properties().summary
    }

    /// The switch holds hot records and answers reads of them.
    pub const fn caches(self) -> bool {
        self.properties().caches
    }

    /// The switch answers writes of cached keys, so that its records may be newer than the nodes'.
    pub const fn absorbs_writes(self) -> bool {
        self.properties().absorbs_writes
    }

    /// A write makes its cached record invalid.
    pub const fn invalidates(self) -> bool {
        self.caches() && !self.absorbs_writes()
    }

    /// The node that applied a write sends the new value to the switch. With another scheme that
    /// invalidates records, the next read fetches the value.
    pub const fn refreshes(self) -> bool {
        self.properties().refreshes
    }

    /// How many layers a rack may have: switches of a chain.
    pub const fn layers_max(self) -> u8 {
        self.properties().layers_max
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Scheme {
    type Err = String;
    fn from_str(text: &str) -> Result<Scheme, String> {
        Scheme::ALL.into_iter().find(|scheme| scheme.name() == text).ok_or_else(|| {
            let names = Scheme::ALL.map(|scheme| format!("\"{scheme}\"")).join(", ");
            format!("\"{}\" is no scheme: it is one of {names}", text.escape_debug())
        })
    }
}

/// A value for each of the schemes that are compared.
#[derive(Clone, PartialEq, Debug)]
pub struct PerScheme<T>(Vec<(Scheme, T)>);

impl<T> PerScheme<T> {
    /// Makes the values of these schemes, in their order.
    pub fn of(schemes: &[Scheme], mut value: impl FnMut(Scheme) -> T) -> PerScheme<T> {
        PerScheme(schemes.iter().map(|scheme| (*scheme, value(*scheme))).collect())
    }

    /// Those of [`Scheme::OF_ONE_LAYER`].
    pub fn from_fn(value: impl FnMut(Scheme) -> T) -> PerScheme<T> {
        PerScheme::of(&Scheme::OF_ONE_LAYER, value)
    }

    /// Schemes and values, in the order in which they were made.
    pub fn iter(&self) -> impl Iterator<Item = (Scheme, &T)> {
        self.0.iter().map(|(scheme, value)| (*scheme, value))
    }
}

/// # Panics
/// If the scheme isn't among those that are compared.
impl<T> Index<Scheme> for PerScheme<T> {
    type Output = T;
    fn index(&self, scheme: Scheme) -> &T {
        let found = self.0.iter().find(|(other, _)| *other == scheme);
        &found.expect("a scheme that is compared").1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scheme_is_known_by_its_name_and_its_place() {
        for (at, scheme) in Scheme::ALL.into_iter().enumerate() {
            assert_eq!((scheme.name().parse(), scheme as usize), (Ok(scheme), at));
        }
        for scheme in Scheme::OF_ONE_LAYER {
            assert_eq!(PerScheme::from_fn(|scheme| scheme)[scheme], scheme);
        }
        let layered = PerScheme::of(&Scheme::OF_LAYERS, |scheme| scheme);
        assert!(layered.iter().map(|(scheme, _)| scheme).eq(Scheme::OF_LAYERS));
        let unknown = "\"Farreach\" is no scheme: it is one of \"nocache\", \"writearound\", \"netcache\", \"distcache\", \"farreach\", \"distreach\"";
        assert_eq!("Farreach".parse::<Scheme>(), Err(unknown.to_owned()));
    }

    #[test]
    fn properties_agree_with_each_other() {
        for scheme in Scheme::ALL {
            assert!(
                scheme.caches() || !scheme.absorbs_writes() && !scheme.refreshes(),
                "{scheme} has no cache"
            );
            assert!(
                !(scheme.absorbs_writes() && scheme.refreshes()),
                "{scheme}: one home for a write"
            );
            assert_eq!(scheme.layers_max() > 1, Scheme::OF_LAYERS.contains(&scheme), "{scheme}");
        }
    }
}
