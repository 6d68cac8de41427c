//! The bound on producers that are known: whoever takes a new producer id for each run must not fill the memory.

use super::manager::LogManager;

impl LogManager {
    /// How many producers the logs know, all together. One that wrote to several partitions counts in each.
    pub fn producer_count(&self) -> usize {
        self.logs().iter().map(|log| log.producer_count()).sum()
    }

    /// Gives back what producers hold that wrote nothing since the last call.
    pub fn producer_settling_tick(&self) {
        self.logs().iter().for_each(|log| log.settle_producers());
    }

    /// Keeps the number of known producers at `count_max`: where there are more, those that were silent for longest
    /// are forgotten, a tenth of them at once. Answers how many.
    ///
    /// A producer that is forgotten goes on as one that has expired: its next batch is taken whatever its sequence.
    /// Nobody in the middle of a transaction is forgotten.
    pub fn producer_limit_tick(&self, count_max: usize) -> usize {
        let count = self.producer_count();
        if count <= count_max {
            return 0;
        }
        let logs = self.logs();
        let mut signs = Vec::with_capacity(count);
        logs.iter().for_each(|log| log.last_signs_of_producers(&mut signs));
        let surplus = count - (count_max - count_max / 10);
        // Beyond what may go: all of it goes.
        let Some(last) = surplus.min(signs.len()).checked_sub(1) else { return 0 };
        let (_, &mut until, _) = signs.select_nth_unstable(last);
        drop(signs);
        logs.iter().map(|log| log.forget_producers(until)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::super::{Log, LogConfig};
    use crate::records::TransactionMarker;

    fn known(log: &Log) -> Vec<i64> {
        log.producers().into_iter().map(|(producer_id, _)| producer_id.0).collect()
    }

    #[test]
    fn those_that_were_silent_for_longest_are_forgotten_first() {
        let machine = Machine::new(Default::default());
        let (manager, log) = machine.start_log();
        let other = manager
            .log_or_create(&named("other"), Default::default(), LogConfig::default(), None, machine.now())
            .unwrap();
        for producer_id in 0..10 {
            log.append_batch(sequenced(producer_id, 0, &["v"])).unwrap();
            other.append_batch(sequenced(100 + producer_id, 0, &["v"])).unwrap();
        }
        assert_eq!((manager.producer_count(), manager.producer_limit_tick(20)), (20, 0));
        // All were heard of since the last look, then only these.
        manager.producer_settling_tick();
        for producer_id in 3..10 {
            log.append_batch(sequenced(producer_id, 1, &["v"])).unwrap();
            other.append_batch(sequenced(100 + producer_id, 1, &["v"])).unwrap();
        }
        assert_eq!(manager.producer_limit_tick(16), 6);
        assert_eq!(known(&log), (3..10).collect::<Vec<_>>());
        assert_eq!(known(&other), (103..110).collect::<Vec<_>>());
        assert_eq!(manager.producer_count(), 14);
        // One that was forgotten goes on with its sequence.
        log.append_batch(sequenced(0, 1, &["v"])).unwrap();
    }

    #[test]
    fn nobody_with_an_open_transaction_is_forgotten() {
        let machine = Machine::new(Default::default());
        let (manager, log) = machine.start_log();
        for producer_id in 0..10 {
            log.append_batch(transactional(producer_id, 0, &["v"])).unwrap();
        }
        assert_eq!(manager.producer_limit_tick(5), 0);
        for producer_id in 0..4 {
            log.append_batch(marker(producer_id, TransactionMarker::Commit)).unwrap();
        }
        assert_eq!(manager.producer_limit_tick(5), 4);
        assert_eq!(known(&log), (4..10).collect::<Vec<_>>());
    }
}
