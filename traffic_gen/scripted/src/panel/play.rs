//! The panel of a file, played once or many times.

use agents::{AgentOptions, CallRequest};
use schemas::payload::Cfp;
use schemas::{Address, AgentId};
use traffic_gen::live::Access;
use traffic_gen::panel::PlayedPanel;
use traffic_gen::panel::population::{PanelCast, PanelError, PanelPopulation};

use super::file::PanelFile;

/// What a file's call says.
pub fn call(file: &PanelFile) -> Cfp {
    Cfp { task: Some(file.task.clone()), panel: Some(Box::new(file.panel.clone())), ..Cfp::default() }
}

/// Plays the panel of a file so many times on a running exchange, one after another, and tells each to `each`.
///
/// Draws of the agents repeat with the seed; which seats are asked first is the exchange's draw, and depends on where in the
/// log the call stands.
///
/// # Errors
/// [`PanelError`], of the first panel that did not end.
pub async fn on_exchange(
    access: &Access<'_>,
    file: &PanelFile,
    (seed, repeat): (u64, u64),
    mut each: impl FnMut(PlayedPanel),
) -> Result<(), PanelError> {
    let population = PanelPopulation::start(access, cast(file, seed), &AgentOptions::default()).await?;
    let mut played = Ok(());
    for number in 0..repeat {
        let to = file.seats.iter().map(|seat| Address::Agent(seat.name.clone())).collect();
        match population.ask(CallRequest::new(format!("play-{seed}-{number}"), to, call(file))).await {
            Ok(end) => each(PlayedPanel::of(file.question.as_ref(), end)),
            Err(error) => {
                played = Err(error);
                break;
            }
        }
    }
    population.stop().await?;
    played
}

fn cast(file: &PanelFile, seed: u64) -> PanelCast {
    let is_initiator = |name: &AgentId| *name == file.initiator;
    let members = file.asked().filter(|agent| !is_initiator(&agent.name));
    let own_ranker = file.ranker.as_ref().filter(|ranker| is_initiator(&ranker.name));
    PanelCast {
        members: members.map(|agent| (agent.name.clone(), file.panelist(agent, seed))).collect(),
        initiator: Some(file.initiator.clone()),
        own_ranker: own_ranker.map(|ranker| file.panelist(ranker, seed)),
    }
}

/// Every agent of a file, who calls included.
pub fn names(file: &PanelFile) -> impl Iterator<Item = &AgentId> {
    let asked = file.asked().map(|agent| &agent.name).filter(|name| **name != file.initiator);
    asked.chain([&file.initiator])
}
