//! The id of a negotiation, and what can be read off it: its lane, its place in a family of teams and tasks.

use std::sync::Arc;

use super::{AgentId, AwardNo, IdError, Lane, NAME_LEN_MAX, is_name};
use crate::digest::{FNV_START, fnv};
use crate::text::text;

/// Most levels of sub-teams below a team.
pub const DEPTH_MAX: u32 = 4;
/// Most tasks of one team.
pub const TASKS_MAX: u32 = 64;
/// Highest number of an award that may have a sub-team.
pub const AWARD_MAX: u32 = 999;
/// Separates the parts of a [`NegotiationId`]; no name may contain it.
pub const NEGOTIATION_SEPARATOR: char = '~';

/// The id of a negotiation: `<initiator>~<the initiator's own id>`, and below a team its family:
/// at most [`DEPTH_MAX`] times `~s<task>-<award>` (a sub-team), then at most once `~t<task>` (a task).
///
/// The exchange forms it, so an initiator can neither squat nor collide with another's id.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NegotiationId(Arc<str>);

text!(NegotiationId, |id: &Self, serializer: S| serializer.serialize_str(&id.0), Self::try_new);

/// What a negotiation is to the one above it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FamilyPlace {
    /// Nothing is above it.
    Root,
    /// The task of this number of the team above it, counted from 1.
    Task(u32),
    /// The sub-team of an award of a task.
    SubTeam {
        /// The number of the task in the team above.
        task: u32,
        /// The award.
        award_no: AwardNo,
    },
}

impl NegotiationId {
    /// Forms the id of a root from the initiator and the id it chose.
    ///
    /// # Errors
    /// [`IdError`] when `own` is neither a name nor a full id of a root that already starts with this initiator.
    pub fn form(initiator: &AgentId, own: &str) -> Result<Self, IdError> {
        let own = match own.split_once(NEGOTIATION_SEPARATOR) {
            Some((owner, rest)) if owner == initiator.as_str() => rest,
            Some(_) | None => own,
        };
        if is_name(own) {
            Ok(Self(Arc::from(format!("{initiator}{NEGOTIATION_SEPARATOR}{own}"))))
        } else {
            Err(IdError { what: "negotiation id", text: own.chars().take(NAME_LEN_MAX).collect() })
        }
    }

    /// Parses a full id.
    ///
    /// # Errors
    /// [`IdError`] unless the text is `<name>~<name>`, with a well-formed family behind it or none.
    pub fn try_new(text: &str) -> Result<Self, IdError> {
        let mut parts = text.split(NEGOTIATION_SEPARATOR);
        let is_root =
            matches!((parts.next(), parts.next()), (Some(first), Some(own)) if is_name(first) && is_name(own));
        if is_root && is_family(parts) {
            Ok(Self(Arc::from(text)))
        } else {
            Err(IdError { what: "negotiation id", text: text.chars().take(2 * NAME_LEN_MAX).collect() })
        }
    }

    /// The id of a task of this team, counted from 1; absent where this is no team's, or the number is out of range.
    #[must_use]
    pub fn task(&self, task: u32) -> Option<Self> {
        let is_team = !matches!(self.place(), FamilyPlace::Task(_));
        let fits = is_team && (1..=TASKS_MAX).contains(&task);
        fits.then(|| Self(Arc::from(format!("{self}{NEGOTIATION_SEPARATOR}t{task}"))))
    }

    /// The id of the sub-team of an award of this task; absent where this is no task's, the award's number is out of range,
    /// or nothing may stand below.
    #[must_use]
    pub fn sub_team(&self, award_no: AwardNo) -> Option<Self> {
        let FamilyPlace::Task(task) = self.place() else { return None };
        let (team, _) = self.0.rsplit_once(NEGOTIATION_SEPARATOR)?;
        let fits = (1..=AWARD_MAX).contains(&award_no.0) && self.depth() < DEPTH_MAX;
        fits.then(|| Self(Arc::from(format!("{team}{NEGOTIATION_SEPARATOR}s{task}-{award_no}"))))
    }

    /// What it is to the one above it.
    #[must_use]
    pub fn place(&self) -> FamilyPlace {
        let last = self.0.split(NEGOTIATION_SEPARATOR).skip(2).last();
        last.and_then(family_place).unwrap_or(FamilyPlace::Root)
    }

    /// The one above it: of a task its team, of a sub-team the task it works for; absent for a root.
    #[must_use]
    pub fn parent(&self) -> Option<Self> {
        let (above, _) = self.0.rsplit_once(NEGOTIATION_SEPARATOR)?;
        match self.place() {
            FamilyPlace::Root => None,
            FamilyPlace::Task(_) => Some(Self(Arc::from(above))),
            FamilyPlace::SubTeam { task, .. } => {
                Some(Self(Arc::from(format!("{above}{NEGOTIATION_SEPARATOR}t{task}"))))
            }
        }
    }

    /// How many sub-teams lie between it and its root, itself counted: 0 of a root and of its tasks.
    #[must_use]
    pub fn depth(&self) -> u32 {
        let parts = self.0.split(NEGOTIATION_SEPARATOR).skip(2).filter(|part| part.starts_with('s'));
        u32::try_from(parts.count()).unwrap_or(u32::MAX)
    }

    /// The root of its family, as text: the first two parts.
    #[must_use]
    pub fn root(&self) -> &str {
        let end = self.0.match_indices(NEGOTIATION_SEPARATOR).nth(1).map_or(self.0.len(), |(end, _)| end);
        self.0.get(..end).unwrap_or(&self.0)
    }

    /// The id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The first part of the id: the initiator of its root.
    #[must_use]
    pub fn initiator(&self) -> &str {
        self.0.split_once(NEGOTIATION_SEPARATOR).map_or("", |(initiator, _)| initiator)
    }

    /// The lane this negotiation lives in: a stable hash (FNV-1a, 64 bit) of its [root](Self::root) modulo the number of
    /// lanes, so that a family has one.
    #[must_use]
    pub fn lane(&self, lanes: u8) -> Lane {
        let hash = fnv(FNV_START, self.root().as_bytes());
        // The high half is folded in because FNV's low bits alone are weak for short suffix changes.
        let mixed = hash ^ (hash >> 32);
        Lane(u8::try_from(mixed % u64::from(lanes.max(1))).unwrap_or(0))
    }
}

crate::shown!(NegotiationId = |Self(id)| "{id}");
crate::debug_as_shown!(NegotiationId);

/// Whether the parts behind a root are those of a family: sub-teams, then at most one task.
fn is_family<'t>(parts: impl Iterator<Item = &'t str>) -> bool {
    let mut depth = 0;
    let mut has_task = false;
    for part in parts {
        match family_place(part) {
            Some(FamilyPlace::SubTeam { .. }) if !has_task && depth < DEPTH_MAX => depth += 1,
            Some(FamilyPlace::Task(_)) if !has_task => has_task = true,
            Some(_) | None => return false,
        }
    }
    true
}

fn family_place(part: &str) -> Option<FamilyPlace> {
    if let Some(task) = part.strip_prefix('t') {
        return number(task, TASKS_MAX).map(FamilyPlace::Task);
    }
    let (task, award) = part.strip_prefix('s')?.split_once('-')?;
    Some(FamilyPlace::SubTeam { task: number(task, TASKS_MAX)?, award_no: AwardNo(number(award, AWARD_MAX)?) })
}

/// A number from 1 to `max` without a sign or a leading zero.
fn number(text: &str, max: u32) -> Option<u32> {
    let is_plain = text.len() <= 3 && !text.starts_with('0') && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|number| is_plain && (1..=max).contains(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> NegotiationId {
        NegotiationId::try_new(text).unwrap()
    }

    #[test]
    fn an_initiator_cannot_form_an_id_of_another() {
        let (alice, bob) = (AgentId::try_new("alice").unwrap(), AgentId::try_new("bob").unwrap());
        assert_eq!(NegotiationId::form(&alice, "job").unwrap().as_str(), "alice~job");
        assert_eq!(NegotiationId::form(&alice, "alice~job").unwrap().as_str(), "alice~job");
        assert!(NegotiationId::form(&bob, "alice~job").is_err());
        assert_ne!(NegotiationId::form(&alice, "job").unwrap(), NegotiationId::form(&bob, "job").unwrap());
    }

    #[test]
    fn nobody_can_form_an_id_inside_a_family() {
        let alice = AgentId::try_new("alice").unwrap();
        for own in ["alice~job~t1", "job~t1", "job~s1-1"] {
            assert!(NegotiationId::form(&alice, own).is_err(), "{own}");
        }
    }

    #[test]
    fn a_family_is_sub_teams_and_then_at_most_one_task() {
        for good in ["a~b", "a~b~t1", "a~b~t64", "a~b~s1-1", "a~b~s64-999~t64", "a~b~s1-1~s2-2~s3-3~s4-4~t5", "s1~t1"] {
            assert_eq!(id(good).as_str(), good);
        }
        for bad in [
            "a",
            "a~",
            "~b",
            "a~b~",
            "a~b~c",
            "a~b~t0",
            "a~b~t01",
            "a~b~t65",
            "a~b~t+1",
            "a~b~x1",
            "a~b~t1~t2",
            "a~b~t1~s1-1",
            "a~b~s1",
            "a~b~s1-0",
            "a~b~s1-01",
            "a~b~s1-1000",
            "a~b~s65-1",
            "a~b~s1-1-1",
            "a~b~s1-1~s1-1~s1-1~s1-1~s1-1",
        ] {
            assert!(NegotiationId::try_new(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn parents_and_children_name_each_other() {
        let team = id("a~b~s1-2");
        let task = team.task(3).unwrap();
        assert_eq!(task.as_str(), "a~b~s1-2~t3");
        assert_eq!(task.place(), FamilyPlace::Task(3));
        assert_eq!(task.parent().as_ref(), Some(&team));
        let below = task.sub_team(AwardNo(4)).unwrap();
        assert_eq!(below.as_str(), "a~b~s1-2~s3-4");
        assert_eq!(below.place(), FamilyPlace::SubTeam { task: 3, award_no: AwardNo(4) });
        assert_eq!((below.parent(), below.depth(), task.depth()), (Some(task.clone()), 2, 1));
        assert_eq!(id("a~b").parent(), None);
        assert_eq!((team.task(0), team.task(65), task.task(1)), (None, None, None));
        assert_eq!(
            (task.sub_team(AwardNo(0)), task.sub_team(AwardNo(1000)), team.sub_team(AwardNo(1))),
            (None, None, None)
        );
        assert_eq!(id("a~b~s1-1~s1-1~s1-1~s1-1~t1").sub_team(AwardNo(1)), None);
    }

    #[test]
    fn a_family_has_one_lane() {
        for root in ["alice~job", "a~b", "bob~x7"] {
            for below in ["~t1", "~s1-1", "~s64-999~s1-1~t64"] {
                let member = id(&format!("{root}{below}"));
                assert_eq!((member.root(), member.initiator()), (root, id(root).initiator()));
                assert!((1..=64).all(|lanes| member.lane(lanes) == id(root).lane(lanes)), "{member}");
            }
        }
    }

    #[test]
    fn negotiations_spread_over_the_lanes() {
        let alice = AgentId::try_new("alice").unwrap();
        let mut per_lane = [0_u32; 4];
        for n in 0..4000 {
            let id = NegotiationId::form(&alice, &format!("n{n}")).unwrap();
            per_lane[usize::from(id.lane(4).0)] += 1;
        }
        assert!(per_lane.iter().all(|&count| (850..1150).contains(&count)), "{per_lane:?}");
    }
}
