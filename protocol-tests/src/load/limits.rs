//! What the machine asks of any broker: the bare loops, without a protocol, an offset or a lock.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::thread;

use rustix::time::{ClockId, clock_gettime};

use super::{Figure, LoadError};

/// A connection's buffer: several batches are taken at once, as a broker does.
const BUFFER_BYTES: usize = 256 * 1024;
/// What one answer to a fetch sends at most.
const SEND_BYTES: usize = 1024 * 1024;

/// Receives frames of `frame_bytes`, checks their CRC32C and writes them to `file`, until `total_bytes` have come.
/// Gives CPU seconds a GB of the receiving thread, and MiB/s.
pub fn receive_check_write(
    file: &Path,
    frame_bytes: usize,
    total_bytes: u64,
) -> Result<Vec<Figure>, LoadError> {
    let (mut receiving, mut sending) = pair()?;
    let frames = total_bytes.div_ceil(frame_bytes as u64);
    let sender = thread::spawn(move || -> std::io::Result<()> {
        let frame: Vec<u8> = (0..frame_bytes).map(|i| (i * 31) as u8).collect();
        (0..frames).try_for_each(|_| sending.write_all(&frame))
    });
    let output = File::create(file).map_err(LoadError::io("create a file"))?;
    let mut buffer = vec![0; BUFFER_BYTES.max(2 * frame_bytes)];
    let (mut filled, mut position, mut sum) = (0, 0_u64, 0_u32);
    let meter = Meter::start();
    while position < frames * frame_bytes as u64 {
        let read = receiving.read(&mut buffer[filled..]).map_err(LoadError::io("receive"))?;
        if read == 0 {
            return Err(LoadError::Wrong { what: "the sender stopped".to_owned() });
        }
        filled += read;
        let whole = filled - filled % frame_bytes;
        if whole == 0 {
            continue;
        }
        for frame in buffer[..whole].chunks(frame_bytes) {
            sum ^= crc32c::crc32c(frame);
        }
        output.write_all_at(&buffer[..whole], position).map_err(LoadError::io("write"))?;
        position += whole as u64;
        buffer.copy_within(whole..filled, 0);
        filled -= whole;
    }
    let figures = meter.figures(&format!("bare recv + CRC + write, frames of {frame_bytes}"), position);
    // The sums are used, so that none may be left out.
    std::hint::black_box(sum);
    join(sender)?;
    Ok(figures)
}

/// Sends `total_bytes` of `file` (in the page cache, read from its start again where it ends) with sendfile.
/// Gives CPU seconds a GB of the sending thread, and MiB/s.
pub fn send_file(file: &Path, total_bytes: u64) -> Result<Vec<Figure>, LoadError> {
    let (sending, mut receiving) = pair()?;
    let input = File::open(file).map_err(LoadError::io("open a file"))?;
    let size = input.metadata().map_err(LoadError::io("read a file's size"))?.len();
    let receiver = thread::spawn(move || -> std::io::Result<()> {
        let mut buffer = vec![0; BUFFER_BYTES];
        while receiving.read(&mut buffer)? > 0 {}
        Ok(())
    });
    let meter = Meter::start();
    let (mut sent, mut offset) = (0_u64, 0_u64);
    while sent < total_bytes {
        let count = rustix::fs::sendfile(&sending, &input, Some(&mut offset), SEND_BYTES)
            .map_err(|error| LoadError::Io { what: "send a file", source: error.into() })?;
        sent += count as u64;
        if offset >= size {
            offset = 0;
        }
    }
    let figures = meter.figures("bare sendfile", sent);
    drop(sending);
    join(receiver)?;
    Ok(figures)
}

fn pair() -> Result<(TcpStream, TcpStream), LoadError> {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(LoadError::io("listen"))?;
    let address = listener.local_addr().map_err(LoadError::io("read the address"))?;
    let client = TcpStream::connect(address).map_err(LoadError::io("connect"))?;
    let (server, _) = listener.accept().map_err(LoadError::io("accept"))?;
    Ok((server, client))
}

fn join(peer: thread::JoinHandle<std::io::Result<()>>) -> Result<(), LoadError> {
    let ended = peer.join().map_err(|_| LoadError::Wrong { what: "the other side panicked".to_owned() })?;
    ended.map_err(LoadError::io("use the other end"))
}

struct Meter {
    wall: std::time::Instant,
    cpu_s: f64,
}

impl Meter {
    fn start() -> Meter {
        Meter { wall: std::time::Instant::now(), cpu_s: thread_cpu_s() }
    }

    fn figures(&self, name: &str, bytes: u64) -> Vec<Figure> {
        let (wall, cpu) = (self.wall.elapsed().as_secs_f64(), thread_cpu_s() - self.cpu_s);
        vec![
            Figure::new(format!("{name}, CPU s/GB"), cpu / (bytes as f64 / 1e9)),
            Figure::new(format!("{name}, MiB/s"), bytes as f64 / 1024.0 / 1024.0 / wall),
        ]
    }
}

fn thread_cpu_s() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
