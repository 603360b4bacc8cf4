//! What models are paid: tokens and cost, by negotiation and in all, and whether more may be spent. Whole numbers, so that sums
//! of a trace, of metrics and of a summary are the same to the last digit.

use retry::RecentMap;
use schemas::{AgentId, NegotiationId, Timestamp};
use serde::Serialize;

use super::config::{ModelConfig, TokenPrice};

/// Negotiations whose spending is remembered at least: as many as one process has open.
const NEGOTIATIONS_MAX: usize = 131_072;
const TOKENS_PER_PRICE: u128 = 1_000_000;
const DAY_US: u64 = 86_400_000_000;
/// Bytes of a token where nobody counted: the usual estimate for European languages.
const TOKEN_BYTES: usize = 4;
/// Tokens that an endpoint may add to a conversation: its template, the schema.
const TEMPLATE_TOKENS_MAX: u64 = 4096;

/// Tokens of one call, or of many.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct TokenUsage {
    /// Of the conversation that was sent.
    pub input: u64,
    /// Of the answer.
    pub output: u64,
}

impl TokenUsage {
    /// An estimate by length.
    #[must_use]
    pub fn estimated(input_bytes: usize, output_bytes: usize) -> Self {
        let tokens = |bytes: usize| bytes.div_ceil(TOKEN_BYTES) as u64;
        Self { input: tokens(input_bytes), output: tokens(output_bytes) }
    }

    /// What they cost, in micro-units, rounded up.
    #[must_use]
    pub fn cost(self, price: TokenPrice) -> u64 {
        let millionths =
            u128::from(self.input) * u128::from(price.input) + u128::from(self.output) * u128::from(price.output);
        u64::try_from(millionths.div_ceil(TOKENS_PER_PRICE)).unwrap_or(u64::MAX)
    }

    /// What a call can take for which these tokens were estimated: a token of what was sent has a byte at least, and no
    /// answer is longer than was asked for.
    fn upper_bound(self) -> Self {
        let input = self.input.saturating_mul(TOKEN_BYTES as u64).saturating_add(TEMPLATE_TOKENS_MAX);
        Self { input, output: self.output }
    }

    const fn total(self) -> u64 {
        self.input.saturating_add(self.output)
    }
}

/// One call that was paid.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct PaidCall {
    /// Its tokens.
    pub usage: TokenUsage,
    /// Whether they were estimated, because the endpoint did not count them.
    pub is_estimated: bool,
    /// What it cost, in micro-units.
    pub cost: u64,
}

/// Everything spent so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct ModelTotals {
    /// Calls made.
    pub calls: u64,
    /// Of these, the calls whose tokens were estimated.
    pub estimated_calls: u64,
    /// Their tokens.
    pub usage: TokenUsage,
    /// What they cost, in micro-units.
    pub cost: u64,
    /// Calls that brought an answer.
    pub answers: u64,
    /// Of these, the answers of `llmx-lab model-stub`.
    pub stub_answers: u64,
    /// Answers that were sent back to be repaired.
    pub repairs: u64,
}

/// Room for one call; given back by [`ModelAccounts::settle`].
#[derive(Debug)]
#[must_use = "a reservation that is not settled stays reserved"]
pub struct Reservation {
    negotiation: (AgentId, NegotiationId),
    most: TokenUsage,
    tokens: u64,
    cost: u64,
    day: u64,
}

/// The accounts of all agents that share a model and its budget.
#[derive(Debug)]
pub struct ModelAccounts {
    price: TokenPrice,
    calls_max: u32,
    tokens_max: u64,
    budget: u64,
    day: u64,
    spent_today: u64,
    reserved_today: u64,
    by_negotiation: RecentMap<(AgentId, NegotiationId), Spent>,
    totals: ModelTotals,
}

#[derive(Debug, Clone, Copy, Default)]
struct Spent {
    calls: u32,
    tokens: u64,
    reserved_tokens: u64,
}

impl ModelAccounts {
    /// Empty accounts with the limits of a configuration.
    #[must_use]
    pub fn new(config: &ModelConfig) -> Self {
        Self {
            price: config.price,
            calls_max: config.calls_per_negotiation,
            tokens_max: config.tokens_per_negotiation,
            budget: config.budget,
            day: 0,
            spent_today: 0,
            reserved_today: 0,
            by_negotiation: RecentMap::new(NEGOTIATIONS_MAX),
            totals: ModelTotals::default(),
        }
    }

    /// Everything spent so far.
    #[must_use]
    pub fn totals(&self) -> ModelTotals {
        self.totals
    }

    /// Makes room for a call that takes at most `usage`, as far as can be told; nothing when a limit forbids it.
    pub fn reserve(
        &mut self,
        now: Timestamp,
        agent: &AgentId,
        negotiation: &NegotiationId,
        usage: TokenUsage,
    ) -> Option<Reservation> {
        self.turn_day(now);
        let key = (agent.clone(), negotiation.clone());
        let mut spent = self.by_negotiation.renew(&key).copied().unwrap_or_default();
        let (tokens, cost) = (usage.total(), usage.cost(self.price));
        let tokens_then = spent.tokens.saturating_add(spent.reserved_tokens).saturating_add(tokens);
        let cost_then = self.spent_today.saturating_add(self.reserved_today).saturating_add(cost);
        if spent.calls >= self.calls_max || tokens_then > self.tokens_max || cost_then > self.budget {
            return None;
        }
        spent.calls += 1;
        spent.reserved_tokens += tokens;
        self.reserved_today += cost;
        self.by_negotiation.insert(key.clone(), spent);
        Some(Reservation { negotiation: key, most: usage.upper_bound(), tokens, cost, day: self.day })
    }

    /// Books what a call took. Without a count of the endpoint it is the estimate, and marked; so is a count beyond what was
    /// asked for, of which that much is booked.
    pub fn settle(&mut self, reservation: Reservation, counted: Option<TokenUsage>, estimate: TokenUsage) -> PaidCall {
        let Reservation { negotiation, most, tokens, cost: reserved, day } = reservation;
        let told = counted.unwrap_or(estimate);
        let usage = TokenUsage { input: told.input.min(most.input), output: told.output.min(most.output) };
        let call = PaidCall { usage, is_estimated: counted != Some(usage), cost: usage.cost(self.price) };
        if day == self.day {
            self.reserved_today = self.reserved_today.saturating_sub(reserved);
        }
        self.spent_today = self.spent_today.saturating_add(call.cost);
        if let Some(mut spent) = self.by_negotiation.value(&negotiation).copied() {
            spent.reserved_tokens = spent.reserved_tokens.saturating_sub(tokens);
            spent.tokens = spent.tokens.saturating_add(usage.total());
            self.by_negotiation.insert(negotiation, spent);
        }
        self.totals.calls += 1;
        self.totals.estimated_calls += u64::from(call.is_estimated);
        self.totals.usage.input = self.totals.usage.input.saturating_add(usage.input);
        self.totals.usage.output = self.totals.usage.output.saturating_add(usage.output);
        self.totals.cost = self.totals.cost.saturating_add(call.cost);
        call
    }

    /// Notes that a call brought an answer.
    pub fn note_answer(&mut self, is_stub: bool) {
        self.totals.answers += 1;
        self.totals.stub_answers += u64::from(is_stub);
    }

    /// Notes that an answer was sent back to be repaired.
    pub fn note_repair(&mut self) {
        self.totals.repairs += 1;
    }

    /// Budgets are by day (UTC); time that runs back begins none anew.
    fn turn_day(&mut self, now: Timestamp) {
        let day = now.0 / DAY_US;
        if day > self.day {
            (self.day, self.spent_today, self.reserved_today) = (day, 0, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEN: TokenUsage = TokenUsage { input: 6, output: 4 };

    #[test]
    fn calls_tokens_and_cost_are_limited_before_they_are_spent() {
        let free = ModelConfig { price: TokenPrice::default(), ..ModelConfig::default() };
        for (config, expected_calls) in [
            (ModelConfig { calls_per_negotiation: 1, ..free.clone() }, 1),
            (ModelConfig { tokens_per_negotiation: 29, ..free.clone() }, 2),
            (ModelConfig { tokens_per_negotiation: 30, ..free.clone() }, 3),
            (ModelConfig { budget: 39, price: TokenPrice { input: 1_000_000, output: 1_000_000 }, ..free }, 3),
        ] {
            let mut accounts = ModelAccounts::new(&config);
            let open: Vec<_> =
                std::iter::from_fn(|| accounts.reserve(at(1), &bob(), &n("a~1"), TEN)).take(99).collect();
            assert_eq!(open.len(), expected_calls, "{config:?}");
            open.into_iter().for_each(|room| assert_eq!(accounts.settle(room, Some(TEN), TEN).usage, TEN));
            assert!(accounts.reserve(at(1), &bob(), &n("a~1"), TEN).is_none(), "what was reserved is spent now");
            assert_eq!(accounts.totals().calls, expected_calls as u64);
        }
    }

    #[test]
    fn a_budget_is_of_a_day_and_other_limits_are_of_a_negotiation_of_an_agent() {
        let price = TokenPrice { input: 1_000_000, output: 1_000_000 };
        let config = ModelConfig { budget: 20, calls_per_negotiation: 2, price, ..ModelConfig::default() };
        let mut accounts = ModelAccounts::new(&config);
        let mut pay = |now, agent: &AgentId, negotiation: &str| {
            let room = accounts.reserve(at(now), agent, &n(negotiation), TEN);
            room.map(|room| accounts.settle(room, Some(TEN), TEN)).is_some()
        };
        assert!(pay(1, &bob(), "a~1") && pay(1, &bob(), "a~1"));
        assert!(!pay(1, &bob(), "a~2"), "the day's budget is spent");
        assert!(!pay(2, &bob(), "a~1") && pay(2, &bob(), "a~2"), "calls of a negotiation are not of a day");
        assert!(pay(2, &AgentId::try_new("carol").unwrap(), "a~1"));
        assert!(!pay(1, &bob(), "a~3"), "time that runs back brings no money back");
    }

    #[test]
    fn sums_are_exact_and_estimates_are_marked() {
        let config = ModelConfig { price: TokenPrice { input: 150_000, output: 600_000 }, ..ModelConfig::default() };
        let mut accounts = ModelAccounts::new(&config);
        let mut calls = Vec::new();
        for (counted, estimate) in
            [(Some(TokenUsage { input: 1001, output: 3 }), TEN), (None, TokenUsage::estimated(9, 4))]
        {
            let room = accounts.reserve(at(1), &bob(), &n("a~1"), TEN).unwrap();
            calls.push(accounts.settle(room, counted, estimate));
        }
        assert_eq!(calls[0], PaidCall { usage: TokenUsage { input: 1001, output: 3 }, is_estimated: false, cost: 152 });
        assert_eq!(calls[1], PaidCall { usage: TokenUsage { input: 3, output: 1 }, is_estimated: true, cost: 2 });
        let usage = TokenUsage { input: 1004, output: 4 };
        assert_eq!(
            accounts.totals(),
            ModelTotals { calls: 2, estimated_calls: 1, usage, cost: 154, ..ModelTotals::default() }
        );
    }

    #[test]
    fn a_count_beyond_what_was_asked_for_ends_no_budget() {
        let price = TokenPrice { input: 1_000_000, output: 1_000_000 };
        let config = ModelConfig { budget: 10_000, price, ..ModelConfig::default() };
        let mut accounts = ModelAccounts::new(&config);
        let room = accounts.reserve(at(1), &bob(), &n("a~1"), TEN).unwrap();
        let told = TokenUsage { input: 1 << 63, output: 1 << 63 };
        let call = accounts.settle(room, Some(told), TEN);
        assert_eq!((call.usage, call.is_estimated), (TokenUsage { input: 24 + 4096, output: 4 }, true));
        assert_eq!(accounts.totals().cost, 4124);
        assert!(accounts.reserve(at(1), &bob(), &n("a~2"), TEN).is_some(), "others go on");
    }

    fn at(day: u64) -> Timestamp {
        Timestamp(day * DAY_US)
    }

    fn bob() -> AgentId {
        AgentId::try_new("bob").unwrap()
    }

    fn n(id: &str) -> NegotiationId {
        NegotiationId::try_new(id).unwrap()
    }
}
