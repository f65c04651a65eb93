//! Draws the machine in the style of `lstopo`: packages, memory nodes, caches, cores and their threads, and a sensor's
//! interfaces with their queues, workers, interrupts and management threads.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::facts::{Facts, Interface, Topology};
use super::list;
use super::plan::Placement;
use crate::chart::escaped;

/// Size of a thread's box, and the space of a core around its threads.
const THREAD: (f64, f64) = (72.0, 30.0);
const CORE: f64 = 80.0;
/// Size of a queue's box.
const QUEUE: (f64, f64) = (62.0, 22.0);
/// Most cores or queues in a line.
const LINE: usize = 8;
const GAP: f64 = 8.0;
const TITLE: f64 = 20.0;
/// Light colours that most people can tell apart (Okabe and Ito).
const WORKER: &str = "#9ecae9";
const INTERRUPT: &str = "#f7c46c";
const MANAGEMENT: &str = "#a6d8c3";
const FREE: &str = "#ffffff";
const BOXES: [&str; 5] = ["#f6f6f4", "#ececdf", "#e3e8ee", "#f4efe6", "#fbfbfa"];

/// The roles of CPUs.
#[derive(Default)]
struct Roles {
    /// `W1 eth1`, by CPU.
    workers: BTreeMap<usize, Vec<String>>,
    /// `eth1 q0`, by CPU.
    interrupts: BTreeMap<usize, Vec<String>>,
    management: Vec<usize>,
    /// The CPU of each queue, by interface.
    queues: BTreeMap<String, Vec<String>>,
}

/// The planned roles, or else the current ones: interrupts by their affinity, workers by the engine's configuration.
fn roles(facts: &Facts, placement: Option<&Placement>) -> Roles {
    let mut out = Roles::default();
    let mut planned: Vec<&String> = Vec::new();
    for port in placement.iter().flat_map(|placement| &placement.ports) {
        for (at, cpu) in port.workers.iter().enumerate() {
            out.workers.entry(*cpu).or_default().push(format!("W{} {}", at + 1, port.interfaces[0]));
        }
        for name in &port.interfaces {
            planned.push(name);
            for (queue, cpu) in port.interrupts.iter().enumerate() {
                out.interrupts.entry(*cpu).or_default().push(format!("{name} q{queue}"));
                out.queues.entry(name.clone()).or_default().push(cpu.to_string());
            }
        }
    }
    if let Some(placement) = placement {
        out.management.clone_from(&placement.management);
    }
    for (name, interface) in facts.interfaces.iter().filter(|(name, _)| !planned.contains(name)) {
        for (queue, state) in &interface.queues {
            if let [cpu] = state.cpus[..] {
                out.interrupts.entry(cpu).or_default().push(format!("{name} q{queue}"));
            }
            let to = if state.interrupt.is_some() { list::show(&state.cpus) } else { String::new() };
            out.queues.entry(name.clone()).or_default().push(to);
        }
    }
    if placement.is_none() {
        let set = |name: &str| {
            let settings = facts.engine.iter().flat_map(|engine| &engine.settings);
            let of = settings.filter(|(setting, _)| setting.contains(&format!("{name}-cpu-set.cpu.")));
            of.flat_map(|(_, value)| list::parse(value)).collect::<Vec<_>>()
        };
        for (at, cpu) in set("worker").into_iter().enumerate() {
            out.workers.entry(cpu).or_default().push(format!("W{}", at + 1));
        }
        out.management = set("management");
    }
    out
}

#[derive(Default)]
struct Canvas {
    out: String,
}

impl Canvas {
    fn rect(&mut self, (x, y): (f64, f64), (w, h): (f64, f64), fill: &str, title: &str) {
        let _ = write!(
            self.out,
            "<rect x=\"{x:.0}\" y=\"{y:.0}\" width=\"{w:.0}\" height=\"{h:.0}\" rx=\"2\" fill=\"{fill}\" stroke=\"#777\"><title>{}</title></rect>",
            escaped(title)
        );
        self.out.push('\n');
    }

    fn text(&mut self, (x, y): (f64, f64), size: f64, anchor: &str, text: &str) {
        let _ = writeln!(
            self.out,
            "<text x=\"{x:.0}\" y=\"{y:.0}\" font-size=\"{size}\" text-anchor=\"{anchor}\">{}</text>",
            escaped(text)
        );
    }

    fn boxed(&mut self, at: (f64, f64), size: (f64, f64), depth: usize, title: &str) {
        self.rect(at, size, BOXES[depth], title);
        self.text((at.0 + 6.0, at.1 + 14.0), 12.0, "start", title);
    }
}

/// Draws something at a position.
type Draw<'a> = Box<dyn Fn(&mut Canvas, (f64, f64)) + 'a>;

/// Something with a size that can be drawn at any position.
struct Block<'a> {
    size: (f64, f64),
    draw: Draw<'a>,
}

/// Arranges blocks in lines of at most `width`, within a box with a title.
fn framed<'a>(blocks: Vec<Block<'a>>, width: f64, depth: usize, title: String) -> Block<'a> {
    let mut places = Vec::new();
    let (mut x, mut y, mut line, mut widest) = (GAP, TITLE + 2.0, 0.0f64, 0.0f64);
    for block in &blocks {
        if x > GAP && x + block.size.0 > width {
            (x, y, line) = (GAP, y + line + GAP, 0.0);
        }
        places.push((x, y));
        x += block.size.0 + GAP;
        line = line.max(block.size.1);
        widest = widest.max(x);
    }
    // Make room for the title.
    let size = (widest.max(title.chars().count() as f64 * 6.8 + 12.0), y + line + GAP);
    Block {
        size,
        draw: Box::new(move |canvas, at| {
            canvas.boxed(at, size, depth, &title);
            for (block, place) in blocks.iter().zip(&places) {
                (block.draw)(canvas, (at.0 + place.0, at.1 + place.1));
            }
        }),
    }
}

fn bytes(n: u64) -> String {
    match n {
        n if n >= 1 << 30 => format!("{} GiB", n >> 30),
        n if n >= 1 << 20 => format!("{} MiB", n >> 20),
        n => format!("{} KiB", n >> 10),
    }
}

fn core<'a>(topology: &Topology, roles: &'a Roles, threads: Vec<usize>) -> Block<'a> {
    let number = threads.first().and_then(|cpu| topology.cpus.get(cpu)).map_or(0, |cpu| cpu.core);
    let size = (CORE, 18.0 + threads.len() as f64 * (THREAD.1 + 4.0));
    Block {
        size,
        draw: Box::new(move |canvas, at| {
            canvas.rect(at, size, BOXES[4], &format!("core {number}"));
            canvas.text((at.0 + 4.0, at.1 + 12.0), 10.0, "start", &format!("core {number}"));
            for (line, cpu) in threads.iter().enumerate() {
                let at = (at.0 + 4.0, at.1 + 16.0 + line as f64 * (THREAD.1 + 4.0));
                thread(canvas, roles, at, *cpu);
            }
        }),
    }
}

fn thread(canvas: &mut Canvas, roles: &Roles, at: (f64, f64), cpu: usize) {
    let none = Vec::new();
    let (workers, interrupts) = (roles.workers.get(&cpu).unwrap_or(&none), roles.interrupts.get(&cpu).unwrap_or(&none));
    let management = roles.management.contains(&cpu);
    let mut title = format!("CPU {cpu}");
    for word in workers.iter().chain(interrupts) {
        title += &format!(", {word}");
    }
    if management {
        title += ", management";
    }
    let fill = match (workers.is_empty(), interrupts.is_empty(), management) {
        (false, ..) => WORKER,
        (_, false, _) => INTERRUPT,
        (_, _, true) => MANAGEMENT,
        _ => FREE,
    };
    canvas.rect(at, THREAD, fill, &title);
    // A CPU with both roles has a bar in the interrupts' colour.
    if !workers.is_empty() && !interrupts.is_empty() {
        canvas.rect((at.0, at.1 + THREAD.1 - 5.0), (THREAD.0, 5.0), INTERRUPT, &title);
    }
    canvas.text((at.0 + 4.0, at.1 + 12.0), 11.0, "start", &cpu.to_string());
    let words = match (workers.as_slice(), interrupts.as_slice()) {
        ([worker, ..], _) => worker.clone(),
        (_, [one]) => one.clone(),
        (_, [one, ..]) => format!("{one} +{}", interrupts.len() - 1),
        _ if management => "manage".to_owned(),
        _ => String::new(),
    };
    canvas.text((at.0 + 4.0, at.1 + 23.0), 8.0, "start", &short(&words, 13));
}

fn short(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        text.to_owned()
    } else {
        format!("{}…", text.chars().take(most - 1).collect::<String>())
    }
}

fn card<'a>(name: &'a str, interface: &'a Interface, roles: &'a Roles) -> Block<'a> {
    let queues: &[String] = roles.queues.get(name).map_or(&[], Vec::as_slice);
    let speed = interface.speed.map_or_else(String::new, |speed| format!(" {} Gbit/s", speed as f64 / 1000.0));
    let driver = if interface.driver.name.is_empty() { String::new() } else { format!(" ({})", interface.driver.name) };
    let mut title = format!("{name}{driver}{speed}");
    if !interface.protected.is_empty() {
        title += ": left alone";
    }
    let queue = |(at, to): (usize, &String)| {
        let text = if to.is_empty() { format!("q{at}") } else { format!("q{at} → {}", short(to, 6)) };
        let title = if to.is_empty() {
            format!("{name} queue {at}")
        } else {
            format!("{name} queue {at}, interrupt on CPU {to}")
        };
        Block {
            size: QUEUE,
            draw: Box::new(move |canvas: &mut Canvas, at: (f64, f64)| {
                canvas.rect(at, QUEUE, if title.contains("interrupt") { INTERRUPT } else { FREE }, &title);
                canvas.text((at.0 + 4.0, at.1 + 14.0), 9.0, "start", &text);
            }),
        }
    };
    let blocks = queues.iter().enumerate().map(queue).collect();
    framed(blocks, LINE as f64 * (QUEUE.0 + GAP) + GAP, 3, title)
}

/// A memory node: its caches with their cores, and the interfaces at it.
fn node<'a>(facts: &'a Facts, roles: &'a Roles, id: usize, cpus: &[usize], cards: Vec<Block<'a>>) -> Block<'a> {
    let topology = &facts.topology;
    let mut cores: BTreeMap<(usize, Vec<usize>), Vec<usize>> = BTreeMap::new();
    for cpu in cpus {
        let cache = topology.caches.iter().position(|cache| cache.cpus.contains(cpu)).unwrap_or(usize::MAX);
        let threads = topology.cpus.get(cpu).map(|cpu| cpu.threads.clone()).unwrap_or_default();
        cores.entry((cache, threads)).or_default().push(*cpu);
    }
    let mut groups: BTreeMap<usize, Vec<Block<'a>>> = BTreeMap::new();
    for ((cache, _), threads) in cores {
        groups.entry(cache).or_default().push(core(topology, roles, threads));
    }
    let width = LINE as f64 * (CORE + GAP) + GAP;
    let mut blocks: Vec<Block<'a>> = Vec::new();
    for (cache, cores) in groups {
        let title = topology
            .caches
            .get(cache)
            .map_or_else(|| "cores".to_owned(), |c| format!("L{} {}", c.level, bytes(c.size)));
        blocks.push(framed(cores, width, 2, title));
    }
    blocks.extend(cards);
    let memory = topology.nodes.get(&id).map_or(0, |node| node.memory);
    let memory = if memory > 0 { format!(", {}", bytes(memory)) } else { String::new() };
    framed(blocks, width * 2.0 + 3.0 * GAP, 1, format!("memory node {id}{memory}"))
}

/// The picture as an SVG document: the planned state if there is a plan, otherwise the current one.
pub(crate) fn svg(facts: &Facts, placement: Option<&Placement>) -> String {
    let roles = roles(facts, placement);
    let topology = &facts.topology;
    let mut packages: BTreeMap<usize, BTreeMap<usize, Vec<usize>>> = BTreeMap::new();
    for (id, cpu) in &topology.cpus {
        packages.entry(cpu.package).or_default().entry(cpu.node).or_default().push(*id);
    }
    let mut blocks = Vec::new();
    let at = |name: &str, id: usize| facts.interfaces.get(name).is_some_and(|interface| interface.node == Some(id));
    for (package, nodes) in &packages {
        let mut inside = Vec::new();
        for (id, cpus) in nodes {
            let cards = facts.interfaces.iter().filter(|(name, _)| at(name, *id));
            let cards = cards.map(|(name, interface)| card(name, interface, &roles)).collect();
            inside.push(node(facts, &roles, *id, cpus, cards));
        }
        // Nodes below each other.
        let width = inside.iter().map(|block| block.size.0).fold(0.0, f64::max) + 2.0 * GAP;
        blocks.push(framed(inside, width, 0, format!("package {package}")));
    }
    let elsewhere = facts.interfaces.iter().filter(|(_, interface)| {
        interface.node.is_none_or(|node| !packages.values().any(|nodes| nodes.contains_key(&node)))
    });
    blocks.extend(elsewhere.map(|(name, interface)| card(name, interface, &roles)));
    let kernel = format!("Linux {}", facts.host.kernel);
    let parts = [facts.host.product.as_str(), &facts.host.processor, &kernel, &bytes(facts.host.memory)];
    let title = parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", ");
    let machine = framed(blocks, f64::INFINITY, 0, title);
    let (width, height) = (machine.size.0 + 2.0 * GAP, machine.size.1 + 2.0 * GAP + 30.0);
    let mut canvas = Canvas::default();
    let _ = writeln!(
        canvas.out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" viewBox=\"0 0 {width:.0} {height:.0}\" \
         font-family=\"sans-serif\">\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>"
    );
    (machine.draw)(&mut canvas, (GAP, GAP));
    let mut x = GAP;
    let legend = [(WORKER, "worker"), (INTERRUPT, "interrupt"), (MANAGEMENT, "management"), (FREE, "others")];
    for (fill, word) in legend {
        canvas.rect((x, height - 26.0), (18.0, 14.0), fill, word);
        canvas.text((x + 24.0, height - 15.0), 11.0, "start", word);
        x += 110.0;
    }
    canvas.out += "</svg>\n";
    canvas.out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tune::discover::{Options, discover};
    use crate::tune::plan;

    /// The titled boxes in the picture.
    fn boxes(svg: &str, begins: &str) -> Vec<(f64, f64, f64, f64)> {
        let number = |line: &str, name: &str| {
            let rest = line.split_once(&format!(" {name}=\"")).map(|(_, rest)| rest).unwrap();
            rest.split('"').next().unwrap().parse::<f64>().unwrap()
        };
        let lines = svg.lines().filter(|line| line.contains(&format!("<title>{begins}")));
        lines
            .map(|line| (number(line, "x"), number(line, "y"), number(line, "width"), number(line, "height")))
            .collect()
    }

    #[test]
    fn recorded_machines_are_drawn() {
        for (name, machine, goal) in plan::machines() {
            let facts = discover(&machine, &machine.tree, &Options::default());
            let plan = plan::plan(&facts, &goal);
            let drawn = svg(&facts, Some(&plan.placement));
            if let Some(folder) = std::env::var_os("PICTURES") {
                std::fs::write(std::path::Path::new(&folder).join(format!("{name}.svg")), &drawn).unwrap();
            }
            resvg::usvg::Tree::from_str(&drawn, &resvg::usvg::Options::default()).unwrap();
            // Every CPU appears once, without overlaps and within the picture. Bars over workers are not CPU boxes.
            let cpus: Vec<_> = boxes(&drawn, "CPU ").into_iter().filter(|one| one.3 > 6.0).collect();
            assert_eq!(cpus.len(), facts.topology.cpus.len(), "{name}");
            for (at, a) in cpus.iter().enumerate() {
                for b in &cpus[at + 1..] {
                    let apart = a.0 + a.2 <= b.0 || b.0 + b.2 <= a.0 || a.1 + a.3 <= b.1 || b.1 + b.3 <= a.1;
                    assert!(apart, "{name}: {a:?} {b:?}");
                }
            }
            for port in &plan.placement.ports {
                assert!(drawn.contains(&format!("W1 {}", port.interfaces[0])), "{name}");
                for interface in &port.interfaces {
                    assert_eq!(boxes(&drawn, &format!("{interface} queue ")).len(), port.interrupts.len(), "{name}");
                }
            }
            for interface in facts.interfaces.keys() {
                assert!(drawn.contains(interface.as_str()), "{name}: {interface}");
            }
            // In the current state there is no worker.
            let now = svg(&facts, None);
            assert!(!now.contains("W1 ") && now.contains("</svg>"), "{name}");
        }
        assert!(svg(&Facts::default(), None).contains("</svg>"));
    }
}
