use futures_util::stream::BoxStream;
use futures_util::{FutureExt as _, StreamExt as _};

use super::*;
use crate::Received;
use crate::memory::{MemoryOptions, open};

fn agent(name: &str) -> AgentId {
    AgentId::try_new(name).unwrap()
}

/// A table of its own bus, and the hellos on it.
async fn fanout() -> (Arc<Fanout>, BoxStream<'static, Received>) {
    let bus = open(MemoryOptions::default());
    let hellos = bus.pub_sub.subscribe(subject::ALL_HELLOS.to_owned(), None).await.unwrap();
    (Fanout::new(GatewayId::try_new("gateway-1").unwrap(), bus.pub_sub), hellos)
}

fn message(lines: &[(&str, &[u8])]) -> Bytes {
    let mut message = Vec::new();
    for (name, document) in lines {
        routed::push_line(&mut message, &agent(name), document);
    }
    message.into()
}

fn unheard(_: Option<&AgentId>, error: &BusError) {
    panic!("{error}");
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_opens_a_queue_again_before_it_is_called_closed_is_not_called_so() {
    let (fanout, mut hellos) = fanout().await;
    let (sender, _queue) = mpsc::channel(1);
    drop((fanout.open(&agent("bob"), sender.clone()), fanout.open(&agent("carol"), sender.clone())));
    let again = fanout.open(&agent("bob"), sender.clone());
    fanout.announce_closed(unheard).await;
    assert_eq!(hellos.next().await.unwrap().subject, "hello.carol");
    assert!(hellos.next().now_or_never().is_none(), "bob is here");

    let other = fanout.open(&agent("bob"), sender);
    drop(again);
    fanout.announce_closed(unheard).await;
    assert!(hellos.next().now_or_never().is_none(), "bob has another queue");
    drop(other);
    fanout.announce_closed(unheard).await;
    assert_eq!(hellos.next().await.unwrap().subject, "hello.bob");
}

#[tokio::test(start_paused = true)]
async fn announcements_end_when_the_last_agent_has_gone_and_has_been_called_closed() {
    let (fanout, mut hellos) = fanout().await;
    let place = fanout.open(&agent("bob"), mpsc::channel(1).0);
    let stop = CancellationToken::new();
    stop.cancel();
    let mut announcing = std::pin::pin!(fanout.drive_announcements(&stop, unheard));
    assert!(announcing.as_mut().now_or_never().is_none(), "bob is still here");
    drop(place);
    announcing.await;
    assert_eq!(hellos.next().await.unwrap().subject, "hello.bob");
}

#[tokio::test]
async fn each_line_is_handed_to_each_queue_of_its_agent_and_what_became_of_it_is_noted() {
    let (fanout, _hellos) = fanout().await;
    let ((one, mut first), (two, mut second)) = (mpsc::channel(2), mpsc::channel(1));
    let _places = (fanout.open(&agent("bob"), one), fanout.open(&agent("bob"), two));
    let lines = [message(&[("bob", b"{}"), ("bob", b"[]"), ("dan", b"{}")]), Bytes::from_static(b"nothing\n")].concat();
    let mut noted = Vec::new();
    fanout.hand_out(&lines.into(), |result, agent| noted.push((result, agent.to_owned())));
    let expected = [
        (RoutedResult::Handed, "bob"),
        (RoutedResult::Handed, "bob"),
        (RoutedResult::Handed, "bob"),
        (RoutedResult::Full, "bob"),
        (RoutedResult::Nobody, "dan"),
        (RoutedResult::Unreadable, ""),
    ];
    assert_eq!(noted, expected.map(|(result, agent)| (result, agent.to_owned())));
    assert_eq!([first.try_recv().unwrap(), first.try_recv().unwrap()], [&b"{}"[..], b"[]"]);
    assert_eq!(second.try_recv().unwrap(), &b"{}"[..]);
}

#[tokio::test]
async fn an_agent_has_so_many_queues_at_most_and_one_that_it_joins_again_is_no_other() {
    let (fanout, _hellos) = fanout().await;
    let ((one, _first), (two, _second)) = (mpsc::channel(1), mpsc::channel(1));
    let place = fanout.open_within(1, &agent("bob"), one.clone()).unwrap();
    assert!(fanout.open_within(1, &agent("bob"), two.clone()).is_none());
    assert!(fanout.open_within(1, &agent("carol"), two.clone()).is_some());
    let again = fanout.open_within(1, &agent("bob"), one).unwrap();
    fanout.end(&agent("bob"));
    assert!(place.ended().is_cancelled() && again.ended().is_cancelled());
    drop((place, again));
    assert!(
        !fanout.open_within(1, &agent("bob"), two).unwrap().ended().is_cancelled(),
        "a later one has another token"
    );
}
