//! What the simulated bus does to its callers, fault by fault.

use std::time::Duration;

use bus::{Bus, BusError, Registered};
use bytes::Bytes;
use futures_util::{FutureExt, StreamExt};
use schemas::{AgentId, Lane, NegotiationId, RegisterKey, subject};

use super::super::super::{Intervention, LinkId, NetworkFaults, ProcessRole, World};
use std::sync::Arc;

const LANE: Lane = Lane(0);

#[tokio::test(start_paused = true)]
async fn every_reader_gets_the_records_of_a_lane_in_their_order() {
    let (world, [(_, writer), (_, reader)]) = world(slow());
    let mut before = reader.log.read(LANE, 1).await.unwrap();
    for n in 1..=20 {
        assert_eq!(writer.log.append(LANE, text(n)).await.unwrap(), n);
    }
    let after = reader.log.read(LANE, 11).await.unwrap();
    for n in 1..=20 {
        assert_eq!(before.next().await.unwrap().unwrap().bytes, text(n));
    }
    let rest: Vec<u64> = after.take(10).map(|record| record.unwrap().seq).collect().await;
    assert_eq!(rest, (11..=20).collect::<Vec<u64>>());
    drop(world);
}

#[tokio::test(start_paused = true)]
async fn a_lost_request_has_no_effect_and_a_lost_answer_has_one() {
    for (weather, stored) in [
        (NetworkFaults { request_lost: 1000, ..slow() }, 0),
        (NetworkFaults { answer_lost: 1000, ..slow() }, 1),
        (NetworkFaults { answer_lost: 1000, append_twice: 1000, ..slow() }, 2),
    ] {
        let (world, [(_, writer), _]) = world(weather);
        let outcome = writer.log.append(LANE, text(1)).await;
        assert!(matches!(outcome, Err(BusError::Unknown(_))), "{outcome:?}");
        assert_eq!(world.state.lock().broker.lanes[0].records.len(), stored);
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_kills_its_process_is_never_answered() {
    for calls in 0..6 {
        let (world, [(link, writer), _]) = world(slow());
        world.apply(Intervention::KillAtCall(link, calls));
        for _ in 0..calls {
            writer.log.append(LANE, text(1)).await.unwrap();
        }
        assert!(is_pending(writer.log.append(LANE, text(2))).await);
        assert!(is_pending(writer.log.append(LANE, text(3))).await, "a dead process does nothing more");
        let stored = world.state.lock().broker.lanes[0].records.len() as u64;
        assert!((calls..=calls + 1).contains(&stored), "{stored} after {calls} calls");
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_stalled_process_sends_goes_through_when_it_wakes() {
    let (world, [(link, zombie), (_, other)]) = world(slow());
    let key = RegisterKey::Closed(NegotiationId::try_new("ann~n0").unwrap());
    world.apply(Intervention::Stall(link));
    let mut write = zombie.register.write(key.clone(), text(1));
    assert!(is_pending(&mut write).await);
    assert_eq!(other.register.write(key, text(2)).await.unwrap(), Registered::Written);
    world.apply(Intervention::Resume(link));
    assert_eq!(write.await.unwrap(), Registered::Different(text(2)));
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_was_cut_off_is_told_that_its_records_are_trimmed() {
    let (world, [(_, writer), (link, reader)]) = world(slow());
    writer.log.append(LANE, text(1)).await.unwrap();
    let mut records = reader.log.read(LANE, 1).await.unwrap();
    assert_eq!(records.next().await.unwrap().unwrap().seq, 1);
    world.apply(Intervention::Cut(link));
    for n in 2..=5 {
        writer.log.append(LANE, text(n)).await.unwrap();
    }
    writer.log.trim(LANE, 4).await.unwrap();
    assert!(is_pending(records.next()).await);
    world.apply(Intervention::Mend(link));
    assert!(matches!(records.next().await, Some(Err(BusError::Trimmed(3)))));
    assert!(records.next().await.is_none(), "an error ends the stream");
    assert!(matches!(reader.log.read(LANE, 3).await, Err(BusError::Trimmed(3))));
    let kept: Vec<u64> = reader.log.read(LANE, 4).await.unwrap().take(2).map(|r| r.unwrap().seq).collect().await;
    assert_eq!(kept, [4, 5]);
}

#[tokio::test(start_paused = true)]
async fn one_member_of_a_queue_group_gets_a_request_and_its_answer_comes_back() {
    let ann = AgentId::try_new("ann").unwrap();
    let (_world, [(_, asker), (_, answerer)]) = world(slow());
    let bare = asker.pub_sub.request(subject::gateway_in(&ann), None, text(0), Duration::from_secs(1)).await;
    assert!(matches!(bare, Err(BusError::NoResponder(_))), "{bare:?}");
    let mut requests = Vec::new();
    for _ in 0..2 {
        requests.push(
            answerer
                .pub_sub
                .subscribe(subject::ALL_GATEWAY_IN.to_owned(), Some(subject::GATEWAY_QUEUE.to_owned()))
                .await
                .unwrap(),
        );
    }
    let mut requests = futures_util::stream::select_all(requests);
    let answering = async {
        let request = requests.next().await.unwrap();
        answerer.pub_sub.publish(request.reply.unwrap(), text(7)).await.unwrap();
        assert!(is_pending(requests.next()).await, "the other member receives nothing");
    };
    let asking = asker.pub_sub.request(subject::gateway_in(&ann), None, text(0), Duration::from_secs(1));
    let (answer, ()) = tokio::join!(asking, answering);
    assert_eq!(answer.unwrap(), text(7));
}

/// A world with two processes.
fn world(weather: NetworkFaults) -> (Arc<World>, [(LinkId, Bus); 2]) {
    let world = World::new(7, 1, weather);
    tokio::spawn(Arc::clone(&world).drive());
    let processes = ["one", "two"].map(|name| world.connect(name.to_owned(), ProcessRole::Engine));
    (world, processes)
}

fn slow() -> NetworkFaults {
    NetworkFaults { latency_us: 5000, slow: 500, slow_us: 50_000, timeout_us: 300_000, ..NetworkFaults::default() }
}

fn text(n: u64) -> Bytes {
    Bytes::from(n.to_string())
}

/// Whether nothing comes of a future within a minute.
async fn is_pending<F: Future + Unpin>(future: F) -> bool {
    tokio::time::timeout(Duration::from_mins(1), future).map(|outcome| outcome.is_err()).await
}
