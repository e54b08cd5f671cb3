//! Who a caller is and what it may do: the only place where that is decided.
//!
//! A transport hands the credentials of a connection or request to the [`Gate`] and gets a [`Principal`]; behind a server
//! that has decided already ([`alluvium_access`]) the gate is not asked. Every request
//! then passes through [`Principal::check`] once, before it is carried out. What a namespace hides is left out where
//! selections are made, with [`Principal::may_see`].

use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use alluvium_access::{Caller, Scope, routes::place_of_space};
use alluvium_feed_protocol::{ErrorCode, Id, Namespace, Request};
use alluvium_feed_store::feeds::Within;

use crate::failure::Failure;

/// Turns credentials into a principal.
pub trait Gate: Send + Sync {
    /// Who presents these credentials; `None` are none at all. The error is told to the caller.
    fn decide(&self, credentials: Option<&str>) -> Result<Principal, ErrorCode>;
}

/// Everyone may do everything.
#[derive(Copy, Clone, Debug, Default)]
pub struct OpenGate;

impl Gate for OpenGate {
    fn decide(&self, _credentials: Option<&str>) -> Result<Principal, ErrorCode> {
        Ok(Principal::anyone())
    }
}

/// A caller.
#[derive(Clone, Debug, Eq, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a permission of its own")]
pub struct Principal {
    /// What it is called in logs and owns its subscriptions by.
    pub name: String,
    /// Whether many callers go by this name, so that bounds for one caller don't apply to it.
    pub is_shared: bool,
    /// Whence it comes, where that is known: what tells callers apart that go by one name, where there isn't room for all.
    pub address: Option<IpAddr>,
    /// The spaces it may use: names, or beginnings of names that end in `*`; `None` for all.
    pub spaces: Option<Vec<String>>,
    /// Whether it may query and subscribe.
    pub may_read: bool,
    /// Whether it may append.
    pub may_append: bool,
    /// Whether it may list feeds.
    pub may_list: bool,
    /// The namespaces it may read and write; `None` for all.
    pub namespaces: Option<Vec<Namespace>>,
    /// The actors it may write as; `None` for all.
    pub actors: Option<Vec<Id>>,
    /// As whom the server let it in, with what that one may do in which space, besides all of the above.
    pub caller: Option<Arc<Caller>>,
}

/// Lets nobody in: for a surface behind a server that decides by itself.
#[derive(Copy, Clone, Debug, Default)]
pub struct ClosedGate;

impl Gate for ClosedGate {
    fn decide(&self, _credentials: Option<&str>) -> Result<Principal, ErrorCode> {
        Err(ErrorCode::Unauthorized)
    }
}

impl Principal {
    /// Someone who may do everything.
    pub fn anyone() -> Self {
        Self {
            name: "anyone".to_owned(),
            is_shared: true,
            address: None,
            spaces: None,
            may_read: true,
            may_append: true,
            may_list: true,
            namespaces: None,
            actors: None,
            caller: None,
        }
    }

    /// Someone who may do nothing yet.
    pub(crate) fn nobody() -> Self {
        Self {
            name: "nobody".to_owned(),
            spaces: Some(Vec::new()),
            may_read: false,
            may_append: false,
            may_list: false,
            ..Self::anyone()
        }
    }

    /// Whom the server has let in already.
    pub fn admitted(caller: &Arc<Caller>) -> Self {
        Self {
            name: caller.name.clone(),
            is_shared: caller.is_shared,
            namespaces: caller.namespaces.clone(),
            actors: caller.actors.clone(),
            caller: Some(Arc::clone(caller)),
            ..Self::anyone()
        }
    }

    /// The same one, coming from an address.
    #[must_use]
    pub fn from_address(self, address: Option<IpAddr>) -> Self {
        Self { address, ..self }
    }

    /// By what its share of a space is told from that of others: its name, and its address if many go by that name. Of
    /// IPv6, 64 bits are one address.
    pub(crate) fn share(&self) -> (&str, String) {
        let address = match self.address.filter(|_| self.is_shared) {
            None => String::new(),
            Some(IpAddr::V4(address)) => address.to_string(),
            Some(IpAddr::V6(address)) => {
                Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).to_string()
            }
        };
        (&self.name, address)
    }

    /// Whether the server that let it in leaves it this much in a space.
    fn is_granted(&self, scope: Scope, space: &Id) -> bool {
        self.caller.as_ref().is_none_or(|caller| caller.grants.may(scope, &place_of_space(space)))
    }

    /// Whether a request may be carried out in a space.
    pub(crate) fn check(&self, space: &Id, request: &Request) -> Result<(), Failure> {
        let forbidden = |what: &str| Err(Failure::refused(ErrorCode::Forbidden, what));
        if !self.may_use(space) {
            return forbidden("this space is not open to the caller");
        }
        match request {
            Request::Hello(_) | Request::Unsubscribe(_) => Ok(()),
            Request::Query(_) | Request::Subscribe(_)
                if self.may_read && self.is_granted(Scope::Read, space) =>
            {
                Ok(())
            }
            Request::Query(_) | Request::Subscribe(_) => forbidden("the caller may not read"),
            Request::ListFeeds(_) if self.may_list && self.is_granted(Scope::Read, space) => Ok(()),
            Request::ListFeeds(_) => forbidden("the caller may not list feeds"),
            Request::Append(_) if !(self.may_append && self.is_granted(Scope::Write, space)) => {
                forbidden("the caller may not append")
            }
            Request::Append(append) => {
                let is_foreign =
                    |actor: &Id| self.actors.as_ref().is_some_and(|actors| !actors.contains(actor));
                match append.blocks.iter().position(|block| is_foreign(&block.actor_id)) {
                    Some(index) => forbidden(&format!(
                        "`blocks[{index}].actorId`: the caller may not write as this actor"
                    )),
                    None => Ok(()),
                }
            }
        }
    }

    /// Whether a space is open to it.
    pub(crate) fn may_use(&self, space: &Id) -> bool {
        let fits = |pattern: &String| match pattern.strip_suffix('*') {
            Some(beginning) => space.as_str().starts_with(beginning),
            None => pattern == space.as_str(),
        };
        let is_open = self.spaces.as_ref().is_none_or(|spaces| spaces.iter().any(fits));
        is_open && Scope::ALL.into_iter().any(|scope| self.is_granted(scope, space))
    }

    /// In which namespaces a selection of its has to be, if it asks for some.
    pub(crate) fn within<'a>(&'a self, asked: Option<&'a [Namespace]>) -> Within<'a> {
        let own = self.namespaces.as_deref();
        Within { lists: asked.into_iter().chain(own).collect(), hides: own.is_some() }
    }

    /// Whether feeds of a namespace exist for it. Feeds without one are hidden from whoever is bound to some.
    pub(crate) fn may_see(&self, namespace: Option<&Namespace>) -> bool {
        match (&self.namespaces, namespace) {
            (None, _) => true,
            (Some(namespaces), Some(namespace)) => namespaces.contains(namespace),
            (Some(_), None) => false,
        }
    }
}
