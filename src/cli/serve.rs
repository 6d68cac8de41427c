use std::io::{self, Write};
use std::path::{Path, PathBuf};

use snafu::{ResultExt, Snafu};
use tracing::{info, warn};

use super::java_options;
use super::process::{Runtimes, raise_open_files_limit, stop_signal};
use super::window::Window;
use crate::broker::{Broker, StartError};
use crate::config::{BrokerConfig, ConfigError, Properties, Warning, parse_override, parse_properties};
use crate::observe::logging;

/// Serve Kafka clients until SIGTERM or SIGINT.
///
/// With a properties file it is read as kafka-server-start reads it, and Kafka's defaults apply. Without one
/// these settings hold, and the command line may override them:
///
///   listeners=PLAINTEXT://localhost:9092
///   log.dirs=./barnabas-data
///   broker.id=1
///   barnabas.http.listener=localhost:8092
///   group.initial.rebalance.delay.ms=0
///   replication factor and min.isr of the internal topics: 1
///
/// When clients are accepted, one line that begins with "barnabas ready" is written to stdout. Logs go to
/// stderr; barnabas.log.level or the variable BARNABAS_LOG filter them. Of the variable KAFKA_OPTS the system
/// properties count that say how ZooKeeper is spoken to (java.security.auth.login.config, zookeeper.ssl.*, …).
#[derive(clap::Args, Default)]
#[command(verbatim_doc_comment)]
pub struct Arguments {
    /// server.properties, with Kafka's keys and those of docs/reference/configs.md.
    #[arg(value_name = "server.properties")]
    file: Option<PathBuf>,

    /// Set or replace one setting; may be given many times.
    #[arg(long = "override", value_name = "key=value")]
    overrides: Vec<String>,
}

/// What holds without a file: a broker on this machine for one developer.
const BUILT_IN: &[(&str, &str)] = &[
    ("listeners", "PLAINTEXT://localhost:9092"),
    ("log.dirs", "./barnabas-data"),
    ("broker.id", "1"),
    ("barnabas.http.listener", "localhost:8092"),
    ("group.initial.rebalance.delay.ms", "0"),
    ("offsets.topic.replication.factor", "1"),
    ("transaction.state.log.replication.factor", "1"),
    ("transaction.state.log.min.isr", "1"),
    ("share.coordinator.state.topic.replication.factor", "1"),
    ("share.coordinator.state.topic.min.isr", "1"),
];

/// Everything the command line and the file say, checked.
#[derive(Debug)]
pub struct Options {
    pub config: BrokerConfig,
    pub warnings: Vec<Warning>,
    /// The operator named the HTTP listener; a built-in one gives way when its port is taken.
    pub is_http_listener_asked_for: bool,
}

#[derive(Debug, Snafu)]
#[snafu(visibility(pub(super)))]
pub enum ServeError {
    #[snafu(display("cannot read {}: {source}", path.display()))]
    ReadFile { path: PathBuf, source: io::Error },

    #[snafu(display("{source}"))]
    Settings { source: ConfigError },

    #[snafu(display("barnabas.log.level: {source}"))]
    LogFilter { source: logging::InvalidFilter },

    #[snafu(display("cannot start threads: {source}"))]
    StartThreads { source: io::Error },

    #[snafu(display("cannot listen on barnabas.http.listener={address}: {source}"))]
    HttpListener { address: String, source: io::Error },

    #[snafu(display("all log directories have failed"))]
    AllLogDirsFailed,

    #[snafu(display("cannot wait for signals: {source}"))]
    Signals { source: io::Error },

    #[snafu(transparent)]
    Start { source: StartError },
}

pub fn run(arguments: &Arguments) -> Result<(), ServeError> {
    let options = Options::read(arguments, &std::env::var("KAFKA_OPTS").unwrap_or_default())?;
    let filter = std::env::var("BARNABAS_LOG").unwrap_or_else(|_| options.config.log_level().to_owned());
    logging::init(&filter).context(LogFilterSnafu)?;
    for warning in &options.warnings {
        warn!(%warning, "a setting has no effect");
    }
    raise_open_files_limit();
    let runtimes = Runtimes::start(options.config.worker_threads()).context(StartThreadsSnafu)?;
    let window = runtimes.aside.block_on(Window::open(&options))?;
    runtimes.workers.block_on(serve(options.config, &window))
}

async fn serve(config: BrokerConfig, window: &Window) -> Result<(), ServeError> {
    let stop = stop_signal().context(SignalsSnafu)?;
    tokio::pin!(stop);
    let stopped = async {
        let signal = stop.as_mut().await;
        info!(signal, "stopping while it starts");
    };
    // Logs stay as a crash leaves them.
    let Some(broker) = Broker::start_unless(stopped, config, window.metrics()).await? else { return Ok(()) };
    window.show(&broker);
    // A broker serves on when nobody can hear that it is ready.
    if let Err(error) = writeln!(std::io::stdout(), "{}", broker.ready()) {
        warn!(%error, "cannot print the ready line");
    }
    let signal = tokio::select! {
        signal = stop => signal,
        // As Kafka's broker halts: there is nothing left to write anything to.
        () = broker.log_dirs_failed() => return AllLogDirsFailedSnafu.fail(),
    };
    info!(signal, "stopping");
    window.stopping();
    broker.stop().await;
    Ok(())
}

impl Options {
    /// `kafka_opts` is the variable in which Kafka's scripts take options for the JVM.
    pub fn read(arguments: &Arguments, kafka_opts: &str) -> Result<Options, ServeError> {
        let mut asked_for = match &arguments.file {
            Some(path) => read_file(path)?,
            None => Properties::new(),
        };
        for option in &arguments.overrides {
            asked_for.extend([parse_override(option).context(SettingsSnafu)?]);
        }
        java_options::add(kafka_opts, &mut asked_for);
        let is_http_listener_asked_for = asked_for.contains_key("barnabas.http.listener");
        let mut settings = asked_for.clone();
        if arguments.file.is_none() {
            add_built_in(&mut settings);
        }
        let config = BrokerConfig::new(settings).context(SettingsSnafu)?;
        let mut warnings = config.warnings();
        warnings.retain(|warning| warning.name().is_none_or(|name| asked_for.contains_key(name)));
        Ok(Options { config, warnings, is_http_listener_asked_for })
    }
}

fn read_file(path: &Path) -> Result<Properties, ServeError> {
    let bytes = std::fs::read(path).context(ReadFileSnafu { path })?;
    parse_properties(&bytes).context(SettingsSnafu)
}

fn add_built_in(settings: &mut Properties) {
    for &(name, value) in BUILT_IN {
        let is_set = match name {
            "broker.id" => settings.contains_key("broker.id") || settings.contains_key("node.id"),
            "log.dirs" => settings.contains_key("log.dirs") || settings.contains_key("log.dir"),
            other => settings.contains_key(other),
        };
        if !is_set {
            settings.insert(name.to_owned(), value.to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::model::BrokerId;

    fn read(file: Option<&str>, overrides: &[&str]) -> Result<Options, String> {
        let mut written = tempfile::NamedTempFile::new().unwrap();
        written.write_all(file.unwrap_or_default().as_bytes()).unwrap();
        let arguments = Arguments {
            file: file.map(|_| written.path().to_owned()),
            overrides: overrides.iter().map(|&option| option.to_owned()).collect(),
        };
        Options::read(&arguments, "").map_err(|error| error.to_string())
    }

    fn warnings(options: &Options) -> Vec<String> {
        options.warnings.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn without_a_file_a_developers_broker_is_set_up() {
        let options = read(None, &[]).unwrap();
        assert_eq!(options.config.listeners().bound[0].to_string(), "PLAINTEXT://localhost:9092");
        assert_eq!(options.config.log_dirs(), ["./barnabas-data"]);
        assert_eq!(options.config.broker_id(), Some(BrokerId(1)));
        assert_eq!(options.config.http_listener(), Some("localhost:8092"));
        assert_eq!(warnings(&options), [""; 0]);
    }

    #[test]
    fn with_a_file_kafkas_defaults_apply() {
        let options = read(Some("broker.id=5\n"), &[]).unwrap();
        assert_eq!(options.config.log_dirs(), ["/tmp/kafka-logs"]);
        assert_eq!(options.config.http_listener(), None);
        assert_eq!(options.config.offsets_topic_replication_factor(), 3);
    }

    #[test]
    fn the_command_line_wins() {
        let options = read(Some("num.partitions=5\n"), &["num.partitions=7"]).unwrap();
        assert_eq!(options.config.num_partitions(), 7);
        let options = read(None, &["log.dir=/x", "node.id=9"]).unwrap();
        assert_eq!(options.config.log_dirs(), ["/x"]);
        assert_eq!(options.config.broker_id(), Some(BrokerId(9)));
    }

    #[test]
    fn what_cannot_work_is_one_clear_line() {
        assert_eq!(
            read(None, &["num.partitions"]).unwrap_err(),
            "num.partitions is not of the form key=value"
        );
        assert_eq!(
            read(None, &["num.partitions=0"]).unwrap_err(),
            "Invalid value 0 for configuration num.partitions: Value must be at least 1"
        );
        let missing = Arguments { file: Some("/nonexistent/a".into()), overrides: vec![] };
        let error = Options::read(&missing, "").unwrap_err().to_string();
        assert!(error.starts_with("cannot read /nonexistent/a: "), "{error}");
    }

    #[test]
    fn our_example_file_starts() {
        let example = include_str!("../../config/server.properties");
        let options = read(Some(example), &[]).unwrap();
        assert_eq!(options.config.broker_id(), Some(BrokerId(0)));
        assert_eq!(options.config.offsets_topic_replication_factor(), 1);
    }

    /// The keys that Kafka's own files set when they are unpacked, and their values.
    const STOCK: &str = "num.network.threads=3\nnum.io.threads=8\nsocket.send.buffer.bytes=102400\n\
        socket.receive.buffer.bytes=102400\nsocket.request.max.bytes=104857600\nnum.partitions=1\n\
        num.recovery.threads.per.data.dir=1\noffsets.topic.replication.factor=1\n\
        transaction.state.log.replication.factor=1\ntransaction.state.log.min.isr=1\nlog.retention.hours=168\n\
        log.retention.check.interval.ms=300000\n";

    #[test]
    fn the_stock_file_of_3_9_without_its_ensemble_starts() {
        let stock = format!(
            "{STOCK}broker.id=0\nlog.dirs=/tmp/kafka-logs\nzookeeper.connection.timeout.ms=18000\n\
             group.initial.rebalance.delay.ms=0\n"
        );
        let options = read(Some(&stock), &[]).unwrap();
        assert_eq!(options.config.broker_id(), Some(BrokerId(0)));
        assert_eq!(options.config.listeners().bound[0].to_string(), "PLAINTEXT://:9092");
    }

    #[test]
    fn the_stock_file_of_4_3_runs_its_broker_part() {
        let stock = format!(
            "{STOCK}process.roles=broker,controller\nnode.id=1\n\
             controller.quorum.bootstrap.servers=localhost:9093\n\
             listeners=PLAINTEXT://:9092,CONTROLLER://:9093\ninter.broker.listener.name=PLAINTEXT\n\
             advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093\n\
             controller.listener.names=CONTROLLER\nlistener.security.protocol.map=CONTROLLER:PLAINTEXT,\
             PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL\n\
             log.dirs=/tmp/kraft-combined-logs\nshare.coordinator.state.topic.replication.factor=1\n\
             share.coordinator.state.topic.min.isr=1\nlog.segment.bytes=1073741824\n"
        );
        let options = read(Some(&stock), &[]).unwrap();
        assert_eq!(options.config.listeners().bound.len(), 1);
        assert!(warnings(&options)[0].starts_with("process.roles is set"), "{:?}", warnings(&options));
    }
}
