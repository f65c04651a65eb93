//! Frames: supplies their bytes to rules and to events.

use margay_app::frame::{Frame, STREAM};
use margay_app::protocol;
use margay_detect::FrameBytes;
use margay_flow::{Direction, Flow};
use margay_output::event::{AppEvent, EventType, Header, ONE_RECORD};
use margay_output::json::Json;
use margay_packet::Packet;
use margay_stream::TcpSession;

use super::app::FlowApp;
use super::{FlowExt, Stages};

/// The source of the bytes of a direction's frames: the stream, or the datagram.
pub(super) struct FrameSource<'a> {
    pub(super) tcp: Option<&'a TcpSession>,
    pub(super) dir: Direction,
    pub(super) payload: &'a [u8],
}

impl FrameBytes for FrameSource<'_> {
    fn stretches(&self, from: u64, to: u64, each: &mut dyn FnMut(u64, &[u8])) {
        match self.tcp {
            Some(s) => s.stretches(self.dir, from, to, each),
            None => {
                let to = to.min(self.payload.len() as u64);
                if let Some(bytes) = self.payload.get(from as usize..to as usize).filter(|b| !b.is_empty()) {
                    each(from, bytes);
                }
            }
        }
    }
}

impl FrameSource<'_> {
    /// Appends a frame's JSON object: type, position, and at most `most` of its first bytes if they are still available.
    pub(super) fn log(&self, app: &FlowApp, frame: &Frame, most: usize, bytes: &mut Vec<u8>, json: &mut Json) {
        let types = protocol(app.session.proto).map_or(&[] as &[&str], |p| p.frames);
        let name =
            if frame.kind == STREAM { "stream" } else { types.get(usize::from(frame.kind)).unwrap_or(&"unknown") };
        let so_far = || self.tcp.map_or(frame.offset, |s| s.app_offset(self.dir).max(frame.offset));
        let end = frame.end.unwrap_or_else(so_far);
        bytes.clear();
        match self.tcp {
            Some(s) => s.payload_with_gaps(self.dir, frame.offset, end, most, bytes),
            None => {
                let len = (end - frame.offset).min(most as u64) as usize;
                bytes.extend(self.payload.iter().skip(frame.offset as usize).take(len));
            }
        }
        json.object("frame");
        json.str("type", name);
        json.uint("id", frame.id);
        json.str("direction", if self.dir == Direction::ToServer { "toserver" } else { "toclient" });
        json.uint("stream_offset", frame.offset);
        json.uint("length", end - frame.offset);
        json.base64("payload", bytes);
        json.printable("payload_printable", bytes);
        json.bool("complete", frame.end.is_some());
        if let Some(tx) = frame.tx {
            json.uint("tx_id", tx);
        }
        json.end_object();
    }
}

impl Stages {
    /// Logs the new frames of a packet's direction; at the flow's `end`, those of both directions.
    #[inline]
    pub(super) fn log_frames(&mut self, p: &Packet<'_>, flow: &mut Flow<FlowExt>, dir: Direction, end: bool) {
        if flow.ext.app.as_ref().is_some_and(|a| !a.frames.is_empty()) {
            self.log_marked(p, flow, dir, end);
        }
    }

    fn log_marked(&mut self, p: &Packet<'_>, flow: &mut Flow<FlowExt>, dir: Direction, end: bool) {
        let Some(app) = flow.ext.app.as_deref_mut() else { return };
        let directions = [Direction::ToServer, Direction::ToClient].into_iter().filter(|d| end || *d == dir);
        if !self.outputs.wants(EventType::Frame) {
            directions.for_each(|d| app.frames.of_mut(d).iter_mut().for_each(|f| f.logged = true));
            app.frames.tidy();
            return;
        }
        let names = app.names();
        let tcp = flow.ext.tcp.as_deref();
        let bytes = std::cell::RefCell::new(std::mem::take(&mut self.scratch.payload));
        for d in directions {
            let source = FrameSource { tcp, dir: d, payload: p.payload() };
            for i in 0..app.frames.of(d).len() {
                let Some(f) = app.frames.of_mut(d).get_mut(i) else { break };
                if std::mem::replace(&mut f.logged, true) {
                    continue;
                }
                let Some(f) = app.frames.of(d).get(i) else { break };
                let options = &self.app.options;
                let fields = |json: &mut Json, output: usize, _: usize| {
                    if let Some(proto) = names.proto {
                        json.str("app_proto", proto);
                    }
                    let most = options.get(output).map_or(0, |o| o.frame_payload);
                    source.log(app, f, most, &mut bytes.borrow_mut(), json);
                };
                self.outputs.app(&AppEvent {
                    kind: EventType::Frame,
                    header: Header {
                        flow_id: Some(flow.core.id),
                        pcap_filename: self.file.as_deref(),
                        ..Header::of(p)
                    },
                    tx_id: None,
                    direction: None,
                    xff: None,
                    records: ONE_RECORD,
                    fields: &fields,
                    ask: None,
                });
            }
        }
        self.scratch.payload = bytes.into_inner();
        app.frames.tidy();
    }

    /// Stops stream inspection after the parser reported that the rest is encrypted. Frames still show the encrypted bytes,
    /// with packets that arrive after parsing, so those bytes stay in the stream. `inspected` is the packet's direction if
    /// rules inspected its data.
    pub(super) fn end_inspection(&mut self, flow: &mut Flow<FlowExt>, inspected: Option<Direction>) {
        let (Some(app), Some(tcp)) = (flow.ext.app.as_deref_mut(), flow.ext.tcp.as_deref_mut()) else { return };
        let before = std::mem::replace(&mut app.encrypted, app.wishes.no_payload);
        if !app.encrypted {
            return;
        }
        if self.app.shared.frames.wants(app.session.proto) {
            for d in [Direction::ToServer, Direction::ToClient] {
                let to_log = app.frames.of(d).iter().filter(|f| !f.logged).map(|f| f.offset);
                let first = to_log.chain(app.frames.needed(d)).min();
                tcp.keep(d, Some(first.unwrap_or(u64::MAX).min(tcp.app_offset(d))));
            }
        }
        if !before {
            tcp.raw_finish(inspected);
        }
    }

    /// Rules do not inspect the flow: frees the bytes that were kept for them.
    pub(super) fn frames_unwatched(&mut self, flow: &mut Flow<FlowExt>) {
        if self.app.shared.frames.inspected.is_empty() {
            return;
        }
        if let Some(app) = flow.ext.app.as_deref_mut() {
            app.frames.set_inspected();
        }
        if let Some(tcp) = flow.ext.tcp.as_deref_mut() {
            tcp.keep(Direction::ToServer, None);
            tcp.keep(Direction::ToClient, None);
        }
    }
}
