use snafu::Snafu;

/// Why a setting is refused, worded as Kafka words it.
///
/// A start ends with it; for topics it is answered as INVALID_CONFIG, for brokers as INVALID_REQUEST, except
/// [`ListOperation`](ConfigError::ListOperation), [`UnknownKey`](ConfigError::UnknownKey) and
/// [`NoPasswordEncoder`](ConfigError::NoPasswordEncoder), which are always INVALID_CONFIG.
#[derive(Debug, Snafu, PartialEq, Eq)]
#[snafu(visibility(pub(super)))]
pub enum ConfigError {
    /// The text is not of the key's type, or outside its bounds.
    #[snafu(display("Invalid value {value} for configuration {name}: {reason}"))]
    InvalidValue { name: String, value: String, reason: String },

    #[snafu(display("Unknown topic config name: {name}"))]
    UnknownTopicKey { name: String },

    #[snafu(display("Unknown config name: {name}"))]
    UnknownKey { name: String },

    #[snafu(display("Config value {operation} is not allowed for config key: {name}"))]
    ListOperation { operation: &'static str, name: String },

    #[snafu(display(
        "conflict topic config setting min.compaction.lag.ms ({min_ms}) > max.compaction.lag.ms ({max_ms})"
    ))]
    CompactionLags { min_ms: i64, max_ms: i64 },

    #[snafu(display(
        "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log storage."
    ))]
    TieredStorageDisabled,

    #[snafu(display(
        "It is invalid to set `remote.log.delete.on.disable` or `remote.log.copy.disable` under Zookeeper's mode."
    ))]
    TieringNeedsKraft,

    /// Values that are each valid but do not go together.
    #[snafu(display("{reason}"))]
    Inconsistent { reason: String },

    #[snafu(display("Cannot update these configs dynamically: Set({})", names.join(", ")))]
    NotDynamic { names: Vec<String> },

    #[snafu(display(
        "These security configs can be dynamically updated only per-listener using the listener prefix: Set({})",
        names.join(", ")
    ))]
    NeedsListenerPrefix { names: Vec<String> },

    #[snafu(display(
        "Cannot update these configs at default cluster level, broker id must be specified: Set({})",
        names.join(", ")
    ))]
    NeedsBrokerId { names: Vec<String> },

    #[snafu(display("Password encoder secret not configured"))]
    NoPasswordEncoder,

    /// A valid setting that names a part of Kafka without which the broker must not start.
    #[snafu(display("{name}={value} needs {missing}, which this version does not have yet"))]
    NotBuiltYet { name: String, value: String, missing: &'static str },

    #[snafu(display("{option} is not of the form key=value"))]
    Override { option: String },

    #[snafu(display("Missing value for key {name}"))]
    OverrideWithoutValue { name: String },

    #[snafu(display("line {line} of the properties has a malformed \\uxxxx escape"))]
    UnicodeEscape { line: usize },
}

/// Shorthand for the cross checks.
pub(super) fn inconsistent<T>(reason: impl Into<String>) -> Result<T, ConfigError> {
    InconsistentSnafu { reason }.fail()
}
