//! The page that shows the coordinator's states, printed from its rules.

use std::collections::BTreeSet;

use super::records::status_of;
use super::transaction::{End, Init, Step, Transaction, TransactionState, TransactionVersion};
use crate::model::{PartitionIndex, ProducerEpoch, ProducerId, Timestamp, TopicName, TopicPartition};

const PRODUCER_ID: ProducerId = ProducerId(1);
const EPOCH: ProducerEpoch = ProducerEpoch(5);
const NOW: Timestamp = Timestamp(2);

/// `docs/reference/transactions.md`.
pub fn transactions_reference() -> String {
    let mut page = String::from(
        "# States of transactional ids\n\n\
         What the transaction coordinator knows of a transactional id, and what becomes of it with each request. \
         Printed by `barnabas docs transactions`; a test fails when this page is stale.\n\n\
         | state | stored as | may follow |\n|---|---|---|\n",
    );
    for state in TransactionState::ALL {
        let before = TransactionState::ALL.into_iter().filter(|before| state.may_follow(*before));
        let before: Vec<&str> = before.map(TransactionState::as_str).collect();
        page += &format!("| {} | {} | {} |\n", state.as_str(), status_of(state), before.join(", "));
    }
    page += "\nA new transactional id begins as Empty. Dead (6) and PrepareEpochFence (7) are never stored, nor by Kafka.\n";
    for (version, title) in [
        (TransactionVersion::Classic, "The classic protocol (clients before Kafka 4)"),
        (TransactionVersion::EpochBump, "Epochs that grow with each end (`transaction.version` 2, KIP-890)"),
    ] {
        page += &format!(
            "\n## {title}\n\nThe next state, with \"epoch + 1\" where the producer's epoch grows; or why not.\n\n\
             | in state | new producer | add partitions | commit | abort | commit again | abort again | timeout | markers written |\n\
             |---|---|---|---|---|---|---|---|---|\n"
        );
        for state in TransactionState::ALL {
            page += &row(state, version);
        }
    }
    page += "\n*New producer* is InitProducerId of a producer that begins; *again* repeats an end under the epoch that it had \
             before; *timeout* looks every `transaction.abort.timed.out.transaction.cleanup.interval.ms`.\n";
    page
}

fn row(state: TransactionState, version: TransactionVersion) -> String {
    let transaction = sample(state, version);
    let init = Init { timeout_ms: 60_000, expected: None, fresh_producer_id: None };
    let end = |is_commit, producer_epoch| {
        let (producer_id, client_version) = (PRODUCER_ID, version);
        let end = End { producer_id, producer_epoch, is_commit, client_version, fresh_producer_id: None };
        outcome(transaction.end(&end, NOW))
    };
    // Where epochs do not grow, the end that is repeated had the same one.
    let earlier = if version.bumps_epochs() { ProducerEpoch(EPOCH.0 - 1) } else { EPOCH };
    let timeout = match state {
        TransactionState::Ongoing => outcome(Step::Store(transaction.fence(version, NOW))),
        _ => "-".to_owned(),
    };
    let written = match state.is_prepared() {
        true => outcome(Step::Store(transaction.completed(NOW))),
        false => "-".to_owned(),
    };
    let partitions = BTreeSet::from([partition("another")]);
    let cells = [
        outcome(transaction.init(&init, version, NOW)),
        outcome(transaction.add_partitions((PRODUCER_ID, EPOCH), &partitions, version, NOW)),
        end(true, EPOCH),
        end(false, EPOCH),
        end(true, earlier),
        end(false, earlier),
        timeout,
        written,
    ];
    format!("| {} | {} |\n", state.as_str(), cells.join(" | "))
}

fn sample(state: TransactionState, version: TransactionVersion) -> Transaction {
    let has_partitions = state == TransactionState::Ongoing || state.is_prepared();
    Transaction {
        producer_epoch: EPOCH,
        previous_producer_id: PRODUCER_ID,
        state,
        partitions: has_partitions.then(|| partition("t")).into_iter().collect(),
        start_timestamp: Timestamp(1),
        client_version: version,
        ..Transaction::unknown(PRODUCER_ID, 60_000, Timestamp(1))
    }
}

fn partition(topic: &str) -> TopicPartition {
    TopicPartition::new(TopicName::new(topic).expect("a legal name"), PartitionIndex(0))
}

fn outcome(step: Step) -> String {
    match step {
        Step::Store(next) if next.producer_epoch > EPOCH => format!("{}, epoch + 1", next.state.as_str()),
        Step::Store(next) => next.state.as_str().to_owned(),
        Step::Done => "done before".to_owned(),
        Step::NeedsProducerId => "needs a producer id".to_owned(),
        Step::Refuse(error) => format!("*{error:?}*"),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_reference_page_is_fresh() {
        let written = include_str!("../../docs/reference/transactions.md");
        assert!(
            written == super::transactions_reference(),
            "run: cargo run -- docs transactions > docs/reference/transactions.md"
        );
    }
}
