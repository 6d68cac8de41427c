//! What the tests take from the machine: folders, ports, programs.

use std::fs::File;
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The folder of this crate in the source tree.
pub fn protocol_tests_dir() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Cargo's target folder, found from the running test binary (`TARGET/PROFILE/deps/TEST`).
pub fn build_dir() -> PathBuf {
    let test = std::env::current_exe().expect("the test knows its own path");
    let deps = test.ancestors().find(|dir| dir.ends_with("deps"));
    let profile =
        deps.and_then(Path::parent).unwrap_or_else(|| panic!("{} is not in a deps folder", test.display()));
    profile.parent().expect("a profile's folder lies in the target folder").to_owned()
}

/// The binary under test: `BARNABAS_BIN`, or the one built last in the release or debug profile.
pub fn barnabas_binary() -> Option<PathBuf> {
    if let Some(path) = std::env::var_os("BARNABAS_BIN") {
        return Some(path.into());
    }
    let built = ["release", "debug"].map(|profile| build_dir().join(profile).join("barnabas"));
    built
        .into_iter()
        .filter_map(|path| Some((path.metadata().ok()?.modified().ok()?, path)))
        .max()
        .map(|(_, path)| path)
}

/// Raises this process's limit of open files, which its children inherit, as far as it may: what it is then.
pub fn raise_open_files_limit() -> u64 {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // Where that is refused, the old limit holds.
    let _ = setrlimit(Resource::Nofile, limit);
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

pub fn command_exists(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(name).is_file())
}

/// Whether this machine has Java. Where it has not, the run's output names the test that is left out.
pub fn has_java() -> bool {
    has_program("java")
}

/// As [`has_java`], for any program.
pub fn has_program(name: &str) -> bool {
    let has_it = command_exists(name);
    if !has_it {
        // The test runner names a test's thread after it.
        let thread = std::thread::current();
        let test = thread.name().unwrap_or("a test");
        announce(&format!("LEFT OUT: {test}: this machine has no {name}"));
    }
    has_it
}

/// `size` times `BARNABAS_TEST_SCALE` (1 where it is not set): for what is quick when small and shows more when large.
pub fn scaled(size: usize) -> usize {
    let scale = std::env::var("BARNABAS_TEST_SCALE").ok().and_then(|text| text.parse().ok());
    size.saturating_mul(scale.unwrap_or(1))
}

/// What a test draws from: `default`, or `BARNABAS_TEST_SEED`. The run's output names it.
pub fn seed(test: &str, default: u64) -> u64 {
    let given = std::env::var("BARNABAS_TEST_SEED").ok().and_then(|text| text.parse().ok());
    let seed = given.unwrap_or(default);
    announce(&format!("{test}: BARNABAS_TEST_SEED={seed}"));
    seed
}

/// Says something in the run's output even when the test passes; the test runner does not capture it.
pub fn announce(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Closes a connection as a crash would: the peer gets a reset, and what was on its way is lost.
pub fn reset(stream: TcpStream) {
    // Without it the close is an ordinary one, and the tests that need a reset fail.
    let _ = rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO));
}

/// A port that nobody uses, kept from other tests on this machine for as long as the value lives.
#[derive(Debug)]
pub struct Port {
    pub number: u16,
    _reserved: File,
}

/// The lowest free port from 21000 on. Ephemeral ports lie higher, so that no outgoing connection takes it meanwhile.
pub fn free_port() -> Port {
    let dir = std::env::temp_dir().join("barnabas-test-ports");
    std::fs::create_dir_all(&dir).expect("create the folder of port reservations");
    for number in 21_000..22_000 {
        let file = File::create(dir.join(number.to_string())).expect("create a port reservation");
        if file.try_lock().is_ok() && TcpListener::bind(("127.0.0.1", number)).is_ok() {
            return Port { number, _reserved: file };
        }
    }
    panic!("no free port from 21000 to 21999");
}
