//! Stream events: anomalies of a TCP segment or of its effect on the session, by the names in Suricata's rules, anomaly
//! events and statistics.

macro_rules! events {
    ($($variant:ident $name:literal $stat:literal),* $(,)?) => {
        /// An anomaly of a TCP segment. [`StreamEvent::name`] is its name in rules (`stream-event:`).
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        #[allow(missing_docs)]
        pub enum StreamEvent { $($variant),* }

        impl StreamEvent {
            /// All events, in the order of their numbers.
            pub const ALL: &'static [StreamEvent] = &[$(StreamEvent::$variant),*];

            /// The name in rules and anomaly events, without `stream.`: `est_packet_out_of_window`.
            pub const fn name(self) -> &'static str {
                match self { $(StreamEvent::$variant => $name),* }
            }

            /// The name in statistics: `stream.est_packet_out_of_window`. Two names differ from the rules' spelling.
            pub const fn stat_name(self) -> &'static str {
                match self { $(StreamEvent::$variant => $stat),* }
            }

            /// The event with that name in rules, with or without the prefix `stream.`. The spelling in statistics works
            /// too.
            pub fn from_name(name: &str) -> Option<StreamEvent> {
                let name = name.strip_prefix("stream.").unwrap_or(name);
                let stat = |e: &StreamEvent| e.stat_name().strip_prefix("stream.") == Some(name);
                Self::ALL.iter().copied().find(|e| e.name() == name || stat(e))
            }

            /// Whether the event only says that hosts may read other bytes than the engine. Suricata writes no anomaly
            /// for these: it compares retransmitted data only if a rule or the configuration asks for it, and lacks the
            /// other events.
            pub const fn is_ambiguity(self) -> bool {
                matches!(
                    self,
                    StreamEvent::ReassemblyOverlapDifferentData
                        | StreamEvent::DataAfterFin
                        | StreamEvent::ReassemblyUrgentData
                        | StreamEvent::ReassemblyUrgentPassedOver
                )
            }
        }
    };
}

events! {
    Hs3AckInWrongDir "3whs_ack_in_wrong_dir" "stream.3whs_ack_in_wrong_dir",
    Hs3AsyncWrongSeq "3whs_async_wrong_seq" "stream.3whs_async_wrong_seq",
    Hs3RightSeqWrongAckEvasion "3whs_right_seq_wrong_ack_evasion" "stream.3whs_right_seq_wrong_ack_evasion",
    Hs3SynackInWrongDirection "3whs_synack_in_wrong_direction" "stream.3whs_synack_in_wrong_direction",
    Hs3SynackResendWithDifferentAck "3whs_synack_resend_with_different_ack" "stream.3whs_synack_resend_with_diff_ack",
    Hs3SynackResendWithDiffSeq "3whs_synack_resend_with_diff_seq" "stream.3whs_synack_resend_with_diff_seq",
    Hs3SynackToserverOnSynRecv "3whs_synack_toserver_on_syn_recv" "stream.3whs_synack_toserver_on_syn_recv",
    Hs3SynackWithWrongAck "3whs_synack_with_wrong_ack" "stream.3whs_synack_with_wrong_ack",
    Hs3SynackFlood "3whs_synack_flood" "stream.3whs_synack_flood",
    Hs3SynackTfoDataIgnored "3whs_synack_tfo_data_ignored" "stream.3whs_synack_tfo_data_ignored",
    Hs3SynResendDiffSeqOnSynRecv "3whs_syn_resend_diff_seq_on_syn_recv" "stream.3whs_syn_resend_diff_seq_on_syn_recv",
    Hs3SynToclientOnSynRecv "3whs_syn_toclient_on_syn_recv" "stream.3whs_syn_toclient_on_syn_recv",
    Hs3SynFlood "3whs_syn_flood" "stream.3whs_syn_flood",
    Hs3WrongSeqWrongAck "3whs_wrong_seq_wrong_ack" "stream.3whs_wrong_seq_wrong_ack",
    Hs3AckDataInject "3whs_ack_data_inject" "stream.3whs_ack_data_inject",
    Hs4SynackWithWrongAck "4whs_synack_with_wrong_ack" "stream.4whs_synack_with_wrong_ack",
    Hs4SynackWithWrongSyn "4whs_synack_with_wrong_syn" "stream.4whs_synack_with_wrong_syn",
    Hs4WrongSeq "4whs_wrong_seq" "stream.4whs_wrong_seq",
    Hs4InvalidAck "4whs_invalid_ack" "stream.4whs_invalid_ack",
    ClosewaitAckOutOfWindow "closewait_ack_out_of_window" "stream.closewait_ack_out_of_window",
    ClosewaitFinOutOfWindow "closewait_fin_out_of_window" "stream.closewait_fin_out_of_window",
    ClosewaitPktBeforeLastAck "closewait_pkt_before_last_ack" "stream.closewait_pkt_before_last_ack",
    ClosewaitInvalidAck "closewait_invalid_ack" "stream.closewait_invalid_ack",
    ClosingAckWrongSeq "closing_ack_wrong_seq" "stream.closing_ack_wrong_seq",
    ClosingInvalidAck "closing_invalid_ack" "stream.closing_invalid_ack",
    EstPacketOutOfWindow "est_packet_out_of_window" "stream.est_packet_out_of_window",
    EstPktBeforeLastAck "est_pkt_before_last_ack" "stream.est_pkt_before_last_ack",
    EstSynackResend "est_synack_resend" "stream.est_synack_resend",
    EstSynackResendWithDifferentAck "est_synack_resend_with_different_ack" "stream.est_synack_resend_with_diff_ack",
    EstSynackResendWithDiffSeq "est_synack_resend_with_diff_seq" "stream.est_synack_resend_with_diff_seq",
    EstSynackToserver "est_synack_toserver" "stream.est_synack_toserver",
    EstSynResend "est_syn_resend" "stream.est_syn_resend",
    EstSynResendDiffSeq "est_syn_resend_diff_seq" "stream.est_syn_resend_diff_seq",
    EstSynToclient "est_syn_toclient" "stream.est_syn_toclient",
    EstInvalidAck "est_invalid_ack" "stream.est_invalid_ack",
    EstAckZwpData "est_ack_zwp_data" "stream.est_ack_zwp_data",
    FinInvalidAck "fin_invalid_ack" "stream.fin_invalid_ack",
    Fin1AckWrongSeq "fin1_ack_wrong_seq" "stream.fin1_ack_wrong_seq",
    Fin1FinWrongSeq "fin1_fin_wrong_seq" "stream.fin1_fin_wrong_seq",
    Fin1InvalidAck "fin1_invalid_ack" "stream.fin1_invalid_ack",
    Fin2AckWrongSeq "fin2_ack_wrong_seq" "stream.fin2_ack_wrong_seq",
    Fin2FinWrongSeq "fin2_fin_wrong_seq" "stream.fin2_fin_wrong_seq",
    Fin2InvalidAck "fin2_invalid_ack" "stream.fin2_invalid_ack",
    FinButNoSession "fin_but_no_session" "stream.fin_but_no_session",
    FinOutOfWindow "fin_out_of_window" "stream.fin_out_of_window",
    FinSyn "fin_syn" "stream.fin_syn",
    LastackAckWrongSeq "lastack_ack_wrong_seq" "stream.lastack_ack_wrong_seq",
    LastackInvalidAck "lastack_invalid_ack" "stream.lastack_invalid_ack",
    RstButNoSession "rst_but_no_session" "stream.rst_but_no_session",
    TimewaitAckWrongSeq "timewait_ack_wrong_seq" "stream.timewait_ack_wrong_seq",
    TimewaitInvalidAck "timewait_invalid_ack" "stream.timewait_invalid_ack",
    ShutdownSynResend "shutdown_syn_resend" "stream.shutdown_syn_resend",
    PktInvalidTimestamp "pkt_invalid_timestamp" "stream.pkt_invalid_timestamp",
    PktInvalidAck "pkt_invalid_ack" "stream.pkt_invalid_ack",
    PktBrokenAck "pkt_broken_ack" "stream.pkt_broken_ack",
    RstInvalidAck "rst_invalid_ack" "stream.rst_invalid_ack",
    RstWithData "rst_with_data" "stream.rst_with_data",
    PktRetransmission "pkt_retransmission" "stream.pkt_retransmission",
    PktSpuriousRetransmission "pkt_spurious_retransmission" "stream.pkt_spurious_retransmission",
    PktBadWindowUpdate "pkt_bad_window_update" "stream.pkt_bad_window_update",
    SuspectedRstInject "suspected_rst_inject" "stream.suspected_rst_inject",
    DataAfterFin "data_after_fin" "stream.data_after_fin",
    WrongThread "wrong_thread" "stream.wrong_thread",
    ReassemblySegmentBeforeBaseSeq "reassembly_segment_before_base_seq" "stream.reassembly_segment_before_base_seq",
    ReassemblyNoSegment "reassembly_no_segment" "stream.reassembly_no_segment",
    ReassemblySeqGap "reassembly_seq_gap" "stream.reassembly_seq_gap",
    ReassemblyOverlapDifferentData "reassembly_overlap_different_data" "stream.reassembly_overlap_different_data",
    ReassemblyDepthReached "reassembly_depth_reached" "stream.reassembly_depth_reached",
    ReassemblyInsertMemcap "reassembly_insert_memcap" "stream.reassembly_insert_memcap",
    ReassemblyInsertLimit "reassembly_insert_limit" "stream.reassembly_insert_limit",
    ReassemblyInsertInvalid "reassembly_insert_invalid" "stream.reassembly_insert_invalid",
    ReassemblyUrgentOobLimitReached "reassembly_urgent_oob_limit_reached" "stream.reassembly_urgent_oob_limit_reached",
    ReassemblyUrgentData "reassembly_urgent_data" "stream.reassembly_urgent_data",
    ReassemblyUrgentPassedOver "reassembly_urgent_passed_over" "stream.reassembly_urgent_passed_over",
}

/// Most events that one packet keeps.
const MAX: usize = 8;

/// The events of one packet, in order. Events after the eighth are dropped, but statistics count them.
#[derive(Debug, Clone, Copy)]
pub struct StreamEvents {
    list: [StreamEvent; MAX],
    len: u8,
}

impl Default for StreamEvents {
    fn default() -> Self {
        StreamEvents { list: [StreamEvent::PktInvalidAck; MAX], len: 0 }
    }
}

impl StreamEvents {
    /// Adds an event.
    pub fn push(&mut self, e: StreamEvent) {
        if let Some(slot) = self.list.get_mut(usize::from(self.len)) {
            *slot = e;
            self.len += 1;
        }
    }
    /// The events, oldest first.
    pub fn as_slice(&self) -> &[StreamEvent] {
        self.list.get(..usize::from(self.len)).unwrap_or(&[])
    }
    /// Whether `e` occurred.
    pub fn contains(&self, e: StreamEvent) -> bool {
        self.as_slice().contains(&e)
    }
    /// Whether there are no events.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for &e in StreamEvent::ALL {
            assert_eq!(StreamEvent::from_name(e.name()), Some(e));
            assert_eq!(StreamEvent::from_name(e.stat_name()), Some(e));
        }
        let ambiguity: Vec<_> = StreamEvent::ALL.iter().filter(|e| e.is_ambiguity()).map(|e| e.name()).collect();
        let want = [
            "data_after_fin",
            "reassembly_overlap_different_data",
            "reassembly_urgent_data",
            "reassembly_urgent_passed_over",
        ];
        assert_eq!(ambiguity, want);
        assert_eq!(StreamEvent::from_name("no_such"), None);
        assert_eq!(StreamEvent::EstSynackResendWithDifferentAck.stat_name(), "stream.est_synack_resend_with_diff_ack");
    }
}
