use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use rustix::net::SendFlags;
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
use tokio::io::Interest;
use tokio::net::TcpStream;

use super::ListenOptions;

pub(super) fn bind(options: &ListenOptions) -> io::Result<Socket> {
    let mut failure = io::Error::new(io::ErrorKind::AddrNotAvailable, "the host has no address");
    for address in addresses(options)? {
        match bind_address(options, address) {
            Ok(listener) => return Ok(listener),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

/// An empty host binds all addresses of both families.
fn addresses(options: &ListenOptions) -> io::Result<Vec<SocketAddr>> {
    if options.host.is_empty() {
        return Ok(vec![
            (Ipv6Addr::UNSPECIFIED, options.port).into(),
            (Ipv4Addr::UNSPECIFIED, options.port).into(),
        ]);
    }
    let mut addresses: Vec<_> = (options.host.as_str(), options.port).to_socket_addrs()?.collect();
    // `localhost` is tried on IPv4 first: clients that resolve it to ::1 alone are rare, the others are not.
    addresses.sort_by_key(SocketAddr::is_ipv6);
    Ok(addresses)
}

fn bind_address(options: &ListenOptions, address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(!options.host.is_empty())?;
    }
    if options.receive_buffer_bytes > 0 {
        socket.set_recv_buffer_size(options.receive_buffer_bytes as usize)?;
    }
    socket.bind(&address.into())?;
    Ok(socket)
}

pub(super) fn tune_accepted(stream: &TcpStream, send_buffer_bytes: i32) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    // A peer that vanished without a word is found out by the kernel.
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(Duration::from_secs(120)))?;
    if send_buffer_bytes > 0 {
        socket.set_send_buffer_size(send_buffer_bytes as usize)?;
    }
    Ok(())
}

/// The kernel holds the bytes back until more follow.
pub(super) fn try_write_more(stream: &TcpStream, bytes: &[u8]) -> io::Result<usize> {
    stream.try_io(Interest::WRITABLE, || {
        let flags = SendFlags::MORE | SendFlags::NOSIGNAL;
        Ok(rustix::net::send(stream.as_fd(), bytes, flags)?)
    })
}

pub(super) fn try_send_file(
    stream: &TcpStream,
    file: BorrowedFd<'_>,
    position: u64,
    size_bytes_max: usize,
) -> io::Result<usize> {
    stream.try_io(Interest::WRITABLE, || {
        let mut position = position;
        Ok(rustix::fs::sendfile(stream.as_fd(), file, Some(&mut position), size_bytes_max)?)
    })
}
