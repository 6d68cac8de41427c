use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use wire::{FetchRequest, ProduceRequest, Records};

use super::connection::{decode_response, request_frame};
use super::error::check;
use super::requests::{FETCH_VERSION, PRODUCE_VERSION, batch_of, fetch_request, produce_request};
use super::{Figure, LoadError, cpu_seconds_of};

/// Where the correlation id stands in a request: behind length, key and version.
pub(super) const CORRELATION_ID: std::ops::Range<usize> = 8..12;
/// What a consumer asks of one partition at once, as Kafka's does.
const FETCH_BYTES: i32 = 1 << 20;

/// Producers that send the same batch again and again: it costs them next to nothing, so that the broker is what is
/// measured.
#[derive(Clone, Debug)]
pub struct Producers {
    pub topic: String,
    /// One producer to each partition.
    pub partitions: i32,
    pub batch_bytes: usize,
    pub record_bytes: usize,
    /// 0, 1, or -1 = all.
    pub acks: i16,
    /// Requests of one producer that are not answered yet, at most.
    pub in_flight: i32,
    /// Of all producers.
    pub total_bytes: u64,
}

/// MiB/s of batches and CPU seconds a GB of the brokers' processes. The topic exists; its partitions are led by the
/// brokers at these addresses in turn.
pub fn produce_at_full_rate(
    addresses: &[String],
    pids: &[u32],
    load: &Producers,
) -> Result<Vec<Figure>, LoadError> {
    let records = (load.batch_bytes / load.record_bytes).max(1);
    let batch = batch_of(records, load.record_bytes);
    let each = (load.total_bytes / batch.len() as u64 / load.partitions as u64) as i32;
    let name = format!(
        "{} producers, batches of {} x {} B, acks={}",
        load.partitions, records, load.record_bytes, load.acks
    );
    let bytes = batch.len() as u64 * each as u64 * load.partitions as u64;
    measured(&name, pids, bytes, load.partitions, |partition| {
        let request = produce_request(&load.topic, [(partition, batch.clone())], load.acks);
        let frame = request_frame(0, PRODUCE_VERSION, &request)?.to_vec();
        let address = addresses.iter().cycle().nth(partition as usize).cloned();
        let address = address.ok_or_else(|| LoadError::Wrong { what: "no broker to write to".to_owned() })?;
        let (acks, in_flight) = (load.acks, load.in_flight);
        Ok(thread::spawn(move || produce(&address, frame, each, acks, in_flight)))
    })
}

/// Consumers that read the whole topic from its start and look at nothing: one to each partition.
pub fn fetch_at_full_rate(
    address: &str,
    pid: u32,
    topic: &str,
    ends: &[i64],
    bytes: u64,
) -> Result<Vec<Figure>, LoadError> {
    measured(&format!("{} consumers", ends.len()), &[pid], bytes, ends.len() as i32, |partition| {
        let (address, topic) = (address.to_owned(), topic.to_owned());
        let end = ends.get(partition as usize).copied().unwrap_or(0);
        Ok(thread::spawn(move || fetch(&address, &topic, partition, end)))
    })
}

fn measured(
    name: &str,
    pids: &[u32],
    bytes: u64,
    clients: i32,
    start: impl Fn(i32) -> Result<thread::JoinHandle<Result<(), LoadError>>, LoadError>,
) -> Result<Vec<Figure>, LoadError> {
    let (cpu, wall) = (cpu_seconds_of(pids)?, Instant::now());
    let running: Result<Vec<_>, LoadError> = (0..clients).map(start).collect();
    for client in running? {
        client.join().map_err(|_| LoadError::Wrong { what: "a client panicked".to_owned() })??;
    }
    let (cpu, wall) = (cpu_seconds_of(pids)? - cpu, wall.elapsed().as_secs_f64());
    Ok(vec![
        Figure::new(format!("{name}, MiB/s"), bytes as f64 / 1024.0 / 1024.0 / wall),
        Figure::new(format!("{name}, broker CPU s/GB"), cpu / (bytes as f64 / 1e9)),
    ])
}

fn produce(
    address: &str,
    mut frame: Vec<u8>,
    count: i32,
    acks: i16,
    in_flight: i32,
) -> Result<(), LoadError> {
    let mut stream = connect(address)?;
    // Without acks nothing is answered.
    let answers = if acks == 0 { 0 } else { count };
    for i in 0..count + in_flight {
        if i >= in_flight && i - in_flight < answers {
            let response =
                decode_response::<ProduceRequest>(read_frame(&mut stream)?, i - in_flight, PRODUCE_VERSION)?;
            let partitions = response.responses.iter().flat_map(|topic| &topic.partition_responses);
            partitions.map(|answer| answer.error_code).try_for_each(|code| check("produce", code))?;
        }
        if i < count {
            frame[CORRELATION_ID].copy_from_slice(&i.to_be_bytes());
            stream.write_all(&frame).map_err(LoadError::io("send a request"))?;
        }
    }
    Ok(())
}

fn fetch(address: &str, topic: &str, partition: i32, end: i64) -> Result<(), LoadError> {
    let mut stream = connect(address)?;
    let mut next = 0;
    while next < end {
        let request = fetch_request(topic, partition, next, Duration::from_secs(10), FETCH_BYTES);
        let frame = request_frame(0, FETCH_VERSION, &request)?;
        stream.write_all(&frame).map_err(LoadError::io("send a request"))?;
        let response = decode_response::<FetchRequest>(read_frame(&mut stream)?, 0, FETCH_VERSION)?;
        let answer = response.responses.into_iter().flat_map(|topic| topic.partitions).next();
        let records = answer.and_then(|answer| answer.records);
        next = match records {
            Some(Records::Bytes(bytes)) => behind_last_batch(&bytes),
            _ => None,
        }
        .ok_or(LoadError::Wrong { what: format!("nothing to read at offset {next}") })?;
    }
    Ok(())
}

/// The offset behind the last whole batch, from the headers alone.
fn behind_last_batch(bytes: &[u8]) -> Option<i64> {
    let (mut rest, mut next) = (bytes, None);
    loop {
        let number = |at: usize| rest.get(at..at + 4)?.try_into().ok().map(i32::from_be_bytes);
        let base = rest.get(..8).and_then(|bytes| bytes.try_into().ok()).map(i64::from_be_bytes);
        let (Some(base), Some(length), Some(last)) = (base, number(8), number(23)) else { return next };
        let Some(behind) = usize::try_from(length).ok().and_then(|length| rest.get(12 + length..)) else {
            return next;
        };
        next = Some(base + i64::from(last) + 1);
        rest = behind;
    }
}

pub(super) fn connect(address: &str) -> Result<TcpStream, LoadError> {
    let stream = TcpStream::connect(address).map_err(LoadError::io("connect"))?;
    stream.set_nodelay(true).map_err(LoadError::io("set TCP_NODELAY"))?;
    stream.set_read_timeout(Some(Duration::from_secs(60))).map_err(LoadError::io("set a timeout"))?;
    Ok(stream)
}

/// The next answer without its length.
pub(super) fn read_frame(stream: &mut TcpStream) -> Result<Bytes, LoadError> {
    let mut length = [0; 4];
    stream.read_exact(&mut length).map_err(LoadError::io("read an answer"))?;
    let mut body = vec![0; u32::from_be_bytes(length) as usize];
    stream.read_exact(&mut body).map_err(LoadError::io("read an answer"))?;
    Ok(Bytes::from(body))
}
