//! Operators take switches out of service, and back (rule 27).

use super::Controller;
use crate::time::Now;

/// Why a switch stays where it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ServiceRefusal {
    /// The controller has heard of no switch with this number.
    #[error("no switch {0} has been heard of")]
    Unknown(u16),
    /// No other switch could serve its chain.
    #[error(
        "switch {switch} is the only one that can serve chain {chain}: start another one first, \
         or drain the cache and stop the rack"
    )]
    Last {
        /// The switch.
        switch: u16,
        /// The chain that it serves.
        chain: u16,
    },
    /// The switch that is to take its place serves already, is out of service, or isn't heard.
    #[error("switch {0} can't take its place: it isn't a spare")]
    NoSpare(u16),
    /// The switch that is to take its place has another layer, or other slots than its chain.
    #[error(
        "switch {spare} can't take the place of switch {switch}: it is of another layer, or has \
         other slots than its chain"
    )]
    Unfit {
        /// The switch that is to go.
        switch: u16,
        /// The one that doesn't fit.
        spare: u16,
    },
}

impl Controller {
    /// Takes a switch out of service, for good: also if this controller starts again. Its chain
    /// goes on with `spare`, else with any spare of its layer, else without that layer.
    /// Nothing is lost, and no write's outcome becomes unknown.
    /// [`SwitchStatus`](super::SwitchStatus) says when it is over.
    ///
    /// # Errors
    /// There is no such switch, or none that could go on in its place.
    pub fn drain_switch(
        &mut self,
        now: Now,
        switch: u16,
        spare: Option<u16>,
    ) -> Result<(), ServiceRefusal> {
        self.wake(now);
        self.members.switch(switch).ok_or(ServiceRefusal::Unknown(switch))?;
        if let Some(spare) = spare {
            let is_free = self.members.is_switch_alive(now, spare)
                && self.directory.home_of_switch(spare).is_none()
                && !self.directory.is_drained(spare);
            if !is_free {
                return Err(ServiceRefusal::NoSpare(spare));
            }
        }
        let chain = self.directory.chain_of_switch(switch);
        let (chains, mut cx) = self.split(now);
        let chain = chain.and_then(|chain| chains.get_mut(chain));
        if let Some(chain) = &chain {
            let members = chain.formed_without(&cx, spare, Some(switch));
            if members.is_empty() {
                return Err(ServiceRefusal::Last { switch, chain: chain.id().number() });
            }
            if let Some(spare) = spare.filter(|spare| !members.contains(spare)) {
                return Err(ServiceRefusal::Unfit { switch, spare });
            }
        }
        cx.directory.set_drained(cx.outbox, switch, true);
        if let Some(chain) = chain {
            chain.change(&mut cx, spare);
        }
        self.go_on(now);
        Ok(())
    }

    /// Takes a switch back into service, or one that was left out since a link to it was dead: it
    /// is a spare, or takes the place of its layer if that is free.
    ///
    /// # Errors
    /// There is no such switch.
    pub fn add_switch(&mut self, now: Now, switch: u16) -> Result<(), ServiceRefusal> {
        self.wake(now);
        if self.members.switch(switch).is_none() && !self.directory.is_drained(switch) {
            return Err(ServiceRefusal::Unknown(switch));
        }
        self.directory.set_drained(&mut self.outbox, switch, false);
        self.chains.iter_mut().for_each(|chain| chain.forgive(switch));
        self.go_on(now);
        Ok(())
    }
}
