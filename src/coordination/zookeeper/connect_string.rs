use snafu::{OptionExt, Snafu, ensure};

use crate::coordination::path;

/// `zookeeper.connect`: the servers of an ensemble, and the node below which the cluster's tree stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectString {
    /// At least one.
    pub servers: Vec<Server>,
    /// Without a trailing slash; empty = none.
    pub chroot: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// A name or an address, without brackets.
    pub host: String,
    pub port: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Snafu)]
#[snafu(display("zookeeper.connect={text} is not of the form host:port,…/chroot"))]
pub struct InvalidConnectString {
    text: String,
}

/// The port of a server that names none.
const DEFAULT_PORT: u16 = 2181;

impl ConnectString {
    pub fn parse(text: &str) -> Result<ConnectString, InvalidConnectString> {
        let (servers, chroot) = text.split_at(text.find('/').unwrap_or(text.len()));
        let chroot = chroot.trim_end();
        let chroot = if chroot == "/" { "" } else { chroot };
        ensure!(chroot.is_empty() || path::validate(chroot).is_ok(), InvalidConnectStringSnafu { text });
        let servers: Vec<Server> = servers
            .split(',')
            .map(str::trim)
            .filter(|server| !server.is_empty())
            .map(|server| parse_server(server).context(InvalidConnectStringSnafu { text }))
            .collect::<Result<_, _>>()?;
        ensure!(!servers.is_empty(), InvalidConnectStringSnafu { text });
        Ok(ConnectString { servers, chroot: chroot.to_owned() })
    }
}

fn parse_server(text: &str) -> Option<Server> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']')?;
            (host, port.strip_prefix(':'))
        }
        None => match text.rsplit_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        },
    };
    let port = port.map_or(Some(DEFAULT_PORT), |port| port.parse().ok())?;
    (!host.is_empty()).then(|| Server { host: host.to_owned(), port })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, servers: &[(&str, u16)], chroot: &str) {
        let servers =
            servers.iter().map(|&(host, port)| Server { host: host.to_owned(), port }).collect::<Vec<_>>();
        assert_eq!(ConnectString::parse(text), Ok(ConnectString { servers, chroot: chroot.to_owned() }));
    }

    #[test]
    fn servers_and_a_chroot_are_read() {
        check("localhost:2181", &[("localhost", 2181)], "");
        check("a, b:7 ,c:8/x/y", &[("a", 2181), ("b", 7), ("c", 8)], "/x/y");
        check("[::1]:2182,[fe80::2]/", &[("::1", 2182), ("fe80::2", 2181)], "");
    }

    #[test]
    fn what_names_no_server_is_refused() {
        for text in ["", "/x", ",", "a:b", "a:70000", ":2181", "a:1/x/", "a//x", "[::1:2181"] {
            assert!(ConnectString::parse(text).is_err(), "{text}");
        }
    }
}
