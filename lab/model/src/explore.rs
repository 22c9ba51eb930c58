//! Breadth first over all states, so that the first counterexample is a shortest one.
//!
//! A state that was seen is remembered by 64 bits of its hash: of 10 million states two share them
//! in one of 370,000 runs.

use crate::properties::Broken;
use crate::step::Action;
use hashbrown::HashTable;
use std::hash::{Hash, Hasher};

/// What is explored: which states there are, and what can happen in each.
pub trait Model {
    /// All that there is.
    type State: Clone + PartialEq + Hash;
    /// Something that can happen.
    type Action: Copy;

    /// The state in which it begins.
    fn first(&self) -> Self::State;
    /// Everything that can happen, into an emptied list. (Some of it may change nothing.)
    fn actions(&self, state: &Self::State, actions: &mut Vec<Self::Action>);
    /// The state after an action, and what it broke.
    fn take(&self, state: &Self::State, action: Self::Action) -> (Self::State, Option<Broken>);
    /// Whether nothing can be observed any more.
    fn is_over(&self, state: &Self::State) -> bool;
    /// Whether it is an error if nothing changes this state.
    fn must_go_on(&self, state: &Self::State) -> bool;
}

/// How an exploration ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Conclusion<A = Action> {
    /// Every state was seen, and all properties hold.
    Holds,
    /// They hold in every state that was seen, and more can be reached.
    HoldsSoFar,
    /// A shortest way to a state in which one doesn't.
    Violated(Broken, Vec<A>),
}

/// What was found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Report<A = Action> {
    /// How it ended.
    pub conclusion: Conclusion<A>,
    /// Different states.
    pub states: usize,
    /// Most actions from the first state that were taken.
    pub depth: usize,
}

struct Seen<A> {
    hash: u64,
    parent: u32,
    /// `None` of the first state.
    action: Option<A>,
}

/// States seen so far, and how they were reached.
struct Visited<A> {
    states: Vec<Seen<A>>,
    index: HashTable<u32>,
}

impl<A: Copy> Visited<A> {
    /// The index of a new state; `None` if it was seen.
    fn insert(&mut self, state: &impl Hash, parent: u32, action: Option<A>) -> Option<u32> {
        let mut hasher = Folding::new();
        state.hash(&mut hasher);
        let hash = hasher.finish();
        let states = &self.states;
        if self.index.find(hash, |at| states[*at as usize].hash == hash).is_some() {
            return None;
        }
        let at = u32::try_from(self.states.len()).expect("the limit is lower");
        self.states.push(Seen { hash, parent, action });
        let states = &self.states;
        self.index.insert_unique(hash, at, |at| states[*at as usize].hash);
        Some(at)
    }

    fn path_to(&self, mut at: u32) -> Vec<A> {
        let mut path = Vec::new();
        while let Seen { parent, action: Some(action), .. } = self.states[at as usize] {
            path.push(action);
            at = parent;
        }
        path.reverse();
        path
    }
}

/// Explores a model, up to about this many states. `progress` hears of each depth: actions and
/// states so far.
pub fn explore<M: Model>(
    model: &M,
    states_max: usize,
    mut progress: impl FnMut(usize, usize),
) -> Report<M::Action> {
    let mut visited = Visited { states: Vec::new(), index: HashTable::new() };
    let state = model.first();
    visited.insert(&state, 0, None);
    let mut frontier = vec![(0, state)];
    let mut possible = Vec::new();
    let mut depth = 0;
    while !frontier.is_empty() {
        let mut next = Vec::new();
        for (at, state) in frontier {
            let mut changes = false;
            possible.clear();
            model.actions(&state, &mut possible);
            for action in &possible {
                let (reached, broken) = model.take(&state, *action);
                if let Some(broken) = broken {
                    let mut path = visited.path_to(at);
                    path.push(*action);
                    return Report {
                        depth: path.len(),
                        conclusion: Conclusion::Violated(broken, path),
                        states: visited.states.len(),
                    };
                }
                if reached == state {
                    continue;
                }
                changes = true;
                if let Some(index) = visited.insert(&reached, at, Some(*action))
                    && !model.is_over(&reached)
                {
                    next.push((index, reached));
                }
            }
            if !changes && model.must_go_on(&state) {
                return Report {
                    depth,
                    conclusion: Conclusion::Violated(Broken::Stuck, visited.path_to(at)),
                    states: visited.states.len(),
                };
            }
        }
        if !next.is_empty() && visited.states.len() >= states_max {
            return Report {
                conclusion: Conclusion::HoldsSoFar,
                states: visited.states.len(),
                depth: depth + 1,
            };
        }
        depth += usize::from(!next.is_empty());
        progress(depth, visited.states.len());
        frontier = next;
    }
    Report { conclusion: Conclusion::Holds, states: visited.states.len(), depth }
}

/// Packs what it is given into words, multiplies each into 128 bits and folds them. A state is some
/// hundred small fields, so a word for each of them would take much of an exploration's time.
struct Folding {
    hash: u64,
    /// Up to six bytes behind a one, which is in the highest byte when there are seven.
    word: u64,
}

impl Folding {
    fn new() -> Folding {
        Folding { hash: 0, word: 1 }
    }

    #[inline(always)]
    fn push(&mut self, byte: u8) {
        self.word = self.word << 8 | u64::from(byte);
        if self.word >> 56 != 0 {
            self.fold();
        }
    }

    fn fold(&mut self) {
        let mixed = self.hash ^ self.word ^ 0x9E37_79B9_7F4A_7C15;
        let product = u128::from(mixed) * 0xD6E8_FEB8_6659_FD93;
        self.hash = (product as u64) ^ (product >> 64) as u64;
        self.word = 1;
    }
}

impl Hasher for Folding {
    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.push(*byte);
        }
    }

    #[inline]
    fn write_u8(&mut self, byte: u8) {
        self.push(byte);
    }

    /// The length of a list: they are short.
    #[inline]
    fn write_usize(&mut self, length: usize) {
        self.write(&(length as u16).to_le_bytes());
    }

    /// Which variant of an enum: they have few.
    #[inline]
    fn write_isize(&mut self, variant: isize) {
        self.push(variant as u8);
    }

    fn finish(&self) -> u64 {
        let mut last = Folding { ..*self };
        last.fold();
        last.hash
    }
}
