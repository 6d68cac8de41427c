use std::fmt::Write as _;

use super::counters::Counts;
use super::listener::{ConnectionInfo, Server};

/// The four-letter words that are answered, `4lw.commands.whitelist` of ZooKeeper: `*`, or names apart by commas. By
/// default `srvr` alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FourLetterWords(Vec<String>);

/// The words that ZooKeeper knows. One that is not answered here is answered as one that is not in the whitelist.
const KNOWN: [&str; 16] = [
    "conf", "cons", "crst", "dirs", "dump", "envi", "gtmk", "isro", "mntr", "ruok", "srst", "srvr", "stat",
    "wchc", "wchp", "wchs",
];
const ANSWERED: [&str; 9] = ["conf", "cons", "envi", "isro", "mntr", "ruok", "srvr", "stat", "wchs"];

/// Programs look at the first numbers of it: the protocol and the behaviour are those of this ZooKeeper.
const VERSION: &str = concat!("3.8.4-barnabas-", env!("CARGO_PKG_VERSION"));

impl FourLetterWords {
    pub fn parse(text: &str) -> FourLetterWords {
        let names = text.split(',').map(str::trim).filter(|name| !name.is_empty());
        FourLetterWords(names.map(str::to_owned).collect())
    }

    fn allows(&self, word: &str) -> bool {
        self.0.iter().any(|name| name == "*" || name == word)
    }
}

impl Default for FourLetterWords {
    fn default() -> FourLetterWords {
        FourLetterWords::parse("srvr")
    }
}

/// The word that the first bytes of a connection are, if they are one.
pub(super) fn named(bytes: &[u8; 4]) -> Option<&'static str> {
    KNOWN.into_iter().find(|word| word.as_bytes() == bytes)
}

pub(super) fn say(server: &Server, word: &str) -> String {
    if !server.options.words.allows(word) || !ANSWERED.contains(&word) {
        return format!("{word} is not executed because it is not in the whitelist.\n");
    }
    match word {
        "ruok" => "imok".to_owned(),
        "isro" => "rw".to_owned(),
        "srvr" => format!("{}{}", version(), summary(server)),
        "stat" => {
            let clients: String = server.connections().iter().map(|info| client(info, false)).collect();
            format!("{}Clients:\n{clients}\n{}", version(), summary(server))
        }
        "cons" => server.connections().iter().map(|info| client(info, true)).collect::<String>() + "\n",
        "conf" => configuration(server),
        "envi" => format!(
            "Environment:\nzookeeper.version={VERSION}\nos.name={}\nos.arch={}\n",
            std::env::consts::OS,
            std::env::consts::ARCH
        ),
        "mntr" => monitored(server),
        _ => watched(server),
    }
}

fn version() -> String {
    format!("Zookeeper version: {VERSION}\n")
}

fn summary(server: &Server) -> String {
    let counts = server.counters.counts();
    let Counts { received, sent, latency_ms_min, latency_ms_avg, latency_ms_max } = counts;
    let connections = server.connections();
    let outstanding = connections.iter().filter(|info| !info.outbox.is_empty()).count();
    format!(
        "Latency min/avg/max: {latency_ms_min}/{latency_ms_avg:.1}/{latency_ms_max}\n\
         Received: {received}\n\
         Sent: {sent}\n\
         Connections: {}\n\
         Outstanding: {outstanding}\n\
         Zxid: {:#x}\n\
         Mode: standalone\n\
         Node count: {}\n",
        connections.len(),
        server.store.last_zxid(),
        server.store.look(|database| database.tree().size().nodes),
    )
}

fn client(info: &ConnectionInfo, is_full: bool) -> String {
    let Counts { received, sent, latency_ms_min, latency_ms_avg, latency_ms_max } = info.counters.counts();
    let queued = u8::from(!info.outbox.is_empty());
    let mut text = format!(" /{}[1](queued={queued},recved={received},sent={sent}", info.peer);
    if is_full {
        let _ = write!(
            text,
            ",sid={:#x},to={},minlat={latency_ms_min},avglat={latency_ms_avg:.0},maxlat={latency_ms_max}",
            info.session, info.timeout_ms,
        );
    }
    text + ")\n"
}

fn configuration(server: &Server) -> String {
    format!(
        "clientPort={}\n\
         secureClientPort=-1\n\
         tickTime={}\n\
         minSessionTimeout={}\n\
         maxSessionTimeout={}\n\
         serverId=0\n",
        server.address.port(),
        server.options.tick.as_millis(),
        server.session_timeout_ms(2),
        server.session_timeout_ms(20),
    )
}

fn monitored(server: &Server) -> String {
    let Counts { received, sent, latency_ms_min, latency_ms_avg, latency_ms_max } = server.counters.counts();
    let (size, watches) =
        server.store.look(|database| (database.tree().size(), database.link_watches().counts().watches));
    let connections = server.connections();
    let outstanding = connections.iter().filter(|info| !info.outbox.is_empty()).count();
    let mut text = format!("zk_version\t{VERSION}\nzk_server_state\tstandalone\n");
    let numbers = [
        ("min_latency", latency_ms_min.to_string()),
        ("avg_latency", format!("{latency_ms_avg:.1}")),
        ("max_latency", latency_ms_max.to_string()),
        ("packets_received", received.to_string()),
        ("packets_sent", sent.to_string()),
        ("num_alive_connections", connections.len().to_string()),
        ("outstanding_requests", outstanding.to_string()),
        ("znode_count", size.nodes.to_string()),
        ("watch_count", watches.to_string()),
        ("ephemerals_count", size.ephemeral_nodes.to_string()),
        ("approximate_data_size", size.bytes.to_string()),
        ("global_sessions", server.sessions.lock().len().to_string()),
    ];
    for (name, value) in numbers {
        let _ = writeln!(text, "zk_{name}\t{value}");
    }
    text
}

fn watched(server: &Server) -> String {
    let counts = server.store.look(|database| database.link_watches().counts());
    format!(
        "{} connections watching {} paths\nTotal watches:{}\n",
        counts.links, counts.paths, counts.watches
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_whitelist_is_read_as_zookeepers() {
        let words = FourLetterWords::parse("stat, ruok");
        assert!(words.allows("stat") && words.allows("ruok") && !words.allows("srvr"));
        assert!(FourLetterWords::parse("*").allows("mntr"));
        assert!(FourLetterWords::default().allows("srvr") && !FourLetterWords::default().allows("ruok"));
    }

    #[test]
    fn only_words_are_words() {
        assert_eq!(named(b"ruok"), Some("ruok"));
        assert_eq!(named(b"\0\0\0\x2d"), None);
    }
}
