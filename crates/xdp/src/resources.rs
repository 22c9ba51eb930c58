//! What the loaded programs and maps take, as the kernel tells.

use crate::{XdpDatapath, sys};
use libbpf_rs::btf::{Btf, BtfType, TypeId};
use libbpf_rs::query::{ProgInfoIter, ProgInfoQueryOptions, ProgramInfo};
use libbpf_rs::{MapCore, Program};
use std::collections::HashMap;
use std::os::fd::AsFd;
use std::time::Duration;

/// A loaded program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProgramResources {
    /// Its name in xdp.bpf.c.
    pub name: String,
    /// BPF instructions.
    pub instructions: u32,
    /// Instructions that the verifier looked at, on all paths; a million is the limit.
    pub verified: u32,
    /// Bytes of machine code.
    pub machine_bytes: u32,
    /// Bytes of stack that the verifier allows for, of the program and of each function that it calls.
    pub stack_bytes: Vec<u32>,
    /// Its functions: itself and the stages that aren't inlined, with their BPF instructions and bytes of machine code.
    pub functions: Vec<(String, u32, u32)>,
    /// What it has taken and how often it ran, while the kernel counted.
    pub run_time: (Duration, u64),
}

/// A map.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MapResources {
    /// Its name in tables_bpf.h.
    pub name: String,
    /// How many entries it can have.
    pub entries: u32,
    /// What the kernel has allocated for it.
    pub bytes: u64,
}

impl XdpDatapath {
    /// What its programs take, by name.
    pub fn program_resources(&self) -> Vec<ProgramResources> {
        let options = ProgInfoQueryOptions::default()
            .include_func_info(true)
            .include_jited_func_lens(true)
            .include_xlated_prog_insns(true);
        let ours: HashMap<u32, &str> =
            self.loaded.programs().filter_map(|(name, fd)| Program::id_from_fd(fd).ok().map(|id| (id, name))).collect();
        let all = ProgInfoIter::with_query_opts(options);
        let mut found: Vec<_> = all
            .filter_map(|info| {
                let name = *ours.get(&info.id)?;
                Some(of_program(name, self.loaded.stack_bytes(name), &info))
            })
            .collect();
        found.sort_by(|a, b| a.name.cmp(&b.name));
        found
    }

    /// What its maps take, the largest first.
    pub fn map_resources(&self) -> Vec<MapResources> {
        let of_map = |(name, map): (&str, &libbpf_rs::MapHandle)| MapResources {
            name: name.to_owned(),
            entries: map.max_entries(),
            bytes: sys::described(map.as_fd(), "memlock").unwrap_or(0),
        };
        let mut all: Vec<_> = self.loaded.maps().map(of_map).collect();
        all.sort_by(|a, b| (b.bytes, &a.name).cmp(&(a.bytes, &b.name)));
        all
    }
}

fn of_program(name: &str, stack_bytes: Vec<u32>, info: &ProgramInfo) -> ProgramResources {
    const INSTRUCTION_BYTES: u32 = 8;
    let instructions = info.xlated_prog_insns.len() as u32 / INSTRUCTION_BYTES;
    let btf = Btf::from_prog_id(info.id).ok();
    let name_of = |id: u32| {
        let function: BtfType<'_> = btf.as_ref()?.type_by_id(TypeId::from(id))?;
        Some(function.name()?.to_string_lossy().into_owned())
    };
    let begins = info.func_info.iter().map(|function| function.insn_off);
    let ends = begins.clone().skip(1).chain([instructions]);
    let lengths = info.jited_func_lens.iter().copied().chain(std::iter::repeat(0));
    let functions = info.func_info.iter().zip(begins.zip(ends)).zip(lengths);
    let functions = functions.map(|((function, (begin, end)), bytes)| {
        (name_of(function.type_id).unwrap_or_default(), end.saturating_sub(begin), bytes)
    });
    ProgramResources {
        name: name.to_owned(),
        instructions,
        verified: info.verified_insns,
        machine_bytes: info.jited_func_lens.iter().sum(),
        stack_bytes,
        functions: functions.collect(),
        run_time: (Duration::from_nanos(info.run_time_ns), info.run_cnt),
    }
}

/// The verifier's line about the stack: `stack depth 112+0+56`.
pub(crate) fn stack_of(log: &str) -> Vec<u32> {
    let line = log.lines().find_map(|line| line.strip_prefix("stack depth "));
    line.unwrap_or_default().split('+').filter_map(|depth| depth.trim().parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_verifiers_line_is_read() {
        assert_eq!(stack_of("verification time 1 usec\nstack depth 112+0+56\nprocessed 5 insns"), [112, 0, 56]);
        assert_eq!(stack_of("nothing"), []);
    }
}
