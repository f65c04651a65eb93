//! TRex's traffic profiles, as its manual describes them (stateful mode).

use std::net::IpAddr;
use std::path::Path;

use margay_config::typed::{parse_bool, parse_float, parse_int};
use margay_config::{ConfigError, Value, Yaml};

use super::addr::Pool;
use super::profile::{Profile, Source, Timing, What, count, cps, find, text, value};

/// Microseconds as nanoseconds.
fn micros(text: &str) -> Result<u64, String> {
    let n = parse_float(text)?;
    if (0.0..=1e12).contains(&n) {
        Ok((n * 1000.0) as u64)
    } else {
        Err(format!("'{text}' is no time in microseconds"))
    }
}

fn address(text: &str) -> Result<IpAddr, String> {
    text.parse().map_err(|_| format!("'{text}' is not an IP address"))
}

pub(super) fn read(items: &[Yaml], dir: &Path, name: String) -> Result<Profile, ConfigError> {
    let mut p = Profile::empty(name);
    let [yaml] = items else {
        let place = items.get(1).or(items.first());
        let reason = "a TRex profile is a list with one entry, which holds 'cap_info'";
        return Err(match place {
            Some(y) => y.error(reason),
            None => ConfigError::new(margay_config::Place::file(&p.name), reason),
        });
    };
    let Some(Yaml { value: Value::List(templates), place }) = yaml.get("cap_info") else {
        return Err(yaml.error("the TRex profile has no list 'cap_info'"));
    };
    if templates.is_empty() {
        return Err(ConfigError::new(place.clone(), "'cap_info' names no template"));
    }
    let (mut cap_ipg, mut least, mut instead) = (true, None, None);
    for (key, y) in yaml.map() {
        let k = key.as_str();
        match k {
            "cap_info" => {}
            "duration" => {
                p.duration = Some(value(y, k, |t| match parse_float(t)? {
                    s if s > 0.0 && s < 31_536_000.0 => Ok((s * 1e9) as u64),
                    _ => Err("it must be more than 0 and less than a year".into()),
                })?);
            }
            "generator" => generator(&mut p, y)?,
            "mac" => mac(&mut p, y)?,
            "cap_ipg" => cap_ipg = value(y, k, parse_bool)?,
            "cap_ipg_min" => least = Some(value(y, k, micros)?),
            "cap_override_ipg" => instead = Some(value(y, k, micros)?),
            _ => p.notes.push(format!("{}: '{k}' is not used here", y.place)),
        }
    }
    for item in templates {
        let source = template(item, dir, (cap_ipg, least, instead), &mut p.notes)?;
        p.sources.push(source);
    }
    p.name_sources();
    Ok(p)
}

fn generator(p: &mut Profile, yaml: &Yaml) -> Result<(), ConfigError> {
    let mut ends = [None; 4];
    for (key, y) in yaml.map() {
        let k = key.as_str();
        match k {
            "distribution" => {
                p.random = value(y, k, |t| match t {
                    "seq" => Ok(false),
                    "random" => Ok(true),
                    _ => Err(format!("'{t}' is neither seq nor random")),
                })?;
            }
            "clients_start" => ends[0] = Some(value(y, k, address)?),
            "clients_end" => ends[1] = Some(value(y, k, address)?),
            "servers_start" => ends[2] = Some(value(y, k, address)?),
            "servers_end" => ends[3] = Some(value(y, k, address)?),
            "dual_port_mask" => {
                p.copy_mask = value(y, k, |t| match address(t)? {
                    IpAddr::V4(a) => Ok(u32::from(a)),
                    IpAddr::V6(_) => Err("it is written as an IPv4 address, such as 1.0.0.0".into()),
                })?;
            }
            "clients_per_gb" | "min_clients" => {
                let n = value(y, k, parse_int)?;
                p.notes.push(format!("{}: '{k}: {n}': the whole range of clients is used, whatever the rate", y.place));
            }
            "tcp_aging" | "udp_aging" => {
                let n = value(y, k, parse_float)?;
                if n > 0.0 {
                    p.notes.push(format!(
                        "{}: '{k}': a client uses its 64512 ports in turn, so that none comes back before the others had theirs",
                        y.place
                    ));
                }
            }
            _ => p.notes.push(format!("{}: '{k}' is not used here", y.place)),
        }
    }
    let [Some(c0), Some(c1), Some(s0), Some(s1)] = ends else {
        return Err(yaml.error("'generator' needs clients_start, clients_end, servers_start and servers_end"));
    };
    for (from, to, client) in [(c0, c1, true), (s0, s1, false)] {
        let pool = Pool::range(from, to).map_err(|e| yaml.error(e))?;
        match (client, pool.is_ipv6()) {
            (true, false) => p.pools.clients = pool,
            (false, false) => p.pools.servers = pool,
            (true, true) => p.pools.clients6 = pool,
            (false, true) => p.pools.servers6 = pool,
        }
    }
    Ok(())
}

/// The client side's MAC address; the server side's is the next one.
fn mac(p: &mut Profile, yaml: &Yaml) -> Result<(), ConfigError> {
    let fail = || yaml.error("'mac' is a list of six bytes, such as [0x0,0x0,0x0,0x1,0x0,0x00]");
    let Value::List(items) = &yaml.value else { return Err(fail()) };
    let bytes: Vec<u8> = items
        .iter()
        .map(|y| parse_int(text(y, "mac")?).ok().and_then(|n| u8::try_from(n).ok()).ok_or_else(fail))
        .collect::<Result<_, _>>()?;
    let client: [u8; 6] = bytes.try_into().map_err(|_| fail())?;
    let mut server = client;
    server[5] = server[5].wrapping_add(1);
    p.pools.macs = [client, server];
    Ok(())
}

fn template(
    item: &Yaml,
    dir: &Path,
    (cap_ipg, least, instead): (bool, Option<u64>, Option<u64>),
    notes: &mut Vec<String>,
) -> Result<Source, ConfigError> {
    let (mut path, mut rate, mut ipg, mut rtt) = (None, None, 10_000_000, None);
    let (mut one, mut server) = (false, None);
    let mut s = Source::new(String::new(), What::Attack(0), 1.0, 0);
    for (key, y) in item.map() {
        let k = key.as_str();
        match k {
            "name" => path = Some(value(y, k, |t| find(dir, t))?),
            "cps" => rate = Some(value(y, k, cps)?),
            "ipg" => ipg = value(y, k, micros)?,
            "rtt" => rtt = Some(value(y, k, micros)?),
            "w" => s.burst = value(y, k, count)?,
            "limit" => s.limit = Some(value(y, k, count)?),
            "one_app_server" => one = value(y, k, parse_bool)?,
            "server_addr" => server = Some(value(y, k, address)?),
            // 1 is RTSP with its RTP, 2 is SIP with its RTP: several flows of one client.
            "plugin_id" => s.one_client = matches!(value(y, k, parse_int)?, 1 | 2),
            _ => notes.push(format!("{}: '{k}' is not used here", y.place)),
        }
    }
    let path = path.ok_or_else(|| item.error("the template has no 'name' (its capture)"))?;
    s.cps = rate.ok_or_else(|| item.error("the template has no 'cps' (connections a second)"))?;
    if one {
        s.one_server = Some(server);
    }
    s.rtt = rtt.unwrap_or(ipg);
    s.timing = if !cap_ipg {
        Timing::Paced { gap: ipg, turn: s.rtt }
    } else if let Some(least) = least {
        Timing::MinGap(least, instead.unwrap_or(least))
    } else {
        Timing::Template
    };
    s.name = path.file_stem().map_or_else(String::new, |s| s.to_string_lossy().into_owned());
    s.what = What::Capture(path);
    Ok(s)
}
