//! Detects shell commands: Unix commands after a separator or within a substitution, and Windows commands.
//!
//! A value is split where a shell ends one command and begins another. The first word of each part is looked up, without
//! the quotes, backslashes, empty variables and paths that a shell removes. Names that are also ordinary words (`id`,
//! `time`, `sort`) count only with arguments that commands have, or if they are alone between two separators.

use crate::decode::{has, is_word, shell_unescape};
use crate::text::{self, Of};
use crate::words::{List, Words};

/// Names that are commands wherever a command may be.
static COMMANDS: List = List::new(|| Words::new(include_str!("../words/commands.txt")));
/// Names that are also ordinary words.
static COMMANDS_WEAK: List = List::new(|| Words::new(include_str!("../words/commands-weak.txt")));

/// The [`COMMANDS`] that count even at the start of a value.
const RARE: &[&str] = &[
    "visudo",
    "cscli",
    "ansible",
    "ansible-playbook",
    "ansible-config",
    "ansible-console",
    "ansible-inventory",
    "ansible-galaxy",
    "ansible-vault",
    "ansible-pull",
    "ansible-doc",
    "chef-shell",
    "chef-client",
    "chef-run",
    "chef-vault",
    "chef-solo",
    "aa-disable",
    "aa-exec",
    "whoami",
    "ifconfig",
    "ipconfig",
    "netstat",
    "systeminfo",
    "tasklist",
    "nslookup",
    "certutil",
    "mshta",
    "regsvr32",
    "rundll32",
    "bitsadmin",
];
/// Commands that run another command.
const WRAPPERS: &[&str] = &[
    "nohup", "sudo", "time", "exec", "env", "strace", "command", "eval", "builtin", "nice", "ionice", "xargs",
    "timeout", "setsid", "busybox", "doas", "start", "call", "flock", "stdbuf", "chroot", "ltrace", "cmd", "watch",
    "!", "then", "do", "else", "if", "while",
];
/// Files that attack commands often read.
const FILES: &[&str] = &[
    "/etc/passwd",
    "/etc/shadow",
    "/etc/hosts",
    "/etc/group",
    "/proc/self",
    "/dev/tcp/",
    "/dev/udp/",
    "win.ini",
    "boot.ini",
    "/var/log/",
    "/bin/sh",
    "/bin/bash",
    "/tmp/",
    "/dev/null",
    "/usr/bin/",
    "/etc/",
    "/root/",
];

/// Commands without arguments that end sentences as well, and do nothing: `a, b & more`, `Cheers; Ed`.
const ENDS_SENTENCES: &[&str] = &["more", "ed"];
/// The [`RARE`] commands that are words of questions too, and take no words as arguments: `whoami command`.
const ASKED: &[&str] =
    &["whoami", "ifconfig", "ipconfig", "netstat", "systeminfo", "tasklist", "nslookup", "certutil", "mshta"];
/// The [`COMMANDS`] that are verbs of instructions as well: `; make sure that it runs`.
const VERBS: &[&str] = &["make"];

/// Most parameters of a URL that are inspected.
const PARAMETERS: usize = 64;
/// Number of words behind a verb that make a sentence.
const SENTENCE: usize = 3;
/// In a text of this many lines or more, the beginnings of lines do not count as commands.
const LINES: usize = 4;
/// From this length on, a value is a text in which separators have no meaning.
const LONG: usize = 2048;
/// The longest name of a command.
const NAME_MAX: usize = 64;
/// The longest path of a command.
const PATH_MAX: usize = 4096;

/// Whether a value, in canonical form ([`crate::decode::canonical`]), is a shell command.
pub fn is_injection(value: &[u8]) -> bool {
    let runs = |v: &[u8]| reads_as_one(v) && !text::asks(v) && !text::tells(v, Of::Shell, reads_as_one);
    runs(value) && text::around_code(value, Of::Shell).is_none_or(|v| runs(&v))
}

/// Whether a value reads as a shell command, ignoring whether it is a text about commands.
fn reads_as_one(value: &[u8]) -> bool {
    if value.len() < 2 || value.len() > 16 << 10 {
        return false;
    }
    // Nothing separates commands.
    if is_word(value) {
        return command(value, 0);
    }
    if commands(value) || parameters(value) {
        return true;
    }
    // A plus that the sender may have meant as a space.
    if memchr::memchr(b'+', value).is_some() {
        let spaced: Vec<u8> = value.iter().map(|&b| if b == b'+' { b' ' } else { b }).collect();
        if reads_as_one(&spaced) {
            return true;
        }
    }
    if has(value, |b| matches!(b, b'\'' | b'"' | b'\\' | b'^' | b'$' | b'`')) {
        let mut plain = Vec::with_capacity(value.len());
        shell_unescape(value, &mut plain);
        return plain != value && commands(&plain);
    }
    false
}

/// The length of a command separator, and how certain it is: 2 if ordinary text never has it.
fn separator(data: &[u8]) -> Option<(usize, u8)> {
    match data {
        [b'$', b'(', ..] | [b'<' | b'>', b'(', ..] => Some((2, 2)),
        [b'|', b'|', ..] | [b'&', b'&', ..] => Some((2, 1)),
        [b'`', ..] => Some((1, 1)),
        [b'|' | b';' | b'\n' | b'&', ..] => Some((1, 1)),
        [b'\\', b'n', ..] => Some((2, 1)),
        [b'%', b'0', b'a', ..] => Some((3, 1)),
        _ => None,
    }
}

/// Whether a [`separator`] may begin with a byte.
const SEPARATORS: [bool; 256] = {
    let mut table = [false; 256];
    let begins = b"$<>|&`;\n\\%";
    let mut i = 0;
    while i < begins.len() {
        table[begins[i] as usize] = true;
        i += 1;
    }
    table
};

/// Whether a parameter of a URL, or the value of `name=value`, begins with a command.
fn parameters(value: &[u8]) -> bool {
    let address = memchr::memmem::find(&value[..value.len().min(16)], b"://").is_some();
    if !address && !value.iter().take(24).take_while(|b| b.is_ascii_alphanumeric() || **b == b'=').any(|&b| b == b'=') {
        return false;
    }
    let begin = if address { value.iter().position(|b| matches!(b, b'?' | b'#')) } else { Some(0) };
    let pairs = begin.and_then(|at| value.get(at..)).unwrap_or(&[]);
    pairs.split(|b| matches!(b, b'&' | b'?' | b'#')).take(PARAMETERS).any(|pair| {
        let at = memchr::memchr(b'=', pair);
        at.and_then(|at| pair.get(at + 1..)).is_some_and(|v| command(v, 0))
    })
}

fn commands(value: &[u8]) -> bool {
    // A line end that the sender wrote as an escape.
    let value = value.strip_suffix(b"\\n").unwrap_or(value);
    let mut at = 0;
    // Lines of a long text are not commands.
    let lines = memchr::memchr_iter(b'\n', value).take(LINES + 1).count() > LINES;
    let long = value.len() > LONG;
    let table = is_table(value);
    // The first command counts only if it cannot be ordinary text.
    if command(value, 0) {
        return true;
    }
    let next = |at: usize| value.get(at..)?.iter().position(|&b| SEPARATORS[usize::from(b)]);
    while let Some(skipped) = next(at) {
        at += skipped;
        let rest = value.get(at..).unwrap_or(&[]);
        match separator(rest) {
            Some(_) if table && rest.first() == Some(&b'|') => at += 1,
            Some((len, sure)) => {
                at += len;
                // Consecutive separators: `&& | dir c:\`.
                let gap = value.iter().skip(at).take_while(|&&b| b == b' ').count();
                if gap > 0 && value.get(at + gap).is_some_and(|b| matches!(b, b'|' | b';')) {
                    continue;
                }
                let weak = long || lines && rest.first() == Some(&b'\n');
                let first = at == len || is_address(value.get(..at - len).unwrap_or(&[]));
                let sure = if weak { 0 } else { sure + u8::from(first) };
                if command(value.get(at..).unwrap_or(&[]), sure) {
                    return true;
                }
            }
            None => at += 1,
        }
    }
    false
}

/// Whether the text is an IPv4 address: what a page takes for `ping`, behind which only a command begins with a separator.
fn is_address(text: &[u8]) -> bool {
    let mut numbers = 0;
    text.split(|&b| b == b'.').all(|n| {
        numbers += 1;
        (1..=3).contains(&n.len()) && n.iter().all(u8::is_ascii_digit)
    }) && numbers == 4
}

/// Whether lines begin with bars, as in tables of Markdown: a shell refuses such a line.
fn is_table(value: &[u8]) -> bool {
    let bar = |l: &[u8]| l.trim_ascii().starts_with(b"|");
    let rule = |l: &[u8]| bar(l) && l.contains(&b'-') && l.iter().all(|b| matches!(b, b'|' | b'-' | b':' | b' '));
    value.starts_with(b"|") && value.split(|&b| b == b'\n').skip(1).take(1).any(rule)
}

/// Whether a command begins here. `sure` is 0 at the start of a value, 1 after a separator, and more if the separator
/// begins the value or is a substitution.
fn command(text: &[u8], sure: u8) -> bool {
    let mut rest = skip(text);
    let mut wrapped = false;
    for _ in 0..4 {
        let (name, after) = word(rest);
        if after.first().is_some_and(|b| matches!(b, b' ' | b';' | b'/' | b'-'))
            && WRAPPERS.iter().any(|w| w.as_bytes() == name)
        {
            let next = options(after);
            let (next_name, _) = word(skip(next));
            if name != b"if" && name != b"do" && name != b"then" && is_command(next_name) {
                wrapped = true;
                rest = skip(next);
                continue;
            }
            if matches!(name, b"!" | b"then" | b"do" | b"else" | b"if" | b"while") && sure > 0 {
                rest = skip(next);
                continue;
            }
        }
        break;
    }
    let (name, after) = word(rest);
    let base = without_version(name);
    let known = COMMANDS.has(base);
    let common = COMMANDS_WEAK.has(base);
    let path = rest.first() == Some(&b'/') && rest.iter().take(40).filter(|&&b| b == b'/').count() >= 2;
    // Nearly all words are no command.
    if !(known || common || path && sure > 0) {
        return false;
    }
    if configures_windows(base, after) {
        return sure > 0 || base != b"net" || later_option(after);
    }
    // A target of `make` is one word, a sentence goes on in words.
    if VERBS.iter().any(|v| v.as_bytes() == base) && text::is_words(after, SENTENCE) {
        return false;
    }
    let end = after
        .iter()
        .position(|&b| matches!(b, b';' | b'|' | b'&' | b'\n' | b'`' | b')' | b'>' | b'<'))
        .unwrap_or(after.len());
    let arguments = after.get(..end).unwrap_or(&[]);
    // A comment may cut off what follows.
    let alone = matches!(arguments.trim_ascii(), b"" | b"#");
    if alone && ENDS_SENTENCES.iter().any(|w| w.as_bytes() == base) {
        return false;
    }
    let asks = || FILES.iter().any(|f| memchr::memmem::find(arguments, f.as_bytes()).is_some()) || globs(arguments);
    let behind = after.first().copied();
    let delimited = behind.is_none_or(|b| {
        matches!(
            b,
            b' ' | b';'
                | b'|'
                | b'&'
                | b'\n'
                | b'`'
                | b')'
                | b'>'
                | b'<'
                | b'+'
                | b'"'
                | b'\''
                | b'/'
                | b'\t'
                | b'$'
                | b'}'
                | b'\\'
        )
    });
    // `<(\w+)`: a group of an expression, and no `w`.
    if !delimited || base == b"w" && (matches!(behind, Some(b'+' | b'*')) || after.starts_with(b" )")) {
        return false;
    }
    // An option, a path, a URL or a variable.
    let first = arguments.trim_ascii_start();
    // `ls / #`: the root alone.
    let root = first.strip_prefix(b"/").is_some_and(|r| matches!(r.trim_ascii(), b"#"));
    let option = root
        || matches!(first, [b'-', b'a'..=b'z' | b'-' | b'0'..=b'9', ..] | [b'/', b'a'..=b'z', ..] | [b'$', ..] | [b'c', b':', ..] | [b'+', ..] | [b'%', b'a'..=b'z', ..])
        || memchr::memmem::find(arguments, b"://").is_some()
        || first.iter().take_while(|b| b.is_ascii_digit() || **b == b'.').filter(|b| **b == b'.').count() == 3;
    if path && (globs(rest.get(..rest.len().min(40)).unwrap_or(rest)) || known || common) && sure > 0 {
        return true;
    }
    match sure {
        0 if RARE.iter().any(|c| c.as_bytes() == base) => {
            arguments.len() < 80 && !(ASKED.iter().any(|c| c.as_bytes() == base) && text::only_words(arguments))
        }
        0 if common && base.len() > 2 && arguments.starts_with(b" --") && arguments.len() < 24 => true,
        0 => {
            (known || common) && !alone && (option || known) && asks()
                || known && wrapped
                || known
                    && option
                    && !alone
                    && arguments.len() < 200
                    && (first.len() > 2)
                    && base.len() > 2
                    && memchr::memchr(b'=', first).is_none()
        }
        _ if known => {
            alone
                || option
                || wrapped
                || behind == Some(b' ')
                    && base.len() > 3
                    && arguments.len() < 80
                    && text.first().is_some_and(|&b| {
                        b == b' ' || b.is_ascii_alphanumeric() || matches!(b, b'\'' | b'"' | b'/' | b'$')
                    })
                || asks()
        }
        _ if common => {
            (option || later_option(arguments)) && behind == Some(b' ')
                || alone && (sure > 1 || ends(after))
                // `$(sleep 5)`, `;sleep 5;`: in a substitution or between separators without spaces, a number is an argument.
                || (sure > 1 || base == b"sleep" && text.first() == Some(&b's') && after.len() > end)
                    && behind == Some(b' ')
                    && !first.is_empty()
                    && first.iter().all(u8::is_ascii_digit)
                || sure > 1 && base == b"echo" && behind == Some(b' ') && end < 40
                || wrapped
                || asks()
        }
        _ => false,
    }
}

/// Whether a command of Windows changes or shows accounts, shares, the registry or the firewall.
fn configures_windows(name: &[u8], arguments: &[u8]) -> bool {
    let mut words = arguments.split(|&b| b == b' ').filter(|w| !w.is_empty());
    let first = words.next().unwrap_or(&[]);
    match name {
        b"net" => matches!(first, b"view" | b"user" | b"localgroup" | b"group" | b"share" | b"accounts" | b"session"),
        b"reg" => {
            matches!(first, b"add" | b"query" | b"delete" | b"save" | b"export")
                && words.next().is_some_and(|w| w.strip_prefix(b"\"").unwrap_or(w).starts_with(b"hk"))
        }
        b"netsh" => matches!(first, b"firewall" | b"advfirewall" | b"interface" | b"wlan"),
        _ => false,
    }
}

/// Whether an argument after the first one is an option of Unix or Windows: `/ -perm -4000`, `user a b /add`.
fn later_option(arguments: &[u8]) -> bool {
    let mut words = arguments.split(|&b| b == b' ').filter(|w| !w.is_empty()).skip(1).take(8);
    words.any(|w| matches!(w, [b'-', b'a'..=b'z', b'a'..=b'z', ..] | [b'/', b'a'..=b'z', b'a'..=b'z', ..] if !w.iter().skip(1).any(|b| *b == b'/')))
}

/// Whether the rest has only separators and quotes.
fn ends(rest: &[u8]) -> bool {
    let rest = rest.strip_suffix(b"\\n").unwrap_or(rest);
    rest.len() <= 4
        && rest
            .iter()
            .all(|b| matches!(b, b' ' | b';' | b'|' | b'&' | b'\n' | b'`' | b')' | b'"' | b'\'' | b'#' | b'}'))
}

/// Whether the text has a path with wildcards.
fn globs(text: &[u8]) -> bool {
    memchr::memchr_iter(b'/', text).any(|at| {
        let part = text.get(at + 1..).unwrap_or(&[]);
        let len = part
            .iter()
            .take_while(|b| b.is_ascii_alphanumeric() || matches!(b, b'?' | b'*' | b'[' | b']' | b'-' | b'/' | b'.'))
            .count()
            .min(40);
        let part = part.get(..len).unwrap_or(&[]);
        part.iter().any(|b| matches!(b, b'?' | b'*' | b'[')) && part.contains(&b'/')
    })
}

fn is_command(name: &[u8]) -> bool {
    let base = without_version(name);
    COMMANDS.has(base) || COMMANDS_WEAK.has(base)
}

/// Removes a minor version: `python3.10` becomes `python3`.
fn without_version(name: &[u8]) -> &[u8] {
    match memchr::memchr(b'.', name) {
        Some(dot)
            if name
                .get(dot + 1..)
                .is_some_and(|r| !r.is_empty() && r.iter().all(u8::is_ascii_digit) || r == b"exe")
                && dot > 0 =>
        {
            let plain = name.get(..dot).unwrap_or(name);
            if name.ends_with(b".exe") && (name == b"cmd.exe" || name == b"reg.exe") { name } else { plain }
        }
        _ => name,
    }
}

/// Skips what may precede a command: spaces, parentheses, quotes, redirections and variable assignments.
fn skip(mut text: &[u8]) -> &[u8] {
    loop {
        text = match text {
            [b' ' | b'(' | b'{' | b'"' | b'\'' | b'\n' | b'`' | b'@' | b'!', rest @ ..] => rest,
            [b'%', b'0', b'9' | b'd', rest @ ..] => rest,
            [b'$', b'(', rest @ ..] => rest,
            [b'$', b'a'..=b'z', b' ', rest @ ..] => rest,
            _ => {
                let name = text.iter().take(13).take_while(|b| b.is_ascii_alphanumeric() || **b == b'_').count();
                if (1..=12).contains(&name) && text.get(name) == Some(&b'=') {
                    let value = text.get(name + 1..).unwrap_or(&[]);
                    let ends = |b: &u8| matches!(b, b' ' | b';' | b'|' | b'&' | b'\n');
                    let len = value.iter().take(40).take_while(|b| !ends(b)).count();
                    if value.get(len) == Some(&b' ') && len < 40 {
                        text = value.get(len + 1..).unwrap_or(&[]);
                        continue;
                    }
                }
                return text;
            }
        };
    }
}

/// Skips the options of a wrapper command, with their values.
fn options(mut text: &[u8]) -> &[u8] {
    for _ in 0..4 {
        text = text.trim_ascii_start();
        if text.first() == Some(&b';') {
            return text.get(1..).unwrap_or(&[]);
        }
        if !matches!(text.first(), Some(b'-' | b'0'..=b'9' | b'/'))
            || text.starts_with(b"/bin")
            || text.starts_with(b"/usr")
        {
            return text;
        }
        text = text.iter().position(|&b| b == b' ').and_then(|at| text.get(at..)).unwrap_or(&[]);
    }
    text
}

/// The bytes of command names and paths.
static IN_WORD: [bool; 256] = {
    let mut table = [false; 256];
    let mut b = 0;
    while b < table.len() {
        table[b] = (b as u8).is_ascii_alphanumeric()
            || matches!(b as u8, b'-' | b'_' | b'.' | b'/' | b'\\' | b':' | b'+' | b'[' | b']' | b'?' | b'*' | b'!');
        b += 1;
    }
    table
};

/// The name that begins here, without its path, and the text after it. It is empty if the word is longer than a name or a path
/// of a command may be.
fn word(text: &[u8]) -> (&[u8], &[u8]) {
    let is_path = matches!(text.first(), Some(b'/' | b'\\' | b'.'))
        || text.starts_with(b"usr/")
        || text.starts_with(b"bin/")
        || text.get(1..3) == Some(b":\\");
    let longest = if is_path { PATH_MAX } else { NAME_MAX };
    let len = text.iter().take(longest + 1).take_while(|b| IN_WORD[usize::from(**b)]).count();
    let after = text.get(len..).unwrap_or(&[]);
    let word = text.get(..len).filter(|w| w.len() <= longest).unwrap_or(&[]);
    let name = if is_path {
        word.iter().rposition(|b| matches!(b, b'/' | b'\\')).and_then(|at| word.get(at + 1..)).unwrap_or(word)
    } else {
        word
    };
    (name, after)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn separators_begin_as_said() {
        for begin in 0..=u8::MAX {
            let separates = (0..=u8::MAX).any(|b| separator(&[begin, b, b'a']).is_some());
            assert_eq!(separates, SEPARATORS[usize::from(begin)], "{begin}");
        }
    }

    #[test]
    fn rare_names_are_commands() {
        for name in RARE {
            assert!(COMMANDS.has(name.as_bytes()), "{name}");
        }
    }
}
