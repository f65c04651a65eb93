//! Profiles: which sessions, how many a second, between which addresses. `docs/lab-traffic.md` describes the format.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use margay_config::typed::{parse_bool, parse_float, parse_int};
use margay_config::{ConfigError, Value, Yaml};

use super::addr::Pool;
use super::attack;
use super::kinds::Kind;
use super::template::Dir;
use super::units::{self, Rate};

/// Options of a kind of session; which of them apply depends on the kind.
#[derive(Clone, Debug, Default)]
pub(crate) struct Options {
    /// Server port.
    pub(crate) port: Option<u16>,
    /// Mean size of the transferred object; its meaning depends on the kind.
    pub(crate) bytes: Option<u64>,
    /// Number of requests in a session.
    pub(crate) requests: Option<u64>,
    /// Length of a call, in seconds.
    pub(crate) seconds: Option<f64>,
    /// Share of requests that upload rather than download.
    pub(crate) upload: f64,
    /// Whether a datagram is answered.
    pub(crate) answer: bool,
}

/// The template of a source.
#[derive(Clone, Debug)]
pub(crate) enum What {
    Capture(PathBuf),
    Kind(Kind, Options),
    /// Index of the attack in [`attack::ATTACKS`].
    Attack(usize),
}

/// When the packets of a session are sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Timing {
    /// As in the template.
    Template,
    /// As in the template, but gaps shorter than the first value are replaced by the second (nanoseconds).
    MinGap(u64, u64),
    /// A fixed gap between packets of one side, and another before the other side answers (nanoseconds).
    Paced { gap: u64, turn: u64 },
    /// As in the template, but each change of direction takes half of this round-trip time.
    RoundTrip(u64),
}

/// One template, kind or attack, with its rate and options.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    pub(crate) name: String,
    pub(crate) what: What,
    /// Sessions a second.
    pub(crate) cps: f64,
    pub(crate) timing: Timing,
    pub(crate) rtt: u64,
    pub(crate) ipv6: bool,
    /// Number of consecutive sessions between the same addresses.
    pub(crate) burst: u64,
    /// Number of different sessions; after them, the same sessions repeat.
    pub(crate) limit: Option<u64>,
    /// If set, all sessions go to one server: this one, or the pool's first for `Some(None)`.
    pub(crate) one_server: Option<Option<IpAddr>>,
    pub(crate) one_client: bool,
    pub(crate) variants: Option<u64>,
}

/// Simulated network faults, as shares of packets.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Impair {
    /// Packets that are not sent.
    pub(crate) loss: f64,
    /// Packets that are sent after their session's next packet, if that has the same direction.
    pub(crate) reorder: f64,
    /// Packets that are sent a second time shortly after.
    pub(crate) duplicate: f64,
    /// TCP segments with data that are sent again after 200 ms.
    pub(crate) retransmit: f64,
    /// Largest IP packet; larger ones become fragments.
    pub(crate) fragment: Option<u16>,
}

/// A profile.
#[derive(Clone, Debug)]
pub(crate) struct Profile {
    pub(crate) name: String,
    pub(crate) sources: Vec<Source>,
    pub(crate) pools: Pools,
    /// Random addresses instead of consecutive ones.
    pub(crate) random: bool,
    /// Sessions begin at random times (Poisson) instead of evenly.
    pub(crate) poisson: bool,
    pub(crate) impair: Impair,
    pub(crate) duration: Option<u64>,
    pub(crate) rate: Option<Rate>,
    pub(crate) seed: Option<u64>,
    /// Rules that belong to the traffic, such as those for its attacks.
    pub(crate) rules: Option<String>,
    /// Parallel copy number `n` adds `n` times this to each address (TRex: `dual_port_mask`).
    pub(crate) copy_mask: u32,
    /// Notes on settings of the file that are accepted but have no effect here.
    pub(crate) notes: Vec<String>,
}

/// Addresses of clients and servers.
#[derive(Clone, Debug)]
pub(crate) struct Pools {
    pub(crate) clients: Pool,
    pub(crate) servers: Pool,
    pub(crate) clients6: Pool,
    pub(crate) servers6: Pool,
    pub(crate) macs: [[u8; 6]; 2],
}

impl Pools {
    pub(crate) fn pool(&self, side: Dir, v6: bool) -> &Pool {
        match (side, v6) {
            (Dir::Client, false) => &self.clients,
            (Dir::Server, false) => &self.servers,
            (Dir::Client, true) => &self.clients6,
            (Dir::Server, true) => &self.servers6,
        }
    }
}

impl super::template::Addresses for Pools {
    fn address(&self, side: Dir, v6: bool, index: u64) -> IpAddr {
        self.pool(side, v6).get(index)
    }
    fn mac(&self, side: Dir) -> [u8; 6] {
        self.macs[side as usize]
    }
}

fn pool(text: &str) -> Pool {
    Pool::parse(text).unwrap_or_else(|_| {
        let any = IpAddr::V4(std::net::Ipv4Addr::new(16, 0, 0, 1));
        Pool::range(any, any).unwrap_or_else(|_| unreachable!("an address is a range"))
    })
}

impl Profile {
    pub(crate) fn empty(name: String) -> Profile {
        Profile {
            name,
            sources: Vec::new(),
            pools: Pools {
                clients: pool("16.0.0.1-16.0.3.254"),
                servers: pool("48.0.0.1-48.0.15.254"),
                clients6: pool("2001:db8:16::1-2001:db8:16::3fe"),
                servers6: pool("2001:db8:48::1-2001:db8:48::ffe"),
                macs: [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]],
            },
            random: false,
            poisson: false,
            impair: Impair::default(),
            duration: None,
            rate: None,
            seed: None,
            rules: None,
            copy_mask: 0x0100_0000,
            notes: Vec::new(),
        }
    }

    /// Reads a profile file in Margay's format or in one of TRex's.
    pub(crate) fn load(path: &Path) -> Result<Profile, ConfigError> {
        let yaml = Yaml::load(path)?;
        let dir = path.parent().map(Path::to_path_buf).unwrap_or_default();
        let name = path.file_stem().map_or_else(|| "profile".into(), |s| s.to_string_lossy().into_owned());
        Profile::read(&yaml, &dir, name)
    }

    /// Reads a profile from parsed YAML. Template files are looked up from `dir`, see [`find`].
    pub(crate) fn read(yaml: &Yaml, dir: &Path, name: String) -> Result<Profile, ConfigError> {
        match &yaml.value {
            Value::List(items) => super::trex::read(items, dir, name),
            Value::Map(_) => own(yaml, dir, name),
            _ => Err(yaml.error(
                "this is no profile: it is a mapping with 'templates', or a TRex profile, which is a list with 'cap_info'",
            )),
        }
    }
}

/// Finds a template's file: relative to the profile's folder, to its parent (TRex's profiles name files relative to TRex's
/// own folder), or to the current folder.
pub(crate) fn find(dir: &Path, name: &str) -> Result<PathBuf, String> {
    let mut tried = Vec::new();
    let up = dir.join("..");
    for base in [dir, &up, Path::new("")] {
        let path = base.join(name);
        if path.exists() {
            return Ok(path);
        }
        tried.push(path.display().to_string());
    }
    tried.dedup();
    Err(format!("the template '{name}' is not there; looked for {}", tried.join(", ")))
}

/// A scalar's text.
pub(crate) fn text<'a>(y: &'a Yaml, what: &str) -> Result<&'a str, ConfigError> {
    y.text().ok_or_else(|| y.error(format!("'{what}' takes one value")))
}

/// A scalar's text, parsed by `parse`.
pub(crate) fn value<T>(y: &Yaml, what: &str, parse: impl Fn(&str) -> Result<T, String>) -> Result<T, ConfigError> {
    parse(text(y, what)?).map_err(|e| y.error(format!("'{what}': {e}")))
}

pub(crate) fn count(text: &str) -> Result<u64, String> {
    parse_int(text)
        .and_then(|n| u64::try_from(n).map_err(|_| format!("'{text}' is negative")))
        .and_then(|n| if n == 0 { Err("it must be at least 1".into()) } else { Ok(n) })
}

pub(crate) fn cps(text: &str) -> Result<f64, String> {
    let n = parse_float(text)?;
    if n > 0.0 && n <= 1e9 { Ok(n) } else { Err(format!("'{text}' is not a rate of sessions: more than 0, up to 1e9")) }
}

fn port(text: &str) -> Result<u16, String> {
    count(text).and_then(|n| u16::try_from(n).map_err(|_| format!("'{text}' is no port (1 to 65535)")))
}

fn mac(text: &str) -> Result<[u8; 6], String> {
    let fail = || format!("'{text}' is not a MAC address such as 02:00:00:00:00:01");
    let parts: Vec<u8> =
        text.split(':').map(|p| u8::from_str_radix(p, 16)).collect::<Result<_, _>>().map_err(|_| fail())?;
    parts.try_into().map_err(|_| fail())
}

fn own(yaml: &Yaml, dir: &Path, name: String) -> Result<Profile, ConfigError> {
    let mut p = Profile::empty(name);
    let (mut rtt, mut attacks, mut templates) = (20_000_000, None, None);
    for (key, y) in yaml.map() {
        let k = key.as_str();
        match k {
            "name" => p.name = text(y, k)?.to_owned(),
            "rtt" => rtt = value(y, k, units::duration)?,
            "clients" | "servers" | "clients6" | "servers6" => {
                let pool = value(y, k, Pool::parse)?;
                if pool.is_ipv6() != k.ends_with('6') {
                    return Err(y.error(format!("'{k}' holds addresses of the other family")));
                }
                match k {
                    "clients" => p.pools.clients = pool,
                    "servers" => p.pools.servers = pool,
                    "clients6" => p.pools.clients6 = pool,
                    _ => p.pools.servers6 = pool,
                }
            }
            "macs" => {
                for (side, y) in y.map() {
                    match side.as_str() {
                        "client" => p.pools.macs[0] = value(y, side, mac)?,
                        "server" => p.pools.macs[1] = value(y, side, mac)?,
                        _ => return Err(y.error(format!("'macs' has 'client' and 'server', not '{side}'"))),
                    }
                }
            }
            "distribution" => {
                p.random = value(y, k, |t| match t {
                    "seq" => Ok(false),
                    "random" => Ok(true),
                    _ => Err(format!("'{t}' is neither seq nor random")),
                })?
            }
            "arrivals" => {
                p.poisson = value(y, k, |t| match t {
                    "even" => Ok(false),
                    "poisson" => Ok(true),
                    _ => Err(format!("'{t}' is neither even nor poisson")),
                })?
            }
            "duration" => p.duration = Some(value(y, k, units::duration)?),
            "rate" => p.rate = Some(value(y, k, units::rate)?),
            "seed" => p.seed = Some(value(y, k, |t| parse_int(t).map(|n| n as u64))?),
            "loss" => p.impair.loss = value(y, k, units::share)?,
            "reorder" => p.impair.reorder = value(y, k, units::share)?,
            "duplicate" => p.impair.duplicate = value(y, k, units::share)?,
            "retransmit" => p.impair.retransmit = value(y, k, units::share)?,
            "fragment" => {
                let n = value(y, k, count)?;
                if !(68..=65_535).contains(&n) {
                    return Err(y.error("'fragment' is the largest IP packet in bytes, from 68 to 65535"));
                }
                p.impair.fragment = Some(n as u16);
            }
            "rules" => p.rules = Some(text(y, k)?.to_owned()),
            "attacks" => attacks = Some(y),
            "templates" => templates = Some(y),
            _ => return Err(y.error(unknown(k, "a profile", TOP))),
        }
    }
    match templates {
        Some(Yaml { value: Value::List(items), .. }) if !items.is_empty() => {
            for item in items {
                p.sources.push(template(item, dir, rtt)?);
            }
        }
        Some(y) => return Err(y.error("'templates' is a list with at least one template")),
        None if attacks.is_none() => return Err(yaml.error("the profile has no 'templates'")),
        None => {}
    }
    if let Some(y) = attacks {
        read_attacks(&mut p, y, rtt)?;
    }
    p.name_sources();
    Ok(p)
}

const TOP: &str = "name, rtt, clients, servers, clients6, servers6, macs, distribution, arrivals, duration, rate, seed, loss, \
                   reorder, duplicate, retransmit, fragment, rules, attacks, templates";

fn unknown(key: &str, of: &str, known: &str) -> String {
    format!("'{key}' is no setting of {of}; there are {known}")
}

fn template(item: &Yaml, dir: &Path, rtt: u64) -> Result<Source, ConfigError> {
    let (mut what, mut rate, mut name, mut o) = (None, None, None, Options::default());
    let (mut timing, mut own_rtt, mut gap) = (None, None, None);
    let mut s = Source::new(String::new(), What::Attack(0), 1.0, rtt);
    for (key, y) in item.map() {
        let k = key.as_str();
        match k {
            "capture" => what = Some(What::Capture(value(y, k, |t| find(dir, t))?)),
            "kind" => what = Some(What::Kind(value(y, k, Kind::parse)?, Options::default())),
            "name" => name = Some(text(y, k)?.to_owned()),
            "cps" => rate = Some(value(y, k, cps)?),
            "rtt" => own_rtt = Some(value(y, k, units::duration)?),
            "gap" => gap = Some(value(y, k, units::duration)?),
            "timing" => {
                timing = Some(value(y, k, |t| match t {
                    "template" | "rtt" | "paced" => Ok(t.to_owned()),
                    _ => Err(format!("'{t}' is none of template, rtt, paced")),
                })?)
            }
            "ipv6" => s.ipv6 = value(y, k, parse_bool)?,
            "burst" => s.burst = value(y, k, count)?,
            "limit" => s.limit = Some(value(y, k, count)?),
            "server" => {
                s.one_server =
                    Some(Some(value(y, k, |t| t.parse().map_err(|_| format!("'{t}' is not an IP address")))?));
            }
            "one-client" => s.one_client = value(y, k, parse_bool)?,
            "variants" => s.variants = Some(value(y, k, count)?.min(10_000)),
            "port" => o.port = Some(value(y, k, port)?),
            "bytes" => o.bytes = Some(value(y, k, units::size)?),
            "requests" => {
                o.requests = Some(value(y, k, |t| {
                    count(t).and_then(|n| if n <= 100_000 { Ok(n) } else { Err("at most 100000".into()) })
                })?);
            }
            "seconds" => {
                o.seconds = Some(value(y, k, |t| match units::duration(t)? as f64 / 1e9 {
                    n if n > 0.0 && n <= 3600.0 => Ok(n),
                    _ => Err("a call is at most an hour".into()),
                })?);
            }
            "upload" => o.upload = value(y, k, units::share)?,
            "answer" => o.answer = value(y, k, parse_bool)?,
            _ => {
                let known = "capture, kind, name, cps, rtt, timing, gap, ipv6, burst, limit, server, one-client, variants, \
                             port, bytes, requests, seconds, upload, answer";
                return Err(y.error(unknown(k, "a template", known)));
            }
        }
    }
    s.cps = rate.ok_or_else(|| item.error("the template has no 'cps' (sessions a second)"))?;
    let most = |kind: Kind| if kind == Kind::Elephant { u64::MAX } else { 64 << 20 };
    s.what = match what {
        Some(What::Kind(kind, _)) => {
            if o.bytes.is_some_and(|b| b > most(kind)) {
                return Err(item.error("'bytes' is at most 64 MiB here; the kind 'elephant' takes any number"));
            }
            What::Kind(kind, o)
        }
        Some(what) => what,
        None => return Err(item.error("the template has neither 'capture' nor 'kind'")),
    };
    s.rtt = own_rtt.unwrap_or(rtt);
    s.timing = match (timing.as_deref(), &s.what) {
        (Some("paced"), _) => Timing::Paced { gap: gap.unwrap_or(10_000), turn: s.rtt / 2 },
        (Some("rtt"), _) => Timing::RoundTrip(s.rtt),
        (None, What::Capture(_)) if own_rtt.is_some() => Timing::RoundTrip(s.rtt),
        _ => Timing::Template,
    };
    s.name = name.unwrap_or_else(|| match &s.what {
        What::Capture(path) => path.file_stem().map_or_else(String::new, |s| s.to_string_lossy().into_owned()),
        What::Kind(kind, _) => kind.name().to_owned(),
        What::Attack(_) => String::new(),
    });
    Ok(s)
}

impl Source {
    pub(crate) fn new(name: String, what: What, cps: f64, rtt: u64) -> Source {
        Source {
            name,
            what,
            cps,
            timing: Timing::Template,
            rtt,
            ipv6: false,
            burst: 1,
            limit: None,
            one_server: None,
            one_client: false,
            variants: None,
        }
    }
}

/// Reads `attacks`: their share of all sessions, and which ones.
fn read_attacks(p: &mut Profile, yaml: &Yaml, rtt: u64) -> Result<(), ConfigError> {
    let (mut share, mut names, mut rate) = (None, Vec::new(), None);
    for (key, y) in yaml.map() {
        match key.as_str() {
            "share" => share = Some(value(y, key, units::share)?),
            "cps" => rate = Some(value(y, key, cps)?),
            "kinds" => {
                let Value::List(items) = &y.value else { return Err(y.error("'kinds' is a list of attacks")) };
                for item in items {
                    names.push(value(item, key, attack::parse)?);
                }
            }
            _ => return Err(y.error(unknown(key, "attacks", "share, cps, kinds"))),
        }
    }
    if names.is_empty() {
        names = (0..attack::ATTACKS.len()).collect();
    }
    let benign: f64 = p.sources.iter().map(|s| s.cps).sum();
    let total = match (share, rate) {
        (_, Some(cps)) => cps,
        (Some(share), None) if share < 1.0 && benign > 0.0 => benign * share / (1.0 - share),
        _ => {
            return Err(
                yaml.error("'attacks' needs a 'share' below 100 % of the sessions beside other templates, or 'cps'")
            );
        }
    };
    p.set_attacks(&names, total, rtt);
    Ok(())
}

impl Profile {
    /// Numbers sources that have the same name.
    pub(crate) fn name_sources(&mut self) {
        let mut seen = std::collections::HashMap::new();
        for s in &mut self.sources {
            let n: &mut u32 = seen.entry(s.name.clone()).or_default();
            *n += 1;
            if *n > 1 {
                s.name = format!("{}-{n}", s.name);
            }
        }
    }

    /// Adds attacks with `total` sessions a second together, and their rules.
    fn set_attacks(&mut self, which: &[usize], total: f64, rtt: u64) {
        for &n in which {
            let Some(a) = attack::ATTACKS.get(n) else { continue };
            self.sources.push(Source::new(a.name.to_owned(), What::Attack(n), total / which.len() as f64, rtt));
        }
        let rules = self.rules.get_or_insert_default();
        *rules += &attack::rules(which);
    }

    /// Changes the attacks' share of sessions. Returns false if the profile has no attacks, or nothing but attacks.
    pub(crate) fn attack_share(&mut self, share: f64) -> bool {
        let is = |s: &Source| matches!(s.what, What::Attack(_));
        let sum =
            |p: &Profile, attacks: bool| -> f64 { p.sources.iter().filter(|s| is(s) == attacks).map(|s| s.cps).sum() };
        let (bad, good) = (sum(self, true), sum(self, false));
        if bad <= 0.0 || good <= 0.0 || share >= 1.0 {
            return false;
        }
        let factor = good * share / (1.0 - share) / bad;
        for s in self.sources.iter_mut().filter(|s| is(s)) {
            s.cps *= factor;
        }
        self.sources.retain(|s| s.cps > 0.0);
        true
    }
}
