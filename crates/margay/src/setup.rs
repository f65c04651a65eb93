//! `margay setup`: writes a first configuration for this machine from a few answers. It downloads nothing and starts
//! nothing.

use std::ffi::OsString;
use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use margay_config::built_in;

pub(crate) const HELP: &str = "\
Usage: margay setup [OPTIONS]

Asks for the settings of a sensor, or takes them from the options, writes a short
configuration, and tests it. It downloads nothing and starts nothing.

  --interface IF    capture from this interface; inline takes two (--interface A --interface B)
  --home-net NETS   networks to protect, as in 10.0.0.0/8,192.168.0.0/16
  --mode passive|inline
                    passive inspects copies of packets; inline forwards between two
                    interfaces and can drop
  --rules FILE      rules to load (default: suricata-update's file,
                    /var/lib/margay/rules/suricata.rules)
  --output FILE     where to write it (default: /etc/margay/sensor.yaml for root, else
                    sensor.yaml)
  --force           replace an existing file
  --install         also write a systemd unit that runs it
  --unit-dir DIR    folder of systemd units (default: /etc/systemd/system)
  --yes             ask nothing, and use the default for every missing option
  -h, --help        this text

Exit status: 0 if the configuration was written and passes its test, 1 if not, 2 if the
arguments are invalid.
";

/// The rules file that suricata-update is configured to write (docs/rule-updates.md).
const RULES: &str = "/var/lib/margay/rules/suricata.rules";
const UNIT: &str = include_str!("../../../etc/margay.service");
const HOME_NET: &str = "10.0.0.0/8,172.16.0.0/12,192.168.0.0/16";

/// The options on the command line.
#[derive(Debug, Default, PartialEq, Eq)]
struct SetupOptions {
    interfaces: Vec<String>,
    home_net: Option<String>,
    mode: Option<Mode>,
    rules: Option<PathBuf>,
    output: Option<PathBuf>,
    unit_dir: Option<PathBuf>,
    force: bool,
    install: bool,
    yes: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Passive,
    Inline,
}

impl Mode {
    fn of(text: &str) -> Result<Mode, String> {
        match text {
            "passive" => Ok(Mode::Passive),
            "inline" => Ok(Mode::Inline),
            other => Err(format!("\"{other}\" is no mode: passive or inline")),
        }
    }
}

/// The values that the configuration needs.
#[derive(Debug, PartialEq, Eq)]
struct Answers {
    interfaces: Vec<String>,
    home_net: String,
    mode: Mode,
    rules: PathBuf,
}

/// The exit status and message of a failure.
type Ended = (u8, String);

fn misused(why: impl Into<String>) -> Ended {
    (2, why.into())
}

fn failed(why: impl Into<String>) -> Ended {
    (1, why.into())
}

/// Parses the arguments; `None` if they ask for help.
fn parse(args: impl Iterator<Item = OsString>) -> Result<Option<SetupOptions>, Ended> {
    let mut wishes = SetupOptions::default();
    let mut args = args.map(|a| a.into_string().map_err(|a| misused(format!("{} is not UTF-8", a.to_string_lossy()))));
    while let Some(arg) = args.next() {
        let arg = arg?;
        let (name, attached) = arg.split_once('=').map_or((arg.as_str(), None), |(n, v)| (n, Some(v.to_owned())));
        let mut value = || match attached.clone() {
            Some(v) => Ok(v),
            None => args.next().unwrap_or_else(|| Err(misused(format!("{name} needs a value")))),
        };
        match name {
            "-h" | "--help" => return Ok(None),
            "--interface" | "-i" => wishes.interfaces.push(value()?),
            "--home-net" => wishes.home_net = Some(value()?),
            "--mode" => wishes.mode = Some(Mode::of(&value()?).map_err(misused)?),
            "--rules" => wishes.rules = Some(value()?.into()),
            "--output" => wishes.output = Some(value()?.into()),
            "--unit-dir" => wishes.unit_dir = Some(value()?.into()),
            "--force" => wishes.force = true,
            "--install" => wishes.install = true,
            "--yes" => wishes.yes = true,
            other => return Err(misused(format!("unrecognized argument '{other}'"))),
        }
    }
    Ok(Some(wishes))
}

/// Serves `margay setup`.
pub(crate) fn run(args: impl Iterator<Item = OsString>) -> ExitCode {
    let done = parse(args).and_then(|wishes| match wishes {
        None => {
            crate::print::print(HELP);
            Ok(())
        }
        Some(wishes) => set_up(&wishes),
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err((status, why)) => {
            eprintln!("margay setup: {why}");
            if status == 2 {
                eprintln!("Try 'margay setup --help'.");
            }
            ExitCode::from(status)
        }
    }
}

fn set_up(wishes: &SetupOptions) -> Result<(), Ended> {
    let root = std::fs::metadata("/proc/self").is_ok_and(|m| std::os::unix::fs::MetadataExt::uid(&m) == 0);
    let usual = if root { "/etc/margay/sensor.yaml" } else { "sensor.yaml" };
    let output = wishes.output.clone().unwrap_or_else(|| usual.into());
    let output = std::path::absolute(&output).map_err(|e| failed(format!("{}: {e}", output.display())))?;
    if output.exists() && !wishes.force {
        return Err(failed(format!(
            "{} is there already: --force replaces it, --output FILE writes another",
            output.display()
        )));
    }
    let answers = ask(wishes, &interfaces(), &mut std::io::stdin().lock(), &mut std::io::stdout())?;
    check(&answers)?;
    let folder = output.parent().unwrap_or(Path::new("/"));
    std::fs::create_dir_all(folder).map_err(|e| failed(format!("cannot make {}: {e}", folder.display())))?;
    let defaults = defaults(folder)?;
    let text = configuration(&answers, &defaults);
    // The file replaces the old one only if it passes its test.
    let draft =
        folder.join(format!(".{}.{}", output.file_name().unwrap_or_default().to_string_lossy(), std::process::id()));
    let written = std::fs::write(&draft, &text).map_err(|e| failed(format!("cannot write {}: {e}", draft.display())));
    let tested = written.and_then(|()| test(&draft, &answers.rules));
    let placed = tested.and_then(|()| {
        std::fs::rename(&draft, &output).map_err(|e| failed(format!("cannot write {}: {e}", output.display())))
    });
    if let Err(e) = placed {
        let _ = std::fs::remove_file(&draft);
        return Err(e);
    }
    let mut words = format!("\nWrote {}, which passes its test.\n", output.display());
    if !answers.rules.exists() {
        words.push_str(&format!(
            "\n{} does not exist yet. suricata-update downloads rules (Debian's package of that name):\n\n  suricata-update \
             --suricata {} --suricata-conf {} --output {}\n",
            answers.rules.display(),
            program().display(),
            output.display(),
            answers.rules.parent().unwrap_or(Path::new(".")).display(),
        ));
    }
    if wishes.install {
        words.push_str(&install(&output, wishes.unit_dir.as_deref())?);
    } else {
        words.push_str(&format!(
            "\nTo run it now:\n\n  {} -c {} --af-packet\n\nAs a service: margay setup --install (see 'margay help setup').\n",
            program().display(),
            output.display()
        ));
    }
    crate::print::print(&words);
    Ok(())
}

/// The path of this program, as the unit file names it.
fn program() -> PathBuf {
    std::env::current_exe().unwrap_or_else(|_| "margay".into())
}

/// This machine's interfaces without the loopback, active ones first.
fn interfaces() -> Vec<String> {
    let entries = std::fs::read_dir("/sys/class/net").into_iter().flatten().flatten();
    let mut found: Vec<(bool, String)> = entries
        .map(|e| e.file_name().to_string_lossy().into_owned())
        .filter(|name| name != "lo" && Path::new("/sys/class/net").join(name).is_dir())
        .map(|name| {
            let state = std::fs::read_to_string(format!("/sys/class/net/{name}/operstate")).unwrap_or_default();
            (state.trim() == "down", name)
        })
        .collect();
    found.sort();
    found.into_iter().map(|(_, name)| name).collect()
}

/// Asks for every value that no option gives. With `--yes` it takes the defaults.
fn ask(
    wishes: &SetupOptions,
    there: &[String],
    input: &mut dyn BufRead,
    out: &mut dyn Write,
) -> Result<Answers, Ended> {
    let mut question = |what: &str, proposed: &str| -> Result<String, Ended> {
        if wishes.yes {
            return Ok(proposed.to_owned());
        }
        let shown = if proposed.is_empty() { String::new() } else { format!(" [{proposed}]") };
        write!(out, "{what}{shown}: ").and_then(|()| out.flush()).map_err(|e| failed(format!("cannot ask: {e}")))?;
        let mut line = String::new();
        let read = input.read_line(&mut line).map_err(|e| failed(format!("cannot read the answer: {e}")))?;
        if read == 0 {
            return Err(failed("standard input gives no answer: give options, or --yes (see 'margay setup --help')"));
        }
        Ok(if line.trim().is_empty() { proposed.to_owned() } else { line.trim().to_owned() })
    };
    let mode = match wishes.mode {
        Some(mode) => mode,
        None if wishes.interfaces.len() == 2 => Mode::Inline,
        None => Mode::of(&question("Passive (inspects copies of packets) or inline (can drop)", "passive")?)
            .map_err(failed)?,
    };
    let wanted = if mode == Mode::Inline { 2 } else { 1 };
    let mut interfaces = wishes.interfaces.clone();
    while interfaces.len() < wanted {
        let left: Vec<&String> = there.iter().filter(|i| !interfaces.contains(i)).collect();
        let proposed = left.first().map_or("", |i| i.as_str());
        let list = left.iter().map(|i| i.as_str()).collect::<Vec<_>>().join(", ");
        let what = if interfaces.is_empty() { "Interface" } else { "The other interface" };
        let answer = question(&format!("{what} (there are: {list})"), proposed)?;
        if answer.is_empty() {
            return Err(failed("no interface was found here: name one with --interface"));
        }
        interfaces.push(answer);
    }
    if interfaces.len() > wanted && mode == Mode::Inline {
        return Err(misused("inline mode needs two interfaces: name two"));
    }
    let home_net = match &wishes.home_net {
        Some(nets) => nets.clone(),
        None => question("Networks to protect", HOME_NET)?,
    };
    let rules = match &wishes.rules {
        Some(file) => file.clone(),
        None => PathBuf::from(question("File of rules", RULES)?),
    };
    let rules = std::path::absolute(&rules).map_err(|e| failed(format!("{}: {e}", rules.display())))?;
    Ok(Answers { interfaces, home_net, mode, rules })
}

/// Checks that the configuration can contain the answers unchanged.
fn check(answers: &Answers) -> Result<(), Ended> {
    for name in &answers.interfaces {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.:@".contains(c);
        if name.is_empty() || name.len() > 15 || !name.chars().all(plain) {
            return Err(failed(format!("\"{name}\" is no name of an interface")));
        }
    }
    if answers.mode == Mode::Inline && answers.interfaces.first() == answers.interfaces.get(1) {
        return Err(failed("inline mode needs two different interfaces"));
    }
    if !answers.home_net.chars().all(|c| c.is_ascii_alphanumeric() || "./:,![] ".contains(c)) {
        return Err(failed(format!("\"{}\" is not a list of networks, as in {HOME_NET}", answers.home_net)));
    }
    let rules = answers.rules.to_str().unwrap_or("\"");
    if rules.contains(['"', '\\', '\n']) {
        return Err(failed(format!("{}: a configuration cannot contain this file name", answers.rules.display())));
    }
    Ok(())
}

/// The file of defaults beside the configuration; written if it does not exist.
fn defaults(folder: &Path) -> Result<String, Ended> {
    if folder.join("margay.yaml").is_file() {
        return Ok("margay.yaml".into());
    }
    let name = "margay-defaults.yaml";
    let path = folder.join(name);
    if !path.exists() {
        std::fs::write(&path, built_in::CONFIGURATION)
            .map_err(|e| failed(format!("cannot write {}: {e}", path.display())))?;
    }
    Ok(name.into())
}

/// The text of the configuration.
fn configuration(answers: &Answers, defaults: &str) -> String {
    let nets = answers.home_net.trim().trim_start_matches('[').trim_end_matches(']').replace(' ', "");
    let mut text = format!(
        "%YAML 1.1\n---\n\n# This sensor's settings, by 'margay setup'. All other settings have the values of {defaults}, which explains every \
         setting.\n# After a change: margay -T -c FILE tests it, and a restart takes it.\n\ninclude: {defaults}\n\n# What is to be \
         protected. Rules name it $HOME_NET; all else is $EXTERNAL_NET.\nvars.address-groups.HOME_NET: \"[{nets}]\"\n\n# Rules. \
         suricata-update keeps them current; after it: margay ctl reload-rules.\nrule-files: [\"{}\"]\n\n",
        answers.rules.display()
    );
    match (answers.mode, answers.interfaces.as_slice()) {
        (Mode::Inline, [a, b]) => {
            text.push_str(
                "# Inline: packets from one interface go out of the other, unless a rule drops them. Give them no address, and let\n\
                 # no bridge and no routing connect them.\naf-packet:\n",
            );
            for (name, other, id) in [(a, b, 99), (b, a, 98)] {
                text.push_str(&format!(
                    "  - interface: {name}\n    copy-mode: ips\n    copy-iface: {other}\n    cluster-id: {id}\n    threads: auto\n"
                ));
            }
        }
        (_, names) => {
            text.push_str(
                "# The capture interfaces. They receive copies of packets from a mirror port or a tap.\naf-packet:\n",
            );
            for (n, name) in names.iter().enumerate() {
                text.push_str(&format!(
                    "  - interface: {name}\n    cluster-id: {}\n    cluster-type: cluster_flow\n    threads: auto\n",
                    99usize.saturating_sub(n)
                ));
            }
        }
    }
    text
}

/// Runs the program's configuration test. A missing rules file is no reason to reject the configuration.
fn test(config: &Path, rules: &Path) -> Result<(), Ended> {
    let mut command = Command::new(program());
    command.arg("-T").arg("-c").arg(config).stdin(Stdio::null());
    if !rules.exists() {
        command.args(["-S", "/dev/null"]);
    }
    let output = command.output().map_err(|e| failed(format!("cannot run the test: {e}")))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
    let errors: Vec<&str> = said.lines().filter(|l| l.starts_with("E:") || l.contains("rror")).collect();
    Err(failed(format!("the configuration does not pass its test, and was not written:\n{}", errors.join("\n"))))
}

/// Writes a systemd unit, and returns the instructions to start it.
fn install(config: &Path, folder: Option<&Path>) -> Result<String, Ended> {
    let folder = folder.unwrap_or(Path::new("/etc/systemd/system"));
    let path = folder.join("margay.service");
    let start = format!(
        "ExecStart={} -c {} --af-packet -l /var/log/margay --user margay --group margay",
        program().display(),
        config.display()
    );
    let unit: Vec<&str> = UNIT.lines().map(|l| if l.starts_with("ExecStart=") { start.as_str() } else { l }).collect();
    std::fs::write(&path, unit.join("\n") + "\n")
        .map_err(|e| failed(format!("cannot write the unit {}: {e}", path.display())))?;
    let passwd = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let mut words = format!("\nWrote {}. To start it:\n\n", path.display());
    if !passwd.lines().any(|l| l.starts_with("margay:")) {
        words.push_str("  useradd --system --no-create-home --shell /usr/sbin/nologin margay\n");
        words.push_str("  install -d -o margay -g margay -m 0750 /var/log/margay /var/lib/margay\n");
    }
    words.push_str("  systemctl daemon-reload && systemctl enable --now margay\n");
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(wishes: &SetupOptions, lines: &str) -> Result<Answers, String> {
        let there = ["eth0".to_owned(), "eth1".to_owned()];
        ask(wishes, &there, &mut lines.as_bytes(), &mut Vec::new()).map_err(|e| e.1)
    }

    #[test]
    fn questions_and_proposals() {
        let a = asked(&SetupOptions::default(), "\n\n\n\n").unwrap();
        assert_eq!((a.mode, a.interfaces, a.home_net.as_str()), (Mode::Passive, vec!["eth0".to_owned()], HOME_NET));
        assert_eq!(a.rules, Path::new(RULES));
        let a = asked(&SetupOptions::default(), "inline\neth1\n\n192.0.2.0/24\n/r/a.rules\n").unwrap();
        assert_eq!((a.mode, a.interfaces), (Mode::Inline, vec!["eth1".to_owned(), "eth0".to_owned()]));
        assert_eq!((a.home_net.as_str(), a.rules.as_path()), ("192.0.2.0/24", Path::new("/r/a.rules")));
        assert!(asked(&SetupOptions::default(), "sideways\n").unwrap_err().contains("passive or inline"));
        assert!(asked(&SetupOptions::default(), "passive\n").unwrap_err().contains("--yes"));
        let yes = SetupOptions { yes: true, interfaces: vec!["e9".into()], ..SetupOptions::default() };
        assert_eq!(asked(&yes, "").unwrap().interfaces, ["e9"]);
    }

    #[test]
    fn what_cannot_stand_in_a_configuration() {
        let good = || asked(&SetupOptions { yes: true, ..SetupOptions::default() }, "").unwrap();
        assert!(check(&good()).is_ok());
        assert!(check(&Answers { interfaces: vec!["a\nb".into()], ..good() }).is_err());
        assert!(check(&Answers { home_net: "10.0.0.0/8\"".into(), ..good() }).is_err());
        assert!(check(&Answers { rules: "/a\"b".into(), ..good() }).is_err());
        let twice = vec!["e0".to_owned(), "e0".to_owned()];
        assert!(check(&Answers { interfaces: twice, mode: Mode::Inline, ..good() }).is_err());
    }

    #[test]
    fn arguments() {
        let of = |a: &[&str]| parse(a.iter().map(OsString::from));
        let w = of(&["--interface=e0", "--mode", "inline", "--interface", "e1", "--yes"]).unwrap().unwrap();
        assert_eq!((w.interfaces.len(), w.mode, w.yes), (2, Some(Mode::Inline), true));
        assert!(of(&["--help"]).unwrap().is_none());
        for bad in [&["--mode", "odd"][..], &["--interface"], &["--nonsense"]] {
            assert_eq!(of(bad).unwrap_err().0, 2, "{bad:?}");
        }
    }
}
