//! What the loaded programs and maps take, as the kernel tells.

use crate::{XdpDatapath, sys};
use libbpf_rs::btf::{Btf, BtfType, TypeId};
use libbpf_rs::query::{ProgInfoIter, ProgInfoQueryOptions, ProgramInfo};
use libbpf_rs::{MapCore, Program};
use std::collections::{BTreeSet, HashMap};
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
    /// Bytes of stack of the program and of each of its functions.
    pub stack_bytes: Vec<u32>,
    /// Bytes of stack of the deepest chain of calls, of which 512 are allowed. Each function counts
    /// with the next multiple of 32, as the verifier counts for the interpreter.
    pub deepest_stack_bytes: u32,
    /// Its functions: itself and the stages that aren't inlined, with their BPF instructions and
    /// bytes of machine code.
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
        let ours: HashMap<u32, &str> = self
            .loaded
            .programs()
            .filter_map(|(name, fd)| Program::id_from_fd(fd).ok().map(|id| (id, name)))
            .collect();
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
    let instructions = (info.xlated_prog_insns.len() / INSTRUCTION_BYTES) as u32;
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
    let starts: Vec<usize> =
        info.func_info.iter().map(|function| function.insn_off as usize).collect();
    ProgramResources {
        deepest_stack_bytes: deepest_stack(
            0,
            &calls(&info.xlated_prog_insns, &starts),
            &stack_bytes,
        ),
        name: name.to_owned(),
        instructions,
        verified: info.verified_insns,
        machine_bytes: info.jited_func_lens.iter().sum(),
        stack_bytes,
        functions: functions.collect(),
        run_time: (Duration::from_nanos(info.run_time_ns), info.run_cnt),
    }
}

/// Bytes of one BPF instruction: opcode, registers, offset (16 bits), immediate (32 bits).
const INSTRUCTION_BYTES: usize = 8;

/// Which functions each function calls or gives to a helper that calls it, by index. `starts` are
/// the functions' first instructions. (The instruction set: RFC 9669, sections 4.3 and 5.4.)
fn calls(instructions: &[u8], starts: &[usize]) -> Vec<BTreeSet<usize>> {
    const CALL: u8 = 0x85;
    const LOAD_IMMEDIATE: u8 = 0x18;
    const LOCAL_FUNCTION: u8 = 1;
    const ADDRESS_OF_FUNCTION: u8 = 4;
    let mut calls = vec![BTreeSet::new(); starts.len()];
    for (at, instruction) in instructions.chunks_exact(INSTRUCTION_BYTES).enumerate() {
        let offset = i64::from(i16::from_le_bytes([instruction[2], instruction[3]]));
        let immediate =
            i32::from_le_bytes([instruction[4], instruction[5], instruction[6], instruction[7]]);
        let target = match (instruction[0], instruction[1] >> 4) {
            // The kernel shows where a compiled call goes in its offset.
            (CALL, LOCAL_FUNCTION) => at as i64 + 1 + offset,
            (LOAD_IMMEDIATE, ADDRESS_OF_FUNCTION) => at as i64 + 1 + i64::from(immediate),
            _ => continue,
        };
        let caller = starts.partition_point(|start| *start <= at).saturating_sub(1);
        if let Some(callee) = starts.iter().position(|start| *start as i64 == target) {
            calls[caller].insert(callee);
        }
    }
    calls
}

/// Bytes of stack of the deepest chain of calls from a function on. (BPF programs don't recurse.)
fn deepest_stack(function: usize, calls: &[BTreeSet<usize>], stack_bytes: &[u32]) -> u32 {
    const INTERPRETER_STEP: u32 = 32;
    let own = stack_bytes
        .get(function)
        .map_or(0, |bytes| (*bytes).max(1).next_multiple_of(INTERPRETER_STEP));
    let callees = calls.get(function).into_iter().flatten();
    own + callees.map(|callee| deepest_stack(*callee, calls, stack_bytes)).max().unwrap_or(0)
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
        assert_eq!(
            stack_of("verification time 1 usec\nstack depth 112+0+56\nprocessed 5 insns"),
            [112, 0, 56]
        );
        assert_eq!(stack_of("nothing"), []);
    }

    #[test]
    fn the_deepest_chain_counts_functions_that_helpers_call() {
        let instruction = |code: u8, source: u8, offset: i16, immediate: i32| {
            let (offset, immediate) = (offset.to_le_bytes(), immediate.to_le_bytes());
            [&[code, source << 4], &offset[..], &immediate[..]].concat()
        };
        let nothing = || instruction(0xb7, 0, 0, 0);
        // 0: calls 1; 1: gives 2 to a helper; 2: nothing.
        let program = [
            instruction(0x85, 1, 1, 1),
            nothing(),
            instruction(0x18, 4, 0, 2),
            instruction(0x00, 0, 0, 0),
            nothing(),
            nothing(),
        ]
        .concat();
        let calls = calls(&program, &[0, 2, 5]);
        assert_eq!(calls, [BTreeSet::from([1]), BTreeSet::from([2]), BTreeSet::new()]);
        assert_eq!(deepest_stack(0, &calls, &[33, 64, 0]), 64 + 64 + 32);
    }
}
