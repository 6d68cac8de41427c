//! Where a follower's log has to be cut so that it agrees with its leader's. Pure.

use crate::model::{LeaderEpoch, Offset};

/// What the leader knows of an epoch: the largest one not above it, and where its records end. `-1` = nothing.
pub type LeaderEnd = (LeaderEpoch, Offset);

/// Where to cut, and whether the logs agree then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Truncation {
    pub to: Offset,
    /// Otherwise the leader has to be asked about an earlier epoch.
    pub is_final: bool,
}

/// Decides by the leader's answer. `own` tells of the follower's log, as [`LeaderEnd`] does of the leader's;
/// `high_watermark` is where a log without epochs is cut, as everything below it is committed.
pub fn decide(
    leader: LeaderEnd,
    own: impl Fn(LeaderEpoch) -> LeaderEnd,
    high_watermark: Offset,
    log_end_offset: Offset,
) -> Truncation {
    let (leader_epoch, leader_end) = leader;
    if leader_end < Offset::ZERO {
        return Truncation { to: high_watermark.min(log_end_offset), is_final: true };
    }
    let (own_epoch, own_end) = own(leader_epoch);
    if leader_epoch == LeaderEpoch::UNKNOWN || own_end < Offset::ZERO {
        return Truncation { to: leader_end.min(log_end_offset), is_final: true };
    }
    if own_epoch == leader_epoch {
        return Truncation { to: own_end.min(leader_end).min(log_end_offset), is_final: true };
    }
    Truncation { to: own_end.min(log_end_offset), is_final: false }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Epochs of the follower's log, each with its end.
    fn own(epochs: &[(i32, i64)]) -> impl Fn(LeaderEpoch) -> LeaderEnd {
        move |wanted| {
            let found = epochs.iter().rev().find(|(epoch, _)| *epoch <= wanted.0);
            found.map_or((LeaderEpoch::UNKNOWN, Offset::NONE), |&(epoch, end)| {
                (LeaderEpoch(epoch), Offset(end))
            })
        }
    }

    #[track_caller]
    fn check(leader: (i32, i64), epochs: &[(i32, i64)], to: i64, is_final: bool) {
        let end = Offset(epochs.last().map_or(20, |last| last.1));
        let truncation = decide((LeaderEpoch(leader.0), Offset(leader.1)), own(epochs), Offset(4), end);
        assert_eq!(truncation, Truncation { to: Offset(to), is_final });
    }

    #[test]
    fn the_log_is_cut_where_the_epochs_part() {
        //    leader    follower's epochs and ends        cut  final
        check((-1, -1), &[(1, 10)], 4, true);
        check((-1, 8), &[(1, 10)], 8, true);
        check((-1, 30), &[(1, 10)], 10, true);
        check((2, 15), &[(1, 10), (2, 20)], 15, true);
        check((2, 30), &[(1, 10), (2, 20)], 20, true);
        check((2, 15), &[(1, 10), (3, 20)], 10, false);
        check((2, 15), &[(3, 20)], 15, true);
    }
}
