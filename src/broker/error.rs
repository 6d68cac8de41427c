use std::path::PathBuf;

use snafu::Snafu;

use crate::controller::registration::RegistrationError;
use crate::coordination::{BindServerError, InvalidConnectString, OpenStoreError, StoreError};
use crate::log::LogError;
use crate::model::BrokerId;
use crate::network::BindError;
use crate::runtime::tls::TlsError;
use crate::security::jaas::JaasError;

/// Why a broker cannot start; one line for the operator.
#[derive(Debug, Snafu)]
#[snafu(visibility(pub(super)))]
pub enum StartError {
    #[snafu(transparent)]
    Bind { source: BindError },
    #[snafu(transparent)]
    BindZooKeeperPort { source: BindServerError },
    #[snafu(display("log.dirs: {source}"))]
    LogDirectories { source: LogError },
    #[snafu(transparent)]
    OpenStore { source: OpenStoreError },
    #[snafu(display("the store: {source}"))]
    Store { source: StoreError },
    #[snafu(transparent)]
    Registration { source: RegistrationError },
    #[snafu(transparent)]
    ConnectString { source: InvalidConnectString },
    #[snafu(display(
        "zookeeper.set.acl is true, but there is no identity for it: set barnabas.zookeeper.jaas.file, \
         zookeeper.ssl.client.enable with zookeeper.ssl.keystore.location, or barnabas.zookeeper.digest"
    ))]
    NoZooKeeperIdentity,
    #[snafu(display("TLS towards ZooKeeper: {source}"))]
    ZooKeeperTls { source: TlsError },
    #[snafu(display(
        "zookeeper.ssl.client.enable is true, but zookeeper.ssl.truststore.location is not set"
    ))]
    NoTrustStore,
    #[snafu(display("cannot read {}, the JAAS file for ZooKeeper: {source}", path.display()))]
    ReadJaas { path: PathBuf, source: std::io::Error },
    #[snafu(display("{}, the JAAS file for ZooKeeper: {source}", path.display()))]
    Jaas { path: PathBuf, source: JaasError },
    #[snafu(display(
        "{}: the section {section} has no DigestLoginModule with username and password; Barnabas speaks \
         DIGEST-MD5 to ZooKeeper, and no Kerberos",
        path.display()
    ))]
    NoDigestLogin { path: PathBuf, section: String },
    #[snafu(display("cannot start a thread for ZooKeeper: {source}"))]
    StartThread { source: std::io::Error },
    #[snafu(display(
        "{} says cluster.id {found}, the store says {expected}: the folder belongs to another cluster", path.display()
    ))]
    OtherCluster { path: PathBuf, found: String, expected: String },
    #[snafu(display(
        "{} says broker.id {found}, the configuration says {expected}: the folder belongs to another broker", path.display()
    ))]
    OtherBroker { path: PathBuf, found: BrokerId, expected: BrokerId },
    #[snafu(display(
        "{} is of cluster {cluster_id}, and there is no store of it in {}: `barnabas adopt` makes one", path.display(), first.display()
    ))]
    NotAdopted { path: PathBuf, cluster_id: String, first: PathBuf },
    #[snafu(display("{} is a KRaft broker's: no broker of a ZooKeeper cluster opens it", path.display()))]
    KRaftFolder { path: PathBuf },
    #[snafu(display("broker.id is not set and broker.id.generation.enable is false"))]
    NoBrokerId,
    #[snafu(display("the broker did not become ready: {what}"))]
    NotReady { what: &'static str },
}
