use std::io::Write;
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use hdrhistogram::Histogram;
use wire::ProduceRequest;

use super::connection::{decode_response, request_frame};
use super::error::check;
use super::requests::{FETCH_VERSION, PRODUCE_VERSION, fetch_request, one_record, produce_request};
use super::throughput::{CORRELATION_ID, connect, read_frame};
use super::{Figure, LoadConnection, LoadError};

/// One producer that sends records at fixed moments, whether or not earlier ones are answered (open loop): a broker that
/// pauses is charged for every record that had to wait.
#[derive(Clone, Debug)]
pub struct FixedRate {
    pub topic: String,
    pub partitions: i32,
    pub records_per_s: u32,
    pub record_bytes: usize,
    /// -1 = all.
    pub acks: i16,
    /// Sent first, and not counted.
    pub warm_up: Duration,
    pub measured: Duration,
}

/// Latencies in microseconds, from the moment a record is due to its answer. The topic exists.
pub fn at_fixed_rate(address: &str, load: &FixedRate) -> Result<Histogram<u64>, LoadError> {
    let mut stream = connect(address)?;
    let mut sending = stream.try_clone().map_err(LoadError::io("share the socket"))?;
    let interval = Duration::from_secs(1) / load.records_per_s;
    let warm_up = (load.warm_up.as_secs_f64() * f64::from(load.records_per_s)) as u32;
    let count = warm_up + (load.measured.as_secs_f64() * f64::from(load.records_per_s)) as u32;
    let mut frames = frames(load)?;
    let start = Instant::now() + interval;
    // Threads and blocking sockets: a runtime's timer has steps of a millisecond.
    let sender = thread::spawn(move || -> std::io::Result<()> {
        let partitions = frames.len();
        for sent in 0..count {
            let frame = &mut frames[sent as usize % partitions];
            frame[CORRELATION_ID].copy_from_slice(&sent.to_be_bytes());
            thread::sleep((start + interval * sent).saturating_duration_since(Instant::now()));
            sending.write_all(frame)?;
        }
        Ok(())
    });
    let mut latencies = histogram();
    for answered in 0..count {
        let body = read_frame(&mut stream)?;
        let latency = Instant::now().saturating_duration_since(start + interval * answered);
        let response = decode_response::<ProduceRequest>(body, answered as i32, PRODUCE_VERSION)?;
        let answers = response.responses.iter().flat_map(|topic| &topic.partition_responses);
        answers.map(|answer| answer.error_code).try_for_each(|code| check("produce", code))?;
        if answered >= warm_up {
            latencies.saturating_record(latency.as_micros() as u64);
        }
    }
    let sent = sender.join().map_err(|_| LoadError::Wrong { what: "the sender panicked".to_owned() })?;
    sent.map_err(LoadError::io("send a request"))?;
    Ok(latencies)
}

/// Latencies in microseconds of records that are written (acks=all) and read by a consumer that waits for them, each
/// after the other; the first `warm_up` of them are not counted. The topic exists and is empty.
pub async fn one_at_a_time(
    address: &str,
    topic: &str,
    record_bytes: usize,
    warm_up: usize,
    count: usize,
) -> Result<Histogram<u64>, LoadError> {
    let mut producer = LoadConnection::open(address).await?;
    let mut consumer = LoadConnection::open(address).await?;
    let batch = one_record(payload(record_bytes));
    let produce = produce_request(topic, [(0, batch)], -1);
    let mut latencies = histogram();
    for offset in 0..warm_up + count {
        let fetch = fetch_request(topic, 0, offset as i64, Duration::from_secs(30), 1 << 20);
        let started = Instant::now();
        let read = async {
            let response = consumer.call(FETCH_VERSION, &fetch).await?;
            let answers = response.responses.iter().flat_map(|topic| &topic.partitions);
            answers.map(|answer| answer.error_code).try_for_each(|code| check("fetch", code))
        };
        let written = async {
            let response = producer.call(PRODUCE_VERSION, &produce).await?;
            let answers = response.responses.iter().flat_map(|topic| &topic.partition_responses);
            answers.map(|answer| answer.error_code).try_for_each(|code| check("produce", code))
        };
        tokio::try_join!(read, written)?;
        if offset >= warm_up {
            latencies.saturating_record(started.elapsed().as_micros() as u64);
        }
    }
    Ok(latencies)
}

/// The percentiles that are compared, in milliseconds.
pub fn latency_figures(name: &str, latencies: &Histogram<u64>) -> Vec<Figure> {
    let at = |label: &str, micros: u64| Figure::new(format!("{name}, {label} ms"), micros as f64 / 1e3);
    vec![
        at("p50", latencies.value_at_quantile(0.5)),
        at("p99", latencies.value_at_quantile(0.99)),
        at("p99.9", latencies.value_at_quantile(0.999)),
        at("max", latencies.max()),
    ]
}

/// Up to a minute, to three digits.
pub(super) fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 60_000_000, 3).expect("bounds and digits are within what a histogram takes")
}

/// One frame per partition, written again and again.
fn frames(load: &FixedRate) -> Result<Vec<Vec<u8>>, LoadError> {
    let batch = one_record(payload(load.record_bytes));
    let frame = |partition| {
        let request = produce_request(&load.topic, [(partition, batch.clone())], load.acks);
        Ok(request_frame(0, PRODUCE_VERSION, &request)?.to_vec())
    };
    (0..load.partitions).map(frame).collect()
}

fn payload(size: usize) -> Bytes {
    Bytes::from(vec![b'x'; size])
}
