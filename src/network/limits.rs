use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::model::Timestamp;

/// How many connections there may be; Kafka's settings of the same names.
#[derive(Clone, Debug, PartialEq)]
pub struct ConnectionLimits {
    /// `max.connections`, all listeners together.
    pub connections_max: usize,
    /// `max.connections.per.ip`.
    pub per_ip_max: usize,
    /// `max.connections.per.ip.overrides`.
    pub per_ip_overrides: HashMap<IpAddr, usize>,
    /// `max.connection.creation.rate`, connections a second; `None` = unlimited.
    pub creation_rate_max: Option<u32>,
    /// By the listener's name.
    pub of_listeners: HashMap<Arc<str>, ListenerLimits>,
    /// The listener that brokers use among themselves, where it is not the only one: a broker that is full takes their
    /// connections nevertheless.
    pub protected: Option<Arc<str>>,
}

/// The limits that a listener has for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListenerLimits {
    /// `listener.name.<name>.max.connections`.
    pub connections_max: usize,
    /// `listener.name.<name>.max.connection.creation.rate`; `None` = unlimited.
    pub creation_rate_max: Option<u32>,
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        ConnectionLimits {
            connections_max: i32::MAX as usize,
            per_ip_max: i32::MAX as usize,
            per_ip_overrides: HashMap::new(),
            creation_rate_max: None,
            of_listeners: HashMap::new(),
            protected: None,
        }
    }
}

/// Why a connection is not accepted now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Close it: this address has as many as it may have.
    TooManyFromAddress,
    /// Leave it in the backlog until another one ends.
    TooMany,
    /// Leave it in the backlog for so long.
    TooFast { wait_ms: u64 },
}

/// Counts connections against their limits.
pub struct ConnectionTable {
    state: Mutex<State>,
}

struct State {
    limits: ConnectionLimits,
    count: usize,
    per_ip: HashMap<IpAddr, usize>,
    per_listener: HashMap<Arc<str>, usize>,
    bucket: Bucket,
    /// Of listeners with a rate of their own.
    buckets: HashMap<Arc<str>, Bucket>,
}

/// The connections that a rate allows, as a bucket of one second.
#[derive(Clone, Copy)]
struct Bucket {
    tokens: f64,
    at: Timestamp,
}

impl Bucket {
    fn full(rate: Option<u32>) -> Bucket {
        Bucket { tokens: rate.map_or(0.0, f64::from), at: Timestamp::NONE }
    }

    /// Milliseconds until there is a token; 0 = there is one.
    fn wait_ms(&mut self, rate: u32, now: Timestamp) -> u64 {
        let rate = f64::from(rate.max(1));
        let elapsed_ms = now.since_ms(self.at).max(0) as f64;
        self.tokens = (self.tokens + elapsed_ms * rate / 1000.0).min(rate);
        self.at = now;
        if self.tokens >= 1.0 { 0 } else { ((1.0 - self.tokens) * 1000.0 / rate).ceil() as u64 }
    }
}

impl State {
    fn is_full(&self, listener: &Arc<str>) -> bool {
        let is_listener_full = self.limits.of_listeners.get(listener).is_some_and(|limits| {
            self.per_listener.get(listener).copied().unwrap_or(0) >= limits.connections_max
        });
        let is_protected = self.limits.protected.as_ref() == Some(listener);
        is_listener_full || (self.count >= self.limits.connections_max && !is_protected)
    }
}

impl ConnectionTable {
    pub fn new(limits: ConnectionLimits) -> Arc<ConnectionTable> {
        let bucket = Bucket::full(limits.creation_rate_max);
        Arc::new(ConnectionTable {
            state: Mutex::new(State {
                limits,
                count: 0,
                per_ip: HashMap::new(),
                per_listener: HashMap::new(),
                bucket,
                buckets: HashMap::new(),
            }),
        })
    }

    /// Counts a connection to `listener` from `address` until the permit is dropped.
    pub fn admit(
        self: &Arc<Self>,
        listener: &Arc<str>,
        address: IpAddr,
    ) -> Result<ConnectionPermit, Refusal> {
        let mut state = self.state.lock();
        if state.is_full(listener) {
            return Err(Refusal::TooMany);
        }
        let limit = state.limits.per_ip_overrides.get(&address).copied().unwrap_or(state.limits.per_ip_max);
        let from_address = state.per_ip.get(&address).copied().unwrap_or(0);
        if from_address >= limit {
            return Err(Refusal::TooManyFromAddress);
        }
        state.count += 1;
        state.per_ip.insert(address, from_address + 1);
        *state.per_listener.entry(Arc::clone(listener)).or_default() += 1;
        Ok(ConnectionPermit { table: Arc::clone(self), listener: Arc::clone(listener), address })
    }

    /// Whether the creation rates of the broker and of the listener allow one more connection now; takes it when so.
    pub fn pace(&self, listener: &Arc<str>, now: Timestamp) -> Result<(), Refusal> {
        let state = &mut *self.state.lock();
        let of_listener = state.limits.of_listeners.get(listener).and_then(|limits| limits.creation_rate_max);
        let mut wait_ms = state.limits.creation_rate_max.map_or(0, |rate| state.bucket.wait_ms(rate, now));
        if let Some(rate) = of_listener {
            let bucket = state.buckets.entry(Arc::clone(listener)).or_insert(Bucket::full(Some(rate)));
            wait_ms = wait_ms.max(bucket.wait_ms(rate, now));
        }
        if wait_ms > 0 {
            return Err(Refusal::TooFast { wait_ms });
        }
        if state.limits.creation_rate_max.is_some() {
            state.bucket.tokens -= 1.0;
        }
        if of_listener.is_some()
            && let Some(bucket) = state.buckets.get_mut(listener)
        {
            bucket.tokens -= 1.0;
        }
        Ok(())
    }

    /// New limits for connections to come; those that exist stay.
    pub fn change_limits(&self, limits: ConnectionLimits) {
        self.state.lock().limits = limits;
    }

    /// Whether the next connection to the listener would be one too many.
    pub fn is_full(&self, listener: &Arc<str>) -> bool {
        self.state.lock().is_full(listener)
    }

    pub fn len(&self) -> usize {
        self.state.lock().count
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// One counted connection.
pub struct ConnectionPermit {
    table: Arc<ConnectionTable>,
    listener: Arc<str>,
    address: IpAddr,
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let mut state = self.table.state.lock();
        state.count -= 1;
        if let Some(to_listener) = state.per_listener.get_mut(&self.listener) {
            *to_listener -= 1;
        }
        if let Some(from_address) = state.per_ip.get_mut(&self.address) {
            *from_address -= 1;
            if *from_address == 0 {
                state.per_ip.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOME: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
    const AWAY: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));

    fn plain() -> Arc<str> {
        "PLAINTEXT".into()
    }

    fn table(limits: ConnectionLimits) -> Arc<ConnectionTable> {
        ConnectionTable::new(limits)
    }

    #[test]
    fn an_address_has_its_own_limit() {
        let table = table(ConnectionLimits { per_ip_max: 1, ..ConnectionLimits::default() });
        let first = table.admit(&plain(), HOME).map_err(|_| ()).unwrap();
        assert_eq!(table.admit(&plain(), HOME).err(), Some(Refusal::TooManyFromAddress));
        assert!(table.admit(&plain(), AWAY).is_ok());
        drop(first);
        assert!(table.admit(&plain(), HOME).is_ok());
    }

    #[test]
    fn overrides_go_before_the_common_limit() {
        let per_ip_overrides = HashMap::from([(HOME, 0)]);
        let table = table(ConnectionLimits { per_ip_overrides, ..ConnectionLimits::default() });
        assert_eq!(table.admit(&plain(), HOME).err(), Some(Refusal::TooManyFromAddress));
        assert!(table.admit(&plain(), AWAY).is_ok());
    }

    #[test]
    fn the_whole_broker_has_a_limit() {
        let table = table(ConnectionLimits { connections_max: 1, ..ConnectionLimits::default() });
        let _first = table.admit(&plain(), HOME).map_err(|_| ()).unwrap();
        assert_eq!(table.admit(&plain(), AWAY).err(), Some(Refusal::TooMany));
    }

    #[test]
    fn creation_is_paced() {
        let table = table(ConnectionLimits { creation_rate_max: Some(10), ..ConnectionLimits::default() });
        let start = Timestamp(1_000_000);
        assert_eq!((0..12).filter(|_| table.pace(&plain(), start).is_ok()).count(), 10);
        assert_eq!(table.pace(&plain(), start), Err(Refusal::TooFast { wait_ms: 100 }));
        assert_eq!(table.pace(&plain(), start.plus_ms(100)), Ok(()));
    }

    fn with_internal(limits: ListenerLimits) -> (Arc<ConnectionTable>, Arc<str>) {
        let internal: Arc<str> = "INTERNAL".into();
        let of_listeners = HashMap::from([(Arc::clone(&internal), limits)]);
        (table(ConnectionLimits { of_listeners, ..ConnectionLimits::default() }), internal)
    }

    #[test]
    fn a_listener_has_its_own_limit() {
        let (table, internal) = with_internal(ListenerLimits { connections_max: 1, creation_rate_max: None });
        let first = table.admit(&internal, HOME).map_err(|_| ()).unwrap();
        assert_eq!(table.admit(&internal, AWAY).err(), Some(Refusal::TooMany));
        assert!(table.is_full(&internal) && !table.is_full(&plain()));
        drop(first);
        assert!(table.admit(&internal, AWAY).is_ok());
    }

    #[test]
    fn a_listener_has_its_own_pace() {
        let limits = ListenerLimits { connections_max: 100, creation_rate_max: Some(2) };
        let (table, internal) = with_internal(limits);
        let now = Timestamp(1_000_000);
        assert_eq!((0..5).filter(|_| table.pace(&internal, now).is_ok()).count(), 2);
        assert_eq!(table.pace(&internal, now), Err(Refusal::TooFast { wait_ms: 500 }));
        assert_eq!(table.pace(&plain(), now), Ok(()));
    }

    #[test]
    fn brokers_reach_one_that_is_full() {
        let internal: Arc<str> = "INTERNAL".into();
        let protected = Some(Arc::clone(&internal));
        let table = table(ConnectionLimits { connections_max: 1, protected, ..ConnectionLimits::default() });
        let _client = table.admit(&plain(), HOME).map_err(|_| ()).unwrap();
        assert!(table.is_full(&plain()));
        assert!(table.admit(&internal, HOME).is_ok());
    }
}
