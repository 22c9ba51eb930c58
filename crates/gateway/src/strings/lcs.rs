//! LCS: the longest common subsequence of two values, by the usual table of the lengths for all
//! pairs of prefixes (Wagner and Fischer, "The String-to-String Correction Problem", Journal of the
//! ACM 21(1), 1974). Where several are longest, the one that Redis finds.

use crate::failure::Failure;
use crate::resp::write;
use switchback_wire::VALUE_BYTES_MAX;

/// What is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct LcsOptions {
    /// Where its matches are, instead of itself.
    pub(crate) matches: bool,
    /// Its length alone.
    pub(crate) length: bool,
    /// Matches that are shorter aren't listed.
    pub(crate) match_bytes_min: u64,
    /// Matches are listed with their lengths.
    pub(crate) match_lengths: bool,
}

/// A stretch that both values have: first and last byte, in the first value and in the second.
pub(crate) type Match = [(usize, usize); 2];

/// A longest common subsequence.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Common {
    pub(crate) bytes: Vec<u8>,
    /// What it consists of, from the last to the first.
    pub(crate) matches: Vec<Match>,
}

impl Common {
    /// The reply.
    pub(crate) fn write(&self, options: LcsOptions, out: &mut Vec<u8>, resp3: bool) {
        if options.length {
            return write::integer(out, self.bytes.len() as i64);
        }
        if !options.matches {
            return write::bulk(out, &self.bytes);
        }
        let length = |&[(first, last), _]: &Match| (last - first) as u64 + 1;
        let listed = || self.matches.iter().filter(|m| length(m) >= options.match_bytes_min);
        write::map(out, 2, resp3);
        write::bulk(out, b"matches");
        write::array(out, listed().count());
        for found in listed() {
            write::array(out, 2 + usize::from(options.match_lengths));
            for &(first, last) in found {
                write::array(out, 2);
                write::integer(out, first as i64);
                write::integer(out, last as i64);
            }
            if options.match_lengths {
                write::integer(out, length(found) as i64);
            }
        }
        write::bulk(out, b"len");
        write::integer(out, self.bytes.len() as i64);
    }
}

/// Finds it. As in Redis its table may take no more than the longest value; so may its time.
///
/// # Errors
///
/// The table would be larger.
pub(crate) fn common(a: &[u8], b: &[u8]) -> Result<Common, Failure> {
    let width = b.len() + 1;
    let cells = (a.len() + 1) * width;
    if cells * size_of::<u32>() > VALUE_BYTES_MAX {
        return Err(Failure::Static(
            "ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len",
        ));
    }
    let mut lengths = vec![0u32; cells];
    for i in 1..=a.len() {
        for j in 1..width {
            let above = (i - 1) * width + j;
            lengths[above + width] = match a[i - 1] == b[j - 1] {
                true => lengths[above - 1] + 1,
                false => lengths[above].max(lengths[above + width - 1]),
            };
        }
    }
    // Back from the end: each step is to a prefix with as long a subsequence, or takes a byte.
    let mut common = Common { bytes: Vec::new(), matches: Vec::new() };
    let mut open: Option<Match> = None;
    let (mut i, mut j) = (a.len(), b.len());
    while i > 0 && j > 0 {
        if a[i - 1] == b[j - 1] {
            (i, j) = (i - 1, j - 1);
            common.bytes.push(a[i]);
            let [(_, a_last), (_, b_last)] = open.unwrap_or([(i, i), (j, j)]);
            open = Some([(i, a_last), (j, b_last)]);
        } else {
            common.matches.extend(open.take());
            let at = i * width + j;
            if lengths[at - width] > lengths[at - 1] { i -= 1 } else { j -= 1 }
        }
    }
    common.matches.extend(open);
    common.bytes.reverse();
    Ok(common)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn is_subsequence(of: &[u8], part: &[u8]) -> bool {
        let mut rest = of.iter();
        part.iter().all(|byte| rest.any(|other| other == byte))
    }

    /// The longest subsequence of `a` that `b` has, by trying all.
    fn longest(a: &[u8], b: &[u8]) -> usize {
        let chosen = |set: u32| -> Vec<u8> {
            a.iter()
                .enumerate()
                .filter(|(at, _)| set >> at & 1 == 1)
                .map(|(_, &byte)| byte)
                .collect()
        };
        let common = (0..1u32 << a.len()).map(chosen).filter(|part| is_subsequence(b, part));
        common.map(|part| part.len()).max().unwrap_or(0)
    }

    proptest! {
        #[test]
        fn none_is_longer_and_its_matches_are_in_both(a in "[a-d]{0,8}", b in "[a-d]{0,12}") {
            let (a, b) = (a.as_bytes(), b.as_bytes());
            let found = common(a, b).unwrap();
            prop_assert!(is_subsequence(a, &found.bytes) && is_subsequence(b, &found.bytes));
            prop_assert_eq!(found.bytes.len(), longest(a, b));
            let joined: Vec<u8> = found
                .matches
                .iter()
                .rev()
                .flat_map(|&[(from, to), _]| a[from..=to].to_vec())
                .collect();
            prop_assert_eq!(&joined, &found.bytes);
            for &[(a_first, a_last), (b_first, b_last)] in &found.matches {
                prop_assert_eq!(&a[a_first..=a_last], &b[b_first..=b_last]);
            }
        }
    }

    #[test]
    fn the_table_is_limited() {
        let (a, b) = (vec![b'x'; 511], vec![b'x'; 511]);
        assert_eq!(common(&a, &b).unwrap().bytes.len(), 511);
        assert!(common(&a, &[&b[..], b"x"].concat()).is_err());
        assert!(common(&vec![b'x'; VALUE_BYTES_MAX], b"").is_err());
    }
}
