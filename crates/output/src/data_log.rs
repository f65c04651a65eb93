//! `tcp-data` and `http-body-data`: the bytes of streams and of HTTP bodies, in one file as a dump, or in a file each.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::error;
use crate::event::{Addresses, DataEvent, Direction, EventType, EventTypes};
use crate::hex::dump;
use crate::json::{digits, ip};
use crate::output::{Event, EventSink, Opening, OutputError, OutputSettings};
use crate::settings::SinkSettings;
use crate::sinks::{OpenError, Sink};

/// The bytes that are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DataKind {
    /// `tcp-data`.
    Tcp,
    /// `http-body-data`.
    HttpBody,
}

impl DataKind {
    const fn event_type(self) -> EventType {
        match self {
            DataKind::Tcp => EventType::TcpData,
            DataKind::HttpBody => EventType::HttpBodyData,
        }
    }

    /// The folder of files below the log folder.
    const fn folder(self) -> &'static str {
        match self {
            DataKind::Tcp => "tcp",
            DataKind::HttpBody => "http",
        }
    }
}

/// The options of `tcp-data` and `http-body-data`.
#[derive(Debug, Clone, PartialEq)]
pub struct DataLogSettings {
    /// The bytes that are written.
    pub kind: DataKind,
    /// The dump (`type: file`).
    pub sink: Option<SinkSettings>,
    /// The folder that gets a folder with a file for each stream or body (`type: dir`).
    pub dir: Option<PathBuf>,
}

impl OutputSettings for DataLogSettings {
    fn name(&self) -> &'static str {
        match self.kind {
            DataKind::Tcp => "tcp-data",
            DataKind::HttpBody => "http-body-data",
        }
    }

    fn open(&self, at: &Opening<'_>) -> Result<Box<dyn EventSink>, OutputError> {
        let dir = self.dir.as_ref().map(|d| d.join(self.kind.folder()));
        if let Some(path) = &dir {
            std::fs::create_dir_all(path).map_err(|source| OpenError { path: path.clone(), source })?;
        }
        let sink = self.sink.clone().map(|s| Sink::open(s, at.now)).transpose()?;
        Ok(Box::new(DataLog { kind: self.kind, text: Vec::new(), sink, dir, failed: false }))
    }

    fn sink(&mut self) -> Option<&mut SinkSettings> {
        self.sink.as_mut()
    }

    fn path(&self) -> Option<&Path> {
        self.dir.as_deref()
    }
}

#[derive(Debug)]
struct DataLog {
    kind: DataKind,
    text: Vec<u8>,
    sink: Option<Sink>,
    dir: Option<PathBuf>,
    /// A failure was logged.
    failed: bool,
}

impl EventSink for DataLog {
    fn types(&self) -> EventTypes {
        EventTypes::NONE.with(self.kind.event_type())
    }

    fn event(&mut self, event: Event<'_>) {
        let Event::Data(e) = event else { return };
        if let Some(sink) = &mut self.sink {
            self.text.clear();
            ends(&mut self.text, &e.flow);
            self.text.extend_from_slice(way(e.direction));
            self.text.extend_from_slice(b":\n");
            dump(&mut self.text, e.data);
            sink.line(&self.text);
        }
        if let Some(dir) = &self.dir
            && let Err(error) = store(dir, e)
            && !std::mem::replace(&mut self.failed, true)
        {
            error!("output", "{}: data cannot be written: {error}", dir.display());
        }
    }

    fn sink(&mut self) -> Option<&mut Sink> {
        self.sink.as_mut()
    }

    fn beside(&mut self) -> Option<Box<dyn EventSink>> {
        Some(Box::new(DataLog {
            kind: self.kind,
            text: Vec::new(),
            sink: self.sink.as_ref().map(Sink::share),
            dir: self.dir.clone(),
            failed: self.failed,
        }))
    }
}

/// Appends client and server.
fn ends(out: &mut Vec<u8>, a: &Addresses) {
    ip(out, a.src);
    out.push(b'_');
    digits(out, u64::from(a.sport));
    out.push(b'-');
    ip(out, a.dst);
    out.push(b'_');
    digits(out, u64::from(a.dport));
}

const fn way(direction: Direction) -> &'static [u8] {
    match direction {
        Direction::ToServer => b"-ts",
        Direction::ToClient => b"-tc",
    }
}

/// Writes bytes to the file of their stream or body. The first ones replace the file of an earlier run.
fn store(dir: &Path, e: &DataEvent<'_>) -> std::io::Result<()> {
    let mut name = Vec::with_capacity(96);
    ends(&mut name, &e.flow);
    name.push(b'-');
    if let Some(id) = e.tx_id {
        digits(&mut name, id);
    }
    name.extend_from_slice(way(e.direction));
    name.extend_from_slice(b".data");
    let path = dir.join(String::from_utf8_lossy(&name).as_ref());
    let mut options = OpenOptions::new();
    if e.first {
        options.write(true).truncate(true);
    } else {
        options.append(true);
    }
    options.create(true).open(path)?.write_all(e.data)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outputs::Outputs;
    use margay_packet::Time;

    #[test]
    fn files_and_dumps() {
        let dir = std::env::temp_dir().join(format!("margay-data-log-{}", std::process::id()));
        let settings = |kind| -> Box<dyn OutputSettings> {
            Box::new(DataLogSettings {
                kind,
                sink: Some(SinkSettings::file(dir.join("data.log"))),
                dir: Some(dir.clone()),
            })
        };
        let mut outputs =
            Outputs::new(vec![settings(DataKind::Tcp), settings(DataKind::HttpBody)], Time(0), 0).unwrap();
        let flow = Addresses { src: [10, 0, 0, 1].into(), sport: 7, dst: [10, 0, 0, 2].into(), dport: 80, proto: 6 };
        let tcp = DataEvent {
            kind: EventType::TcpData,
            flow,
            tx_id: None,
            direction: Direction::ToServer,
            first: true,
            data: b"old",
        };
        outputs.data(&tcp);
        outputs.data(&DataEvent { data: b"one", ..tcp });
        outputs.data(&DataEvent { data: b"two", first: false, ..tcp });
        let kind = EventType::HttpBodyData;
        outputs.data(&DataEvent { kind, tx_id: Some(3), direction: Direction::ToClient, data: b"body", ..tcp });
        outputs.finish();
        let read = |name: &str| std::fs::read_to_string(dir.join(name)).unwrap();
        assert_eq!(read("tcp/10.0.0.1_7-10.0.0.2_80--ts.data"), "onetwo");
        assert_eq!(read("http/10.0.0.1_7-10.0.0.2_80-3-tc.data"), "body");
        let log = read("data.log");
        assert!(log.starts_with("10.0.0.1_7-10.0.0.2_80-ts:\n 0000  6F 6C 64 "), "{log}");
        assert!(log.contains("\n10.0.0.1_7-10.0.0.2_80-tc:\n 0000  62 6F 64 79 "), "{log}");
        std::fs::remove_dir_all(dir).unwrap();
    }
}
