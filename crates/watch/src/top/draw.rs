//! Draws a snapshot on a terminal.

use std::collections::VecDeque;

use ratatui::Frame;
use ratatui::crossterm::event::KeyCode;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Cell, Clear, Paragraph, Row, Sparkline, Table};

use super::format::{bits, bytes, count, cut, duration};
use crate::model::{Grade, Snapshot};

/// Limit of the seconds that the graph shows.
const GRAPH: usize = 600;

const KEYS: &str = "\
q, Esc, Ctrl-C   quit
p, Space         pause, and go on
1 2 3 4, Tab     overview, alerts, traffic, health
Up, Down, j, k   move in a list
h, ?             these keys";

/// The view.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Page {
    Overview,
    Alerts,
    Traffic,
    Health,
}

const PAGES: [(Page, &str); 4] = [
    (Page::Overview, "1 overview"),
    (Page::Alerts, "2 alerts"),
    (Page::Traffic, "3 traffic"),
    (Page::Health, "4 health"),
];

/// The state of the display, and the user's choices.
pub(super) struct View {
    colours: bool,
    page: Page,
    paused: bool,
    keys: bool,
    from: usize,
    shown: Snapshot,
    /// Packets per second, the newest first.
    packets: VecDeque<u64>,
    problem: Option<String>,
}

impl View {
    pub(super) fn new(colours: bool) -> View {
        View {
            colours,
            page: Page::Overview,
            paused: false,
            keys: false,
            from: 0,
            shown: Snapshot::default(),
            packets: VecDeque::new(),
            problem: None,
        }
    }

    pub(super) fn is_paused(&self) -> bool {
        self.paused
    }

    /// Takes a new snapshot, or the reason that there is none. In that case the old one stays.
    pub(super) fn take(&mut self, new: Result<Snapshot, String>) {
        match new {
            Ok(s) => {
                if s.time != self.shown.time {
                    self.packets.push_front(s.now.packets as u64);
                    self.packets.truncate(GRAPH);
                }
                self.shown = s;
                self.problem = None;
            }
            Err(e) => self.problem = Some(e),
        }
    }

    /// Handles a key. Returns `false` if it quits the view.
    pub(super) fn key(&mut self, key: KeyCode) -> bool {
        let turn = |page: Page, by: usize| {
            let at = PAGES.iter().position(|p| p.0 == page).unwrap_or(0);
            PAGES.get((at + by) % PAGES.len()).map_or(page, |p| p.0)
        };
        let before = self.page;
        match key {
            KeyCode::Char('q') | KeyCode::Esc if !self.keys => return false,
            KeyCode::Char('q') | KeyCode::Esc => self.keys = false,
            KeyCode::Char('h' | '?') => self.keys = !self.keys,
            KeyCode::Char('p' | ' ') => self.paused = !self.paused,
            KeyCode::Char(c @ '1'..='4') => self.page = turn(Page::Overview, c as usize - '1' as usize),
            KeyCode::Tab | KeyCode::Right => self.page = turn(self.page, 1),
            KeyCode::BackTab | KeyCode::Left => self.page = turn(self.page, PAGES.len() - 1),
            KeyCode::Down | KeyCode::Char('j') => self.from = self.from.saturating_add(1),
            KeyCode::Up | KeyCode::Char('k') => self.from = self.from.saturating_sub(1),
            _ => {}
        }
        if before != self.page {
            self.from = 0;
        }
        true
    }

    fn colour(&self, c: Color) -> Style {
        if self.colours { Style::new().fg(c) } else { Style::new() }
    }

    /// The style of a problem.
    fn alarm(&self) -> Style {
        if self.colours {
            Style::new().fg(Color::Red).add_modifier(Modifier::BOLD)
        } else {
            Style::new().add_modifier(Modifier::BOLD)
        }
    }

    fn share(&self, percent: f64) -> Style {
        match percent {
            p if p >= 90.0 => self.alarm(),
            p if p >= 70.0 => self.colour(Color::Yellow),
            _ => Style::new(),
        }
    }

    /// Draws everything.
    pub(super) fn draw(&mut self, frame: &mut Frame<'_>) {
        let [head, body, foot] =
            Layout::vertical([Constraint::Length(3), Constraint::Min(3), Constraint::Length(1)]).areas(frame.area());
        frame.render_widget(Paragraph::new(self.head(usize::from(head.width))), head);
        match self.page {
            Page::Overview => self.overview(frame, body),
            Page::Alerts => self.alerts(frame, body),
            Page::Traffic => self.traffic(frame, body),
            Page::Health => self.health(frame, body),
        }
        frame.render_widget(Paragraph::new(self.foot()), foot);
        if self.keys {
            let [width, height] = [58.min(frame.area().width), 7.min(frame.area().height)];
            let area = Rect::new((frame.area().width - width) / 2, (frame.area().height - height) / 2, width, height);
            frame.render_widget(Clear, area);
            frame.render_widget(Paragraph::new(KEYS).block(Block::bordered().title("Keys")), area);
        }
    }

    fn head(&self, width: usize) -> Vec<Line<'static>> {
        let (s, a, n) = (&self.shown, &self.shown.about, &self.shown.now);
        let bold = Style::new().add_modifier(Modifier::BOLD);
        let from = if a.interfaces.is_empty() { a.capture.clone() } else { a.interfaces.join(",") };
        let lost = if n.lost > 0.0 { self.alarm() } else { Style::new() };
        vec![
            Line::from(vec![
                Span::styled(format!("margay {}", a.version), bold),
                Span::raw(cut(
                    &format!("  up {}  {} {from}  rules {}", duration(s.uptime), a.mode, a.rules_loaded),
                    width.saturating_sub(16),
                )),
            ]),
            Line::from(vec![
                Span::styled(format!("{}/s", count(n.packets)), bold),
                Span::raw(format!(" packets  {}  ", bits(n.bits))),
                Span::styled(format!("lost {}/s", count(n.lost)), lost),
                Span::raw(format!(
                    "  alerts {}/s  flows {} (+{}/s)",
                    count(n.alerts),
                    count(n.flows as f64),
                    count(n.new_flows)
                )),
            ]),
            Line::from(vec![
                Span::raw(format!("cpu {:.0}%  memory {}  ", n.cpu, bytes(s.resident as f64))),
                Span::styled(format!("limits {:.0}%", n.pressure), self.share(n.pressure)),
                Span::raw(format!(
                    "  all: {} packets, {} lost, {} alerts",
                    count(s.totals.packets as f64),
                    count(s.totals.lost as f64),
                    count(s.totals.alerts as f64)
                )),
            ]),
        ]
    }

    fn foot(&self) -> Line<'static> {
        if let Some(p) = &self.problem {
            return Line::styled(p.clone(), self.alarm());
        }
        let mut spans: Vec<Span<'static>> = Vec::new();
        for (page, name) in PAGES {
            let style = if page == self.page { Style::new().add_modifier(Modifier::REVERSED) } else { Style::new() };
            spans.push(Span::styled(format!(" {name} "), style));
        }
        spans.push(Span::raw(if self.paused { "  PAUSED (p goes on)" } else { "  h keys  q quit" }));
        Line::from(spans)
    }

    fn table(
        &self,
        title: &'static str,
        head: &[&'static str],
        widths: &[Constraint],
        rows: Vec<Row<'static>>,
    ) -> Table<'static> {
        let header = Row::new(head.to_vec()).style(self.colour(Color::Cyan).add_modifier(Modifier::BOLD));
        let rows: Vec<Row<'static>> = rows.into_iter().skip(self.from).collect();
        Table::new(rows, widths.to_vec()).header(header).block(Block::bordered().title(title)).column_spacing(1)
    }

    fn overview(&self, frame: &mut Frame<'_>, area: Rect) {
        let stages = u16::try_from(self.shown.stages.len()).unwrap_or(8).min(8);
        let [graph, losses, rest] = Layout::vertical([
            Constraint::Length(5),
            Constraint::Length(if stages == 0 { 0 } else { stages + 3 }),
            Constraint::Min(4),
        ])
        .areas(area);
        let newest: Vec<u64> = self.packets.iter().copied().take(usize::from(graph.width)).collect();
        let most = newest.iter().max().copied().unwrap_or(0);
        let line = Sparkline::default()
            .data(newest.iter().rev().copied().collect::<Vec<_>>())
            .style(self.colour(Color::Green))
            .block(Block::bordered().title(format!("packets/s, most {}", count(most as f64))));
        frame.render_widget(line, graph);
        let right = |t: String| Cell::from(Line::from(t).right_aligned());
        let rows = self.shown.stages.iter().map(|g| {
            let style = if g.rate > 0.0 {
                self.alarm()
            } else if g.lost > 0 {
                self.colour(Color::Yellow)
            } else {
                Style::new()
            };
            let received = g.received.map_or("-".into(), |n| n.to_string());
            Row::new(vec![
                Cell::from(cut(&g.interface, 15)),
                Cell::from(g.stage.clone()),
                right(received),
                right(g.lost.to_string()),
                right(count(g.rate)),
            ])
            .style(style)
        });
        let widths = [
            Constraint::Length(15),
            Constraint::Length(8),
            Constraint::Fill(2),
            Constraint::Fill(1),
            Constraint::Length(9),
        ];
        // The table of stages does not scroll.
        let still = View { from: 0, ..View::new(self.colours) };
        frame.render_widget(
            still.table("losses", &["interface", "stage", "received", "lost", "lost/s"], &widths, rows.collect()),
            losses,
        );
        let [left, side] = Layout::horizontal([Constraint::Fill(3), Constraint::Fill(2)]).areas(rest);
        let rows = self.shown.workers.iter().map(|w| {
            let style = if w.lost > 0.0 { self.alarm() } else { self.share(w.cpu) };
            Row::new(vec![
                Cell::from(cut(&w.name, 16)),
                right(format!("{:.0}", w.cpu)),
                right(count(w.packets)),
                right(count(w.lost)),
                right(count(w.flows as f64)),
            ])
            .style(style)
        });
        let widths = [
            Constraint::Fill(1),
            Constraint::Length(4),
            Constraint::Length(7),
            Constraint::Length(6),
            Constraint::Length(6),
        ];
        frame.render_widget(
            self.table("workers", &["worker", "cpu%", "pkts/s", "lost/s", "flows"], &widths, rows.collect()),
            left,
        );
        let rows = self.shown.memory.iter().map(|m| {
            let percent = if m.cap == 0 { 0.0 } else { m.used as f64 * 100.0 / m.cap as f64 };
            let short = m.name.trim_end_matches(".memcap").trim_start_matches("app-layer.protocols.").to_owned();
            let of = if m.cap == 0 { "no limit".into() } else { format!("{percent:.0}%") };
            Row::new(vec![Cell::from(short), right(bytes(m.used as f64)), right(of)]).style(self.share(percent))
        });
        let widths = [Constraint::Fill(1), Constraint::Length(9), Constraint::Length(8)];
        frame.render_widget(self.table("memory", &["limit", "used", "of it"], &widths, rows.collect()), side);
    }

    fn alerts(&self, frame: &mut Frame<'_>, area: Rect) {
        let [top, last] = Layout::vertical([Constraint::Fill(1), Constraint::Fill(1)]).areas(area);
        let right = |t: String| Cell::from(Line::from(t).right_aligned());
        let rows = self.shown.top_alerts.iter();
        let rows = rows.map(|a| {
            Row::new(vec![right(count(a.count as f64)), right(a.sid.to_string()), Cell::from(cut(&a.message, 200))])
        });
        let widths = [Constraint::Length(8), Constraint::Length(10), Constraint::Fill(1)];
        frame.render_widget(
            self.table(
                "rules that alerted most, last 10 to 20 minutes",
                &["count", "sid", "message"],
                &widths,
                rows.collect(),
            ),
            top,
        );
        let rows = self.shown.recent.iter().map(|r| {
            let style = if r.severity == 1 { self.alarm() } else { Style::new() };
            let time = r.time.get(11..19).unwrap_or(&r.time).to_owned();
            Row::new(vec![
                Cell::from(time),
                Cell::from(cut(&r.message, 200)),
                Cell::from(r.source.clone()),
                Cell::from(r.destination.clone()),
            ])
            .style(style)
        });
        let widths = [Constraint::Length(8), Constraint::Fill(2), Constraint::Fill(1), Constraint::Fill(1)];
        frame.render_widget(
            self.table("last alerts", &["time", "message", "from", "to"], &widths, rows.collect()),
            last,
        );
    }

    fn traffic(&self, frame: &mut Frame<'_>, area: Rect) {
        let profiled = !self.shown.rules.is_empty();
        let [talk, protocols, rules] =
            Layout::vertical([Constraint::Fill(1), Constraint::Fill(1), Constraint::Fill(u16::from(profiled))])
                .areas(area);
        let right = |t: String| Cell::from(Line::from(t).right_aligned());
        let rows = self.shown.talkers.iter();
        let rows = rows.map(|t| {
            Row::new(vec![Cell::from(t.address.clone()), right(bytes(t.bytes as f64)), right(count(t.alerts as f64))])
        });
        let widths = [Constraint::Fill(1), Constraint::Length(12), Constraint::Length(8)];
        frame.render_widget(
            self.table(
                "addresses with most bytes, last 10 to 20 minutes",
                &["address", "bytes", "alerts"],
                &widths,
                rows.collect(),
            ),
            talk,
        );
        let rows = self.shown.protocols.iter().map(|p| {
            Row::new(vec![
                Cell::from(p.name.clone()),
                right(count(p.flows as f64)),
                right(count(p.rate)),
                right(count(p.transactions as f64)),
                right(count(p.errors as f64)),
            ])
        });
        let widths = [
            Constraint::Fill(1),
            Constraint::Length(10),
            Constraint::Length(10),
            Constraint::Length(13),
            Constraint::Length(8),
        ];
        frame.render_widget(
            self.table(
                "protocols",
                &["protocol", "flows", "flows/s", "transactions", "errors"],
                &widths,
                rows.collect(),
            ),
            protocols,
        );
        if profiled {
            let rows = self.shown.rules.iter().map(|r| {
                Row::new(vec![
                    right(format!("{:.1}", r.percent)),
                    right(r.sid.to_string()),
                    right(count(r.checks as f64)),
                    right(count(r.ticks)),
                    Cell::from(cut(&r.message, 200)),
                ])
            });
            let widths = [
                Constraint::Length(6),
                Constraint::Length(10),
                Constraint::Length(9),
                Constraint::Length(9),
                Constraint::Fill(1),
            ];
            frame.render_widget(
                self.table(
                    "rules that cost most",
                    &["cost%", "sid", "checks", "ticks", "message"],
                    &widths,
                    rows.collect(),
                ),
                rules,
            );
        }
    }

    fn health(&self, frame: &mut Frame<'_>, area: Rect) {
        let mut lines: Vec<Line<'static>> = Vec::new();
        for f in &self.shown.findings {
            let (word, style) = match f.grade {
                Grade::Now => ("now ", self.alarm()),
                Grade::Past => ("past", self.colour(Color::Yellow)),
                Grade::Note => ("note", Style::new()),
            };
            let rate = if f.rate > 0.0 { format!(", {}/s", count(f.rate)) } else { String::new() };
            lines.push(Line::styled(format!("{word} {} {}{rate}", f.counter, f.count), style));
            lines.push(Line::raw(format!("     {}", f.what)));
            lines.push(Line::raw(format!("     to do: {}", f.advice)));
        }
        if lines.is_empty() {
            lines.push(Line::raw("nothing was lost, and no limit was reached"));
        }
        let from = u16::try_from(self.from.min(lines.len().saturating_sub(1))).unwrap_or(0);
        let text = Paragraph::new(lines).wrap(ratatui::widgets::Wrap { trim: false }).scroll((from, 0));
        frame.render_widget(text.block(Block::bordered().title("health")), area);
    }
}

#[cfg(test)]
pub(super) mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;
    use crate::model::{About, Finding, Memory, Point, Protocol, Recent, RuleCost, Stage, Talker, TopAlert, Worker};

    /// A snapshot with an entry of every kind.
    pub(in crate::top) fn picture() -> Snapshot {
        let stage = |stage: &str, lost, rate| Stage {
            interface: "eth0".into(),
            stage: stage.into(),
            received: Some(12_345_678),
            lost,
            rate,
        };
        Snapshot {
            time: 1,
            uptime: 90_061,
            about: About {
                version: "0.1.0".into(),
                mode: "workers".into(),
                interfaces: vec!["eth0".into()],
                rules_loaded: 40_000,
                ..About::default()
            },
            now: Point {
                packets: 123_456.0,
                bits: 2.5e9,
                lost: 7.0,
                alerts: 1000.0,
                flows: 4321,
                pressure: 93.0,
                ..Point::default()
            },
            stages: vec![stage("card", 0, 0.0), stage("ring", 77, 7.0), stage("engine", 0, 0.0)],
            workers: vec![Worker { name: "W#01-eth0".into(), cpu: 99.0, packets: 61_000.0, ..Worker::default() }],
            memory: vec![Memory { name: "flow.memcap".into(), used: 93 << 20, cap: 100 << 20 }],
            top_alerts: vec![TopAlert {
                gid: 1,
                sid: 2_100_498,
                message: "ET SCAN something".into(),
                count: 42,
                error: 0,
            }],
            recent: vec![Recent {
                time: "2026-01-02T03:04:05.6".into(),
                message: "\u{1b}[31mred".into(),
                source: "10.0.0.7:1".into(),
                severity: 1,
                ..Recent::default()
            }],
            talkers: vec![Talker { address: "10.0.0.7".into(), bytes: 5 << 30, error: 0, alerts: 42 }],
            protocols: vec![Protocol { name: "dns_udp".into(), flows: 9, ..Protocol::default() }],
            rules: vec![RuleCost {
                gid: 1,
                sid: 7,
                message: "slow".into(),
                percent: 61.0,
                checks: 9,
                matches: 1,
                ticks: 5.0,
            }],
            findings: vec![Finding {
                grade: Grade::Now,
                counter: "eth0 ring".into(),
                count: 77,
                rate: 7.0,
                what: "the ring is full".into(),
                advice: "raise threads".into(),
            }],
            ..Snapshot::default()
        }
    }

    fn screen(view: &mut View, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|f| view.draw(f)).unwrap();
        let buffer = terminal.backend().buffer();
        let line = |y: u16| (0..width).map(|x| buffer[(x, y)].symbol().to_owned()).collect::<String>() + "\n";
        (0..height).map(line).collect()
    }

    #[test]
    fn each_page_shows_its_subject_in_80_columns() {
        let mut view = View::new(true);
        view.take(Ok(picture()));
        for (key, words) in [
            (
                '1',
                &["123k/s", "2.5 Gbit/s", "lost 7/s", "ring", "12345678", "W#01-eth0", "flow", "93%", "1d 01:01:01"][..],
            ),
            ('2', &["ET SCAN something", "2100498", "03:04:05", "·[31mred", "10.0.0.7:1"]),
            ('3', &["10.0.0.7", "5.0 GiB", "dns_udp", "slow"]),
            ('4', &["eth0 ring 77, 7/s", "the ring is full", "to do: raise threads"]),
        ] {
            assert!(view.key(KeyCode::Char(key)));
            let screen = screen(&mut view, 80, 24);
            for word in words {
                assert!(screen.contains(word), "{word} is not in\n{screen}");
            }
        }
    }

    #[test]
    fn keys() {
        let mut view = View::new(true);
        view.take(Ok(picture()));
        assert!(view.key(KeyCode::Char('?')));
        assert!(screen(&mut view, 80, 24).contains("these keys"));
        assert!(view.key(KeyCode::Esc) && !view.keys, "closes the keys");
        assert!(view.key(KeyCode::Char('p')) && view.is_paused());
        assert!(screen(&mut view, 80, 24).contains("PAUSED"));
        for _ in 0..PAGES.len() {
            assert!(view.key(KeyCode::Tab));
        }
        assert!(view.page == Page::Overview && view.key(KeyCode::BackTab) && view.page == Page::Health);
        assert!(view.key(KeyCode::Down) && view.from == 1 && view.key(KeyCode::Char('1')) && view.from == 0);
        assert!(!view.key(KeyCode::Char('q')));
    }

    #[test]
    fn an_engine_that_is_gone_is_said_and_the_last_picture_stays() {
        let mut view = View::new(false);
        view.take(Ok(picture()));
        view.take(Err("the engine closed the connection".into()));
        let screen = screen(&mut view, 80, 24);
        assert!(screen.contains("the engine closed the connection") && screen.contains("W#01-eth0"));
    }

    #[test]
    fn without_colours_there_are_none_and_small_windows_do_no_harm() {
        let mut view = View::new(false);
        view.take(Ok(picture()));
        for key in ['1', '2', '3', '4'] {
            view.key(KeyCode::Char(key));
            let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
            terminal.draw(|f| view.draw(f)).unwrap();
            let cells = terminal.backend().buffer().content();
            assert!(cells.iter().all(|c| c.fg == Color::Reset && c.bg == Color::Reset));
            for (w, h) in [(1, 1), (10, 4), (40, 10), (300, 80)] {
                screen(&mut view, w, h);
            }
        }
        view.key(KeyCode::Char('h'));
        screen(&mut view, 3, 2);
    }
}
