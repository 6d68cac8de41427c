/// The names behind numeric labels, which rooms above know.
#[derive(Debug, Clone, Default)]
pub struct Names {
    /// The name of each API at the position of its key; unused keys are empty.
    pub apis: Vec<String>,
    /// The name of each error code, from -1 on.
    pub errors: Vec<String>,
    /// The broker's listeners, in the order of its settings.
    pub listeners: Vec<String>,
}

/// A label with a fixed set of values.
pub(super) trait Label: Copy {
    const NAME: &'static str;

    /// Where the value stands in [`values`](Label::values); beyond the end = the last one.
    fn position(self) -> usize;
    fn values(names: &Names) -> Vec<String>;
}

/// A label whose values are known only when they are met.
pub(super) trait OpenLabel {
    const NAME: &'static str;
}

/// Who is connected, as ACLs name them.
#[derive(Debug, Clone, Copy)]
pub struct Principal;

impl OpenLabel for Principal {
    const NAME: &'static str = "principal";
}

/// The key of an API.
#[derive(Debug, Clone, Copy)]
pub struct Api(i16);

impl From<i16> for Api {
    fn from(key: i16) -> Self {
        Api(key)
    }
}

impl Label for Api {
    const NAME: &'static str = "api";

    fn position(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }

    fn values(names: &Names) -> Vec<String> {
        names.apis.iter().cloned().chain(["unknown".to_owned()]).collect()
    }
}

/// An error code of Kafka's.
#[derive(Debug, Clone, Copy)]
pub struct Error(i16);

impl From<i16> for Error {
    fn from(code: i16) -> Self {
        Error(code)
    }
}

impl Label for Error {
    const NAME: &'static str = "error";

    fn position(self) -> usize {
        usize::try_from(i32::from(self.0) + 1).unwrap_or(usize::MAX)
    }

    fn values(names: &Names) -> Vec<String> {
        names.errors.iter().cloned().chain(["unknown".to_owned()]).collect()
    }
}

/// The position of a listener in the broker's settings at its start.
#[derive(Debug, Clone, Copy)]
pub struct Listener(usize);

impl From<usize> for Listener {
    fn from(position: usize) -> Self {
        Listener(position)
    }
}

impl Label for Listener {
    const NAME: &'static str = "listener";

    fn position(self) -> usize {
        self.0
    }

    /// Listeners that are added while the broker runs count together.
    fn values(names: &Names) -> Vec<String> {
        names.listeners.iter().cloned().chain(["other".to_owned()]).collect()
    }
}

macro_rules! labels {
    ($($(#[$doc:meta])* $name:ident as $label:literal { $($value:ident = $text:literal),* $(,)? })*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $name {
            $($value,)*
        }

        impl $name {
            /// As the label shows it.
            pub fn name(self) -> &'static str {
                match self {
                    $($name::$value => $text,)*
                }
            }
        }

        impl Label for $name {
            const NAME: &'static str = $label;

            fn position(self) -> usize {
                self as usize
            }

            fn values(_: &Names) -> Vec<String> {
                vec![$($text.to_owned(),)*]
            }
        }
    )*};
}

labels! {
    /// Why a connection was refused.
    Refused as "reason" {
        MaxConnections = "max_connections",
        MaxConnectionsPerIp = "max_connections_per_ip",
        CreationRate = "creation_rate",
    }

    /// What an active controller works at.
    ControllerEvent as "event" {
        Election = "election",
        Brokers = "brokers",
        Topics = "topics",
        Deletion = "deletion",
        LogDirs = "log_dirs",
        UncleanElection = "unclean_election",
        Response = "response",
        LeaderElection = "leader_election",
        LeaderBalance = "leader_balance",
        IsrChange = "isr_change",
        ControlledShutdown = "controlled_shutdown",
        Reassignment = "reassignment",
    }

    /// Why a connection was closed.
    Closed as "reason" {
        ByPeer = "peer",
        ByAnswer = "answer",
        Idle = "idle",
        RequestTooLarge = "request_too_large",
        InvalidRequest = "invalid_request",
        OutOfMemory = "out_of_memory",
        Error = "error",
        Shutdown = "shutdown",
    }
}
