//! The transactional ids that this broker coordinates (KIP-664).
//!
//! Behaviour: ids that the client may not describe are left out. Names of states that do not exist are answered back;
//! they match nothing.
//!
//! Versions: 1 only transactions that have been open for long (KIP-994) · 2 a pattern for the ids (KIP-1152).

use regex::Regex;
use wire::list_transactions_response::TransactionState as ListedState;
use wire::{ListTransactionsRequest, ListTransactionsResponse, Str};

use super::error_code::txn_error;
use super::{ErrorCode, RequestContext, Services};
use crate::model::ProducerId;
use crate::security::{Operation, Resource};
use crate::txn::{ListTransactions, TransactionState};

pub async fn handle(
    services: &Services,
    context: &RequestContext,
    request: ListTransactionsRequest,
) -> ListTransactionsResponse {
    let mut response = ListTransactionsResponse::default();
    let pattern = match request.transactional_id_pattern.as_deref().map(whole_text) {
        None => None,
        Some(Some(pattern)) => Some(pattern),
        Some(None) => {
            response.error_code = ErrorCode::InvalidRegularExpression.code();
            return response;
        }
    };
    let (states, unknown) = states(&request.state_filters);
    let filter = ListTransactions {
        states,
        producer_ids: request.producer_id_filters.iter().copied().map(ProducerId).collect(),
        duration_ms: request.duration_filter,
    };
    match services.transactions.list(&filter).await {
        Err(error) => response.error_code = txn_error(error).code(),
        Ok(listed) => {
            response.unknown_state_filters = unknown;
            let is_shown = |id: &str| {
                pattern.as_ref().is_none_or(|pattern| pattern.is_match(id))
                    && services.authorizer.allows(
                        context.principal(),
                        Operation::Describe,
                        Resource::TransactionalId(id),
                    )
            };
            let shown = listed.into_iter().filter(|listed| is_shown(&listed.transactional_id));
            response.transaction_states = shown
                .map(|listed| ListedState {
                    transactional_id: listed.transactional_id.as_str().into(),
                    producer_id: listed.producer_id.0,
                    transaction_state: listed.state.as_str().into(),
                })
                .collect();
        }
    }
    response
}

/// The states that are asked for, and the names that are none.
fn states(names: &[Str]) -> (Option<Vec<TransactionState>>, Vec<Str>) {
    if names.is_empty() {
        return (None, Vec::new());
    }
    let state = |name: &Str| TransactionState::ALL.into_iter().find(|state| state.as_str() == &**name);
    // Known by Kafka, and never seen: it is not stored and not shown.
    let is_hidden = |name: &Str| matches!(&**name, "Dead" | "PrepareEpochFence");
    let unknown = names.iter().filter(|&name| state(name).is_none() && !is_hidden(name)).cloned().collect();
    (Some(names.iter().filter_map(state).collect()), unknown)
}

/// Kafka reads patterns as RE2 does, as this crate; they have to match the whole id.
fn whole_text(pattern: &str) -> Option<Regex> {
    Regex::new(&format!("^(?:{pattern})$")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_no_state_are_answered_back() {
        let names = |names: &[&str]| names.iter().map(|&name| Str::from(name)).collect::<Vec<_>>();
        assert_eq!(states(&[]), (None, Vec::new()));
        let (known, unknown) = states(&names(&["Ongoing", "ongoing", "Dead", "Foo"]));
        assert_eq!(known, Some(vec![TransactionState::Ongoing]));
        assert_eq!(unknown, names(&["ongoing", "Foo"]));
    }

    #[test]
    fn patterns_match_whole_ids() {
        assert!(whole_text("a|ab").is_some_and(|pattern| pattern.is_match("ab") && !pattern.is_match("abc")));
        assert!(whole_text("(").is_none());
    }
}
