//! Kafka, with librdkafka.
//!
//! The producer is idempotent: messages that it repeats after a broken connection arrive once, and the order within a
//! partition stays. It retries without limit (`message.timeout.ms` 0). While brokers are away, the current batch waits
//! in librdkafka, and later lines wait in our queue and spool.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rdkafka::ClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{DeliveryResult, Message};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer, ProducerContext};

use super::key::key;
use super::{KafkaSettings, Outcome, PATIENCE, Transport};

/// Limit of the time that a call waits for deliveries.
const TURN: Duration = Duration::from_millis(200);

/// Delivery reports.
#[derive(Default)]
struct Deliveries {
    /// Messages without a delivery report.
    open: AtomicUsize,
    done: AtomicUsize,
    trouble: Mutex<Trouble>,
}

#[derive(Default)]
struct Trouble {
    /// Lines that no broker will ever accept, and the reason.
    refused: u64,
    why: Option<String>,
    /// Lines to send again.
    again: Vec<u8>,
    /// The last thing that librdkafka reported about its connections.
    said: Option<String>,
}

#[derive(Clone, Default)]
struct Context(Arc<Deliveries>);

impl Context {
    fn trouble(&self) -> std::sync::MutexGuard<'_, Trouble> {
        self.0.trouble.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ClientContext for Context {
    fn error(&self, error: KafkaError, reason: &str) {
        self.trouble().said = Some(if reason.is_empty() { error.to_string() } else { reason.to_owned() });
    }

    // Our own messages include what librdkafka would log.
    fn log(&self, _: rdkafka::config::RDKafkaLogLevel, _: &str, _: &str) {}
}

/// Errors caused by the message itself, which a retry cannot fix.
fn for_good(code: RDKafkaErrorCode) -> bool {
    use RDKafkaErrorCode as E;
    matches!(code, E::MessageSizeTooLarge | E::InvalidMessage | E::InvalidMessageSize | E::InvalidRecord)
}

impl ProducerContext for Context {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
        self.0.done.fetch_add(1, Ordering::Relaxed);
        let Err((error, message)) = result else { return };
        let mut t = self.trouble();
        if error.rdkafka_error_code().is_some_and(for_good) {
            t.refused += 1;
        } else {
            t.again.extend_from_slice(message.payload().unwrap_or_default());
            t.again.push(b'\n');
        }
        t.why = Some(error.to_string());
    }
}

pub(super) struct Kafka {
    settings: KafkaSettings,
    config: ClientConfig,
    context: Context,
    producer: Option<BaseProducer<Context>>,
    /// Time of the last delivery, and how many messages were open then.
    progress: (Instant, usize),
}

impl Kafka {
    /// Checks the settings without connecting.
    ///
    /// # Errors
    /// A property that librdkafka does not know or accept.
    pub(super) fn new(settings: &KafkaSettings) -> io::Result<Kafka> {
        let mut config = ClientConfig::new();
        config
            .set("bootstrap.servers", &settings.brokers)
            .set("client.id", "margay")
            .set("enable.idempotence", "true")
            .set("message.timeout.ms", "0")
            .set("linger.ms", "20")
            .set("compression.codec", "lz4")
            .set("queue.buffering.max.messages", "1000000");
        for (name, value) in &settings.properties {
            config.set(name, value);
        }
        let mut kafka = Kafka {
            settings: settings.clone(),
            config,
            context: Context::default(),
            producer: None,
            progress: (Instant::now(), 0),
        };
        // librdkafka checks properties only when it creates a producer, which connects in the background.
        kafka.producer = Some(kafka.make().map_err(io::Error::other)?);
        Ok(kafka)
    }

    fn make(&self) -> Result<BaseProducer<Context>, KafkaError> {
        self.config.create_with_context(self.context.clone())
    }
}

impl Transport for Kafka {
    fn connect(&mut self) -> Result<(), String> {
        // A producer is unusable after a fatal error.
        let fatal = self.producer.as_ref().is_none_or(|p| p.client().fatal_error().is_some());
        if fatal {
            self.producer = None;
            self.context = Context::default();
            self.producer = Some(self.make().map_err(|e| e.to_string())?);
        }
        Ok(())
    }

    fn send(&mut self, batch: &[u8]) -> Outcome {
        let Some(producer) = &self.producer else {
            return Outcome::Failed { rest: batch.to_vec(), why: "the producer is missing".into() };
        };
        for line in batch.split(|&b| b == b'\n').filter(|l| !l.is_empty()) {
            let mut record: BaseRecord<'_, [u8], [u8]> = BaseRecord::to(&self.settings.topic).payload(line);
            if let Some(k) = key(line, self.settings.key) {
                record = record.key(k);
            }
            loop {
                match producer.send(record) {
                    Ok(()) => {
                        self.context.0.open.fetch_add(1, Ordering::Relaxed);
                        break;
                    }
                    Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), same)) => {
                        // A batch has fewer messages than the queue has room for, unless `properties` change that.
                        producer.poll(TURN);
                        record = same;
                    }
                    Err((error, _)) => {
                        let mut t = self.context.trouble();
                        if error.rdkafka_error_code().is_some_and(for_good) {
                            t.refused += 1;
                        } else {
                            t.again.extend_from_slice(line);
                            t.again.push(b'\n');
                        }
                        t.why = Some(error.to_string());
                        break;
                    }
                }
            }
        }
        self.progress = (Instant::now(), self.context.0.done.load(Ordering::Relaxed));
        self.wait()
    }

    fn wait(&mut self) -> Outcome {
        let Some(producer) = &self.producer else { return Outcome::Done { refused: 0, why: None } };
        let deliveries = &self.context.0;
        let until = Instant::now() + TURN;
        while deliveries.open.load(Ordering::Relaxed) > 0 && Instant::now() < until {
            producer.poll(Duration::from_millis(20));
        }
        let done = deliveries.done.load(Ordering::Relaxed);
        if done != self.progress.1 {
            self.progress = (Instant::now(), done);
        }
        let fatal = producer.client().fatal_error();
        if deliveries.open.load(Ordering::Relaxed) > 0 && fatal.is_none() {
            let slow = self.progress.0.elapsed() >= PATIENCE;
            let said = || self.context.trouble().said.clone().unwrap_or_else(|| "no answer of a broker".into());
            return Outcome::Waiting { why: slow.then(said) };
        }
        let mut t = std::mem::take(&mut *self.context.trouble());
        let why = t.why.take().or(fatal.map(|(_, text)| text));
        if t.again.is_empty() {
            Outcome::Done { refused: t.refused, why }
        } else {
            Outcome::Failed { rest: t.again, why: why.unwrap_or_else(|| "not delivered".into()) }
        }
    }
}
