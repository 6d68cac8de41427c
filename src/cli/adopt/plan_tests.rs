use std::path::PathBuf;

use super::plan::*;
use crate::coordination::{TextNode, parse_tree};
use crate::log::checkpoint::{ClusterMode, MetaProperties};
use crate::log::{Survey, SurveyedPartition};
use crate::model::{BrokerId, LeaderEpoch, PartitionIndex, ProducerId, TopicName, TopicPartition};

fn meta(mode: ClusterMode, id: i32) -> MetaProperties {
    MetaProperties { mode, broker_id: Some(BrokerId(id)), cluster_id: Some("c".into()) }
}

fn survey(path: &str, partitions: &[(&str, i32)]) -> Survey {
    let partition = |&(topic, index): &(&str, i32)| SurveyedPartition {
        topic_partition: TopicPartition::new(TopicName::new(topic).unwrap(), PartitionIndex(index)),
        path: PathBuf::from(format!("{path}/{topic}-{index}")),
        topic_id: None,
        latest_epoch: Some(LeaderEpoch(7)),
        producer_id_max: Some(ProducerId(4_500)),
    };
    Survey {
        path: path.into(),
        meta: Some(meta(ClusterMode::ZooKeeper, 1)),
        partitions: partitions.iter().map(partition).collect(),
        other_folders: Vec::new(),
        compacted: Vec::new(),
    }
}

fn findings(surveys: Vec<Survey>, znodes: &str) -> Findings {
    Findings { surveys, znodes: parse_tree(&format!("path\tdata\n{znodes}")).unwrap(), producer_id_max: None }
}

fn data(plan: &Plan, path: &str) -> String {
    let node = plan.nodes.iter().find(|node| node.path == path).unwrap_or_else(|| panic!("no {path}"));
    node.data.as_ref().map_or("null".into(), |data| String::from_utf8(data.to_vec()).unwrap())
}

#[test]
fn the_folder_alone_makes_a_whole_tree() {
    let mut survey = survey("/d", &[("__consumer_offsets", 0), ("t", 0), ("t", 2), ("kept", 0)]);
    survey.compacted = vec![survey.partitions[3].topic_partition.clone()];
    let plan = Plan::of(&findings(vec![survey], "")).unwrap();
    assert_eq!((plan.broker_id, plan.cluster_id.as_str()), (BrokerId(1), "c"));
    assert!(data(&plan, "/brokers/topics/t").contains(r#""partitions":{"0":[1],"2":[1]}"#));
    assert!(data(&plan, "/brokers/topics/t/partitions/2/state").contains(r#""leader_epoch":7"#));
    assert!(data(&plan, "/config/topics/__consumer_offsets").contains(r#""cleanup.policy":"compact""#));
    assert!(data(&plan, "/config/topics/kept").contains("compact"));
    assert!(data(&plan, "/latest_producer_id_block").contains(r#""block_end":"4999""#));
    assert!(
        plan.notes.contains(&"topic t: partitions 1 are not in the folders".to_owned()),
        "{:?}",
        plan.notes
    );
    let parents = |node: &TextNode| match node.path.rsplit_once('/') {
        Some(("", _)) | None => true,
        Some((parent, _)) => plan.nodes.iter().any(|other| other.path == parent),
    };
    assert!(plan.nodes.iter().all(parents));
}

#[test]
fn a_kraft_brokers_folder_is_told_to_be_one() {
    let kraft = Survey { meta: Some(meta(ClusterMode::KRaft, 1)), ..survey("/d", &[("t", 0)]) };
    let plan = Plan::of(&findings(vec![kraft], "")).unwrap();
    assert_eq!((plan.broker_id, plan.cluster_id.as_str()), (BrokerId(1), "c"));
    assert!(plan.notes[0].contains("__cluster_metadata-0, is passed over"), "{:?}", plan.notes);
}

#[test]
fn the_tree_gives_configurations_and_is_not_taken_over_blindly() {
    let tree = "/config/topics/t\t{\"version\":1,\"config\":{\"retention.ms\":\"-1\"}}\n\
                /config/topics/gone\t{\"version\":1,\"config\":{}}\n\
                /config/changes/config_change_0000000001\tx\n\
                /controller\tx\n\
                /controller_epoch\t9\n\
                /brokers/ids/2\tx\n\
                /brokers/topics/gone\t{\"version\":1,\"partitions\":{\"0\":[1]}}\n\
                /brokers/topics/t\t{\"version\":1,\"partitions\":{\"0\":[1,2],\"1\":[2]}}\n\
                /brokers/topics/t/partitions/0/state\t{\"version\":1,\"leader\":2,\"leader_epoch\":11,\"controller_epoch\":9,\"isr\":[2]}\n\
                /latest_producer_id_block\t{\"version\":1,\"broker\":1,\"block_start\":\"5000\",\"block_end\":\"5999\"}\n";
    let plan = Plan::of(&findings(vec![survey("/d", &[("t", 0)])], tree)).unwrap();
    assert!(data(&plan, "/config/topics/t").contains("retention.ms"));
    assert!(data(&plan, "/brokers/topics/t/partitions/0/state").contains(r#""leader":1"#));
    assert!(data(&plan, "/brokers/topics/t/partitions/0/state").contains(r#""leader_epoch":11"#));
    assert_eq!(data(&plan, "/controller_epoch"), "9");
    assert!(data(&plan, "/latest_producer_id_block").contains("5999"));
    for path in ["/controller", "/brokers/ids/2", "/brokers/topics/gone", "/config/topics/gone"] {
        assert!(plan.nodes.iter().all(|node| node.path != path), "{path}");
    }
    assert!(plan.nodes.iter().all(|node| !node.path.starts_with("/config/changes/")));
    assert_eq!(plan.notes.len(), 3, "{:?}", plan.notes);
}

#[test]
fn what_does_not_belong_together_is_refused() {
    let error = |surveys, tree| Plan::of(&findings(surveys, tree)).unwrap_err().to_string();
    let other = |meta| vec![survey("/a", &[]), Survey { meta, ..survey("/b", &[]) }];
    assert_eq!(error(other(None), ""), "/b has no meta.properties: it is no folder of a broker");
    for stranger in [meta(ClusterMode::ZooKeeper, 2), meta(ClusterMode::KRaft, 1)] {
        assert!(error(other(Some(stranger)), "").starts_with("/b is another broker's"));
    }
    let twice = vec![survey("/a", &[("t", 0)]), survey("/b", &[("t", 0)])];
    assert_eq!(error(twice, ""), "t-0 lies in /a/t-0 and in /b/t-0");
    let tree = "/cluster/id\t{\"version\":\"1\",\"id\":\"x\"}";
    assert_eq!(error(vec![survey("/a", &[])], tree), "the given tree is of cluster x, the folder of c");
}
