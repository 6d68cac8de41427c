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
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        ConnectionLimits {
            connections_max: i32::MAX as usize,
            per_ip_max: i32::MAX as usize,
            per_ip_overrides: HashMap::new(),
            creation_rate_max: None,
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
    /// Connections that the creation rate allows at `tokens_at`, as a bucket of one second.
    tokens: f64,
    tokens_at: Timestamp,
}

impl ConnectionTable {
    pub fn new(limits: ConnectionLimits) -> Arc<ConnectionTable> {
        let tokens = limits.creation_rate_max.map_or(0.0, f64::from);
        Arc::new(ConnectionTable {
            state: Mutex::new(State {
                limits,
                count: 0,
                per_ip: HashMap::new(),
                tokens,
                tokens_at: Timestamp::NONE,
            }),
        })
    }

    /// Counts a connection from `address` until the permit is dropped.
    pub fn admit(self: &Arc<Self>, address: IpAddr) -> Result<ConnectionPermit, Refusal> {
        let mut state = self.state.lock();
        if state.count >= state.limits.connections_max {
            return Err(Refusal::TooMany);
        }
        let limit = state.limits.per_ip_overrides.get(&address).copied().unwrap_or(state.limits.per_ip_max);
        let from_address = state.per_ip.get(&address).copied().unwrap_or(0);
        if from_address >= limit {
            return Err(Refusal::TooManyFromAddress);
        }
        state.count += 1;
        state.per_ip.insert(address, from_address + 1);
        Ok(ConnectionPermit { table: Arc::clone(self), address })
    }

    /// Whether the creation rate allows one more connection now; takes it when so.
    pub fn pace(&self, now: Timestamp) -> Result<(), Refusal> {
        let mut state = self.state.lock();
        let Some(rate) = state.limits.creation_rate_max else {
            return Ok(());
        };
        let rate = f64::from(rate.max(1));
        let elapsed_ms = now.since_ms(state.tokens_at).max(0) as f64;
        state.tokens = (state.tokens + elapsed_ms * rate / 1000.0).min(rate);
        state.tokens_at = now;
        if state.tokens >= 1.0 {
            state.tokens -= 1.0;
            return Ok(());
        }
        let wait_ms = ((1.0 - state.tokens) * 1000.0 / rate).ceil() as u64;
        Err(Refusal::TooFast { wait_ms })
    }

    /// New limits for connections to come; those that exist stay.
    pub fn change_limits(&self, limits: ConnectionLimits) {
        self.state.lock().limits = limits;
    }

    /// Whether the next connection would be one too many.
    pub fn is_full(&self) -> bool {
        let state = self.state.lock();
        state.count >= state.limits.connections_max
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
    address: IpAddr,
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let mut state = self.table.state.lock();
        state.count -= 1;
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

    fn table(limits: ConnectionLimits) -> Arc<ConnectionTable> {
        ConnectionTable::new(limits)
    }

    #[test]
    fn an_address_has_its_own_limit() {
        let table = table(ConnectionLimits { per_ip_max: 1, ..ConnectionLimits::default() });
        let first = table.admit(HOME).map_err(|_| ()).unwrap();
        assert_eq!(table.admit(HOME).err(), Some(Refusal::TooManyFromAddress));
        assert!(table.admit(AWAY).is_ok());
        drop(first);
        assert!(table.admit(HOME).is_ok());
    }

    #[test]
    fn overrides_go_before_the_common_limit() {
        let per_ip_overrides = HashMap::from([(HOME, 0)]);
        let table = table(ConnectionLimits { per_ip_overrides, ..ConnectionLimits::default() });
        assert_eq!(table.admit(HOME).err(), Some(Refusal::TooManyFromAddress));
        assert!(table.admit(AWAY).is_ok());
    }

    #[test]
    fn the_whole_broker_has_a_limit() {
        let table = table(ConnectionLimits { connections_max: 1, ..ConnectionLimits::default() });
        let _first = table.admit(HOME).map_err(|_| ()).unwrap();
        assert_eq!(table.admit(AWAY).err(), Some(Refusal::TooMany));
    }

    #[test]
    fn creation_is_paced() {
        let table = table(ConnectionLimits { creation_rate_max: Some(10), ..ConnectionLimits::default() });
        let start = Timestamp(1_000_000);
        assert_eq!((0..12).filter(|_| table.pace(start).is_ok()).count(), 10);
        assert_eq!(table.pace(start), Err(Refusal::TooFast { wait_ms: 100 }));
        assert_eq!(table.pace(start.plus_ms(100)), Ok(()));
    }
}
