//! The parameters of the model, each with its source.

use std::path::Path;
use std::str::FromStr;
use switchback_calibration::{Calibration, Origin, Sample, short};

/// Source of the cost of a byte in the built-in profiles.
/// Messages about a write to two copies: each is invalidated, and sent the new version.
const COPY_MESSAGES: u64 = 4;

const BYTES_SOURCE: &str =
    "measured by switchback lab calibrate on this repository's node: docs/measure/evaluation.md";
/// Length of the values that costs of operations are for: the paper's.
const COSTED_BYTES: f64 = 128.0;

/// Costs and delays of a rack's parts. Times are in nanoseconds; those of requests and packets are
/// of values of 128 B, and each byte more or less of a value adds or takes off its own.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Profile {
    /// Its name on the command line.
    pub(crate) name: &'static str,
    /// Work of a node's engine for a read.
    pub(crate) node_read_ns: u64,
    /// The same for a write.
    pub(crate) node_write_ns: u64,
    /// For a write with a condition, whose record is read first.
    pub(crate) node_conditional_ns: u64,
    /// For a read and for a write when no other request waits: there is no group to share a sync
    /// with.
    pub(crate) node_alone_ns: [u64; 2],
    /// What each byte of a value adds to a read and to a write: engine and network stack.
    pub(crate) node_read_byte_ns: f64,
    pub(crate) node_write_byte_ns: f64,
    /// For a durable mark: an offer, a fence, a floor.
    pub(crate) node_mark_ns: u64,
    /// What it takes a node to send a cached key's new value to the switch and to take its
    /// acknowledgement (NetCache).
    pub(crate) cache_update_ns: u64,
    /// What one of the messages about a write to a copy takes, with its acknowledgement
    /// (DistCache).
    pub(crate) copy_message_ns: u64,
    /// Service times are uniform in this share around their mean.
    pub(crate) service_spread: f64,
    /// Of a capped node (`--node-capacity`): mean time between two requests that it begins; 0: it
    /// is not capped.
    pub(crate) node_cap_ns: u64,
    /// From one network stack through the wire to the next.
    pub(crate) link_ns: u64,
    /// What each byte of a packet's value adds to that.
    pub(crate) link_byte_ns: f64,
    /// Through the switch's pipeline.
    pub(crate) pipeline_ns: u64,
    /// From the controller to any part, or back.
    pub(crate) control_link_ns: u64,
    /// Bytes a microsecond of a control connection.
    pub(crate) control_bytes_per_us: u64,
    /// Work of the agent for an entry that it admits, evicts or removes.
    pub(crate) agent_entry_ns: u64,
    /// Work of the agent for a record that it loads for a snapshot.
    pub(crate) agent_load_ns: u64,
    /// Until a file of the controller is on its disk, beside the time for its bytes.
    pub(crate) store_ns: u64,
    /// Bytes a microsecond of the controller's disk.
    pub(crate) store_bytes_per_us: u64,
    /// From the crash of a switch until its successor says hello.
    pub(crate) switch_restart_ns: u64,
}

/// A parameter as reports show it: name, value, source.
pub(crate) type Described = (String, String, String);

/// A profile as the command line names it: one of the program's, or a file of `switchback lab
/// calibrate`.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Chosen {
    /// What was given.
    pub(crate) given: String,
    pub(crate) profile: Profile,
    /// What a report says of it.
    pub(crate) described: Vec<Described>,
}

/// A report's rows for a calibrated profile: every figure, and where and when it was measured.
fn described(costs: &Calibration) -> Vec<Described> {
    let Origin { machine, date, commit, load, method } = &costs.origin;
    let where_ = format!(
        "measured {date} on {machine}, commit {commit}, load {} to {}; {method}",
        load[0], load[1]
    );
    let mut described = vec![("calibrated".to_owned(), String::new(), where_)];
    for (table, rows) in costs.tables() {
        for (name, meaning, sample) in rows {
            let value = format!(
                "{} ({} .. {})",
                short(sample.median),
                short(sample.low),
                short(sample.high)
            );
            described.push((format!("{table}.{name}"), value, format!("measured: {meaning}")));
        }
    }
    let spread = format!("uniform, +-{:.0} %", Profile::of(costs).service_spread * 100.0);
    described.push(("service time".to_owned(), spread, "measured: the spread of reads".to_owned()));
    described
}

impl FromStr for Chosen {
    type Err = String;

    fn from_str(given: &str) -> Result<Chosen, String> {
        let unknown = match Profile::by_name(given) {
            Ok(profile) => {
                let described = profile.describe();
                return Ok(Chosen { given: given.to_owned(), profile, described });
            }
            Err(unknown) => unknown,
        };
        let path = Path::new(given);
        if !path.exists() {
            return Err(format!(
                "{unknown}, and there is no such file, as switchback lab calibrate writes one"
            ));
        }
        let calibration = Calibration::read(path).map_err(|error| format!("{error:#}"))?;
        Ok(Chosen {
            given: given.to_owned(),
            profile: Profile::of(&calibration),
            described: described(&calibration),
        })
    }
}

impl Profile {
    /// The model's parameters from a machine's calibrated costs.
    pub(crate) fn of(costs: &Calibration) -> Profile {
        let ns = |median: f64, unit_ns: f64| (median * unit_ns).round().max(1.0) as u64;
        let us = |sample: Sample| ns(sample.median, 1e3);
        let Sample { median, low, high, .. } = costs.node.read_us;
        Profile {
            name: "calibrated",
            node_read_ns: us(costs.node.read_us),
            node_write_ns: us(costs.node.write_us),
            node_conditional_ns: us(costs.node.conditional_us),
            node_alone_ns: [us(costs.node.read_alone_us), us(costs.node.write_alone_us)],
            node_read_byte_ns: costs.node.read_byte_ns.median,
            node_write_byte_ns: costs.node.write_byte_ns.median,
            node_mark_ns: us(costs.node.mark_us),
            cache_update_ns: us(costs.node.cache_update_us),
            copy_message_ns: us(costs.node.cache_update_us) / COPY_MESSAGES,
            // The middle eight tenths of a uniform distribution are eight tenths of its width.
            service_spread: ((high - low) / (2.0 * 0.8 * median)).min(0.95),
            node_cap_ns: 0,
            link_ns: us(costs.link.udp_us),
            link_byte_ns: costs.link.byte_ns.median,
            pipeline_ns: ns(
                (costs.pipeline.read_hit_ns.median + costs.pipeline.write_hit_ns.median) / 2.0,
                1.0,
            ),
            control_link_ns: us(costs.control.delay_us),
            control_bytes_per_us: ns(costs.control.mb_per_s.median, 1.0),
            agent_entry_ns: us(costs.agent.entry_us),
            agent_load_ns: us(costs.agent.snapshot_record_us),
            store_ns: ns(costs.controller.file_ms.median, 1e6),
            store_bytes_per_us: ns(costs.controller.mb_per_s.median, 1.0),
            switch_restart_ns: ns(costs.switch.start_ms.median, 1e6),
        }
    }

    /// The paper's testbed.
    pub(crate) const PAPER: Profile = Profile {
        name: "paper",
        node_read_ns: 16_667,
        node_write_ns: 16_667,
        node_conditional_ns: 16_667,
        node_alone_ns: [16_667; 2],
        node_read_byte_ns: 1.6,
        node_write_byte_ns: 2.2,
        node_mark_ns: 16_667,
        cache_update_ns: 4_700,
        copy_message_ns: 4_700 / COPY_MESSAGES,
        service_spread: 0.5,
        node_cap_ns: 0,
        link_ns: 5_000,
        link_byte_ns: 0.2,
        pipeline_ns: 400,
        control_link_ns: 50_000,
        control_bytes_per_us: 5_000,
        agent_entry_ns: 35_000,
        agent_load_ns: 35_000,
        store_ns: 5_000_000,
        store_bytes_per_us: 100,
        switch_restart_ns: 10_000_000,
    };

    /// Nodes and links of the paper, and the software switch of this repository: its tables are
    /// memory, not a Tofino's behind PCIe.
    pub(crate) const SOFTWARE: Profile = Profile {
        name: "software",
        pipeline_ns: 100,
        agent_entry_ns: 1_000,
        agent_load_ns: 500,
        ..Profile::PAPER
    };

    /// All of them.
    pub(crate) const ALL: [&Profile; 2] = [&Profile::PAPER, &Profile::SOFTWARE];

    /// The profile of a name.
    pub(crate) fn by_name(name: &str) -> Result<Profile, String> {
        let found = Profile::ALL.into_iter().find(|profile| profile.name == name);
        found.cloned().ok_or_else(|| {
            let names: Vec<_> = Profile::ALL.iter().map(|profile| profile.name).collect();
            format!("there is no profile {name:?}; profiles are {}", names.join(", "))
        })
    }

    /// The cost for a value of this length, from the cost for one of 128 B.
    pub(crate) fn of_bytes(cost_ns: u64, byte_ns: f64, value_bytes: usize) -> u64 {
        (cost_ns as f64 + byte_ns * (value_bytes as f64 - COSTED_BYTES)).max(1.0).round() as u64
    }

    /// Work of a node for a read and for a write of values of this length; of a capped node at
    /// least the time between two requests.
    pub(crate) fn node_work_ns(&self, value_bytes: usize) -> [u64; 2] {
        [(self.node_read_ns, self.node_read_byte_ns), (self.node_write_ns, self.node_write_byte_ns)]
            .map(|(ns, byte_ns)| Profile::of_bytes(ns, byte_ns, value_bytes).max(self.node_cap_ns))
    }

    /// All parameters, for reports.
    pub(crate) fn describe(&self) -> Vec<Described> {
        let us = |ns: u64| format!("{} us", ns as f64 / 1000.0);
        let ns = |ns: f64| format!("{ns} ns");
        let software = self.name == Profile::SOFTWARE.name;
        let tables = if software {
            "measured: docs/measure/performance.md has 27 to 55 ns a packet; an admission is four control packets and a message's share"
        } else {
            "the paper's Exp#9: re-admission takes 0.35 s longer for 10,000 records than for 100"
        };
        let rows = [
            ("node, read", us(self.node_read_ns), "the paper, VI-B: 0.06 MOPS a RocksDB server"),
            ("node, write", us(self.node_write_ns), "the same"),
            ("node, conditional write", us(self.node_conditional_ns), "as for a write"),
            ("node, a byte of a read's value", ns(self.node_read_byte_ns), BYTES_SOURCE),
            ("node, a byte of a write's value", ns(self.node_write_byte_ns), BYTES_SOURCE),
            ("node, durable mark", us(self.node_mark_ns), "as for a write"),
            ("node, a read or write alone", us(self.node_alone_ns[0]), "as in a queue"),
            (
                "node, cache update",
                us(self.cache_update_ns),
                "fitted to one ratio of the paper, Exp#4 at 100 % writes: NetCache 0.82 of NoCache; used everywhere",
            ),
            (
                "node, message to a copy",
                us(self.copy_message_ns),
                "the four of a write together as a cache update: the paper's DistCache, Exp#12, is 5.4 / 6.8 = 0.79 of DistNoCache",
            ),
            ("service time", format!("uniform, +-{} %", self.service_spread * 100.0), "assumed"),
            ("link, one way", us(self.link_ns), "assumed: 40 Gbps and two network stacks"),
            ("link, a byte of a value", ns(self.link_byte_ns), "the paper, VI-A: 40 Gbps"),
            (
                "pipeline",
                us(self.pipeline_ns),
                if software { tables } else { "the paper, VI-A: hundreds of ns" },
            ),
            ("control link, one way", us(self.control_link_ns), "assumed: TCP in one rack"),
            (
                "control link",
                format!("{} MB/s", self.control_bytes_per_us),
                "the paper, VI-A: 40 Gbps",
            ),
            ("agent, an entry", us(self.agent_entry_ns), tables),
            (
                "agent, a record of a snapshot",
                us(self.agent_load_ns),
                if software { tables } else { "as for an entry" },
            ),
            ("controller, a file", us(self.store_ns), "assumed: one sync of a hard disk's cache"),
            (
                "controller, its bytes",
                format!("{} MB/s", self.store_bytes_per_us),
                "assumed: a hard disk",
            ),
            (
                "switch, restart",
                us(self.switch_restart_ns),
                "assumed: a spare or a supervised process",
            ),
        ];
        rows.map(|(name, value, source)| (name.to_owned(), value, source.to_owned())).to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_is_found_by_name_and_the_error_for_another_name_lists_all() {
        assert_eq!(Profile::by_name("paper").unwrap(), Profile::PAPER);
        assert!(Profile::by_name("tofino").unwrap_err().contains("paper, software"));
        let chosen: Chosen = "software".parse().unwrap();
        assert_eq!(
            (chosen.profile, chosen.described),
            (Profile::SOFTWARE, Profile::SOFTWARE.describe())
        );
        assert_eq!(Profile::PAPER.node_work_ns(128), [16_667; 2]);
        let capped = Profile { node_cap_ns: 1_000_000, ..Profile::PAPER };
        assert_eq!(capped.node_work_ns(1024), [1_000_000; 2]);
    }

    const MEASURED: &str = include_str!("../../calibration/src/example.profile");

    #[test]
    fn a_profile_is_a_name_or_a_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("this-machine.toml");
        std::fs::write(&path, MEASURED).unwrap();
        let chosen: Chosen = path.to_str().unwrap().parse().unwrap();
        let profile = chosen.profile;
        assert_eq!(
            (profile.node_read_ns, profile.cache_update_ns, profile.pipeline_ns),
            (10_000, 250, 50)
        );
        assert_eq!(
            [16, 128, 1024].map(|bytes| profile.node_work_ns(bytes)),
            [[9_944, 39_776], [10_000, 40_000], [10_448, 41_792]]
        );
        assert!((profile.link_byte_ns - 0.1).abs() < 1e-9);
        let store = (profile.store_ns, profile.store_bytes_per_us, profile.switch_restart_ns);
        assert_eq!(store, (3_000_000, 200, 8_000_000));
        assert!((profile.service_spread - 0.125).abs() < 1e-9);
        let row = chosen.described.iter().find(|(name, ..)| name == "node.write_us").unwrap();
        assert!(row.1.contains("40.0 (36.0 .. 44.0)") && row.2.contains("measured"), "{row:?}");
        let missing = directory.path().join("none.toml");
        let error = missing.to_str().unwrap().parse::<Chosen>().unwrap_err();
        assert!(error.contains("none.toml") && error.contains("paper, software"), "{error}");
        std::fs::write(&path, vec![b'#'; 2 << 20]).unwrap();
        // A device has length 0 and may have no end.
        for endless in [path.to_str().unwrap(), "/dev/zero"] {
            assert!(endless.parse::<Chosen>().unwrap_err().contains("no profile"), "{endless}");
        }
    }
}
