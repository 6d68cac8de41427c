//! A network of its own for each broker of a test, which can be cut: network namespaces on one bridge. Needs root.

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// Namespaces that reach each other and this machine. Dropping it removes them.
pub struct Network {
    /// Of all names, and of the addresses' third byte.
    number: u32,
    members: Vec<i32>,
}

static CREATED: AtomicU32 = AtomicU32::new(0);

impl Network {
    /// A namespace for each of these broker ids; `None` where this machine does not allow it.
    pub fn new(members: &[i32]) -> Option<Network> {
        let number = (std::process::id() + CREATED.fetch_add(1, Ordering::SeqCst)) % 250 + 1;
        let network = Network { number, members: members.to_vec() };
        let is_made = network.make();
        // A network that was made by half goes as well.
        is_made.then_some(network)
    }

    fn make(&self) -> bool {
        let bridge = self.bridge();
        let (machine, zookeeper) = (format!("{}.254/24", self.prefix()), format!("{}/24", self.zookeeper()));
        ip(&["link", "add", &bridge, "type", "bridge"])
            // Clients come from the first one.
            && ip(&["addr", "add", &machine, "dev", &bridge])
            && ip(&["addr", "add", &zookeeper, "dev", &bridge])
            && ip(&["link", "set", &bridge, "up"])
            && self.members.iter().all(|id| self.make_member(*id))
    }

    fn make_member(&self, id: i32) -> bool {
        let (namespace, bridge) = (self.namespace(id), self.bridge());
        let (outer, address) = (format!("{namespace}o"), format!("{}/24", self.host(id)));
        ip(&["netns", "add", &namespace])
            && ip(&["link", "add", &outer, "type", "veth", "peer", "name", "inner", "netns", &namespace])
            && ip(&["link", "set", &outer, "master", &bridge, "up"])
            && ip(&["-n", &namespace, "addr", "add", &address, "dev", "inner"])
            && ip(&["-n", &namespace, "link", "set", "inner", "up"])
            && ip(&["-n", &namespace, "link", "set", "lo", "up"])
    }

    /// Where a broker listens.
    pub fn host(&self, id: i32) -> String {
        format!("{}.{id}", self.prefix())
    }

    /// Where brokers reach ZooKeeper, and nothing else.
    pub fn zookeeper(&self) -> String {
        format!("{}.253", self.prefix())
    }

    fn prefix(&self) -> String {
        format!("10.213.{}", self.number)
    }

    pub fn namespace(&self, id: i32) -> String {
        format!("bnb{}-{id}", self.number)
    }

    /// Nothing that broker `id` sends to `address` arrives from now on.
    #[track_caller]
    pub fn cut(&self, id: i32, address: &str) {
        assert!(
            ip(&["-n", &self.namespace(id), "route", "add", "blackhole", address]),
            "cut {id} from {address}"
        );
    }

    #[track_caller]
    pub fn heal(&self, id: i32, address: &str) {
        assert!(
            ip(&["-n", &self.namespace(id), "route", "del", "blackhole", address]),
            "heal {id} to {address}"
        );
    }

    fn bridge(&self) -> String {
        format!("bnb{}", self.number)
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for id in &self.members {
            ip(&["netns", "del", &self.namespace(*id)]);
        }
        ip(&["link", "del", &self.bridge()]);
    }
}

fn ip(arguments: &[&str]) -> bool {
    let run = Command::new("ip").args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).status();
    run.is_ok_and(|status| status.success())
}
