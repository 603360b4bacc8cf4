use std::time::Duration;

use agora::transaction::TransactionStatus;

use super::gauge_value;

/// Buckets in seconds for a transaction: a routine takes milliseconds, a model seconds.
const TRANSACTION_S: [f64; 11] = [0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 90.0];

telemetry::metrics! {
    /// Transactions of Agora, which come over HTTP and become calls.
    pub(crate) struct TransactionMetrics {
        /// Transactions of Agora answered, by the status of the answer.
        answered: Counter[status: TransactionStatus] = "exchange_agora_transactions_total";
        /// Time from a transaction's request to its answer.
        duration: Histogram(TRANSACTION_S) = "exchange_agora_transaction_duration_seconds";
        /// Conversations of Agora that this gateway holds open.
        conversations: Gauge = "exchange_agora_conversations";
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
}
