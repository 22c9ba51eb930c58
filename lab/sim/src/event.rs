//! What can happen next.

/// Something that happens at a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Event {
    /// A packet arrives: its place among the packets under way.
    Packet(u32),
    /// A part's timer.
    Wake(u16),
    /// A control message arrives: its place among the messages under way.
    Message(u32),
    /// A switch's agent gets to the commands that wait for it.
    Agent(u16, u32),
    /// A node's engine has committed a group.
    Committed(u16, u32),
    /// The controller's oldest store is done.
    Stored(u32),
    /// A client's spool has written what was handed to it.
    Spooled(u16, u32),
    /// A thread of a client's application wants to do something.
    Submit(u16, u16),
    /// A control connection is made again.
    Reconnect(u16, u32),
    /// The controller notices that a connection broke.
    Lost(u16, u32),
    /// The next fault.
    Nemesis,
    /// A fault ends: its place in the list.
    Ends(u32),
    /// A message from node to node arrives: its place among those under way.
    Link(u32),
    /// An operator asks for a backup.
    BackUp,
    /// Bounds and other things are looked at now and then.
    Inspect,
}
