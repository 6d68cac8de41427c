//! Who may do what with a node: ZooKeeper's access lists.

use std::net::IpAddr;
use std::sync::Arc;

use super::digest;

/// What an entry of an access list allows; ORed together.
pub(super) const READ: i32 = 1;
pub(super) const WRITE: i32 = 2;
pub(super) const CREATE: i32 = 4;
pub(super) const DELETE: i32 = 8;
pub(super) const ADMIN: i32 = 16;
pub(super) const ALL: i32 = 31;

/// Somebody, as a scheme knows them: `digest` with `user:hash`, `ip` with an address, `world` with `anyone`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    pub scheme: String,
    pub id: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AccessEntry {
    pub permissions: i32,
    pub identity: Identity,
}

/// The access list of a node; never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AccessList(Arc<[AccessEntry]>);

/// The access list of a node and how often it was set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NodeAccess {
    pub list: AccessList,
    pub version: i32,
}

/// In whose name a transaction is applied.
#[derive(Clone, Copy, Debug)]
pub(super) enum Access<'a> {
    /// The broker itself, or a transaction that was allowed before.
    Unchecked,
    Of(&'a [Identity]),
}

/// The identities of a client at an address, before it has told more.
pub(super) fn identity_of_address(address: IpAddr) -> Identity {
    Identity { scheme: "ip".to_owned(), id: address.to_string() }
}

/// What `user:password` of the scheme `digest` stands for. `None` where there is no user.
pub(super) fn identity_of_password(text: &[u8]) -> Option<Identity> {
    let text = std::str::from_utf8(text).ok()?;
    let user = text.split(':').next().unwrap_or_default();
    let id = format!("{user}:{}", digest::base64(&digest::sha1(text.as_bytes())));
    Some(Identity { scheme: "digest".to_owned(), id })
}

impl AccessList {
    /// Everybody may do everything.
    pub(super) fn open() -> AccessList {
        let anyone = Identity { scheme: "world".to_owned(), id: "anyone".to_owned() };
        AccessList(Arc::new([AccessEntry { permissions: ALL, identity: anyone }]))
    }

    /// `None` where there are no entries.
    pub(super) fn of(entries: Vec<AccessEntry>) -> Option<AccessList> {
        (!entries.is_empty()).then(|| AccessList(entries.into()))
    }

    pub(super) fn is_open(&self) -> bool {
        match &*self.0 {
            [only] => only.permissions == ALL && only.identity.is_anyone(),
            _ => false,
        }
    }

    pub(super) fn entries(&self) -> &[AccessEntry] {
        &self.0
    }

    /// What is stored for a list that a client asked for: `auth` stands for the client itself. `None` where the list
    /// is empty, names nobody, or is of a scheme that is not known.
    pub(super) fn resolve(asked: Vec<AccessEntry>, client: &[Identity]) -> Option<AccessList> {
        let mut entries: Vec<AccessEntry> = Vec::new();
        let mut add = |entry: AccessEntry| {
            if !entries.contains(&entry) {
                entries.push(entry);
            }
        };
        for AccessEntry { permissions, identity } in asked {
            match identity.scheme.as_str() {
                "auth" => {
                    // An address says where somebody is, not who.
                    let mut own = client.iter().filter(|identity| identity.scheme != "ip").peekable();
                    own.peek()?;
                    own.for_each(|identity| add(AccessEntry { permissions, identity: identity.clone() }));
                }
                _ if identity.is_legal() => add(AccessEntry { permissions, identity }),
                _ => return None,
            }
        }
        AccessList::of(entries)
    }

    /// One of the permissions, of which there may be several, is given to the client.
    pub(super) fn allows(&self, permissions: i32, client: &[Identity]) -> bool {
        self.0.iter().filter(|entry| entry.permissions & permissions != 0).any(|entry| {
            entry.identity.is_anyone() || client.iter().any(|client| entry.identity.matches(client))
        })
    }
}

impl Identity {
    fn is_anyone(&self) -> bool {
        self.scheme == "world" && self.id == "anyone"
    }

    fn is_legal(&self) -> bool {
        match self.scheme.as_str() {
            "world" => self.id == "anyone",
            "digest" => self.id.split(':').filter(|part| !part.is_empty()).count() == 2,
            "ip" => Network::parse(&self.id).is_some(),
            _ => false,
        }
    }

    /// The client is whom this entry of a list means.
    fn matches(&self, client: &Identity) -> bool {
        if self.scheme != client.scheme {
            return false;
        }
        match self.scheme.as_str() {
            "ip" => Network::parse(&self.id)
                .zip(client.id.parse().ok())
                .is_some_and(|(network, address)| network.contains(address)),
            _ => self.id == client.id,
        }
    }
}

/// Addresses that begin with the same bits, as `10.0.0.0/8`.
struct Network {
    address: IpAddr,
    bits: u32,
}

impl Network {
    fn parse(text: &str) -> Option<Network> {
        let (address, bits) =
            text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
        let address: IpAddr = address.parse().ok()?;
        let bits_max = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Some(bits_max), |bits| bits.parse().ok())?;
        (bits <= bits_max).then_some(Network { address, bits })
    }

    fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address) {
            (IpAddr::V4(network), IpAddr::V4(address)) => {
                let differing = network.to_bits() ^ address.to_bits();
                differing.leading_zeros() >= self.bits
            }
            (IpAddr::V6(network), IpAddr::V6(address)) => {
                let differing = network.to_bits() ^ address.to_bits();
                differing.leading_zeros() >= self.bits
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(permissions: i32, scheme: &str, id: &str) -> AccessEntry {
        AccessEntry { permissions, identity: Identity { scheme: scheme.to_owned(), id: id.to_owned() } }
    }

    fn client() -> Vec<Identity> {
        vec![
            identity_of_address("127.0.0.1".parse().unwrap()),
            identity_of_password(b"kafka:secret").unwrap(),
        ]
    }

    #[test]
    fn a_password_is_stored_as_zookeeper_stores_it() {
        // As org.apache.zookeeper.server.auth.DigestAuthenticationProvider prints it for super:admin.
        let identity = identity_of_password(b"super:admin").unwrap();
        assert_eq!(identity.id, "super:xQJmxLMiHGwaqBvst5y6rkB6HQs=");
    }

    #[test]
    fn auth_stands_for_whoever_asks_and_needs_somebody() {
        let resolved = AccessList::resolve(vec![entry(ALL, "auth", "")], &client()).unwrap();
        assert_eq!(resolved.entries(), [AccessEntry { permissions: ALL, identity: client()[1].clone() }]);
        assert_eq!(AccessList::resolve(vec![entry(ALL, "auth", "")], &client()[..1]), None);
    }

    #[test]
    fn lists_that_name_nobody_are_refused() {
        for (scheme, id) in
            [("world", "somebody"), ("digest", "user"), ("ip", "x"), ("ip", "10.0.0.0/40"), ("sasl", "kafka")]
        {
            assert_eq!(AccessList::resolve(vec![entry(ALL, scheme, id)], &client()), None, "{scheme}:{id}");
        }
        assert_eq!(AccessList::resolve(Vec::new(), &client()), None);
    }

    #[test]
    fn entries_said_twice_count_once() {
        let twice = vec![entry(READ, "world", "anyone"), entry(READ, "world", "anyone")];
        assert_eq!(AccessList::resolve(twice, &[]).unwrap().entries().len(), 1);
    }

    #[test]
    fn permissions_are_given_to_those_who_are_named() {
        #[track_caller]
        fn check(scheme: &str, id: &str, is_allowed: bool) {
            let list = AccessList::of(vec![entry(READ, scheme, id)]).unwrap();
            assert_eq!(list.allows(READ, &client()), is_allowed);
            assert!(!list.allows(WRITE, &client()));
        }
        check("world", "anyone", true);
        check("ip", "127.0.0.0/8", true);
        check("ip", "127.0.0.1", true);
        check("ip", "10.0.0.0/8", false);
        check("ip", "::1", false);
        check("digest", &client()[1].id, true);
        check("digest", "kafka:other", false);
        assert!(AccessList::open().is_open() && AccessList::open().allows(ADMIN, &[]));
    }
}
