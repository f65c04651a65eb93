//! The report as one HTML page: sentences and tables first, then conversations and rules that open on a click.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::cases::Must;
use super::report::{COLUMNS, Sums, by, sentences, techniques};
use super::results::{Line, Run, Verdict};

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:72rem;padding:0 1rem;color:#1c2430}\
h1{font-size:1.6rem}h2{margin-top:2rem;font-size:1.2rem}table{border-collapse:collapse;width:100%}\
td,th{padding:.3rem .6rem;border-bottom:1px solid #dde3ea;text-align:left;vertical-align:top}\
.n{text-align:right;font-variant-numeric:tabular-nums}.ok{color:#11703b}.bad{color:#b3261e;font-weight:600}\
.cards{display:flex;gap:1rem;flex-wrap:wrap;margin:1rem 0}.card{border:1px solid #dde3ea;border-radius:.5rem;padding:.6rem 1rem;min-width:8rem}\
.card b{display:block;font-size:1.6rem}summary{cursor:pointer}details details{margin-left:1.2rem}\
pre{white-space:pre-wrap;word-break:break-all;background:#f5f7f9;padding:.5rem;margin:.2rem 0;max-height:16rem;overflow:auto}";
/// Most conversations with the required outcome that are shown for each defence. All others are shown.
const SHOWN: usize = 12;

/// Escapes text for HTML.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c => out.push(c),
        }
    }
    out
}

/// The page.
pub(super) fn page(run: &Run, lines: &[Line]) -> String {
    let mut out = format!(
        "<!DOCTYPE html><html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\
         <title>Attacks stopped</title><style>{STYLE}</style>\n<h1>What was stopped, missed, and stopped by mistake</h1>\n<ul>"
    );
    for sentence in sentences(run, lines) {
        let _ = write!(out, "<li>{}", escaped(&sentence));
    }
    out.push_str("</ul>\n");
    cards(&mut out, &Sums::of(lines), run);
    out.push_str(
        "<details><summary>How to read this</summary><p>Each attack is a conversation between addresses of its own. <b>Stopped</b>: a rule \
         blocked it, and data of it never arrived. <b>Noticed</b>: it arrived, and a rule alerted. <b>Missed</b>: it arrived, and no rule said \
         anything. <b>Lost</b>: data of it is missing, and no rule is the reason, so that it says nothing about rules. Conversations that <b>must \
         pass</b> are as near to an attack as ordinary traffic comes. An attack of several techniques is counted for each.</p></details>\n",
    );
    table(&mut out, "By class", &by(lines, |line| vec![line.truth.class.as_str()]));
    let rows = by(lines, techniques);
    if !rows.is_empty() {
        table(&mut out, "By technique", &rows);
    }
    harm(&mut out, run);
    conversations(&mut out, run, lines);
    let _ = writeln!(out, "<p>Engine {}, capture {}.</p></html>", escaped(&run.engine), escaped(&run.capture));
    out
}

fn cards(out: &mut String, s: &Sums, run: &Run) {
    out.push_str("<div class=\"cards\">");
    let mut card = |name: &str, value: String, bad: bool| {
        let _ =
            write!(out, "<div class=\"card\">{name}<b{}>{value}</b></div>", if bad { " class=\"bad\"" } else { "" });
    };
    for (name, value) in COLUMNS.into_iter().zip(s.values()) {
        card(name, value.to_string(), value > 0 && ["missed", "lost", "stopped by mistake"].contains(&name));
    }
    if let Some(with) = &run.with {
        card(
            "sessions harmed",
            format!("{} of {}", with.blocked + with.incomplete, with.sessions),
            with.blocked + with.incomplete > 0,
        );
        if run.live {
            card("loss", format!("{:.3} %", with.loss() * 100.0), with.loss() > 0.0);
        }
    }
    out.push_str("</div>\n");
}

fn table(out: &mut String, title: &str, rows: &BTreeMap<&str, Sums>) {
    let _ = write!(out, "<h2>{title}</h2><table><tr><th>{}", title.trim_start_matches("By "));
    for column in COLUMNS {
        let _ = write!(out, "<th class=\"n\">{column}");
    }
    out.push_str("</tr>\n");
    for (key, sums) in rows {
        let _ = write!(out, "<tr><td>{}", escaped(key));
        for (value, column) in sums.values().into_iter().zip(COLUMNS) {
            let bad = value > 0 && ["missed", "lost", "stopped by mistake"].contains(&column);
            let _ = write!(out, "<td class=\"n{}\">{value}", if bad { " bad" } else { "" });
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</table>\n");
}

/// A rule's sid, which shows the rule's text on a click.
fn rule(out: &mut String, run: &Run, sid: u32) {
    match run.rules.get(&sid) {
        Some(text) => {
            let _ = write!(out, "<details><summary>rule {sid}</summary><pre>{}</pre></details>", escaped(text));
        }
        None => {
            let _ = write!(out, "<p>rule {sid}</p>");
        }
    }
}

fn harm(out: &mut String, run: &Run) {
    if run.harm.is_empty() {
        return;
    }
    out.push_str("<h2>Rules that blocked other traffic</h2>\n");
    for (sid, sessions) in &run.harm {
        let _ = write!(out, "<p class=\"bad\">{sessions} sessions</p>");
        rule(out, run, *sid);
    }
}

/// Every defence, or class of requests, with its conversations. Wrong outcomes come first.
fn conversations(out: &mut String, run: &Run, lines: &[Line]) {
    let mut groups: BTreeMap<(bool, &str, &str), Vec<&Line>> = BTreeMap::new();
    for line in lines {
        let t = &line.truth;
        let name = if t.sid == 0 { t.file.as_str() } else { t.attack.as_str() };
        groups.entry((false, t.class.as_str(), name)).or_default().push(line);
    }
    // Groups with wrong outcomes come first.
    let groups: BTreeMap<_, _> =
        groups.into_iter().map(|((_, class, name), all)| ((all.iter().all(|l| l.good()), class, name), all)).collect();
    out.push_str("<h2>Conversations</h2>\n");
    for ((good, class, name), mut all) in groups {
        all.sort_by_key(|line| line.good());
        let wrong = all.iter().filter(|line| !line.good()).count();
        let shown = wrong + SHOWN.min(all.len() - wrong);
        let used: BTreeSet<&str> = all.iter().flat_map(|line| techniques(line)).collect();
        let used = used.into_iter().collect::<Vec<_>>().join(", ");
        let _ = write!(
            out,
            "<details><summary class=\"{}\">{} ({}{}{}): {} conversations, {wrong} not as they must be</summary>",
            if good { "ok" } else { "bad" },
            escaped(name),
            escaped(class),
            if used.is_empty() { "" } else { "; " },
            escaped(&used),
            all.len()
        );
        for line in all.iter().take(shown) {
            conversation(out, run, line);
        }
        if all.len() > shown {
            let _ = write!(out, "<p>and {} more as they must be</p>", all.len() - shown);
        }
        out.push_str("</details>\n");
    }
}

fn conversation(out: &mut String, run: &Run, line: &Line) {
    let must = match line.truth.must {
        Must::Stop => "attack, to be stopped",
        Must::Notice => "attack, to be noticed",
        Must::Pass => "must pass",
    };
    let verdict = match line.verdict {
        Verdict::Stopped => "stopped",
        Verdict::Noticed => "arrived, with an alert",
        Verdict::Passed => "arrived",
        Verdict::Lost => "lost for no rule",
    };
    let arrived =
        line.arrived.map_or_else(String::new, |[sent, came]| format!(" ({came} of {sent} packets that matter)"));
    let why = if line.dropped_for.is_empty() {
        String::new()
    } else {
        format!(", which the engine itself dropped ({})", escaped(&line.dropped_for.join(", ")))
    };
    let t = &line.truth;
    let _ = write!(
        out,
        "<p class=\"{}\">{must}: {verdict}{arrived}{why}; {}, {} to {}</p>",
        if line.good() { "ok" } else { "bad" },
        escaped(&t.attack),
        t.src_ip,
        t.dest_ip
    );
    // If no rule matched an attack, show the one that should have.
    let own = if line.truth.must != Must::Pass && line.noticed_by.is_empty() && t.sid != 0 {
        vec![t.sid]
    } else {
        Vec::new()
    };
    for sid in line.noticed_by.iter().chain(&own) {
        rule(out, run, *sid);
    }
    let _ = write!(out, "<pre>{}</pre>", escaped(&t.text));
}

#[cfg(test)]
mod tests {
    use super::super::report::tests::sample;
    use super::*;

    #[test]
    fn the_page_is_whole_and_nothing_of_a_conversation_is_markup() {
        let (run, lines) = sample();
        let page = page(&run, &lines);
        assert!(page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>\n"));
        assert!(page.contains("GET /?q=&lt;script&gt;&amp;") && !page.contains("<script"));
        assert!(
            page.contains("SQL &lt;injection&gt; (web; CWE-89, T1190): 6 conversations, 3 not as they must be"),
            "{page}"
        );
        assert!(page.contains(
            "<summary>rule 7</summary><pre>drop http any any -&gt; any any (msg:&quot;x&quot;; sid:7;)</pre>"
        ));
        assert!(!page.contains("http://") && !page.contains("https://"), "nothing is loaded from elsewhere");
        for tag in ["details", "table", "ul", "pre", "summary"] {
            let count = |text: &str| page.matches(text).count();
            assert_eq!(count(&format!("<{tag}")), count(&format!("</{tag}>")), "{tag}");
        }
    }
}
