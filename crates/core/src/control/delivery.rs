//! Which message is for which part: a part's reports become messages to the controller, and of what
//! arrives at a part only its commands are taken.

use super::{
    ClientNotice, ClientReport, Command, Envelope, Message, NodeCommand, NodeReport, Peer,
    SwitchCommand, SwitchReport,
};

/// A part's reports become messages of one kind.
macro_rules! sent_as {
    ($($report:ty => $kind:ident),+) => {
        $(impl From<$report> for Message {
            fn from(report: $report) -> Message {
                Message::$kind(report)
            }
        })+
    };
}

/// A part takes messages of one kind; any other is given back.
macro_rules! taken_from {
    ($($command:ty => $kind:ident),+) => {
        $(impl TryFrom<Message> for $command {
            type Error = Message;

            fn try_from(message: Message) -> Result<$command, Message> {
                match message {
                    Message::$kind(command) => Ok(command),
                    other => Err(other),
                }
            }
        })+
    };
}

sent_as! {
    SwitchReport => FromSwitch,
    NodeReport => FromNode,
    ClientReport => FromClient
}
taken_from! {
    Command<SwitchCommand> => ToSwitch,
    Command<NodeCommand> => ToNode,
    ClientNotice => ToClient
}

/// What has arrived at a part.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Delivery {
    /// At the controller, with its sender: several peers send the same kinds.
    Controller(Envelope),
    /// At the agent of this switch.
    Switch(u16, Command<SwitchCommand>),
    /// At the shim of this node.
    Node(u16, Command<NodeCommand>),
    /// At this client's session.
    Client(u64, ClientNotice),
}

impl Envelope {
    /// A part's message to the controller.
    pub fn to_controller(from: Peer, message: impl Into<Message>) -> Envelope {
        Envelope { from, to: Peer::Controller, message: message.into() }
    }

    /// What arrives where; `None` for a message that isn't for the part at which it arrives, and is
    /// ignored there. The controller ignores such messages itself.
    pub fn deliver(self) -> Option<Delivery> {
        Some(match self.to {
            Peer::Controller => Delivery::Controller(self),
            Peer::Switch(switch) => Delivery::Switch(switch, self.message.try_into().ok()?),
            Peer::Node(node) => Delivery::Node(node, self.message.try_into().ok()?),
            Peer::Client(client) => Delivery::Client(client, self.message.try_into().ok()?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::ChainId;

    fn command<T>(body: T) -> Command<T> {
        Command { id: 7, chain: ChainId::new(0), epoch: 3, body }
    }

    #[test]
    fn a_message_arrives_at_its_own_kind_of_part_alone() {
        let to_switch = Message::ToSwitch(command(SwitchCommand::Lanes(1)));
        let to_node = Message::ToNode(command(NodeCommand::OfferAgain));
        let deliver = |to, message: &Message| {
            Envelope { from: Peer::Controller, to, message: message.clone() }.deliver()
        };
        let switch = Delivery::Switch(1, command(SwitchCommand::Lanes(1)));
        assert_eq!(deliver(Peer::Switch(1), &to_switch), Some(switch));
        assert_eq!(
            deliver(Peer::Node(2), &to_node),
            Some(Delivery::Node(2, command(NodeCommand::OfferAgain)))
        );
        for (to, message) in [
            (Peer::Switch(1), &to_node),
            (Peer::Node(2), &to_switch),
            (Peer::Client(9), &to_node),
            (Peer::Node(2), &Message::FromClient(ClientReport::Close { boot: 1 })),
        ] {
            assert_eq!(deliver(to, message), None, "{to:?} {message:?}");
        }
    }

    #[test]
    fn a_report_reaches_the_controller_with_its_sender() {
        let envelope = Envelope::to_controller(Peer::Client(9), ClientReport::Close { boot: 1 });
        assert_eq!(envelope.message, Message::FromClient(ClientReport::Close { boot: 1 }));
        assert_eq!(envelope.clone().deliver(), Some(Delivery::Controller(envelope)));
    }
}
