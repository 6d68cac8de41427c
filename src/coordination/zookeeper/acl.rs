//! Who may do what with a node that is created: Kafka's rules.

use crate::coordination::jute::Writer;

/// `zookeeper.set.acl`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum AclPolicy {
    /// Everybody may do everything.
    #[default]
    Open,
    /// Who created a node may do everything, everybody may read what holds no secrets.
    Creator,
}

/// What only brokers may read: they hold passwords, credentials and tokens.
const SENSITIVE: [&str; 3] = ["/config/users", "/config/brokers", "/delegation_token/tokens"];
/// Consumers of old clients write here, with no identity.
const CONSUMERS: &str = "/consumers";

const PERMISSION_READ: i32 = 1;
const PERMISSION_ALL: i32 = 31;

impl AclPolicy {
    /// Writes the access list of a new node at `path`, which is told without the chroot.
    pub(super) fn write(self, path: &str, writer: &mut Writer) {
        let entries = self.entries(path);
        writer.int(entries.len() as i32);
        for (permissions, scheme, id) in entries {
            writer.int(*permissions);
            writer.text(scheme);
            writer.text(id);
        }
    }

    fn entries(self, path: &str) -> &'static [(i32, &'static str, &'static str)] {
        match self {
            AclPolicy::Creator if is_below(path, CONSUMERS) => AclPolicy::Open.entries(path),
            AclPolicy::Open => &[(PERMISSION_ALL, "world", "anyone")],
            AclPolicy::Creator if SENSITIVE.iter().any(|sensitive| path.starts_with(sensitive)) => {
                &[(PERMISSION_ALL, "auth", "")]
            }
            AclPolicy::Creator => &[(PERMISSION_ALL, "auth", ""), (PERMISSION_READ, "world", "anyone")],
        }
    }
}

fn is_below(path: &str, parent: &str) -> bool {
    path.strip_prefix(parent).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_not_for_everybody_and_consumers_are() {
        let readers = |path| AclPolicy::Creator.entries(path).len();
        assert_eq!(readers("/brokers/topics/a"), 2);
        assert_eq!(readers("/config/users/alice"), 1);
        assert_eq!(readers("/delegation_token/tokens/x"), 1);
        assert_eq!(AclPolicy::Creator.entries("/consumers/g"), AclPolicy::Open.entries("/"));
        assert_eq!(readers("/consumersX"), 2);
    }
}
