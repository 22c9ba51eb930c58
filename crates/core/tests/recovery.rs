//! The controller's recovery, driven by hand: switch, node and storage do at once what they are told.

use switchback_core::Now;
use switchback_core::control::{
    ClientNotice, ClientReport, Envelope, Message, NodeReport, Peer, SwitchReport, SwitchResult,
};
use switchback_core::controller::{Controller, ControllerConfig, Effect, Files};
use switchback_core::mechanisms::Mechanisms;
use switchback_wire::Address;

const NOW: Now = Now { monotonic_us: 1_000_000, unix_ms: 1_800_000_000_000 };
/// When a switch that has said nothing since counts as dead.
const LATER: Now = Now { monotonic_us: 2_000_000, unix_ms: 1_800_000_001_000 };

const HELLO: ClientReport =
    ClientReport::Hello { boot: 7, sent_us: 0, lanes: 4, epoch: 0, pressure: false, spooled: false };

/// A controller, and what it told its clients.
struct Rack {
    now: Now,
    controller: Controller,
    told: Vec<(u64, ClientNotice)>,
}

impl Rack {
    /// One switch, one node, and these clients with a session.
    fn with_clients(clients: &[u64]) -> Rack {
        let node = Address::in_memory(3, 0);
        let config = ControllerConfig { nodes: vec![node], routes: vec![vec![0]], ..ControllerConfig::default() };
        let controller = Controller::new(config, Mechanisms::ALL, &Files::default(), 1, NOW).expect("a new rack");
        let mut rack = Rack { now: NOW, controller, told: Vec::new() };
        let hello = NodeReport::Hello { boot: 1, address: node, epoch: 0, held: false, needs_epoch: false };
        rack.hear(Peer::Node(0), Message::FromNode(hello));
        rack.switch_starts(1);
        for client in clients {
            rack.client_says(*client, HELLO);
        }
        assert!(rack.controller.is_serving());
        rack
    }

    /// The switch has (re)started.
    fn switch_starts(&mut self, boot: u64) {
        let hello =
            SwitchReport::Hello { boot, address: Address::in_memory(2, 0), epoch: 0, classes: vec![(1024, 16)] };
        self.hear(Peer::Switch(0), Message::FromSwitch(hello));
    }

    fn client_says(&mut self, client: u64, report: ClientReport) {
        self.hear(Peer::Client(client), Message::FromClient(report));
    }

    fn hear(&mut self, from: Peer, message: Message) {
        self.controller.handle_message(self.now, Envelope { from, to: Peer::Controller, message });
        while let Some(effect) = self.controller.poll_effect() {
            self.carry_out(effect);
        }
    }

    fn carry_out(&mut self, effect: Effect) {
        let envelope = match effect {
            Effect::Store(_, id, _) => return self.controller.handle_stored(self.now, id),
            Effect::Send(envelope) => envelope,
        };
        let answer = match envelope.message {
            Message::ToSwitch(command) => {
                let (id, epoch) = (command.id, command.epoch);
                Message::FromSwitch(SwitchReport::Done { id, epoch, result: SwitchResult::Ok })
            }
            Message::ToNode(command) => {
                Message::FromNode(NodeReport::Done { id: command.id, epoch: command.epoch, error: None })
            }
            Message::ToClient(notice) => {
                let Peer::Client(client) = envelope.to else { panic!("{:?} is no client", envelope.to) };
                return self.told.push((client, notice));
            }
            message => panic!("a controller doesn't send {message:?}"),
        };
        self.controller.handle_message(self.now, Envelope { from: envelope.to, to: Peer::Controller, message: answer });
    }

    fn answers_gather(&mut self, client: u64) {
        let epoch = self.controller.epoch();
        self.client_says(client, ClientReport::Preserved { epoch, chunk: 0, last: true, records: Vec::new() });
    }
}

#[test]
fn a_recovery_waits_for_every_client() {
    let mut rack = Rack::with_clients(&[10, 11]);
    rack.switch_starts(2);
    let asked = rack.told.iter().filter(|(_, notice)| matches!(notice, ClientNotice::Gather { epoch: 2, .. }));
    assert_eq!(asked.map(|(client, _)| *client).collect::<Vec<_>>(), [10, 11]);
    rack.answers_gather(10);
    assert!(!rack.controller.is_serving());
    rack.answers_gather(11);
    assert!(rack.controller.is_serving());
}

#[test]
fn a_client_that_closes_its_session_during_a_recovery_is_no_longer_waited_for() {
    let mut rack = Rack::with_clients(&[10, 11]);
    rack.switch_starts(2);
    rack.answers_gather(10);
    rack.client_says(11, ClientReport::Close { boot: 6 });
    assert!(!rack.controller.is_serving(), "another life's Close ended the wait");
    rack.client_says(11, ClientReport::Close { boot: 7 });
    assert!(rack.controller.is_serving(), "it is still waited for");
    assert_eq!(rack.controller.abandoned_clients(), (2, &[][..]), "it gave nothing up that it had promised to keep");
}

#[test]
fn a_client_whose_first_hello_came_while_there_was_no_switch_is_waited_for() {
    let mut rack = Rack::with_clients(&[]);
    rack.now = LATER;
    rack.controller.handle_timeout(LATER);
    assert!(!rack.controller.is_serving(), "the switch isn't dead yet");
    rack.client_says(10, HELLO);
    rack.switch_starts(2);
    assert!(!rack.controller.is_serving(), "it wasn't waited for");
    rack.answers_gather(10);
    assert!(rack.controller.is_serving());
}
