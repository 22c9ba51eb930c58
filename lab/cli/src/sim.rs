//! `switchback lab sim`: the deterministic simulator.

use clap::Args;
use std::process::ExitCode;
use switchback_sim::cli;

const EXAMPLES: &str = "\
Examples:
  A hundred racks of each scheme, each with other faults and another load:
      switchback lab sim
  For ten minutes, with a summary for machines:
      switchback lab sim --minutes 10 --json sim.json
  One seed again, with every event:
      switchback lab sim --seed 42 --scheme farreach --trace trace.txt
  Its end, for the player of a rack's console:
      switchback lab sim --seed 42 --scheme farreach --trace trace.json
  Its packets, for Wireshark (with tools/wireshark/switchback.lua):
      switchback lab sim --seed 42 --scheme farreach --pcap packets.pcap
  Without a mechanism, to see what it is good for:
      switchback lab sim --ablate no-fence
  The table of docs/understand/guarantees.md:
      switchback lab sim --ablations

A broken promise ends it with exit code 1 and says what was promised, the operations that contradict
each other, and the command that repeats it. The same seed and the same binary make the same run,
byte for byte.";

/// Torment simulated racks, and check every promise.
///
/// All parts are the production code, in one event loop: the native datapath, and the state
/// machines of switches, nodes, controller and clients, around which networks, disks, clocks and
/// faults are drawn from a seed.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct SimArgs {
    #[command(flatten)]
    args: cli::SimArgs,
}

pub(crate) fn run(args: &SimArgs) -> anyhow::Result<ExitCode> {
    Ok(cli::run(&args.args))
}
