//! A broker whose disk is full or slow, among others whose disks are not.

use std::thread;
use std::time::Duration;

use protocol_tests::client::left_out;
use protocol_tests::{Cluster, Volume, has_java, under_load};

use crate::failovers::move_leader;

/// Broker 3 leads, on a volume of its own.
fn cluster_on(volume: &Volume) -> Cluster {
    let mut cluster = Cluster::of_three(&[("min.insync.replicas", "2")]);
    cluster.move_folder(3, &volume.path());
    cluster.create_topic("t", &[&[3, 1, 2]]);
    for text in ["no room left", "cannot append", "moved all leaderships"] {
        cluster.broker(3).allow_log(text);
    }
    cluster
}

fn volume() -> Option<Volume> {
    if !has_java() {
        return None;
    }
    let volume = Volume::mount(96);
    if volume.is_none() {
        left_out("full and slow disks in a cluster", "this machine mounts no volumes");
    }
    volume
}

/// A leader that has no room keeps its leadership until somebody takes it; a follower leaves the ISR by itself.
#[test]
fn a_full_disk_stops_one_broker_until_there_is_room() {
    let Some(volume) = volume() else { return };
    under_load(cluster_on(&volume), &[1, 2, 3], |cluster, writer| {
        volume.fill_but(1 << 20);
        move_leader(cluster);
        writer.wait_for_more(50);
        // A follower takes of the reserve what its leader has acknowledged, until there is nothing left.
        volume.fill_but(0);
        cluster.wait_for_isr("t", 0, &[1, 2], 0);
        writer.wait_for_more(50);
        volume.empty();
        cluster.wait_for_isr("t", 0, &[1, 2, 3], 0);
    });
}

#[test]
fn a_slow_disk_delays_acknowledgements_and_loses_none() {
    let Some(volume) = volume() else { return };
    let standing_still = |pause_ms| {
        volume.freeze();
        thread::sleep(Duration::from_millis(pause_ms));
        volume.thaw();
    };
    under_load(cluster_on(&volume), &[1, 2, 3], |cluster, writer| {
        // The leader's disk, in short pauses and past what replicas may lag.
        for _ in 0..8 {
            standing_still(300);
            writer.wait_for_more(1);
        }
        standing_still(6_000);
        writer.wait_for_more(20);
        cluster.wait_for_isr("t", 0, &[1, 2, 3], 3);
        // A follower's: the others go on without it.
        if cluster.leader("t", 0, 0) == 3 {
            move_leader(cluster);
        }
        volume.freeze();
        cluster.wait_for_isr("t", 0, &[1, 2], 3);
        writer.wait_for_more(50);
        volume.thaw();
        cluster.wait_for_isr("t", 0, &[1, 2, 3], 0);
    });
}
