//! The effects of a matching rule besides its action: bits, integers, bypass, marks.

use margay_app::TxBase;
use margay_app::file::{FileEngine, StoreScope};
use margay_flow::{Direction, FlowVars};
use margay_packet::Packet;
use margay_rules::ast::{BitOp, ConfigWhat, Effect, FileScope, FileSide, FlowIntOp, XBitTrack};

use crate::checks::{IntValue, Names, int_value, track};
use crate::hostvars::{HostKey, HostVars};
use crate::inspect::CompileError;

/// An effect ready to be applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CompiledEffect {
    /// Changes flow bits.
    FlowBit {
        /// Numbers of the bits' names.
        names: Box<[u32]>,
        /// The operation.
        op: BitOp,
    },
    /// Changes a flow integer.
    FlowInt(FlowIntEffect),
    /// Changes a bit of a host or a host pair.
    XBit {
        /// Number of the bit's name.
        name: u32,
        /// The host or pair that holds the bit.
        track: XBitTrack,
        /// The operation.
        op: BitOp,
        /// Lifetime in seconds; 0 for unlimited.
        expire: u32,
    },
    /// Stops inspecting the flow.
    Bypass,
    /// Changes a transaction bit.
    TxBit {
        /// Number of the bit's name.
        name: u32,
        /// The operation.
        op: BitOp,
    },
    /// Adds to a transaction score.
    TxScore {
        /// Number of the score's name.
        name: u32,
        /// The amount.
        add: u32,
    },
    /// Keeps the transaction out of the log.
    NoLog,
    /// Stores files.
    FileStore {
        /// Directions whose files are stored; `None` for the direction that matched.
        side: Option<FileSide>,
        /// Which of these files are stored.
        scope: FileScope,
    },
    /// Stores the certificates of the matching direction.
    StoreCertificates,
    /// Sets bits of the packet's mark.
    NfqMark {
        /// The mark.
        mark: u32,
        /// The mask of the mark.
        mask: u32,
    },
}

/// A change of a flow integer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlowIntEffect {
    name: u32,
    op: IntChange,
    value: IntValue,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum IntChange {
    Add,
    Subtract,
    Set,
}

/// The state that effects of one packet change.
pub struct EffectTarget<'a> {
    /// The packet.
    pub packet: &'a Packet<'a>,
    /// Variables of the packet's flow, if it has one.
    pub flow: Option<&'a mut FlowVars>,
    /// Host bits, if they are kept.
    pub hosts: Option<&'a mut HostVars>,
    /// Set if the flow is to be bypassed.
    pub bypass: bool,
    /// The mark to set on the packet, and its mask.
    pub mark: Option<(u32, u32)>,
    /// The transaction that matched.
    pub tx: Option<TxTarget<'a>>,
}

/// The parts of a transaction that effects change.
pub struct TxTarget<'a> {
    /// The transaction.
    pub base: &'a mut TxBase,
    /// The direction that matched.
    pub dir: Direction,
    /// The file that matched, by its index among all files of the transaction.
    pub file: Option<u32>,
    /// Number of the rule that matched.
    pub sid: u32,
    /// The engine that stores files.
    pub files: Option<&'a mut FileEngine>,
}

impl CompiledEffect {
    /// Compiles an effect; `None` for those that the caller handles (`tag`, `replace`).
    ///
    /// # Errors
    /// An effect that this build does not support.
    pub fn compile(effect: &Effect, names: &mut Names) -> Result<Option<CompiledEffect>, CompileError> {
        Ok(Some(match effect {
            Effect::FlowBit { names: bits, op } => {
                CompiledEffect::FlowBit { names: bits.iter().map(|n| names.intern(n)).collect(), op: *op }
            }
            Effect::FlowInt { name, op } => {
                let name = names.intern(name);
                let (op, value) = match op {
                    FlowIntOp::Add(v) => (IntChange::Add, v),
                    FlowIntOp::Subtract(v) => (IntChange::Subtract, v),
                    FlowIntOp::Set(v) => (IntChange::Set, v),
                };
                CompiledEffect::FlowInt(FlowIntEffect { name, op, value: int_value(value, names) })
            }
            Effect::XBit { name, track: XBitTrack::Transaction, op, .. } => {
                CompiledEffect::TxBit { name: names.intern(name), op: *op }
            }
            Effect::Score { name, add } => CompiledEffect::TxScore { name: names.intern(name), add: *add },
            Effect::XBit { name, track: t, op, expire, .. } => {
                CompiledEffect::XBit { name: names.intern(name), track: track(*t)?, op: *op, expire: *expire }
            }
            Effect::Bypass => CompiledEffect::Bypass,
            Effect::NfqMark { mark, mask } => CompiledEffect::NfqMark { mark: *mark, mask: *mask },
            Effect::Tag(_) | Effect::Replace | Effect::Action { .. } => return Ok(None),
            Effect::Config { what: ConfigWhat::Logging, .. } => CompiledEffect::NoLog,
            Effect::Config { what: ConfigWhat::Tracking, .. } => {
                return Err(CompileError::invalid(
                    "config",
                    "tracking is disabled before the flow is known: the rule's hook has to be pre_flow (ip:pre_flow)",
                ));
            }
            Effect::FileStore { side, scope } => CompiledEffect::FileStore { side: *side, scope: *scope },
            Effect::TlsStore => CompiledEffect::StoreCertificates,
            Effect::Other { keyword, .. } => {
                return Err(CompileError::unsupported(keyword, "this build does not have it"));
            }
        }))
    }

    /// Applies the effect. Without a flow or a host table, effects on them do nothing.
    // It stays whole: a flat match over the effects.
    pub fn apply(&self, target: &mut EffectTarget<'_>) {
        match self {
            CompiledEffect::FlowBit { names, op } => {
                let Some(vars) = target.flow.as_deref_mut() else { return };
                for &n in names {
                    match op {
                        BitOp::Set => vars.set_bit(n),
                        BitOp::Unset => vars.unset_bit(n),
                        BitOp::Toggle if vars.bit(n) => vars.unset_bit(n),
                        BitOp::Toggle => vars.set_bit(n),
                    }
                }
            }
            CompiledEffect::FlowInt(e) => {
                if let Some(vars) = target.flow.as_deref_mut() {
                    e.apply(vars);
                }
            }
            CompiledEffect::XBit { name, track, op, expire } => {
                let p = target.packet;
                let Some(hosts) = target.hosts.as_deref_mut().filter(|_| p.is_ip()) else { return };
                let mut change = |key| {
                    let set = match op {
                        BitOp::Set => true,
                        BitOp::Unset => false,
                        BitOp::Toggle => !hosts.is_kept(key, *name),
                    };
                    if set {
                        hosts.set(key, *name, p.time, *expire);
                    } else {
                        hosts.unset(key, *name);
                    }
                };
                match track {
                    XBitTrack::Source => change(HostKey::Host(p.src)),
                    XBitTrack::Destination => change(HostKey::Host(p.dst)),
                    XBitTrack::Pair => change(HostKey::pair(p.src, p.dst)),
                    XBitTrack::Both => {
                        change(HostKey::Host(p.src));
                        if p.src != p.dst {
                            change(HostKey::Host(p.dst));
                        }
                    }
                    // Compilation rejects this.
                    XBitTrack::Transaction => {}
                }
            }
            CompiledEffect::TxBit { name, op } => {
                let Some(tx) = &mut target.tx else { return };
                let at = tx.base.bits.iter().position(|b| b == name);
                match (op, at) {
                    (BitOp::Set | BitOp::Toggle, None) => tx.base.bits.to_add().push(*name),
                    (BitOp::Unset | BitOp::Toggle, Some(at)) => {
                        tx.base.bits.to_add().swap_remove(at);
                    }
                    _ => {}
                }
            }
            CompiledEffect::TxScore { name, add } => {
                if let Some(tx) = &mut target.tx {
                    tx.base.add_score(*name, *add);
                }
            }
            CompiledEffect::NoLog => {
                if let Some(tx) = &mut target.tx {
                    tx.base.no_log = true;
                }
            }
            CompiledEffect::FileStore { side, scope } => {
                if let Some(tx) = &mut target.tx {
                    tx.store(*side, *scope);
                }
            }
            CompiledEffect::StoreCertificates => {
                if let Some(tx) = &mut target.tx {
                    tx.base.store_certificates[tx.dir.index()] = true;
                }
            }
            CompiledEffect::Bypass => target.bypass = true,
            CompiledEffect::NfqMark { mark, mask } => target.mark = Some((*mark, *mask)),
        }
    }
}

impl TxTarget<'_> {
    fn store(&mut self, side: Option<FileSide>, scope: FileScope) {
        let server = match side {
            None => self.dir == Direction::ToServer,
            Some(side) => side != FileSide::ToClient,
        };
        let client = match side {
            None => self.dir == Direction::ToClient,
            Some(side) => side != FileSide::ToServer,
        };
        let dirs = [server, client];
        let scope = match (scope, self.file) {
            (FileScope::File, Some(f)) => StoreScope::File(f as usize),
            // Without a matching file, all files of `dirs` in the transaction are stored.
            (FileScope::File | FileScope::Transaction, _) => StoreScope::Tx,
            (FileScope::Flow, _) => {
                if let Some(engine) = self.files.as_deref_mut() {
                    for (flow, _) in engine.flow.store.iter_mut().zip(dirs).filter(|(_, on)| *on) {
                        flow.get_or_insert(self.sid);
                    }
                }
                StoreScope::Flow
            }
        };
        self.base.files.request_store(dirs, scope, self.sid);
    }
}

impl FlowIntEffect {
    /// As observed: adding to an unset variable starts from 0, subtracting leaves it unset, and values wrap at 32 bits.
    fn apply(&self, vars: &mut FlowVars) {
        let right = match self.value {
            IntValue::Number(n) => n,
            IntValue::Variable(v) => vars.int(v).unwrap_or(0),
        };
        let left = vars.int(self.name);
        let value = match (self.op, left) {
            (IntChange::Set, _) => right,
            (IntChange::Add, left) => left.unwrap_or(0).wrapping_add(right),
            (IntChange::Subtract, Some(left)) => left.wrapping_sub(right),
            (IntChange::Subtract, None) => return,
        };
        vars.set_int(self.name, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use margay_packet::{Frame, L3, LinkType, Time};
    use margay_rules::ast::{FlowIntValue, Tag, TagScope, TagUnit};

    fn packet() -> Packet<'static> {
        let frame = Frame { data: &[], wire_len: 0, time: Time::new(100, 0), link: LinkType::RAW, number: 1 };
        let mut p = Packet::new(&frame);
        p.l3 = L3::Ipv4 { offset: 0, header_len: 20, options: 0 };
        p.src = std::net::IpAddr::from([10, 0, 0, 1]);
        p.dst = std::net::IpAddr::from([10, 0, 0, 2]);
        p
    }

    fn apply(
        effects: &[Effect],
        names: &mut Names,
        vars: &mut FlowVars,
        hosts: &mut HostVars,
    ) -> (bool, Option<(u32, u32)>) {
        let p = packet();
        let mut t =
            EffectTarget { packet: &p, flow: Some(vars), hosts: Some(hosts), bypass: false, mark: None, tx: None };
        for e in effects {
            CompiledEffect::compile(e, names).expect("compiles").expect("is ours").apply(&mut t);
        }
        (t.bypass, t.mark)
    }

    #[test]
    fn bits() {
        let (mut names, mut vars, mut hosts) = (Names::default(), FlowVars::default(), HostVars::new(10, 10));
        let bit = |names: &[&str], op| Effect::FlowBit { names: names.iter().map(|&s| s.to_owned()).collect(), op };
        apply(&[bit(&["a", "b"], BitOp::Set)], &mut names, &mut vars, &mut hosts);
        assert!(vars.bit(0) && vars.bit(1));
        apply(&[bit(&["a"], BitOp::Unset), bit(&["b", "c"], BitOp::Toggle)], &mut names, &mut vars, &mut hosts);
        assert_eq!(vars.bits(), [2]);
        let x = |track, op| Effect::XBit { name: "x".into(), track, op, expire: 10, hostbits: false };
        apply(&[x(XBitTrack::Pair, BitOp::Set), x(XBitTrack::Both, BitOp::Toggle)], &mut names, &mut vars, &mut hosts);
        let now = Time::new(105, 0);
        let (a, b) = (packet().src, packet().dst);
        for key in [HostKey::pair(b, a), HostKey::Host(a), HostKey::Host(b)] {
            assert!(hosts.is_set(key, 3, now));
        }
        apply(
            &[x(XBitTrack::Source, BitOp::Unset), x(XBitTrack::Destination, BitOp::Toggle)],
            &mut names,
            &mut vars,
            &mut hosts,
        );
        assert!(!hosts.is_set(HostKey::Host(a), 3, now) && !hosts.is_set(HostKey::Host(b), 3, now));
    }

    /// As in Suricata, `toggle` clears an expired bit that no rule has tested since.
    #[test]
    fn toggle_of_an_expired_bit() {
        let (mut names, mut vars, mut hosts) = (Names::default(), FlowVars::default(), HostVars::new(10, 10));
        let key = HostKey::Host(packet().src);
        let toggle =
            Effect::XBit { name: "x".into(), track: XBitTrack::Source, op: BitOp::Toggle, expire: 10, hostbits: false };
        for tested in [false, true] {
            // It ends at 50 s; the packet comes at 100 s.
            hosts.set(key, 0, Time::new(40, 0), 10);
            assert!(!tested || !hosts.is_set(key, 0, Time::new(60, 0)));
            apply(std::slice::from_ref(&toggle), &mut names, &mut vars, &mut hosts);
            assert_eq!(hosts.is_set(key, 0, Time::new(105, 0)), tested);
        }
    }

    /// Suricata's behaviour for unset integers and below zero.
    #[test]
    fn integers() {
        let (mut names, mut vars, mut hosts) = (Names::default(), FlowVars::default(), HostVars::new(1, 1));
        let int = |name: &str, op| Effect::FlowInt { name: name.into(), op };
        let n = FlowIntValue::Number;
        let v = |s: &str| FlowIntValue::Variable(s.into());
        let list = [
            int("a", FlowIntOp::Subtract(n(1))),
            int("b", FlowIntOp::Add(n(3))),
            int("b", FlowIntOp::Subtract(n(5))),
            int("c", FlowIntOp::Set(v("unset"))),
            int("c", FlowIntOp::Add(v("b"))),
        ];
        apply(&list, &mut names, &mut vars, &mut hosts);
        let get = |names: &mut Names, s: &str| vars.int(names.intern(s));
        assert_eq!(get(&mut names, "a"), None);
        assert_eq!(get(&mut names, "b"), Some(u32::MAX - 1));
        assert_eq!(get(&mut names, "c"), Some(u32::MAX - 1));
        assert_eq!(get(&mut names, "unset"), None);
    }

    #[test]
    fn the_rest() {
        let (mut names, mut vars, mut hosts) = (Names::default(), FlowVars::default(), HostVars::new(1, 1));
        let done = apply(&[Effect::Bypass, Effect::NfqMark { mark: 2, mask: 3 }], &mut names, &mut vars, &mut hosts);
        assert_eq!(done, (true, Some((2, 3))));
        let tag = Effect::Tag(Tag { scope: TagScope::Session, count: 0, unit: TagUnit::Packets });
        assert_eq!(CompiledEffect::compile(&tag, &mut names), Ok(None));
        let other = Effect::Other { keyword: "filestore".into(), argument: String::new() };
        assert!(CompiledEffect::compile(&other, &mut names).is_err());
        // Without a flow the effect does nothing and does not panic.
        let p = packet();
        let mut t = EffectTarget { packet: &p, flow: None, hosts: None, bypass: false, mark: None, tx: None };
        let e = Effect::FlowBit { names: vec!["a".into()], op: BitOp::Set };
        CompiledEffect::compile(&e, &mut names).expect("compiles").expect("is ours").apply(&mut t);
    }
}
