//! As whom a connection is let in, from its handshake or from a greeting, and for how long.
//!
//! A browser can give a socket no headers. So a handshake without credentials is agreed to even where everyone needs some,
//! and the connection may then do one thing: greet with a token, as its first message and within a time.

use std::sync::Arc;

use alluvium_access::{Lease, Meter};
use alluvium_feed_protocol::ErrorCode;
use alluvium_http::Peer;
use tokio::time::{Instant, sleep_until};

use super::End;
use crate::http::refusal::Refusal;
use crate::http::{Request, State, credentials, principal};
use crate::principal::Principal;

use alluvium_websocket::CloseCode;

/// The end of a connection that may not do anything, or not any more.
const UNAUTHORIZED: End = (CloseCode::POLICY, "unauthorized");

/// As whom a connection goes on.
pub(super) struct Standing {
    state: Arc<State>,
    credentials: Option<String>,
    /// What it rests on, if the server decided about it.
    lease: Option<Lease>,
    /// What counts its messages, if there are limits.
    meter: Option<Meter>,
    principal: Principal,
    /// Until when it must have greeted with a token, if it has presented nothing yet.
    greets_until: Option<Instant>,
}

impl Standing {
    /// As whom a handshake is let in. With wrong credentials it isn't.
    pub(super) fn of(state: &Arc<State>, request: &Request) -> Result<Self, Refusal> {
        let credentials = credentials(request.headers()).map(str::to_owned);
        let lease = request.extensions().get::<Lease>().cloned();
        let meter = request.extensions().get::<Meter>().cloned();
        let is_held = lease.as_ref().is_none_or(Lease::holds);
        let (principal, is_let_in) = match principal(state, request) {
            Ok(principal) => (principal, is_held),
            Err(Refusal::Gate(ErrorCode::Unauthorized)) if credentials.is_none() => {
                let address = Peer::of(request).map(|peer| peer.client(request.headers()));
                (Principal::nobody().from_address(address), false)
            }
            Err(refusal) => return Err(refusal),
        };
        let greets_until = (!is_let_in).then(|| Instant::now() + state.options.greeting_timeout);
        Ok(Self { state: Arc::clone(state), credentials, lease, meter, principal, greets_until })
    }

    pub(super) const fn principal(&self) -> &Principal {
        &self.principal
    }

    pub(super) const fn meter(&self) -> Option<&Meter> {
        self.meter.as_ref()
    }

    /// Whether it may do something already.
    pub(super) const fn is_let_in(&self) -> bool {
        self.greets_until.is_none()
    }

    /// Looks at the credentials again: what they are good for may end before the connection does.
    pub(super) fn renew(&mut self) -> Result<(), End> {
        if self.lease.is_some() || !self.is_let_in() {
            return Ok(());
        }
        let address = self.principal.address;
        let decided = self.state.gate.decide(self.credentials.as_deref()).map_err(|_| UNAUTHORIZED)?;
        self.principal = decided.from_address(address);
        Ok(())
    }

    /// Goes on as whom another token says. If that is none, everything stays as it is.
    pub(super) fn let_in(&mut self, token: &str) -> Result<(), ErrorCode> {
        let address = self.principal.address;
        match &self.lease {
            None => self.principal = self.state.gate.decide(Some(token))?.from_address(address),
            Some(lease) => {
                let lease = lease.exchange(token).ok_or(ErrorCode::Unauthorized)?;
                self.meter = self.meter.take().map(|meter| meter.of_caller(lease.caller()));
                self.principal = Principal::admitted(lease.caller()).from_address(address);
                self.lease = Some(lease);
            }
        }
        self.credentials = Some(token.to_owned());
        self.greets_until = None;
        Ok(())
    }

    /// Waits for the end of what it rests on: its token may do something else than before, or it has presented none in
    /// time. To be called anew after [`let_in`](Self::let_in).
    pub(super) fn ended(&self) -> impl Future<Output = End> + use<> {
        let (lease, greets_until) = (self.lease.clone(), self.greets_until);
        async move {
            let altered = async {
                match lease {
                    Some(lease) => lease.altered().await,
                    None => std::future::pending().await,
                }
            };
            let overdue = async {
                match greets_until {
                    Some(until) => sleep_until(until).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = altered => {}
                () = overdue => {}
            }
            UNAUTHORIZED
        }
    }

    /// The end of a connection that began with something else than a greeting with a good token.
    pub(super) const fn turned_away() -> End {
        UNAUTHORIZED
    }
}
