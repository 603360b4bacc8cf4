//! What is scripted, recorded or generated: bargains, panels and teams of files, played, scored, and drawn; profiles of agents.
//!
//! `llmx-lab bargain`, `panel` and `team` print what comes of them; experiments and benchmarks play them by the thousand.
//!
//! | module | question it answers |
//! |---|---|
//! | [`corpus`] | which profiles do agents have that are made up, and which clauses ask for them? |
//! | [`bargain::in_memory`] | how does the core alone serve as an exchange? |
//! | [`bargain::session`] | how is one bargain opened and carried on there? |
//! | [`bargain::run`] | how do strategies play it to the end, once and often? |
//! | [`bargain::report`] | how is one told? |
//! | [`bargain::plot`] | what does one look like? |
//! | [`bargain::mandate_fuzz`] | does a mandate hold, whatever its party tries? |
//! | [`panel::file`] | which question, under which rules, to which scripted panelists? |
//! | [`panel::play`] | how is the panel of a file played? |
//! | [`panel::score`] | what came of a panel that somebody recorded? |
//! | [`team::play`] | how does a scenario run on an exchange? |
//! | [`team::transcript`] | what was said and done, as the members were told? |
//! | [`team::goal`] | how does a goal come to a conclusion on an exchange? |
//!
//! Many at once, as a load, are `traffic_gen`'s; what an experiment makes of them is that of `studies`. Nothing here is part of
//! the exchange.

/// Bargains under the alternating offers protocol (docs/bargaining.md), played through the core alone: nothing is sent, and
/// time is what the messages say.
pub mod bargain {
    pub mod in_memory;
    pub mod mandate_fuzz;
    pub mod plot;
    pub mod report;
    pub mod run;
    pub mod session;
}

/// Panels of a file on a running exchange, and recorded ones (docs/panels.md).
pub mod panel {
    pub mod file;
    pub mod play;
    pub mod score;
}

pub mod corpus;
pub mod team;
