//! What leaves by the gateway that holds its recipient's streams.

use schemas::{GatewayId, routed};

use super::*;

#[test]
fn what_leaves_for_the_first_time_shares_a_message_per_gateway_and_repeats_go_to_the_inbox() {
    let mut bench = Bench::new(OutboxConfig::default());
    for (number, to) in [(1, "ann"), (2, "bob"), (3, "carol"), (4, "ann")] {
        bench.add(deliver(number, to), Gate::Open);
    }
    assert_eq!(bench.flush_routed(), [line_of("one", &[("ann", 1), ("bob", 2), ("ann", 4)]), inbox_of("carol", &[3])]);
    bench.outbox.handle_hello(&agent("ann"), bench.now);
    assert_eq!(bench.flush_routed(), [inbox_of("ann", &[1, 4])], "who connects hears on its inbox what it missed");
    assert!(bench.ack("ann", 4), "a routed delivery is acknowledged like any other");
    bench.advance(Duration::from_millis(700));
    let repeated = bench.flush_routed();
    assert!(repeated.iter().all(|(to, _)| to.starts_with("agent ")), "{repeated:?}");
    assert_eq!(
        repeated.iter().map(|(_, ids)| ids.len()).sum::<usize>(),
        3,
        "none counts as acknowledged: {repeated:?}"
    );
}

#[test]
fn a_repeat_of_what_a_gateway_was_sent_is_the_same_document_byte_for_byte() {
    let mut bench = Bench::new(OutboxConfig::default());
    bench.add(deliver(1, "ann"), Gate::Open);
    let first = bench.outbox.poll_bundles(bench.now, &bench.clock, to_one);
    let (to, document) = routed::lines(&first[0].payload).next().unwrap().unwrap();
    let document = document.to_vec();
    assert_eq!(to, "ann");
    bench.advance_to_next();
    let second = bench.outbox.poll_bundles(bench.now, &bench.clock, to_one);
    assert_eq!(second[0].payload, [b"[".as_slice(), &document, b"]"].concat());
}

#[test]
fn what_is_sent_only_once_goes_to_the_inbox() {
    let mut bench = Bench::new(OutboxConfig::default());
    bench.add(Deliver { qos: Qos::BestEffort, ..deliver(1, "ann") }, Gate::Open);
    bench.add(Deliver { attempts_max: Some(1), ..deliver(2, "ann") }, Gate::Open);
    bench.add(Deliver { attempts_max: Some(2), ..deliver(3, "ann") }, Gate::Open);
    assert_eq!(bench.flush_routed(), [inbox_of("ann", &[1, 2]), line_of("one", &[("ann", 3)])]);
}

#[test]
fn messages_to_gateways_are_bounded_like_those_to_inboxes() {
    let mut bench = Bench::new(OutboxConfig { bundle_deliveries_max: 2, ..OutboxConfig::default() });
    (1..=3).for_each(|number| bench.add(deliver(number, "ann"), Gate::Open));
    assert_eq!(bench.flush_routed(), [line_of("one", &[("ann", 1), ("ann", 2)]), line_of("one", &[("ann", 3)])]);

    let mut one = Bench::new(OutboxConfig::default());
    one.add(deliver(1, "ann"), Gate::Open);
    let size = one.outbox.poll_bundles(one.now, &one.clock, to_one)[0].payload.len();
    for (bundle_bytes_max, messages) in [(1, 4), (2 * size - 1, 4), (2 * size, 2), (4 * size, 1)] {
        let mut bench = Bench::new(OutboxConfig { bundle_bytes_max, ..OutboxConfig::default() });
        (1..=4).for_each(|number| bench.add(deliver(number, "ann"), Gate::Open));
        let bundles = bench.outbox.poll_bundles(bench.now, &bench.clock, to_one);
        assert_eq!(bundles.len(), messages, "at most {bundle_bytes_max} bytes");
        assert!(messages == 4 || bundles.iter().all(|bundle| bundle.payload.len() <= bundle_bytes_max));
    }
}

#[test]
fn what_the_bus_did_not_take_for_a_gateway_is_no_attempt() {
    let mut bench = Bench::new(OutboxConfig { attempts_max: 2, ..OutboxConfig::default() });
    bench.add(deliver(1, "ann"), Gate::Open);
    for _ in 0..10 {
        let bundles = bench.outbox.poll_bundles(bench.now, &bench.clock, to_one);
        assert_eq!(bundles.len(), 1);
        bench.outbox.handle_unsent(&bundles[0], bench.now);
        bench.advance(Duration::from_millis(508));
    }
    assert_eq!(bench.flush_routed(), [line_of("one", &[("ann", 1)])]);
    bench.advance(Duration::from_millis(700));
    assert_eq!(bench.flush_routed(), [inbox_of("ann", &[1])]);
}

/// Streams of ann and bob are held by one gateway.
fn to_one(agent: &AgentId) -> Option<GatewayId> {
    ["ann", "bob"].contains(&agent.as_str()).then(|| GatewayId::try_new("one").unwrap())
}

/// Where a message goes, and the deliveries in it, with their recipients where it names them.
type ReadBundle = (String, Vec<(Option<String>, DeliveryId)>);

fn line_of(gateway: &str, deliveries: &[(&str, u128)]) -> ReadBundle {
    let read = |&(to, number): &(&str, u128)| (Some(to.to_owned()), id(number));
    (format!("gateway {gateway}"), deliveries.iter().map(read).collect())
}

fn inbox_of(agent: &str, numbers: &[u128]) -> ReadBundle {
    (format!("agent {agent}"), numbers.iter().map(|number| (None, id(*number))).collect())
}

impl Bench {
    fn flush_routed(&mut self) -> Vec<ReadBundle> {
        let bundles = self.outbox.poll_bundles(self.now, &self.clock, to_one);
        bundles.iter().map(read).collect()
    }
}

fn read(bundle: &Bundle) -> ReadBundle {
    match &bundle.destination {
        Destination::Inbox(agent) => {
            let deliveries: Vec<Delivery> = serde_json::from_slice(&bundle.payload).unwrap();
            let ids = deliveries.iter().map(|delivery| (None, delivery.envelope.msg_id));
            (format!("agent {agent}"), ids.collect())
        }
        Destination::Gateway(gateway) => {
            let lines = routed::lines(&bundle.payload).map(|line| {
                let (to, document) = line.unwrap();
                let delivery: Delivery = serde_json::from_slice(document).unwrap();
                assert_eq!(delivery.envelope.to, [format!("agent://{to}")]);
                (Some(to.to_owned()), delivery.envelope.msg_id)
            });
            (format!("gateway {gateway}"), lines.collect())
        }
    }
}
