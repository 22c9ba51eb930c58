//! The state machines of a rack, without I/O: the switch's agent, the controller, a node's shim, a
//! client's session.
//!
//! # The contract
//! Each of the four is a value that its environment (a thread, the simulator, an experiment)
//! drives, as in quinn-proto. Time, randomness and bytes come in as arguments, effects go out as
//! values:
//!
//! | call | what it means |
//! | --- | --- |
//! | `handle_packet(now, from, packet)` | a packet of the data path has arrived |
//! | `handle_message(now, message)` | a message of the control channel has arrived |
//! | `handle_done(now, done)` | an operation that `poll_op` gave has ended |
//! | `handle_readable(now)` | the datapath may have reports: the agent asks for them |
//! | `handle_lost(now, peer)` | the connection with a part is gone (controller) |
//! | `handle_timeout(now)` | the time of `poll_timeout` has come; too early or too late does no harm |
//! | `poll_packet(packet)` | fills `packet` with the next one to send, and returns where to; `None`: no more |
//! | `poll_message()` | the next message to send |
//! | `poll_op()` | the next operation to carry out, in this order: on storage, files or tables |
//! | `poll_completion()` | the next outcome of an operation that no packet ended (session) |
//! | `poll_timeout()` | when to call `handle_timeout`, in microseconds of the monotonic clock; `None`: never |
//!
//! After each `handle_` call the environment polls until there is nothing more. The controller's
//! messages and stores keep one order: `None` from one call may mean that the other one is next, so
//! the environment asks until both give `None`. A machine has the calls that it needs: the
//! controller and the agent see no packets of clients, the session has no operations. Its timers
//! are an enum, with a table of deadlines ([`timers::Timers`]) unless these follow from its state.
//! The shim has `poll_ops(ops)` for `poll_op`: it appends all operations, since an engine commits
//! many at once. The session's `submit` starts an operation, and its `handle_packet` returns the
//! outcome, which borrows the packet. No call blocks, panics on what came from outside, or reads a
//! clock.
//!
//! There are no sockets, clocks, threads or global randomness in here, and nothing iterates over an
//! unordered map: the same inputs give the same outputs, and the simulator runs the code that
//! ships.

pub mod client;
pub mod control;
pub mod controller;
pub mod floors;
pub mod mechanisms;
pub mod node;
pub mod storage;
pub mod switch;
pub mod time;
pub mod timers;
pub mod topology;

pub use time::Now;
