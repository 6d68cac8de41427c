use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::{Condvar, Mutex, MutexGuard};
use std::thread;

use crate::machine::{Port, free_port};

/// The network between clients and one server: a port of its own, whose connections a test cuts or holds.
///
/// Dropping it cuts all connections.
pub struct Proxy {
    port: Port,
    wire: Arc<Wire>,
}

/// Which bytes wait until others are held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    Nothing,
    /// Requests arrive, and their answers do not.
    Answers,
    Everything,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    ToServer,
    ToClient,
}

struct Wire {
    server: String,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    held: Held,
    /// Connections of earlier rounds have been cut.
    round: u64,
    open: Vec<TcpStream>,
    is_closed: bool,
}

impl Proxy {
    /// A way to the server at this address, which need not run yet.
    #[track_caller]
    pub fn to(server: &str) -> Proxy {
        let port = free_port();
        let listener = TcpListener::bind(("127.0.0.1", port.number)).expect("bind the proxy's port");
        let state = State { held: Held::Nothing, round: 0, open: Vec::new(), is_closed: false };
        let wire =
            Arc::new(Wire { server: server.to_owned(), state: Mutex::new(state), changed: Condvar::new() });
        let accepting = Arc::clone(&wire);
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                if accepting.state().is_closed {
                    return;
                }
                accepting.connect(client);
            }
        });
        Proxy { port, wire }
    }

    /// `host:port`, as clients take it.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port.number)
    }

    /// Ends every connection, in the middle of whatever it carries. What is held is lost.
    pub fn cut(&self) {
        let mut state = self.wire.state();
        state.round += 1;
        for stream in state.open.drain(..) {
            // It may have ended by itself.
            let _ = stream.shutdown(Shutdown::Both);
        }
        self.wire.changed.notify_all();
    }

    /// Holds bytes back from now on, or lets those go that are held.
    pub fn hold(&self, held: Held) {
        self.wire.state().held = held;
        self.wire.changed.notify_all();
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.wire.state().is_closed = true;
        self.cut();
        // Wakes the thread that accepts, so that it ends.
        let _ = TcpStream::connect(("127.0.0.1", self.port.number));
    }
}

impl Wire {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder of the lock panics")
    }

    fn connect(self: &Arc<Self>, client: TcpStream) {
        // A server that does not run refuses: so does the proxy, by ending the connection.
        let Ok(server) = TcpStream::connect(&self.server) else { return };
        let both = [&client, &server];
        let ready = both.iter().all(|stream| stream.set_nodelay(true).is_ok());
        let (Ok(client_too), Ok(server_too)) = (client.try_clone(), server.try_clone()) else { return };
        let (Ok(client_kept), Ok(server_kept)) = (client.try_clone(), server.try_clone()) else { return };
        if !ready {
            return;
        }
        let round = {
            let mut state = self.state();
            state.open.extend([client_kept, server_kept]);
            state.round
        };
        let (up, down) = (Arc::clone(self), Arc::clone(self));
        thread::spawn(move || up.carry(client, server, Direction::ToServer, round));
        thread::spawn(move || down.carry(server_too, client_too, Direction::ToClient, round));
    }

    /// Carries bytes until one side ends or the connection is cut; then both sides are ended.
    fn carry(&self, mut from: TcpStream, mut to: TcpStream, direction: Direction, round: u64) {
        let mut bytes = vec![0; 64 * 1024];
        while let Ok(count @ 1..) = from.read(&mut bytes) {
            let state = self.state();
            let is_held = |state: &mut State| state.round == round && state.held.holds(direction);
            let Ok(state) = self.changed.wait_while(state, is_held) else { break };
            if state.round != round {
                break;
            }
            drop(state);
            if to.write_all(&bytes[..count]).is_err() {
                break;
            }
        }
        for stream in [from, to] {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl Held {
    fn holds(self, direction: Direction) -> bool {
        match self {
            Held::Nothing => false,
            Held::Answers => direction == Direction::ToClient,
            Held::Everything => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::BufRead;
    use std::io::BufReader;
    use std::time::Duration;

    use super::*;

    /// Answers each line with itself.
    fn echo() -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                thread::spawn(move || {
                    let mut answers = stream.try_clone().unwrap();
                    for line in BufReader::new(stream).lines().map_while(Result::ok) {
                        let _ = writeln!(answers, "{line}");
                    }
                });
            }
        });
        address
    }

    fn open(proxy: &Proxy) -> (TcpStream, BufReader<TcpStream>) {
        let stream = TcpStream::connect(proxy.address()).unwrap();
        (stream.try_clone().unwrap(), BufReader::new(stream))
    }

    fn read(answers: &mut BufReader<TcpStream>) -> Option<String> {
        read_within(Duration::from_secs(60), answers)
    }

    /// What has not come after a moment is held.
    fn read_held(answers: &mut BufReader<TcpStream>) -> Option<String> {
        read_within(Duration::from_millis(200), answers)
    }

    fn read_within(limit: Duration, answers: &mut BufReader<TcpStream>) -> Option<String> {
        answers.get_ref().set_read_timeout(Some(limit)).unwrap();
        let mut line = String::new();
        answers.read_line(&mut line).ok().map(|_| line)
    }

    #[test]
    fn what_is_held_comes_later_or_is_lost_with_a_cut() {
        let proxy = Proxy::to(&echo());
        let (mut requests, mut answers) = open(&proxy);
        writeln!(requests, "one").unwrap();
        assert_eq!(read(&mut answers).as_deref(), Some("one\n"));
        proxy.hold(Held::Answers);
        writeln!(requests, "two").unwrap();
        assert_eq!(read_held(&mut answers), None);
        proxy.hold(Held::Nothing);
        assert_eq!(read(&mut answers).as_deref(), Some("two\n"));
        proxy.hold(Held::Everything);
        writeln!(requests, "three").unwrap();
        assert_eq!(read_held(&mut answers), None);
        proxy.cut();
        assert_eq!(read(&mut answers).as_deref(), Some(""), "the end");
        proxy.hold(Held::Nothing);
        let (mut requests, mut answers) = open(&proxy);
        writeln!(requests, "four").unwrap();
        assert_eq!(read(&mut answers).as_deref(), Some("four\n"));
    }
}
