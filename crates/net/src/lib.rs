//! Drivers: how packets, control messages and time reach the state machines of `switchback-core`.
//!
//! Embedded racks use [`MemoryFabric`] and [`MemoryHub`], distributed ones [`UdpLink`], [`TcpHub`]
//! and [`connect`]. What a packet or message means is none of this crate's business.

mod addresses;
mod clock;
mod link;
mod links;
mod mailbox;
mod memory;
mod meter;
mod port;
mod refusal;
mod session;
mod target;
mod tcp;
mod udp;

pub use addresses::{fill_with_free, free_addresses};
pub use clock::{Clock, unix_ms, until};
pub use link::{ControlLink, Outgoing, SEND_BATCH, Sent, Uplink};
pub use links::{LinkPort, LinkStatistics, MemoryLinks};
pub use mailbox::Mailbox;
pub use memory::{ClientControl, Delivered, Dice, MemoryFabric, MemoryUplink, reply_address};
pub use meter::{SocketMeter, SocketQueue};
pub use port::{Carrier, ControlEvent, MemoryHub, PeerPort};
pub use refusal::{address_refused, directory_refused};
pub use session::DrivenSession;
pub use target::DatapathTarget;
pub use tcp::{ControlStatistics, Parts, TcpHub, connect, listen_for_nodes};
pub use udp::{BATCH, UdpLink, UdpSender};
