//! Several listeners, and listeners that come and go while the broker runs.

use std::net::TcpListener;
use std::time::Duration;

use protocol_tests::{
    Broker, Cluster, Connection, Port, Server, dump_tree, free_port, has_java, under_load, wait_for,
};
use wire::incremental_alter_configs_request::{
    AlterConfigsResource, AlterableConfig, IncrementalAlterConfigsRequest,
};

const MAP: (&str, &str) = (
    "listener.security.protocol.map",
    "PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT,CONTROL:PLAINTEXT,EXTRA:PLAINTEXT",
);

fn at(port: &Port) -> String {
    format!("127.0.0.1:{}", port.number)
}

/// Sets settings of one broker, or takes them back; the error code.
fn alter(connection: &mut Connection, broker: &str, configs: &[(&str, Option<&str>)]) -> (i16, String) {
    let config = |(name, value): &(&str, Option<&str>)| AlterableConfig {
        name: (*name).into(),
        config_operation: i8::from(value.is_none()),
        value: value.map(Into::into),
    };
    let resource = AlterConfigsResource {
        resource_type: 4,
        resource_name: broker.into(),
        configs: configs.iter().map(config).collect(),
    };
    let request = IncrementalAlterConfigsRequest { resources: vec![resource], validate_only: false };
    let response = connection.call(1, &request).responses.remove(0);
    (response.error_code, response.error_message.as_deref().unwrap_or_default().to_owned())
}

#[test]
fn listeners_come_and_go_while_the_broker_runs() {
    let broker = Broker::start_as(Server::Barnabas, &[MAP]);
    let (plain, extra) = (broker.address(), free_port());
    let mut connection = Connection::open(&plain);
    let both = format!("PLAINTEXT://{plain},EXTRA://{}", at(&extra));
    assert_eq!(alter(&mut connection, "1", &[("listeners", Some(&both))]).0, 0);
    let mut through_extra = wait_for("the new port", || Connection::try_open(&at(&extra)));
    // Clients of each listener are sent to that listener, once the cluster has heard of it.
    wait_for("the new address", || {
        let brokers = through_extra.metadata(None).brokers;
        (brokers.first()?.port == i32::from(extra.number)).then_some(())
    });
    assert_eq!(connection.metadata(None).brokers[0].port, i32::from(broker.port()));
    let elsewhere = format!("PLAINTEXT://{plain},EXTRA://elsewhere.example:1234");
    assert_eq!(alter(&mut connection, "1", &[("advertised.listeners", Some(&elsewhere))]).0, 0);
    wait_for("the changed address", || {
        let brokers = through_extra.metadata(None).brokers;
        (&*brokers.first()?.host == "elsewhere.example").then_some(())
    });
    // What brokers use among themselves stays.
    let refused = alter(&mut connection, "1", &[("listeners", Some(&format!("EXTRA://{}", at(&extra))))]);
    assert_eq!(refused.0, 42, "{refused:?}");
    assert_eq!(alter(&mut connection, "1", &[("listeners", None), ("advertised.listeners", None)]).0, 0);
    through_extra.expect_closed();
    wait_for("the closed port", || Connection::try_open(&at(&extra)).is_none().then_some(()));
    assert_eq!(connection.metadata(None).brokers[0].port, i32::from(broker.port()));
}

#[test]
fn added_listeners_are_there_after_a_restart() {
    let mut broker = Broker::start_as(Server::Barnabas, &[MAP]);
    let (plain, extra) = (broker.address(), free_port());
    let both = format!("PLAINTEXT://{plain},EXTRA://{}", at(&extra));
    assert_eq!(alter(&mut Connection::open(&plain), "1", &[("listeners", Some(&both))]).0, 0);
    wait_for("the new port", || Connection::try_open(&at(&extra)));
    broker.restart();
    let mut connection = Connection::open(&at(&extra));
    wait_for("its address", || {
        (connection.metadata(None).brokers.first()?.port == i32::from(extra.number)).then_some(())
    });
}

#[test]
fn a_listener_whose_port_is_taken_is_not_advertised() {
    if !has_java() {
        return;
    }
    let door = free_port();
    let mut broker = Broker::start_as(Server::Barnabas, &[MAP, ("barnabas.zookeeper.listener", &at(&door))]);
    broker.allow_log("a listener is not opened");
    let extra = free_port();
    let taken = TcpListener::bind(at(&extra)).expect("take the port");
    let plain = broker.address();
    let mut connection = Connection::open(&plain);
    let with_extra = |more: &str| format!("PLAINTEXT://{plain},EXTRA://{}{more}", at(&extra));
    assert_eq!(alter(&mut connection, "1", &[("listeners", Some(&with_extra("")))]).0, 0);
    wait_for("the refusal", || broker.log().contains("a listener is not opened").then_some(()));
    let registration =
        || dump_tree(&at(&door)).remove("/brokers/ids/1").expect("the broker is registered").data;
    assert!(!registration().contains("EXTRA"), "{}", registration());
    // The next change of listeners finds the port free.
    drop(taken);
    let third = free_port();
    let more = format!(",INTERNAL://{}", at(&third));
    assert_eq!(alter(&mut connection, "1", &[("listeners", Some(&with_extra(&more)))]).0, 0);
    wait_for("the port", || Connection::try_open(&at(&extra)));
    wait_for("its registration", || registration().contains("EXTRA").then_some(()));
}

#[test]
fn a_listener_has_limits_of_its_own() {
    let extra = free_port();
    let listeners = format!("PLAINTEXT://$ADDRESS,EXTRA://{}", at(&extra));
    let settings = [MAP, ("listeners", &*listeners), ("listener.name.extra.max.connections", "2")];
    let broker = Broker::start_as(Server::Barnabas, &settings);
    let mut open: Vec<Connection> = (0..2).map(|_| Connection::open(&at(&extra))).collect();
    open.iter_mut().for_each(|connection| drop(connection.metadata(None)));
    // The third one waits in the backlog until another one ends.
    let mut third = Connection::open(&at(&extra));
    third.set_limit(Duration::from_millis(500));
    assert!(third.try_metadata(None).is_none());
    Connection::open(&broker.address()).metadata(None);
    drop(open);
    let mut fourth = Connection::open(&at(&extra));
    assert!(fourth.try_metadata(None).is_some());
    let mut connection = Connection::open(&broker.address());
    let set = [("listener.name.extra.max.connections", Some("1000"))];
    assert_eq!(alter(&mut connection, "1", &set).0, 0);
    wait_for("the raised limit", || {
        let mut more: Vec<Connection> = (0..5).map(|_| Connection::open(&at(&extra))).collect();
        more.iter_mut()
            .all(|connection| {
                connection.set_limit(Duration::from_secs(5));
                connection.try_metadata(None).is_some()
            })
            .then_some(())
    });
}

/// Clients, brokers and the controller, each on a listener of their own.
#[test]
fn brokers_and_the_controller_use_their_own_listeners() {
    if !has_java() {
        return;
    }
    let mut cluster = Cluster::new(&[("min.insync.replicas", "2")]);
    let mut ports = Vec::new();
    for id in 1..=3 {
        let (internal, control) = (free_port(), free_port());
        let listeners =
            format!("PLAINTEXT://$ADDRESS,INTERNAL://{},CONTROL://{}", at(&internal), at(&control));
        let own = [
            MAP,
            ("listeners", &*listeners),
            ("inter.broker.listener.name", "INTERNAL"),
            ("control.plane.listener.name", "CONTROL"),
        ];
        cluster.add_with(id, Server::Barnabas, &own);
        ports.extend([internal, control]);
    }
    cluster.wait_for_brokers(3);
    cluster.create_topic("t", &[&[1, 2, 3]]);
    // Who comes by a listener is sent to the same one of the others.
    let seen = Connection::open(&at(&ports[0])).metadata(None).brokers;
    let mut seen: Vec<i32> = seen.iter().map(|broker| broker.port).collect();
    seen.sort_unstable();
    let mut internal: Vec<i32> = ports.iter().step_by(2).map(|port| i32::from(port.number)).collect();
    internal.sort_unstable();
    assert_eq!(seen, internal);
    under_load(cluster, &[1, 2, 3], |cluster, writer| {
        let leader = cluster.leader("t", 0, 0);
        cluster.broker(leader).kill();
        writer.wait_for_more(20);
        cluster.broker(leader).start_again();
        cluster.wait_for_isr("t", 0, &[1, 2, 3], 0);
    });
}
