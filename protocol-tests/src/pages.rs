use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// Status and body of a page; `None` while nobody answers.
pub fn page(address: &str, path: &str) -> Option<(u16, String)> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(10))).ok()?;
    stream.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    Some((head.split(' ').nth(1)?.parse().ok()?, body.to_owned()))
}

/// A metric's value, without labels or with all of them as they are printed.
pub fn metric(address: &str, name: &str) -> Option<f64> {
    let (_, text) = page(address, "/metrics")?;
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
    line.parse().ok()
}
