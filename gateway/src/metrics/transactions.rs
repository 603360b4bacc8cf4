use std::time::Duration;

use agora::fetch::FetchFault;
use agora::transaction::TransactionStatus;

use super::gauge_value;

/// Buckets in seconds for a transaction: a routine takes milliseconds, a model seconds.
const TRANSACTION_S: [f64; 11] = [0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 90.0];
/// A document was fetched.
const FETCHED: &str = "fetched";
/// Something was fetched that is not the document.
const MISMATCH: &str = "mismatch";
/// Results of fetches: those two, and every [`FetchFault`].
const FETCH_RESULTS: [&str; 9] = [
    FETCHED,
    MISMATCH,
    "not_allowed",
    "unresolved",
    "private_address",
    "unreachable",
    "timed_out",
    "too_large",
    "bad_answer",
];

telemetry::metrics! {
    /// Transactions of Agora, which come over HTTP and become calls.
    pub(crate) struct TransactionMetrics {
        /// Transactions of Agora answered, by the status of the answer.
        answered: Counter[status: TransactionStatus] = "exchange_agora_transactions_total";
        /// Time from a transaction's request to its answer.
        duration: Histogram(TRANSACTION_S) = "exchange_agora_transaction_duration_seconds";
        /// Conversations of Agora that this gateway holds open.
        conversations: Gauge = "exchange_agora_conversations";
        /// Documents fetched by address for transactions, by result; one of another hash is a mismatch.
        fetches: Counter[result: &'static str = FETCH_RESULTS] = "exchange_document_fetches_total";
    }
}

impl TransactionMetrics {
    /// A transaction was answered.
    pub(crate) fn ended(&self, status: TransactionStatus, time: Duration) {
        self.answered.of(status).inc();
        self.duration.observe(time.as_secs_f64());
    }

    /// So many conversations are open.
    pub(crate) fn holds(&self, conversations: usize) {
        self.conversations.set(gauge_value(conversations));
    }

    /// A document was asked for at an address: whether what came is the document, or why nothing did.
    pub(crate) fn fetched(&self, outcome: Result<bool, FetchFault>) {
        let result = match outcome {
            Ok(true) => FETCHED,
            Ok(false) => MISMATCH,
            Err(fault) => fault.into(),
        };
        self.fetches.of(result).inc();
    }
}

#[cfg(test)]
mod tests {
    use strum::VariantArray as _;

    use super::*;

    #[test]
    fn every_fault_of_a_fetch_is_a_result() {
        let faults: Vec<&str> = FetchFault::VARIANTS.iter().map(|fault| fault.into()).collect();
        assert_eq!(faults, FETCH_RESULTS[2..]);
    }
}
