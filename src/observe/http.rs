//! `/metrics`, `/healthz`, `/readyz` and `/safe-to-stop` over HTTP/1.1, one request a connection.
//!
//! Written by hand on tokio: four GETs do not need a framework, which would cost about a megabyte of binary
//! and a good part of the idle memory budget.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tracing::debug;

use super::metrics::Metrics;
use super::readiness::Readiness;
use super::sample::Sampled;
use crate::runtime::task::{self, Shutdown};

/// Takes the port of `barnabas.http.listener`, as `host:port`.
pub async fn bind(address: &str) -> io::Result<TcpListener> {
    TcpListener::bind(address).await
}

/// What the pages show.
#[derive(Clone)]
pub struct Pages {
    pub metrics: Arc<Metrics>,
    /// To serve clients.
    pub readiness: Arc<Readiness>,
    /// To be stopped without a partition losing its leader for more than a moment, or more replicas than it may.
    pub safety: Arc<Readiness>,
}

/// Scrapers and probes are few; whoever comes beyond this waits.
const CONNECTIONS_MAX: usize = 16;
/// A request line and headers of the usual scrapers take a tenth of it.
const HEAD_BYTES_MAX: usize = 8 * 1024;
/// A peer that is slower holds one of the few places from others.
const EXCHANGE_MAX: Duration = Duration::from_secs(10);

/// Answers until the broker stops.
pub async fn serve(listener: TcpListener, pages: Pages, shutdown: Shutdown) {
    let readiness = Arc::clone(&pages.readiness);
    pages.metrics.add_sampler(move |mut samples| {
        samples.push(Sampled::ReadyReasons, &[], readiness.reasons().len());
        std::future::ready(samples)
    });
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let accept_all = async {
        loop {
            let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
            match listener.accept().await {
                Ok((stream, _)) => {
                    let pages = pages.clone();
                    task::spawn("http connection", async move {
                        let exchange = tokio::time::timeout(EXCHANGE_MAX, exchange(stream, &pages));
                        if let Ok(Err(error)) = exchange.await {
                            debug!(%error, "an http exchange was cut short");
                        }
                        drop(place);
                    });
                }
                Err(error) => {
                    debug!(%error, "an http connection could not be accepted");
                    // Out of descriptors: the next attempt would fail at once as well.
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    };
    tokio::select! {
        () = accept_all => {}
        () = shutdown.requested() => {}
    }
}

async fn exchange(mut stream: TcpStream, pages: &Pages) -> io::Result<()> {
    let response = match read_head(&mut stream).await? {
        Some(head) => answer(&head, pages).await,
        None => Response { status: "431 Request Header Fields Too Large", body: String::new() }.print(false),
    };
    stream.write_all(response.as_bytes()).await?;
    stream.shutdown().await
}

/// Reads up to the empty line that ends the headers; `None` when there are too many of them.
async fn read_head(stream: &mut TcpStream) -> io::Result<Option<Vec<u8>>> {
    let mut head = Vec::with_capacity(1024);
    while !is_complete(&head) {
        if head.len() >= HEAD_BYTES_MAX {
            return Ok(None);
        }
        if stream.read_buf(&mut head).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(Some(head))
}

fn is_complete(head: &[u8]) -> bool {
    head.windows(4).any(|four| four == b"\r\n\r\n") || head.windows(2).any(|two| two == b"\n\n")
}

async fn answer(head: &[u8], pages: &Pages) -> String {
    let line = head.split(|&byte| byte == b'\r' || byte == b'\n').next().unwrap_or_default();
    let line = String::from_utf8_lossy(line);
    let mut words = line.split(' ');
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let is_http = words.next().is_some_and(|version| version.starts_with("HTTP/1."));
    if !is_http {
        return Response { status: "400 Bad Request", body: String::new() }.print(false);
    }
    if method != "GET" && method != "HEAD" {
        return Response { status: "405 Method Not Allowed", body: String::new() }.print(false);
    }
    let path = target.split('?').next().unwrap_or_default();
    page(path, pages).await.print(method == "HEAD")
}

async fn page(path: &str, pages: &Pages) -> Response {
    match path {
        "/metrics" => Response { status: "200 OK", body: pages.metrics.print().await },
        "/healthz" => Response { status: "200 OK", body: "ok\n".to_owned() },
        "/readyz" => probe(&pages.readiness, "ready\n"),
        "/safe-to-stop" => probe(&pages.safety, "safe to stop\n"),
        _ => Response {
            status: "404 Not Found",
            body: "here are /metrics, /healthz, /readyz and /safe-to-stop\n".to_owned(),
        },
    }
}

fn probe(readiness: &Readiness, yes: &str) -> Response {
    match readiness.reasons() {
        reasons if reasons.is_empty() => Response { status: "200 OK", body: yes.to_owned() },
        reasons => Response { status: "503 Service Unavailable", body: reasons.join("\n") + "\n" },
    }
}

struct Response {
    status: &'static str,
    body: String,
}

impl Response {
    fn print(&self, is_head_only: bool) -> String {
        let body = if is_head_only { "" } else { &self.body };
        format!(
            "HTTP/1.1 {}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: {}\r\n\
             Allow: GET, HEAD\r\nConnection: close\r\n\r\n{body}",
            self.status,
            self.body.len(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::super::label::Names;
    use super::*;
    use crate::runtime::task::ShutdownTrigger;

    async fn ask(request: &[u8], prepare: impl FnOnce(&Pages)) -> String {
        let pages = Pages {
            metrics: Arc::new(Metrics::new(&Names::default())),
            readiness: Arc::new(Readiness::starting()),
            safety: Arc::new(Readiness::starting()),
        };
        prepare(&pages);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (trigger, shutdown) = ShutdownTrigger::new();
        let server = tokio::spawn(serve(listener, pages, shutdown));
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(request).await.unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.unwrap();
        trigger.request();
        server.await.unwrap();
        String::from_utf8(answer).unwrap()
    }

    #[tokio::test]
    async fn metrics_are_printed() {
        let answer = ask(b"GET /metrics?x=1 HTTP/1.1\r\nHost: x\r\n\r\n", |pages| {
            pages.metrics.produced_records.add(7);
        })
        .await;
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        assert!(answer.contains("\nbarnabas_produced_records_total 7\n"), "{answer}");
        assert!(answer.contains("\nbarnabas_not_ready_reasons 1\n"), "{answer}");
        assert!(answer.contains("\nprocess_open_fds "), "{answer}");
    }

    #[tokio::test]
    async fn readiness_says_what_is_missing() {
        let request = b"GET /readyz HTTP/1.1\r\n\r\n";
        let answer = ask(request, |_| {}).await;
        assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
        assert!(answer.ends_with("\r\n\r\nbroker: starting\n"), "{answer}");
        let answer = ask(request, |pages| pages.readiness.allow("broker")).await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    }

    #[tokio::test]
    async fn a_broker_may_be_stopped_when_nothing_speaks_against_it() {
        let request = b"GET /safe-to-stop HTTP/1.1\r\n\r\n";
        let answer = ask(request, |_| {}).await;
        assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
        let answer = ask(request, |pages| pages.safety.allow("broker")).await;
        assert!(answer.ends_with("\r\n\r\nsafe to stop\n"), "{answer}");
    }

    #[tokio::test]
    async fn head_answers_without_a_body() {
        let answer = ask(b"HEAD /healthz HTTP/1.0\n\n", |_| {}).await;
        assert!(answer.contains("Content-Length: 3\r\n") && answer.ends_with("\r\n\r\n"), "{answer}");
    }

    #[tokio::test]
    async fn other_requests_are_refused() {
        let mut check = Vec::new();
        for (request, status) in [
            ("GET / HTTP/1.1\r\n\r\n", "404 "),
            ("POST /metrics HTTP/1.1\r\n\r\n", "405 "),
            ("nonsense\r\n\r\n", "400 "),
            ("\0\0\0\x12\0\x12\n\n", "400 "),
        ] {
            let answer = ask(request.as_bytes(), |_| {}).await;
            check.push((answer[9..].starts_with(status), request));
        }
        let wrong: Vec<_> = check.iter().filter(|(is_right, _)| !is_right).collect();
        assert!(wrong.is_empty(), "{wrong:?}");
    }

    #[tokio::test]
    async fn endless_headers_are_refused() {
        let answer = ask(&[b'x'; HEAD_BYTES_MAX], |_| {}).await;
        assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
    }
}
