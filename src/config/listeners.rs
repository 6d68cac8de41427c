//! Listeners: where the broker listens, what it advertises, which one brokers use among themselves.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

use super::error::{ConfigError, NotBuiltYetSnafu, inconsistent};

/// The name of a listener, upper case.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ListenerName(String);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SecurityProtocol {
    Plaintext,
    Ssl,
    SaslPlaintext,
    SaslSsl,
}

/// One address of a listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    pub listener: ListenerName,
    pub security_protocol: SecurityProtocol,
    /// A name or address without brackets; empty = all interfaces, or this machine's name when advertised.
    pub host: String,
    /// 0 = any free port, or the bound port when advertised.
    pub port: u16,
}

/// All listeners of a broker, checked against each other as Kafka does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listeners {
    pub bound: Vec<Endpoint>,
    pub advertised: Vec<Endpoint>,
    /// The listener that brokers use among themselves; it is one of `advertised`.
    pub inter_broker: ListenerName,
}

/// The settings that make up [`Listeners`], as they stand in the file.
pub(super) struct ListenerSettings<'a> {
    pub listeners: &'a str,
    pub advertised_listeners: Option<&'a str>,
    pub security_protocol_map: &'a str,
    pub inter_broker_listener_name: Option<&'a str>,
    /// `None` where it is not set, though its default is PLAINTEXT.
    pub security_inter_broker_protocol: Option<&'a str>,
    /// Listeners of a KRaft controller in the same process, which Barnabas does not open.
    pub controller_listener_names: &'a [String],
}

impl ListenerName {
    pub fn new(name: &str) -> ListenerName {
        ListenerName(name.to_uppercase())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ListenerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl SecurityProtocol {
    pub const ALL: [SecurityProtocol; 4] = [
        SecurityProtocol::Plaintext,
        SecurityProtocol::Ssl,
        SecurityProtocol::SaslPlaintext,
        SecurityProtocol::SaslSsl,
    ];

    pub fn name(self) -> &'static str {
        match self {
            SecurityProtocol::Plaintext => "PLAINTEXT",
            SecurityProtocol::Ssl => "SSL",
            SecurityProtocol::SaslPlaintext => "SASL_PLAINTEXT",
            SecurityProtocol::SaslSsl => "SASL_SSL",
        }
    }

    /// Its number in inter-broker requests.
    pub fn code(self) -> i16 {
        match self {
            SecurityProtocol::Plaintext => 0,
            SecurityProtocol::Ssl => 1,
            SecurityProtocol::SaslPlaintext => 2,
            SecurityProtocol::SaslSsl => 3,
        }
    }

    fn parse(name: &str) -> Option<SecurityProtocol> {
        Self::ALL.into_iter().find(|protocol| protocol.name().eq_ignore_ascii_case(name))
    }

    fn missing_part(self) -> Option<&'static str> {
        match self {
            SecurityProtocol::Plaintext => None,
            SecurityProtocol::Ssl => Some("TLS"),
            SecurityProtocol::SaslPlaintext | SecurityProtocol::SaslSsl => Some("SASL"),
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "{}://[{}]:{}", self.listener, self.host, self.port)
        } else {
            write!(f, "{}://{}:{}", self.listener, self.host, self.port)
        }
    }
}

type ProtocolMap = BTreeMap<ListenerName, SecurityProtocol>;

impl Listeners {
    /// Fails in Kafka's words when the settings do not go together, or when a listener needs a security
    /// protocol that is not built yet.
    pub(super) fn new(settings: &ListenerSettings<'_>) -> Result<Listeners, ConfigError> {
        let protocols = parse_protocol_map(settings.security_protocol_map)?;
        let mut bound = parse_endpoints(settings.listeners, &protocols)?;
        check_ports(&bound, settings.listeners)?;
        let is_controllers =
            |endpoint: &Endpoint| settings.controller_listener_names.contains(&endpoint.listener.0);
        bound.retain(|endpoint| !is_controllers(endpoint));
        let advertised = match settings.advertised_listeners {
            Some(text) => {
                let mut advertised = parse_endpoints(text, &protocols)?;
                advertised.retain(|endpoint| !is_controllers(endpoint));
                advertised
            }
            None => bound.clone(),
        };
        let listeners = Listeners { inter_broker: inter_broker(settings, &protocols)?, bound, advertised };
        listeners.check()?;
        Ok(listeners)
    }

    fn check(&self) -> Result<(), ConfigError> {
        if self.advertised.is_empty() {
            return inconsistent("There must be at least one broker advertised listener.");
        }
        if !self.advertised.iter().any(|endpoint| endpoint.listener == self.inter_broker) {
            return inconsistent(format!(
                "inter.broker.listener.name must be a listener name defined in advertised.listeners. \
                 The valid options based on currently configured listeners are {}",
                names(&self.advertised)
            ));
        }
        let is_bound = |wanted: &Endpoint| self.bound.iter().any(|bound| bound.listener == wanted.listener);
        if !self.advertised.iter().all(is_bound) {
            return inconsistent(format!(
                "advertised.listeners listener names must be equal to or a subset of the ones defined in \
                 listeners. Found {}. The valid options based on the current configuration are {}",
                names(&self.advertised),
                names(&self.bound)
            ));
        }
        if self.advertised.iter().any(|endpoint| endpoint.host == "0.0.0.0") {
            return inconsistent(
                "advertised.listeners cannot use the nonroutable meta-address 0.0.0.0. Use a routable IP address.",
            );
        }
        for endpoint in &self.bound {
            if let Some(missing) = endpoint.security_protocol.missing_part() {
                return NotBuiltYetSnafu { name: "listeners", value: endpoint.to_string(), missing }.fail();
            }
        }
        Ok(())
    }

    /// The names of what is advertised, comma separated.
    pub fn advertised_names(&self) -> String {
        names(&self.advertised)
    }

    /// What is advertised for a listener; `None` when it is not advertised.
    pub fn advertised_endpoint(&self, listener: &ListenerName) -> Option<&Endpoint> {
        self.advertised.iter().find(|endpoint| endpoint.listener == *listener)
    }
}

fn names(endpoints: &[Endpoint]) -> String {
    endpoints.iter().map(|endpoint| endpoint.listener.as_str()).collect::<Vec<_>>().join(",")
}

fn inter_broker(
    settings: &ListenerSettings<'_>,
    protocols: &ProtocolMap,
) -> Result<ListenerName, ConfigError> {
    match (settings.inter_broker_listener_name, settings.security_inter_broker_protocol) {
        (Some(_), Some(_)) => inconsistent(
            "Only one of inter.broker.listener.name and security.inter.broker.protocol should be set.",
        ),
        (Some(name), None) => {
            let name = ListenerName::new(name);
            if !protocols.contains_key(&name) {
                return inconsistent(format!(
                    "Listener with name {name} defined in inter.broker.listener.name not found in \
                     listener.security.protocol.map."
                ));
            }
            Ok(name)
        }
        (None, protocol) => Ok(ListenerName::new(protocol.unwrap_or("PLAINTEXT"))),
    }
}

fn parse_protocol_map(text: &str) -> Result<ProtocolMap, ConfigError> {
    let mut protocols = ProtocolMap::new();
    for pair in items(text) {
        let Some((name, protocol)) = pair.rsplit_once(':') else {
            return inconsistent(format!(
                "Error parsing configuration property 'listener.security.protocol.map': '{pair}' is not of the \
                 form NAME:PROTOCOL"
            ));
        };
        let Some(known) = SecurityProtocol::parse(protocol.trim()) else {
            return inconsistent(format!(
                "Invalid security protocol `{}` defined in listener.security.protocol.map",
                protocol.trim()
            ));
        };
        protocols.insert(ListenerName::new(name.trim()), known);
    }
    Ok(protocols)
}

fn items(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|item| !item.is_empty())
}

fn parse_endpoints(text: &str, protocols: &ProtocolMap) -> Result<Vec<Endpoint>, ConfigError> {
    let endpoints = items(text).map(|item| {
        parse_endpoint(item, protocols).or_else(|reason| {
            inconsistent(format!("Error creating broker listeners from '{text}': {reason}"))
        })
    });
    let endpoints = endpoints.collect::<Result<Vec<Endpoint>, ConfigError>>()?;
    let is_named_before = |at: usize| endpoints[..at].iter().any(|e| e.listener == endpoints[at].listener);
    if (0..endpoints.len()).any(is_named_before) {
        return inconsistent(format!("Each listener must have a different name, listeners: {text}"));
    }
    Ok(endpoints)
}

fn parse_endpoint(text: &str, protocols: &ProtocolMap) -> Result<Endpoint, String> {
    let (listener, host, port) =
        split_endpoint(text).ok_or_else(|| format!("Unable to parse {text} to a broker endpoint"))?;
    let listener = ListenerName::new(listener);
    match protocols.get(&listener) {
        Some(&security_protocol) => Ok(Endpoint { security_protocol, listener, host: host.to_owned(), port }),
        None => Err(format!("No security protocol defined for listener {listener}")),
    }
}

fn split_endpoint(text: &str) -> Option<(&str, &str, u16)> {
    let (listener, address) = text.split_once("://")?;
    let (host, port) = address.rsplit_once(':')?;
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let is_legal = |c: char| c.is_ascii_alphanumeric() || "-%._:".contains(c);
    (!listener.is_empty() && host.chars().all(is_legal)).then_some(())?;
    Some((listener, host, port.parse().ok()?))
}

/// Two listeners share a port only where one binds an IPv4 and the other an IPv6 address.
fn check_ports(endpoints: &[Endpoint], text: &str) -> Result<(), ConfigError> {
    let mut by_port: BTreeMap<u16, Vec<&Endpoint>> = BTreeMap::new();
    for endpoint in endpoints.iter().filter(|endpoint| endpoint.port != 0) {
        by_port.entry(endpoint.port).or_default().push(endpoint);
    }
    for (port, sharing) in by_port {
        match sharing.as_slice() {
            [_] => {}
            [one, two] if is_address(&one.host) && is_address(&two.host) => {
                if is_ipv4(&one.host) == is_ipv4(&two.host) {
                    return inconsistent(format!(
                        "If you have two listeners on the same port then one needs to be IPv4 and the other \
                         IPv6, listeners: {text}, port: {port}"
                    ));
                }
            }
            [_, _] => {
                return inconsistent(format!("Each listener must have a different port, listeners: {text}"));
            }
            _ => {
                return inconsistent(format!(
                    "Each listener must have a different port unless exactly one listener has an IPv4 address \
                     and the other IPv6 address, listeners: {text}, port: {port}"
                ));
            }
        }
    }
    Ok(())
}

fn is_address(host: &str) -> bool {
    is_ipv4(host) || host.parse::<Ipv6Addr>().is_ok()
}

fn is_ipv4(host: &str) -> bool {
    host.parse::<Ipv4Addr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(listeners: &str) -> ListenerSettings<'_> {
        ListenerSettings {
            listeners,
            advertised_listeners: None,
            security_protocol_map: "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,A:PLAINTEXT,B:PLAINTEXT",
            inter_broker_listener_name: None,
            security_inter_broker_protocol: None,
            controller_listener_names: &[],
        }
    }

    #[track_caller]
    fn refuses(settings: &ListenerSettings<'_>, expected: &str) {
        assert_eq!(Listeners::new(settings).unwrap_err().to_string(), expected);
    }

    #[test]
    fn advertised_listeners_default_to_the_bound_ones() {
        let listeners = Listeners::new(&settings("plaintext://:9092,A://h:0")).unwrap();
        assert_eq!(listeners.bound, listeners.advertised);
        assert_eq!(listeners.inter_broker.as_str(), "PLAINTEXT");
        assert_eq!(listeners.bound[0].to_string(), "PLAINTEXT://:9092");
        assert_eq!(listeners.bound[1].to_string(), "A://h:0");
    }

    #[test]
    fn ipv6_addresses_stand_in_brackets() {
        let listeners = Listeners::new(&settings("PLAINTEXT://[::1]:9092")).unwrap();
        assert_eq!(listeners.bound[0].host, "::1");
        assert_eq!(listeners.bound[0].to_string(), "PLAINTEXT://[::1]:9092");
    }

    #[test]
    fn clashing_listeners_are_refused() {
        refuses(
            &settings("PLAINTEXT://:9092,PLAINTEXT://:9093"),
            "Each listener must have a different name, listeners: PLAINTEXT://:9092,PLAINTEXT://:9093",
        );
        refuses(
            &settings("PLAINTEXT://:9092,A://:9092"),
            "Each listener must have a different port, listeners: PLAINTEXT://:9092,A://:9092",
        );
        refuses(
            &settings("PLAINTEXT://127.0.0.1:9092,A://127.0.0.2:9092"),
            "If you have two listeners on the same port then one needs to be IPv4 and the other IPv6, \
             listeners: PLAINTEXT://127.0.0.1:9092,A://127.0.0.2:9092, port: 9092",
        );
        assert!(Listeners::new(&settings("PLAINTEXT://127.0.0.1:9092,A://[::1]:9092")).is_ok());
        assert!(Listeners::new(&settings("PLAINTEXT://:0,A://:0")).is_ok());
    }

    #[test]
    fn unreadable_listeners_are_refused() {
        refuses(
            &settings("FOO://:9092"),
            "Error creating broker listeners from 'FOO://:9092': No security protocol defined for listener FOO",
        );
        for text in ["PLAINTEXT://h", "PLAINTEXT://h:99999", "h:9092", "PLAINTEXT://h_?:1"] {
            let reason = format!(
                "Error creating broker listeners from '{text}': Unable to parse {text} to a broker endpoint"
            );
            refuses(&settings(text), &reason);
        }
        refuses(&settings(""), "There must be at least one broker advertised listener.");
    }

    #[test]
    fn the_wildcard_address_is_not_advertised() {
        let nonroutable = "advertised.listeners cannot use the nonroutable meta-address 0.0.0.0. Use a routable IP address.";
        refuses(&settings("PLAINTEXT://0.0.0.0:9092"), nonroutable);
        let advertised_listeners = Some("PLAINTEXT://0.0.0.0:9092");
        refuses(&ListenerSettings { advertised_listeners, ..settings("PLAINTEXT://:9092") }, nonroutable);
        let advertised_listeners = Some("PLAINTEXT://broker.example:9092");
        let with_name = ListenerSettings { advertised_listeners, ..settings("PLAINTEXT://0.0.0.0:9092") };
        assert!(Listeners::new(&with_name).is_ok());
    }

    #[test]
    fn advertised_listeners_must_be_bound() {
        let advertised_listeners = Some("PLAINTEXT://h:1,A://h:2");
        refuses(
            &ListenerSettings { advertised_listeners, ..settings("PLAINTEXT://:9092") },
            "advertised.listeners listener names must be equal to or a subset of the ones defined in listeners. \
             Found PLAINTEXT,A. The valid options based on the current configuration are PLAINTEXT",
        );
    }

    #[test]
    fn brokers_need_one_of_the_advertised_listeners() {
        let missing = "inter.broker.listener.name must be a listener name defined in advertised.listeners. \
                       The valid options based on currently configured listeners are A";
        refuses(&settings("A://:9092"), missing);
        let inter_broker_listener_name = Some("a");
        let named = ListenerSettings { inter_broker_listener_name, ..settings("A://:9092") };
        assert_eq!(Listeners::new(&named).unwrap().inter_broker.as_str(), "A");
        refuses(
            &ListenerSettings { inter_broker_listener_name: Some("X"), ..settings("A://:9092") },
            "Listener with name X defined in inter.broker.listener.name not found in \
             listener.security.protocol.map.",
        );
        refuses(
            &ListenerSettings { security_inter_broker_protocol: Some("PLAINTEXT"), ..named },
            "Only one of inter.broker.listener.name and security.inter.broker.protocol should be set.",
        );
    }

    #[test]
    fn protocols_that_are_not_built_yet_end_the_start_with_one_line() {
        refuses(
            &settings("PLAINTEXT://:9092,SSL://:9093"),
            "listeners=SSL://:9093 needs TLS, which this version does not have yet",
        );
    }

    #[test]
    fn unknown_protocols_are_refused() {
        let security_protocol_map = "A:PLAINTEXT,B:FOO";
        refuses(
            &ListenerSettings { security_protocol_map, ..settings("A://:9092") },
            "Invalid security protocol `FOO` defined in listener.security.protocol.map",
        );
    }

    #[test]
    fn listeners_of_a_kraft_controller_are_left_out() {
        let controller_listener_names = &["B".to_owned()];
        let combined =
            ListenerSettings { controller_listener_names, ..settings("PLAINTEXT://:9092,B://:9093") };
        assert_eq!(Listeners::new(&combined).unwrap().bound.len(), 1);
    }
}
