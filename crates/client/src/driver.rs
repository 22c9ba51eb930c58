//! The thread that drives a client's session.

use crate::{Conflict, Error, Versioned};
use rand::TryRng;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::Arc;
use switchback_core::Now;
use switchback_core::client::{
    ClientConfig, Completion, Operation, Outcome, SessionStatistics, SubmitError,
};
use switchback_net::{Clock, ControlLink, DrivenSession, Mailbox, Uplink};
use switchback_wire::Seq;
use tokio::sync::oneshot;

/// What a caller asks.
#[derive(Debug)]
pub(crate) enum RequestKind {
    Get { key: Vec<u8> },
    Set { key: Vec<u8>, value: Vec<u8>, expiry_ms: u64, condition: Option<Seq> },
    Delete { key: Vec<u8>, condition: Option<Seq> },
    Statistics,
    Close,
}

/// What it is answered.
#[derive(Debug)]
pub(crate) enum Answer {
    Value(Option<Versioned>),
    Written(Result<Seq, Conflict>),
    Statistics(SessionStatistics),
}

type Answering = oneshot::Sender<Result<Answer, Error>>;

/// A question on its way to the thread.
#[derive(Debug)]
pub(crate) struct Request {
    kind: RequestKind,
    answer: Option<Answering>,
}

impl Request {
    pub(crate) fn new(kind: RequestKind) -> (Request, oneshot::Receiver<Result<Answer, Error>>) {
        let (answer, answered) = oneshot::channel();
        (Request { kind, answer: Some(answer) }, answered)
    }

    pub(crate) fn close() -> Request {
        Request { kind: RequestKind::Close, answer: None }
    }
}

/// A number that no other process draws, as good as certainly.
pub(crate) fn draw() -> u64 {
    rand::rngs::SysRng.try_next_u64().expect("the system gives random numbers") | 1
}

/// The thread's state.
pub(crate) struct Driver {
    driven: DrivenSession,
    queue: Arc<Mailbox<Request>>,
    /// Asked, but not yet submitted, each with the time at which it is given up.
    waiting: VecDeque<(Request, u64)>,
    outstanding: BTreeMap<u64, Answering>,
    next_token: u64,
    deadline_us: u64,
    closing: bool,
}

impl Driver {
    pub(crate) fn start(
        config: ClientConfig,
        uplink: Box<dyn Uplink>,
        control: Box<dyn ControlLink>,
        clock: Clock,
        queue: Arc<Mailbox<Request>>,
        opened: oneshot::Sender<()>,
    ) -> io::Result<()> {
        let deadline_us = config.deadline_us;
        let (driven, waker) = DrivenSession::new(config, draw(), uplink, control, clock)?;
        queue.register(&waker);
        let driver = Driver {
            driven,
            queue,
            waiting: VecDeque::new(),
            outstanding: BTreeMap::new(),
            next_token: 0,
            deadline_us,
            closing: false,
        };
        std::thread::Builder::new().name("client".into()).spawn(move || driver.run(opened))?;
        Ok(())
    }

    fn run(mut self, opened: oneshot::Sender<()>) {
        let mut opened = Some(opened);
        let mut asked = VecDeque::new();
        while !(self.closing && self.outstanding.is_empty() && self.waiting.is_empty()) {
            let now = self.driven.wait();
            if self.driven.session.is_open(now)
                && let Some(opened) = opened.take()
            {
                // A caller that doesn't wait for it any more has dropped the client, too.
                let _ = opened.send(());
            }
            self.driven.receive(now, |completion| finish(&mut self.outstanding, completion));
            self.queue.drain_into(&mut asked);
            let give_up_us = now.in_us(self.deadline_us);
            self.waiting.extend(asked.drain(..).map(|request| (request, give_up_us)));
            self.submit_waiting(now);
            self.transmit(now);
            self.driven.finish(|completion| finish(&mut self.outstanding, completion));
        }
        self.driven.close();
    }

    /// Submits what waits, in its order, as far as the session has room.
    fn submit_waiting(&mut self, now: Now) {
        while let Some((request, give_up_us)) = self.waiting.front_mut() {
            let operation = match &request.kind {
                RequestKind::Get { key } => Operation::Read { key },
                RequestKind::Set { key, value, expiry_ms, condition } => {
                    Operation::Write { key, value, expiry_ms: *expiry_ms, condition: *condition }
                }
                RequestKind::Delete { key, condition } => {
                    Operation::Delete { key, condition: *condition }
                }
                RequestKind::Statistics => {
                    let statistics = self.driven.session.statistics();
                    answer(request.answer.take(), Ok(Answer::Statistics(statistics)));
                    self.waiting.pop_front();
                    continue;
                }
                RequestKind::Close => {
                    self.closing = true;
                    self.waiting.pop_front();
                    continue;
                }
            };
            match self.driven.session.submit(now, operation, self.next_token) {
                Ok(()) => {
                    let sender = request.answer.take().expect("operations want an answer");
                    self.outstanding.insert(self.next_token, sender);
                    self.next_token += 1;
                }
                Err(SubmitError::TooLarge) => answer(request.answer.take(), Err(Error::TooLarge)),
                Err(_) if now.monotonic_us >= *give_up_us => {
                    answer(request.answer.take(), Err(Error::TimedOut))
                }
                Err(_) => return,
            }
            self.waiting.pop_front();
            self.transmit(now);
        }
    }

    fn transmit(&mut self, now: Now) {
        self.driven.transmit(now, |completion| finish(&mut self.outstanding, completion));
    }
}

/// Answers, if the caller still waits.
fn answer(to: Option<Answering>, with: Result<Answer, Error>) {
    if let Some(to) = to {
        let _ = to.send(with);
    }
}

fn finish(outstanding: &mut BTreeMap<u64, Answering>, completion: Completion<'_>) {
    let with = match completion.outcome {
        Outcome::Value { value, seq, expiry_ms } => {
            Ok(Answer::Value(Some(Versioned { value: value.to_vec(), seq, expiry_ms })))
        }
        Outcome::NotFound { .. } => Ok(Answer::Value(None)),
        Outcome::Written { seq } => Ok(Answer::Written(Ok(seq))),
        Outcome::ConditionFailed { seq } => Ok(Answer::Written(Err(Conflict { seq }))),
        Outcome::NoSpace => Err(Error::NoSpace),
        Outcome::Indeterminate => Err(Error::Indeterminate),
        Outcome::TimedOut | Outcome::Scanned { .. } => Err(Error::TimedOut),
    };
    answer(outstanding.remove(&completion.token), with);
}
