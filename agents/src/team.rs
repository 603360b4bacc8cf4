//! Teams (docs/spec/team.md), as agents see them.
//!
//! | module | question it answers |
//! |---|---|
//! | [`scenario`] | a whole team written down: a file |
//! | [`view`] | what does a member know of its team? (pure) |
//! | [`speaker`] | what does a member say when it holds the floor? (pure) |
//! | [`script`] | the same, written down beforehand |
//! | [`membership`] | what does a member do next in one team? (pure) |
//! | [`plan`] | does an agent take part, and what does it do with a task? |
//! | [`agent`] | how does it take part on the exchange? |
//! | [`playing`] | how does it play its part of a scenario? |
//! | [`worker`] | who carries a task out, within which limits? A function, a program, a service |

pub mod agent;
pub mod membership;
pub mod plan;
pub mod playing;
pub mod scenario;
pub mod script;
pub mod speaker;
pub mod view;
pub mod worker;

pub use agent::{Finder, JobDone, TeamAgent, TeamHands, TeamJob};
pub use plan::{MemberPlan, TaskPlan, TeamPlanner, TeamRequest};
pub use playing::{ScenarioPlanner, ScenarioWorker};
pub use scenario::Scenario;
pub use script::{ScriptedSpeaker, Vote};
pub use speaker::{AssignMove, Speaker, TeamMove};
pub use view::TeamView;
pub use worker::{FunctionWorker, WorkRequest, WorkRunner, Worker};
