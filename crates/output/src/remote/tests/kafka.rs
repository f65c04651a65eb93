//! The Kafka producer with librdkafka's mock cluster, which speaks the protocol over sockets.

use std::time::{Duration, Instant};

use rdkafka::Message;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::mocking::MockCluster;
use rdkafka::producer::DefaultProducerContext;

use super::super::*;

fn remote(brokers: &str, properties: &[(&str, &str)], spool: Option<SpoolSettings>) -> Arc<RemoteSettings> {
    let kafka = KafkaSettings {
        brokers: brokers.to_owned(),
        topic: "eve".into(),
        key: PartitionKey::CommunityId,
        properties: properties.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect(),
    };
    Arc::new(RemoteSettings { kind: RemoteKind::Kafka(kafka), queue: 64 << 10, when_full: Some(WhenFull::Wait), spool })
}

fn line(n: usize) -> Vec<u8> {
    format!("{{\"flow_id\":{},\"community_id\":\"1:{}=\",\"n\":{n}}}\n", n % 7, n % 5).into_bytes()
}

/// Consumes the whole topic: partition, key and number of each event, in each partition's order.
fn consume(brokers: &str, count: usize) -> Vec<(i32, String, usize)> {
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", brokers)
        .set("group.id", "test")
        .set("auto.offset.reset", "earliest")
        .create()
        .unwrap();
    let mut list = rdkafka::TopicPartitionList::new();
    for p in 0..4 {
        list.add_partition_offset("eve", p, rdkafka::Offset::Beginning).unwrap();
    }
    consumer.assign(&list).unwrap();
    let until = Instant::now() + Duration::from_secs(60);
    let mut all = Vec::new();
    // Wait a little after the expected number, so that duplicates show.
    let mut last = Instant::now();
    while Instant::now() < until && (all.len() < count || last.elapsed() < Duration::from_secs(1)) {
        let Some(Ok(m)) = consumer.poll(Duration::from_millis(100)) else { continue };
        let text = String::from_utf8(m.payload().unwrap().to_vec()).unwrap();
        let n = text.rsplit_once("\"n\":").unwrap().1.trim_end_matches('}').parse().unwrap();
        all.push((m.partition(), String::from_utf8(m.key().unwrap().to_vec()).unwrap(), n));
        last = Instant::now();
    }
    all
}

/// Checks that every event arrived once, equal keys in one partition, and each partition in the run's order.
fn check(got: &[(i32, String, usize)], count: usize) {
    let mut numbers: Vec<usize> = got.iter().map(|g| g.2).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (0..count).collect::<Vec<_>>());
    for (_, key, _) in got {
        let places: std::collections::BTreeSet<i32> = got.iter().filter(|g| g.1 == *key).map(|g| g.0).collect();
        assert_eq!(places.len(), 1, "{key}");
    }
    for p in 0..4 {
        let mine: Vec<usize> = got.iter().filter(|g| g.0 == p).map(|g| g.2).collect();
        assert!(mine.is_sorted(), "{mine:?}");
    }
    assert_eq!(got[0].1.get(..2), Some("1:"));
}

fn cluster() -> MockCluster<'static, DefaultProducerContext> {
    let cluster = MockCluster::new(1).unwrap();
    cluster.create_topic("eve", 4, 1).unwrap();
    cluster
}

#[test]
fn events_of_a_flow_meet_in_a_partition_in_order() {
    let cluster = cluster();
    let remote = Remote::start(&remote(&cluster.bootstrap_servers(), &[], None)).unwrap();
    for n in 0..2000 {
        assert_eq!(remote.put(&line(n)), 0);
    }
    remote.finish();
    let c = remote.counters();
    assert_eq!((c.sent, c.lost, c.refused), (2000, 0, 0));
    check(&consume(&cluster.bootstrap_servers(), 2000), 2000);
}

#[test]
fn a_broker_that_goes_away_loses_and_doubles_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let cluster = cluster();
    let spool = SpoolSettings { dir: dir.path().to_owned(), max_size: 1 << 24 };
    let remote = Remote::start(&remote(&cluster.bootstrap_servers(), &[], Some(spool))).unwrap();
    for n in 0..1000 {
        remote.put(&line(n));
    }
    cluster.broker_down(1).unwrap();
    for n in 1000..9000 {
        remote.put(&line(n));
    }
    while remote.counters().spooled == 0 {
        std::thread::sleep(Duration::from_millis(10));
    }
    cluster.broker_up(1).unwrap();
    for n in 9000..10_000 {
        remote.put(&line(n));
    }
    let until = Instant::now() + Duration::from_secs(60);
    // The spool is emptied after the last acknowledgement.
    let done = || remote.counters().sent == 10_000 && remote.counters().spooled == 0;
    while !done() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(10));
    }
    let c = remote.counters();
    assert_eq!((c.sent, c.lost, c.refused, c.spooled), (10_000, 0, 0, 0));
    check(&consume(&cluster.bootstrap_servers(), 10_000), 10_000);
}

#[test]
fn a_message_that_no_broker_takes_is_refused_and_the_rest_goes_on() {
    let cluster = cluster();
    let remote = Remote::start(&remote(&cluster.bootstrap_servers(), &[("message.max.bytes", "2000")], None)).unwrap();
    remote.put(&line(0));
    let long = format!("{{\"community_id\":\"1:0=\",\"fill\":\"{}\"}}\n", "x".repeat(3000));
    remote.put(long.as_bytes());
    remote.put(&line(1));
    remote.finish();
    let c = remote.counters();
    assert_eq!((c.sent, c.refused, c.lost), (2, 1, 0));
    check(&consume(&cluster.bootstrap_servers(), 2), 2);
}

#[test]
fn a_property_that_is_none_is_refused_at_the_start() {
    let wrong = Remote::start(&remote("127.0.0.1:1", &[("no.such.thing", "1")], None)).unwrap_err().to_string();
    assert!(wrong.contains("no.such.thing"), "{wrong}");
}
