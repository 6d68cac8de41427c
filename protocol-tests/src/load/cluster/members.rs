use std::collections::BTreeMap;

use wire::metadata_request::MetadataRequestTopic;
use wire::metadata_response::{MetadataResponseBroker, MetadataResponseTopic};
use wire::{MetadataRequest, MetadataResponse, Request};

use crate::load::requests::{METADATA_VERSION, Patience};
use crate::load::{LoadConnection, LoadError};

/// The brokers of a cluster, each with a connection, which carries one request at a time.
pub struct Members(BTreeMap<i32, Member>);

struct Member {
    address: String,
    connection: LoadConnection,
}

impl Members {
    /// Waits until each of these addresses answers, and names all of them and a controller.
    pub async fn await_all(addresses: &[String]) -> Result<Members, LoadError> {
        let patience = Patience::to_see("all brokers of the cluster");
        loop {
            if let Ok(Some(members)) = Members::of(addresses).await {
                return Ok(members);
            }
            patience.pause().await?;
        }
    }

    async fn of(addresses: &[String]) -> Result<Option<Members>, LoadError> {
        let mut members = BTreeMap::new();
        for address in addresses {
            let mut connection = LoadConnection::open(address).await?;
            let metadata = connection.call(METADATA_VERSION, &asking(Some(&[]))).await?;
            let is_own =
                |broker: &&MetadataResponseBroker| format!("{}:{}", &*broker.host, broker.port) == *address;
            let Some(own) = metadata.brokers.iter().find(is_own) else { return Ok(None) };
            if metadata.brokers.len() != addresses.len() || metadata.controller_id < 0 {
                return Ok(None);
            }
            members.insert(own.node_id, Member { address: address.clone(), connection });
        }
        Ok(Some(Members(members)))
    }

    pub fn ids(&self) -> Vec<i32> {
        self.0.keys().copied().collect()
    }

    pub fn addresses(&self) -> Vec<String> {
        self.0.values().map(|member| member.address.clone()).collect()
    }

    /// A broker that is asked no more.
    pub(super) fn forget(&mut self, id: i32) {
        self.0.remove(&id);
    }

    /// The controller, as the first of the brokers knows it; `-1` = nobody.
    pub async fn controller(&mut self) -> Result<i32, LoadError> {
        let first = self.0.keys().next().copied().unwrap_or(-1);
        Ok(self.metadata(first, Some(&[])).await?.controller_id)
    }

    pub(super) async fn call<R: Request>(
        &mut self,
        id: i32,
        version: i16,
        request: &R,
    ) -> Result<R::Response, LoadError> {
        let unknown = || LoadError::Wrong { what: format!("broker {id} is not of the cluster") };
        self.0.get_mut(&id).ok_or_else(unknown)?.connection.call(version, request).await
    }

    /// What a broker says of these topics; `None` = of all.
    pub(super) async fn metadata(
        &mut self,
        id: i32,
        topics: Option<&[String]>,
    ) -> Result<MetadataResponse, LoadError> {
        self.call(id, METADATA_VERSION, &asking(topics)).await
    }

    /// What a broker says of one topic.
    pub(super) async fn topic(&mut self, id: i32, name: &str) -> Result<MetadataResponseTopic, LoadError> {
        let metadata = self.metadata(id, Some(&[name.to_owned()])).await?;
        let unanswered = || LoadError::Wrong { what: format!("Metadata says nothing of {name}") };
        metadata.topics.into_iter().next().ok_or_else(unanswered)
    }

    /// Asks a broker for a topic until what it says will do.
    pub(super) async fn await_topic(
        &mut self,
        id: i32,
        name: &str,
        what: &'static str,
        will_do: impl Fn(&MetadataResponseTopic) -> bool,
    ) -> Result<MetadataResponseTopic, LoadError> {
        let patience = Patience::to_see(what);
        loop {
            let topic = self.topic(id, name).await?;
            if will_do(&topic) {
                return Ok(topic);
            }
            patience.pause().await?;
        }
    }
}

fn asking(topics: Option<&[String]>) -> MetadataRequest {
    let named = |name: &String| MetadataRequestTopic {
        name: Some(name.as_str().into()),
        ..MetadataRequestTopic::default()
    };
    MetadataRequest {
        topics: topics.map(|names| names.iter().map(named).collect()),
        allow_auto_topic_creation: false,
        ..MetadataRequest::default()
    }
}
