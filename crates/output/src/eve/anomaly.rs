//! `anomaly`.

use crate::event::{Anomaly, AnomalyEvent, AnomalyKind, EventType};

use super::Out;

/// Limit of the bytes that `packethdr` shows of a packet.
const HEADER_BYTES: usize = 32;

impl Out<'_> {
    pub(super) fn anomaly(&mut self, e: &AnomalyEvent<'_>) {
        self.begin(&e.header, EventType::Anomaly);
        self.context(&e.header);
        self.tx_id(e.tx_id.map(|id| (id, false)));
        let j = &mut *self.json;
        j.object("anomaly");
        if let Anomaly::AppLayer { app_proto, .. } = e.anomaly {
            j.str("app_proto", app_proto);
        }
        j.str("type", e.anomaly.kind().name());
        match e.anomaly {
            Anomaly::Decode(name) => prefixed(j, b"decoder.", name),
            Anomaly::Stream(name) => prefixed(j, b"stream.", name),
            Anomaly::AppLayer { event, layer, .. } => {
                j.str("event", event);
                j.str("layer", layer);
            }
            Anomaly::Unknown { code, .. } => j.uint("code", u64::from(code)),
        }
        j.end_object();
        if self.settings.anomaly.packethdr
            && e.anomaly.kind() != AnomalyKind::AppLayer
            && let Some(packet) = e.packet
        {
            let bytes = packet.data.get(..HEADER_BYTES).unwrap_or(packet.data);
            self.packet_bytes(packet, bytes);
        }
        self.finish(e.header.pcap_filename);
    }
}

/// Event names are plain words, so nothing needs escaping.
fn prefixed(j: &mut crate::json::Json, prefix: &[u8], name: &str) {
    j.json("event", b"\"");
    j.raw(prefix);
    j.raw(name.as_bytes());
    j.raw(b"\"");
}
