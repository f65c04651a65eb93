//! Reads rule files and says what became of them: `check [--available a,b] [--quiet] FILE…`.

use std::collections::HashMap;
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use margay_rules::{Context, Loader};

fn main() -> ExitCode {
    let mut ctx = Context::default();
    let vars = [
        ("HOME_NET", "[192.168.0.0/16,10.0.0.0/8,172.16.0.0/12]"),
        ("EXTERNAL_NET", "!$HOME_NET"),
        ("AIM_SERVERS", "$EXTERNAL_NET"),
    ];
    ctx.addresses = vars.map(|(a, b)| (a.to_owned(), b.to_owned())).into();
    for s in ["HTTP", "SMTP", "SQL", "DNS", "TELNET", "DC"] {
        ctx.addresses.insert(format!("{s}_SERVERS"), "$HOME_NET".to_owned());
    }
    for s in ["DNP3", "MODBUS", "ENIP"] {
        for e in ["CLIENT", "SERVER"] {
            ctx.addresses.insert(format!("{s}_{e}"), "$HOME_NET".to_owned());
        }
    }
    let ports = [
        ("HTTP_PORTS", "80"),
        ("SHELLCODE_PORTS", "!80"),
        ("ORACLE_PORTS", "1521"),
        ("SSH_PORTS", "22"),
        ("DNP3_PORTS", "20000"),
        ("MODBUS_PORTS", "502"),
        ("FILE_DATA_PORTS", "[$HTTP_PORTS,110,143]"),
        ("FTP_PORTS", "21"),
        ("GENEVE_PORTS", "6081"),
        ("VXLAN_PORTS", "4789"),
        ("TEREDO_PORTS", "3544"),
        ("SIP_PORTS", "[5060, 5061]"),
    ];
    ctx.ports = ports.map(|(a, b)| (a.to_owned(), b.to_owned())).into();
    let mut files = Vec::new();
    let mut quiet = false;
    let mut args = std::env::args().skip(1);
    while let Some(a) = args.next() {
        match a.as_str() {
            "--quiet" => quiet = true,
            "--available" => {
                ctx.available = args.next().unwrap_or_default().split(',').map(str::to_owned).collect();
            }
            _ => files.push(a),
        }
    }
    let start = Instant::now();
    let mut loader = Loader::new(&ctx);
    for f in &files {
        if let Err(e) = loader.load_file(Path::new(f)) {
            eprintln!("{f}: {e}");
            return ExitCode::FAILURE;
        }
    }
    let l = loader.finish();
    let took = start.elapsed();
    if !quiet {
        for e in &l.errors {
            println!("{e}");
        }
        for s in &l.skipped {
            println!("{}:{}: skipped: {}", s.place.file, s.place.line, s.reason);
        }
        for w in l.warnings.iter().take(20) {
            println!("{}:{}: warning: {}: {}", w.place.file, w.place.line, w.message.module, w.message.text);
        }
    }
    let mut missing: HashMap<&str, usize> = HashMap::new();
    for r in &l.set_aside {
        for m in &r.missing {
            *missing.entry(m).or_default() += 1;
        }
    }
    let mut missing: Vec<_> = missing.into_iter().collect();
    missing.sort_by_key(|m| std::cmp::Reverse(m.1));
    println!(
        "{} rules to match with, {} set aside, {} failed, {} silent, {} skipped, {} replaced, {} warnings, in {took:?}",
        l.rules.len(),
        l.set_aside.len(),
        l.failed(),
        l.errors.len() - l.failed(),
        l.skipped.len(),
        l.replaced,
        l.warnings.len(),
    );
    let shown: Vec<_> = missing.iter().take(12).map(|(k, n)| format!("{k} {n}")).collect();
    println!("missing: {}", shown.join(", "));
    if l.failed() == 0 { ExitCode::SUCCESS } else { ExitCode::from(1) }
}
