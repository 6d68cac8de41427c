use std::pin::Pin;
use std::sync::Arc;

use parking_lot::Mutex;

use super::instrument::{Counter, Family, Histogram, Instrument, Named};
use super::label::{Api, Closed, ControllerEvent, Error, Listener, Names, Principal, Refused};
use super::process;
use super::sample::{SAMPLED, Samples};

/// One measured quantity: a row of the reference page.
#[derive(Debug)]
pub struct Metric {
    pub name: &'static str,
    pub kind: MetricKind,
    pub labels: &'static [&'static str],
    pub help: &'static str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricKind {
    Counter,
    Gauge,
    Histogram,
}

impl MetricKind {
    pub fn name(self) -> &'static str {
        match self {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Histogram => "histogram",
        }
    }
}

/// Adds what is only known by looking, when somebody asks.
type Sampler = Arc<dyn Fn(Samples) -> Sampling + Send + Sync>;
type Sampling = Pin<Box<dyn Future<Output = Samples> + Send>>;

macro_rules! metrics {
    ($($field:ident: $type:ty, $name:literal, $help:literal;)*) => {
        /// Everything that is counted while it happens.
        ///
        /// A write is one relaxed atomic addition: no lock, no allocation, no order between metrics. Only those
        /// with names take a lock.
        pub struct Metrics {
            $(#[doc = $help] pub $field: $type,)*
            samplers: Mutex<Vec<Sampler>>,
        }

        impl Metrics {
            pub fn new(names: &Names) -> Metrics {
                Metrics {
                    $($field: <$type as Instrument>::new(names),)*
                    samplers: Mutex::new(Vec::new()),
                }
            }

            fn print_counted(&self, out: &mut String) {
                $(
                    print_head(&COUNTED[Position::$field as usize], out);
                    self.$field.print($name, "", out);
                )*
            }
        }

        #[expect(non_camel_case_types, reason = "the positions are named as the fields")]
        enum Position {
            $($field,)*
        }

        const COUNTED: &[Metric] = &[$(Metric {
            name: $name,
            kind: <$type as Instrument>::KIND,
            labels: <$type as Instrument>::LABELS,
            help: $help,
        },)*];
    };
}

metrics! {
    requests: Family<Api, Counter>, "barnabas_requests_total", "Requests answered.";
    request_duration: Family<Api, Histogram>, "barnabas_request_duration_seconds", "From a request's last byte until its answer is handed to the socket.";
    request_bytes: Family<Api, Counter>, "barnabas_request_bytes_total", "Bytes of requests, with their headers.";
    response_bytes: Family<Api, Counter>, "barnabas_response_bytes_total", "Bytes of answers, with their headers.";
    errors: Family<Error, Counter>, "barnabas_errors_total", "Errors that answers told of, each partition's or topic's by itself.";
    connections_accepted: Family<Listener, Counter>, "barnabas_connections_accepted_total", "Connections accepted.";
    connections_refused: Family<Refused, Counter>, "barnabas_connections_refused_total", "Connections closed before their first request, for a limit.";
    connections_closed: Family<Closed, Counter>, "barnabas_connections_closed_total", "Connections closed.";
    produced_records: Counter, "barnabas_produced_records_total", "Records that clients appended.";
    produced_bytes: Counter, "barnabas_produced_bytes_total", "Bytes of batches that clients appended.";
    compactions: Counter, "barnabas_compactions_total", "Logs compacted.";
    compaction_read_bytes: Counter, "barnabas_compaction_read_bytes_total", "Bytes of batches that compaction read.";
    compaction_written_bytes: Counter, "barnabas_compaction_written_bytes_total", "Bytes of batches that compaction wrote.";
    controller_elections: Counter, "barnabas_controller_elections_total", "Partitions that this broker, as controller, gave another leader.";
    controller_unclean_elections: Counter, "barnabas_controller_unclean_elections_total", "Of these, partitions whose leader was not in sync.";
    controller_election_duration: Histogram, "barnabas_controller_election_duration_seconds", "From the start of an event that made leaders until all of them were stored.";
    controller_event_duration: Family<ControllerEvent, Histogram>, "barnabas_controller_event_duration_seconds", "How long the controller worked at an event, its writes included.";
    controller_queue_duration: Histogram, "barnabas_controller_queue_duration_seconds", "How long questions waited for the controller.";
    producer_ids_given: Named<Principal>, "barnabas_producer_ids_given_total", "New producer ids given out, by who asked.";
    producers_forgotten: Counter, "barnabas_producers_forgotten_total", "Producers forgotten for barnabas.producer.ids.max, before they expired.";
    fetched_bytes: Counter, "barnabas_fetched_bytes_total", "Bytes of batches sent to clients.";
}

/// Every metric: those that are counted, then those that are sampled.
pub fn metrics_table() -> impl Iterator<Item = &'static Metric> {
    COUNTED.iter().chain(SAMPLED)
}

impl Metrics {
    /// Adds a function that `/metrics` calls each time; it adds to the samples and returns them.
    pub fn add_sampler<F>(&self, sampler: impl Fn(Samples) -> F + Send + Sync + 'static)
    where
        F: Future<Output = Samples> + Send + 'static,
    {
        self.samplers.lock().push(Arc::new(move |samples| Box::pin(sampler(samples))));
    }

    /// All metrics in Prometheus' text format.
    pub async fn print(&self) -> String {
        let mut out = String::with_capacity(16 * 1024);
        self.print_counted(&mut out);
        let mut samples = Samples::default();
        process::sample(&mut samples);
        let samplers = self.samplers.lock().clone();
        for sampler in samplers {
            samples = sampler(samples).await;
        }
        samples.print(&mut out);
        out
    }
}

pub(super) fn print_head(metric: &Metric, out: &mut String) {
    for text in ["# HELP ", metric.name, " ", metric.help, "\n# TYPE ", metric.name, " "] {
        out.push_str(text);
    }
    out.push_str(metric.kind.name());
    out.push('\n');
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::super::sample::Sampled;
    use super::*;

    fn metrics() -> Metrics {
        Metrics::new(&Names {
            apis: ["Produce", "Fetch"].map(str::to_owned).to_vec(),
            errors: ["UNKNOWN_SERVER_ERROR", "NONE", "OFFSET_OUT_OF_RANGE"].map(str::to_owned).to_vec(),
            listeners: vec!["PLAINTEXT".to_owned()],
        })
    }

    #[test]
    fn names_follow_the_conventions_of_prometheus() {
        let mut seen = HashSet::new();
        for metric in metrics_table() {
            assert!(seen.insert(metric.name), "{} stands twice", metric.name);
            assert_eq!(
                metric.name.ends_with("_total"),
                metric.kind == MetricKind::Counter,
                "{}",
                metric.name
            );
            assert!(metric.help.ends_with('.') && !metric.help.contains('\n'), "{}", metric.name);
            assert!(
                metric.kind != MetricKind::Histogram || metric.name.ends_with("_seconds"),
                "{}",
                metric.name
            );
        }
    }

    #[tokio::test]
    async fn counted_metrics_are_printed_under_their_labels() {
        let metrics = metrics();
        metrics.requests.at(1.into()).increment();
        metrics.connections_accepted.at(0.into()).add(3);
        metrics.connections_closed.at(Closed::Idle).add(4);
        metrics.errors.at((-1).into()).increment();
        metrics.errors.at(1.into()).add(2);
        metrics.add_sampler(|mut samples| async {
            samples.push(Sampled::MemoryBytes, &["requests"], 4096);
            samples
        });
        let text = metrics.print().await;
        for line in [
            "# HELP barnabas_requests_total Requests answered.",
            "# TYPE barnabas_requests_total counter",
            "barnabas_requests_total{api=\"Fetch\"} 1",
            "barnabas_connections_accepted_total{listener=\"PLAINTEXT\"} 3",
            "barnabas_connections_closed_total{reason=\"idle\"} 4",
            "barnabas_errors_total{error=\"UNKNOWN_SERVER_ERROR\"} 1",
            "barnabas_errors_total{error=\"OFFSET_OUT_OF_RANGE\"} 2",
            "barnabas_memory_bytes{owner=\"requests\"} 4096",
        ] {
            assert!(text.lines().any(|printed| printed == line), "{line} is missing in\n{text}");
        }
        assert!(!text.contains("api=\"Produce\""), "{text}");
    }

    #[tokio::test]
    async fn every_line_is_a_comment_or_a_sample() {
        let metrics = metrics();
        metrics.request_duration.at(0.into()).observe(std::time::Duration::from_millis(3));
        for line in metrics.print().await.lines() {
            let value = line.rsplit(' ').next().unwrap();
            assert!(line.starts_with("# ") || value.parse::<f64>().is_ok(), "{line}");
        }
    }
}
