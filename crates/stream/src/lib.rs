//! TCP sessions and reassembly.
//
// NOTE FROM THE INTEGRATOR (remove this comment): to save time the REASSEMBLY half of this crate is being written by
// someone else at the same moment, on branch `reassembly` (/work/wt/reassembly/crates/stream/src/reassembly/**, plus
// config parts `ReassemblyConfig`, `OsPolicy` in src/reassembly/config.rs and property tests of it). You write only the
// SESSION half: src/{lib,config,event,counters,session,engine,state/*}.rs: TCP state machine, events, window/ack/RST/FIN
// validation, midstream, TFO, counters, StreamEngine::process, and calling the reassembly. Interface agreed (adapt to what
// is on that branch; `git merge reassembly` early and often):
//   reassembly::Half::new(); half.set_isn(seq); half.insert(&ReassemblyConfig, &mut Memory, OsPolicy, seq, data, flags) ->
//   Inserted { events.., in_stream: bool, .. }; half.ack(seq); half.fin(seq); half.app(): iterator-like of Data/Gap + consume;
//   half.raw_chunks(flush) -> Option<StreamChunk>, half.raw_done(); half.payload_with_gaps(max, &mut Vec<u8>);
//   half.rewrite(seq, len, &mut Vec<u8>) (inline normalisation); half.needs_flush(); half.prune(&mut Memory).
// Deliver a first working version of the whole (flow table + sessions for ordinary traffic) as early as you can: the engine
// waits for it. Commit what you have of the flow crate NOW.
