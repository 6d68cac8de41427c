//! `docker/compose.yaml`: that it goes with the files and the program that it names, and, where docker runs, that it starts.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use protocol_tests::batch::Batch;
use protocol_tests::client::left_out;
use protocol_tests::{Connection, Process, barnabas_binary, protocol_tests_dir, wait_within};
use yaml_rust2::{Yaml, YamlLoader};

/// A key's value below a mapping, also where it comes from a merged one.
fn find<'a>(yaml: &'a Yaml, key: &str) -> Option<&'a Yaml> {
    let map = yaml.as_hash()?;
    let own = map.get(&Yaml::from_str(key));
    own.or_else(|| find(map.get(&Yaml::from_str("<<"))?, key))
}

#[track_caller]
fn get<'a>(yaml: &'a Yaml, key: &str) -> &'a Yaml {
    find(yaml, key).unwrap_or_else(|| panic!("there is no {key} in {yaml:?}"))
}

#[track_caller]
fn texts(yaml: &Yaml) -> Vec<String> {
    let texts = yaml.as_vec().unwrap_or_else(|| panic!("{yaml:?} is no list")).iter();
    texts.map(|text| text.as_str().unwrap_or_else(|| panic!("{text:?} is no text")).to_owned()).collect()
}

fn repository() -> &'static Path {
    protocol_tests_dir().parent().expect("the crate lies in the repository")
}

fn compose_file() -> PathBuf {
    repository().join("docker/compose.yaml")
}

/// `key=value` lines, as far as these files use the format.
fn properties(text: &str) -> BTreeMap<String, String> {
    let lines = text.lines().filter(|line| !line.trim_start().starts_with('#'));
    let pairs = lines.filter_map(|line| line.split_once('='));
    pairs.map(|(key, value)| (key.trim().to_owned(), value.trim().to_owned())).collect()
}

/// A broker of the file: what its container gets.
struct Service {
    hostname: String,
    /// The arguments of the program.
    command: Vec<String>,
    /// The port on this machine by the port in the container.
    published: BTreeMap<u16, u16>,
    /// The source, in the repository or a volume, by the place in the container.
    mounts: BTreeMap<String, String>,
}

impl Service {
    #[track_caller]
    fn read(yaml: &Yaml) -> Service {
        let port = |text: &str| text.parse::<u16>().unwrap_or_else(|error| panic!("port {text:?}: {error}"));
        let published = texts(get(yaml, "ports")).into_iter().map(|text| {
            let (outside, inside) =
                text.split_once(':').unwrap_or_else(|| panic!("{text:?} publishes no port"));
            (port(inside), port(outside))
        });
        let mounts = texts(get(yaml, "volumes")).into_iter().map(|text| {
            let mut parts = text.split(':').map(str::to_owned);
            let source = parts.next().unwrap_or_default();
            (parts.next().unwrap_or_else(|| panic!("{text:?} is no mount")), source)
        });
        Service {
            hostname: get(yaml, "hostname").as_str().expect("a host name").to_owned(),
            command: texts(get(yaml, "command")),
            published: published.collect(),
            mounts: mounts.collect(),
        }
    }

    /// The file in the repository that the program is given.
    #[track_caller]
    fn properties_file(&self) -> PathBuf {
        let source = &self.mounts[&self.command[1]];
        compose_file().parent().expect("a folder").join(source)
    }

    #[track_caller]
    fn settings(&self) -> BTreeMap<String, String> {
        let path = self.properties_file();
        let text =
            std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let mut settings = properties(&text);
        for pair in self.command[2..].chunks(2) {
            let [flag, setting] = pair else { panic!("{:?} ends in the middle", self.command) };
            assert_eq!(flag, "--override");
            settings.extend(properties(setting));
        }
        settings
    }
}

/// The ports of `listeners` or `advertised.listeners`, with their hosts, by listener.
#[track_caller]
fn endpoints(setting: &str) -> BTreeMap<String, (String, u16)> {
    let endpoint = |text: &str| {
        let (name, address) = text.split_once("://").unwrap_or_else(|| panic!("{text:?} is no listener"));
        let (host, port) = address.rsplit_once(':').unwrap_or_else(|| panic!("{text:?} has no port"));
        (name.to_owned(), (host.to_owned(), port.parse().expect("a port")))
    };
    setting.split(',').map(endpoint).collect()
}

#[test]
fn the_compose_file_goes_with_what_it_names() {
    let text = std::fs::read_to_string(compose_file()).expect("read compose.yaml");
    let documents = YamlLoader::load_from_str(&text).unwrap_or_else(|error| panic!("compose.yaml: {error}"));
    let services = get(&documents[0], "services");
    let zookeeper = get(services, "zookeeper");
    assert!(get(zookeeper, "image").as_str().is_some_and(|image| image.starts_with("zookeeper:3.8")));
    let words = get(get(zookeeper, "environment"), "ZOO_4LW_COMMANDS_WHITELIST");
    assert!(words.as_str().is_some_and(|words| words.split(',').any(|word| word == "ruok")), "{words:?}");
    assert!(texts(get(get(zookeeper, "healthcheck"), "test")).concat().contains("ruok"));

    let dockerfile =
        std::fs::read_to_string(repository().join("docker/Dockerfile")).expect("read Dockerfile");
    let volume = dockerfile.lines().find_map(|line| line.strip_prefix("VOLUME ")).expect("a volume");
    let (mut ids, mut outside) = (BTreeSet::new(), BTreeSet::new());
    for number in 1..=3 {
        let yaml = get(services, &format!("broker-{number}"));
        assert_eq!(get(get(yaml, "build"), "dockerfile").as_str(), Some("docker/Dockerfile"));
        let healthy = get(get(get(yaml, "depends_on"), "zookeeper"), "condition");
        assert_eq!(healthy.as_str(), Some("service_healthy"));
        let service = Service::read(yaml);
        assert_eq!(service.command[0], "serve");
        let settings = service.settings();
        assert!(ids.insert(settings["broker.id"].clone()), "broker.id stands twice");
        assert_eq!(settings["zookeeper.connect"], "zookeeper:2181");
        assert!(service.mounts.contains_key(volume) && settings["log.dirs"].starts_with(volume));
        get(get(&documents[0], "volumes"), &service.mounts[volume]);
        assert!(service.published.values().all(|port| outside.insert(*port)), "a port is published twice");

        let (bound, told) = (endpoints(&settings["listeners"]), endpoints(&settings["advertised.listeners"]));
        assert_eq!(told["INTERNAL"], (service.hostname.clone(), bound["INTERNAL"].1));
        assert_eq!(told["EXTERNAL"], ("localhost".to_owned(), service.published[&bound["EXTERNAL"].1]));
        let http = settings["barnabas.http.listener"].rsplit_once(':').expect("a port").1.parse::<u16>();
        assert!(http.is_ok_and(|port| service.published.contains_key(&port)));
        check_start(&service);
    }
}

/// The program takes the command as it stands, but for what this machine has to give: it gets as far as the ensemble.
#[track_caller]
fn check_start(service: &Service) {
    let folder = tempfile::tempdir().expect("create a folder");
    let data = format!("log.dirs={}", folder.path().join("data").display());
    let mut command = Command::new(barnabas_binary().expect("build it: cargo build -p barnabas"));
    command.arg("serve").arg(service.properties_file()).args(&service.command[2..]);
    let here = [
        "zookeeper.connect=127.0.0.1:1",
        "zookeeper.connection.timeout.ms=200",
        "listeners=INTERNAL://127.0.0.1:0,EXTERNAL://127.0.0.1:0",
        "barnabas.http.listener=127.0.0.1:0",
        &data,
    ];
    for setting in here {
        command.args(["--override", setting]);
    }
    command.env("NO_COLOR", "1");
    let finished = Process::start("barnabas", command, None).finish(Duration::from_secs(120));
    assert!(finished.stderr.contains("no session with ZooKeeper within 200 ms"), "{}", finished.stderr);
    assert!(!finished.stderr.contains("has no effect"), "{}", finished.stderr);
}

/// `docker compose -f docker/compose.yaml …`
fn compose(arguments: &[&str]) -> bool {
    let mut command = Command::new("docker");
    command.args(["compose", "-p", "barnabas-test", "-f"]).arg(compose_file()).args(arguments);
    command.output().is_ok_and(|output| output.status.success())
}

#[test]
fn the_composed_cluster_serves_where_docker_runs() {
    let runs = Command::new("docker").arg("info").output().is_ok_and(|output| output.status.success());
    if !runs || !compose(&["version"]) {
        return left_out("docker/compose.yaml", "no docker with compose runs on this machine");
    }
    struct Down;
    impl Drop for Down {
        fn drop(&mut self) {
            compose(&["down", "--volumes"]);
        }
    }
    let _down = Down;
    assert!(compose(&["up", "--build", "--detach"]), "docker compose up");
    let mut connection = wait_within(Duration::from_secs(300), "three brokers", || {
        let mut connection = Connection::try_open("localhost:19091")?;
        (connection.try_metadata(None)?.brokers.len() == 3).then_some(connection)
    });
    connection.create_topic("composed", 1, &[]);
    let leader = connection.metadata(Some("composed")).topics[0].partitions[0].leader_id;
    let mut connection = Connection::open(&format!("localhost:{}", 19_090 + leader));
    assert_eq!(connection.append("composed", 0, &Batch::of("r", 1, 1_700_000_000_000)), 0);
}
