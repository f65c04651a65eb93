//! Detects fragments of HTML, and of JavaScript in it, that would run in another user's browser.
//!
//! A value may be inserted between tags, into an attribute's value, or into a script. The detection looks for everything
//! that runs code there: elements (`script`, `iframe`, `svg` …), attributes of any element (`onerror=`), URLs
//! (`javascript:`), styles in old browsers, framework templates, and JavaScript calls and names that reach the page, its
//! cookies, or other code.

use std::sync::LazyLock;

use aho_corasick::{AhoCorasick, AhoCorasickKind};

use crate::text::{self, Of};

/// Elements that run code or take over the page by their presence.
const ELEMENTS: &[&str] = &[
    "script",
    "iframe",
    "object",
    "embed",
    "applet",
    "base",
    "svg",
    "math",
    "isindex",
    "frameset",
    "frame",
    "bgsound",
    "xml",
    "xss",
    "marquee",
    "meta",
    "link",
    "layer",
    "ilayer",
    "animate",
    "set",
    "animatetransform",
    "handler",
    "listener",
    "noscript",
    "template",
    "portal",
    "blink",
    "style",
    "form",
    "import",
    "vmlframe",
    "video",
    "audio",
    "keygen",
    "details",
    "textarea",
    "noembed",
    "plaintext",
    "html:script",
    "x:script",
    "svg:script",
    "body",
    "head",
    "html",
    "foreignobject",
    "use",
    "image",
    "input",
    "button",
    "select",
    "option",
    "isindex",
    "source",
    "track",
    "dialog",
    "stylesheet",
    "xmp",
    "comment",
    "frame",
    "titl",
    "title",
    "!doctype",
    "!entity",
    "!attlist",
    "?xml",
    "?import",
    "basefont",
    "img",
];
/// The number of [`ELEMENTS`], from the first one, that are an attack whatever their attributes.
const SURE_ELEMENTS: usize = 34;
/// URL schemes that run code.
const SCHEMES: &[&str] = &[
    "javascript:",
    "vbscript:",
    "livescript:",
    "data:text/html",
    "data:text/javascript",
    "data:application/javascript",
    "data:application/x-javascript",
    "data:text/xml",
    "data:image/svg+xml",
    "data:application/xhtml",
    "jar:http",
    "mocha:",
    "ecmascript:",
    "x-javascript:",
    "data:text/vbs",
    "data:,",
    "data:;",
];
/// JavaScript calls with which attacks prove their success or run text.
const CALLS: &[&str] = &[
    "alert",
    "prompt",
    "confirm",
    "eval",
    "settimeout",
    "setinterval",
    "setimmediate",
    "execscript",
    "importscripts",
    "atob",
    "write",
    "writeln",
    "print",
    "console.log",
    "import",
    "unescape",
    "decodeuricomponent",
    "createelement",
    "appendchild",
    "postmessage",
    "msgbox",
    "msgbox",
    "expression",
    "structuredclone",
    "execcommand",
];
/// The first of these show that code runs, so an attacker tries them first.
const SHOWS: usize = 4;
/// JavaScript names that reach the page.
const NAMES: &[&str] = &[
    "document.cookie",
    "document.write",
    "document.domain",
    "document.location",
    "document.body",
    "document.url",
    "document.forms",
    "document.getelementby",
    "document.createelement",
    "window.location",
    "window.open",
    "window.name",
    "location.href=",
    "location.replace(",
    "location.assign(",
    "location=",
    "location.hash",
    ".innerhtml",
    ".outerhtml",
    ".insertadjacenthtml",
    ".parentnode",
    "string.fromcharcode",
    "fromcharcode(",
    ".constructor(",
    "constructor.constructor",
    "[\"constructor\"]",
    "['constructor']",
    "new function(",
    "self[",
    "window[",
    "top[",
    "parent[",
    "frames[",
    "this['",
    "this[\"",
    "globalthis[",
    "document[",
    "content[",
    "xmlhttprequest",
    "navigator.sendbeacon",
    "-moz-binding",
    "reflect.construct",
    "reflect.apply",
    "symbol.hasinstance",
    ".source+",
    "localstorage.",
    "sessionstorage.",
    "document.documentelement",
    "window.onerror",
    "onerror=",
    "__defineg",
    "__lookupg",
    "tostring(30)",
    "tostring(36)",
    "$.get",
    "$.getscript",
    "jquery.",
    "angular.",
    "ng-app",
    "ng-init",
    "ng-bind",
    "v-html",
    "data-ng-",
    "x-init",
    "@click=",
    "document['",
    "document[\"",
];

/// [`CALLS`], then [`NAMES`], found together in one pass.
#[expect(clippy::expect_used, reason = "the words are constants, and a test builds the automaton")]
static WORDS: LazyLock<AhoCorasick> = LazyLock::new(|| {
    const _: () = assert!(CALLS.len() + NAMES.len() <= u128::BITS as usize);
    AhoCorasick::builder().kind(Some(AhoCorasickKind::DFA)).build(CALLS.iter().chain(NAMES)).expect("a small automaton")
});

/// From this length on, JavaScript is a program that a text shows, not an attack.
const PROGRAM: usize = 400;

/// Whether a value, in canonical form ([`crate::decode::canonical`]), is an HTML fragment that runs code.
pub fn is_injection(value: &[u8]) -> bool {
    let has = |byte| memchr::memchr(byte, value).is_some();
    if has(b'<') && (tags(value) || leaves_attribute(value)) {
        return true;
    }
    if has(b'=') && attributes(value) {
        return true;
    }
    if has(b':') && schemes(value) {
        return true;
    }
    script(value) && !text::is_prose(value, Of::Script)
}

/// Whether the value ends an attribute and its tag, and begins another element, whatever that is: `a"><x>`.
fn leaves_attribute(value: &[u8]) -> bool {
    let Some(at) = memchr::memchr3(b'"', b'\'', b'<', value) else { return false };
    let (before, rest) = value.split_at(at);
    let quotes = rest.iter().take_while(|b| matches!(b, b'"' | b'\'')).count();
    !before.iter().any(|b| b.is_ascii_whitespace() || *b == b'>')
        && quotes > 0
        && rest
            .get(quotes..)
            .and_then(|r| r.strip_prefix(b"><"))
            .and_then(<[u8]>::first)
            .is_some_and(u8::is_ascii_alphabetic)
}

/// Whether the value has a tag that runs code.
fn tags(value: &[u8]) -> bool {
    let named = memchr::memchr(b'>', value).is_some() && text::is_prose(value, Of::Script);
    memchr::memchr_iter(b'<', value).any(|at| {
        let rest = value.get(at + 1..).unwrap_or(&[]);
        // Characters that some browsers skip, and a slash.
        let skip = rest
            .iter()
            .take_while(|&&b| matches!(b, b'/' | b'\\' | b'%' | b'\n' | b' ' | 0x0b | 0x0c) || b < b' ')
            .count()
            .min(8);
        let gap = rest.first() == Some(&b' ') || rest.first() == Some(&b'\n');
        let rest = rest.get(skip..).unwrap_or(&[]);
        let length =
            rest.iter().take_while(|&&b| b.is_ascii_alphanumeric() || matches!(b, b':' | b'!' | b'?' | b'-')).count();
        let name = rest.get(..length).unwrap_or(&[]);
        let Some(place) = ELEMENTS.iter().position(|e| e.as_bytes() == name) else {
            return false;
        };
        let behind = rest.get(length).copied();
        let ends = matches!(behind, Some(b' ' | b'\n' | b'/' | b'>' | b'<' | b'+' | b'\'' | b'{' | 0..0x20))
            || behind.is_none() && at > 0;
        // An empty drawing does nothing, and neither do elements of which only the attributes matter: `<link>` of RSS, `#include <set>`.
        let bare: &[&[u8]] = &[b"svg", b"math", b"link", b"meta", b"base", b"set", b"listener", b"animate"];
        let empty = bare.contains(&name) && behind == Some(b'>');
        let inner = rest.get(length..).unwrap_or(&[]);
        // An end tag, whose element was judged at its start tag.
        let start: &[u8] = match name {
            b"style" => b"<style",
            b"iframe" => b"<iframe",
            b"form" => b"<form",
            _ => b"",
        };
        let closing = !start.is_empty()
            && value.get(at + 1) == Some(&b'/')
            && memchr::memmem::find(value.get(..at).unwrap_or(&[]), start).is_some();
        let runs_nothing = empty || closing || words_follow(inner) || (named && told(inner)) || harmless(name, inner);
        place < SURE_ELEMENTS && ends && !gap && !runs_nothing
    }) || spaced(value)
}

/// Whether at least two words follow a tag without attributes, and nothing else: `<script> tag async`. No program is like
/// that.
fn words_follow(inner: &[u8]) -> bool {
    inner.strip_prefix(b">").is_some_and(|t| text::only_words(t) && text::is_words(t, 2))
}

/// Whether prose follows the name of an element without attributes and content: `puts <script> into a page`.
fn told(inner: &[u8]) -> bool {
    inner.starts_with(b">") && !inner.iter().any(|b| matches!(b, b'(' | b'=' | b'`' | b'{'))
}

/// Whether a display element contains nothing that runs: a drawing of shapes, or an inline style sheet. Attributes, URLs
/// and elements inside it are judged separately.
fn harmless(name: &[u8], inner: &[u8]) -> bool {
    match name {
        b"video" | b"audio" => return plain_attributes(inner, MEDIA).is_some(),
        b"iframe" => {
            return plain_attributes(inner, FRAME).is_some_and(|src| PLAYERS.iter().any(|p| src.starts_with(p)));
        }
        b"form" => {
            let action = plain_attributes(inner, FORM);
            return action.is_some_and(|a| a.first() == Some(&b'/') && !matches!(a.get(1), Some(b'/' | b'\\')));
        }
        b"link" => return plain_attributes(inner, LINK).is_some_and(|rel| RELATIONS.contains(&rel)),
        b"meta" => return plain_attributes(inner, META).is_some(),
        // As in configurations of Java: an animation has `attributeName`.
        b"set" => return plain_attributes(inner, &[b"name", b"id"]).is_some(),
        b"svg" if is_empty_drawing(inner) => return true,
        _ => {}
    }
    let (end, not): (&[u8], &[&[u8]]) = match name {
        b"svg" => (b"</svg", &[b"data:", b"<image", b"<foreignobject", b"<a ", b"<!", b"&#", b"url(", b"xml:"]),
        b"style" => (b"</style", &[b"@import", b"expression", b"behavior", b"binding", b"\\", b"script", b"&"]),
        _ => return false,
    };
    let Some(at) = memchr::memmem::find(inner, end) else { return false };
    let inner = inner.get(..at).unwrap_or(&[]);
    let style = name == b"style"
        && (!inner.starts_with(b">") && !inner.starts_with(b" type=\"text/css\">") || !loads_locally(inner));
    !style
        && inner.contains(&if name == b"svg" { b'=' } else { b'{' })
        && (name != b"svg" || refers_within(inner))
        && !not.iter().any(|n| memchr::memmem::find(inner, n).is_some())
}

/// Whether each reference of a drawing is to a part of the same document: `<use href="#cart"/>`.
fn refers_within(drawing: &[u8]) -> bool {
    memchr::memmem::find_iter(drawing, b"href")
        .all(|at| drawing.get(at + 4..).is_some_and(|v| v.starts_with(b"=\"#") || v.starts_with(b"='#")))
}

/// Attributes that run nothing, of elements that show media, of frames and of forms.
const MEDIA: &[&[u8]] = &[
    b"src",
    b"poster",
    b"controls",
    b"width",
    b"height",
    b"autoplay",
    b"muted",
    b"loop",
    b"preload",
    b"class",
    b"id",
    b"playsinline",
    b"title",
];
const FRAME: &[&[u8]] = &[
    b"src",
    b"width",
    b"height",
    b"title",
    b"allow",
    b"allowfullscreen",
    b"frameborder",
    b"loading",
    b"class",
    b"id",
    b"scrolling",
    b"referrerpolicy",
    b"style",
    b"name",
    b"marginwidth",
    b"marginheight",
    b"webkitallowfullscreen",
    b"mozallowfullscreen",
];
const FORM: &[&[u8]] = &[b"action", b"method", b"class", b"id", b"enctype", b"autocomplete", b"novalidate", b"role"];
const LINK: &[&[u8]] = &[b"rel", b"href", b"title", b"type", b"hreflang", b"length"];
const META: &[&[u8]] = &[b"name", b"content", b"property", b"charset"];
const EMPTY_DRAWING: &[&[u8]] = &[b"xmlns", b"xmlns:", b"width", b"height", b"viewbox", b"version", b"id", b"class"];
/// Relations of links that load nothing (RFC 8288, RFC 4287).
const RELATIONS: &[&[u8]] =
    &[b"alternate", b"self", b"canonical", b"edit", b"replies", b"via", b"related", b"next", b"prev", b"license"];
/// Players and maps that pages show in frames.
const PLAYERS: &[&[u8]] = &[
    b"https://www.youtube.com/embed/",
    b"https://www.youtube-nocookie.com/embed/",
    b"https://player.vimeo.com/video/",
    b"https://www.dailymotion.com/embed/",
    b"https://player.bilibili.com/",
    b"https://open.spotify.com/embed/",
    b"https://w.soundcloud.com/player/",
    b"https://www.google.com/maps/embed",
    b"https://www.openstreetmap.org/export/embed",
    b"https://calendar.google.com/calendar/embed",
    b"https://docs.google.com/",
    b"https://codepen.io/",
];

/// Whether the tag of a drawing ends at once, as in tests of XML: `<svg xmlns="…"/>`.
fn is_empty_drawing(inner: &[u8]) -> bool {
    let tag = memchr::memchr(b'>', inner).and_then(|end| inner.get(..end));
    tag.is_some_and(|t| t.ends_with(b"/")) && plain_attributes(inner, EMPTY_DRAWING).is_some()
}

/// The address of an element whose attributes are all of this list, with quoted values, up to the end of its tag; of a link, the
/// relation. `None` if another one is there. `xmlns:` stands for the prefixes of all namespaces.
fn plain_attributes<'a>(inner: &'a [u8], allowed: &[&[u8]]) -> Option<&'a [u8]> {
    let (mut rest, mut address) = (inner, &b""[..]);
    loop {
        rest = rest.trim_ascii_start();
        rest = rest.strip_prefix(b"/").unwrap_or(rest);
        if rest.first() == Some(&b'>') {
            return Some(address);
        }
        let end = rest.iter().position(|b| !(b.is_ascii_alphanumeric() || matches!(b, b'-' | b':')))?;
        let name = rest.get(..end)?;
        let prefix = name.starts_with(b"xmlns:");
        if !allowed.iter().any(|a| *a == name || prefix && *a == b"xmlns:") {
            return None;
        }
        rest = rest.get(end..)?;
        let Some(value) = rest.strip_prefix(b"=") else { continue };
        let quote = *value.first().filter(|b| matches!(b, b'"' | b'\''))?;
        let value = value.get(1..)?;
        let end = memchr::memchr(quote, value)?;
        if matches!(name, b"src" | b"action" | b"rel") {
            // Of several, the first counts.
            if !address.is_empty() {
                return None;
            }
            address = value.get(..end)?;
        }
        rest = value.get(end + 1..)?;
    }
}

/// Whether each `url(…)` of a style sheet is a path on the page's own host or a picture within the sheet.
fn loads_locally(style: &[u8]) -> bool {
    memchr::memmem::find_iter(style, b"url(").all(|at| {
        let url = style.get(at + 4..).unwrap_or(&[]).trim_ascii_start();
        let url = url.strip_prefix(b"\"").or_else(|| url.strip_prefix(b"'")).unwrap_or(url);
        matches!(url, [b'/', b'a'..=b'z' | b'0'..=b'9' | b'_', ..])
            || url.starts_with(b"data:image/") && !url.starts_with(b"data:image/svg")
    })
}

/// Whether an element's name has spaces between its letters.
fn spaced(value: &[u8]) -> bool {
    memchr::memchr_iter(b'<', value).any(|at| {
        let mut name = Vec::new();
        let mut rest = value.get(at + 1..).unwrap_or(&[]);
        while let [letter, tail @ ..] = rest
            && (letter.is_ascii_alphabetic() || *letter == b':')
            && name.len() < 16
        {
            name.push(*letter);
            match tail {
                [b' ', after @ ..] => rest = after,
                _ => break,
            }
        }
        name.len() >= 4 && ELEMENTS.iter().any(|e| e.as_bytes() == name)
    })
}

/// Whether an attribute runs code: `on…=`, or one that takes URLs or styles.
fn attributes(value: &[u8]) -> bool {
    let tag = memchr::memchr(b'<', value).is_some();
    memchr::memchr_iter(b'=', value).any(|at| {
        let before = value.get(..at).unwrap_or(&[]);
        // Between the name and the sign there may be spaces and characters that browsers skip.
        let end =
            before.iter().rposition(|&b| !(matches!(b, b' ' | b'\n' | b'/' | b'+') || b < b' ')).map_or(0, |i| i + 1);
        let start = before
            .get(..end)
            .unwrap_or(&[])
            .iter()
            .rposition(|b| !b.is_ascii_alphanumeric() && !matches!(b, b'-' | b':' | b'_'))
            .map_or(0, |i| i + 1);
        let name = before.get(start..end).unwrap_or(&[]);
        let separator = start.checked_sub(1).and_then(|i| before.get(i)).copied();
        let separated = matches!(
            separator,
            None | Some(
                b' ' | b'\n' | b'/' | b'"' | b'\'' | b'`' | b';' | b'>' | b'<' | b']' | b'\\' | b'%' | b'+' | b',' | 0
                    ..0x20
            )
        );
        if !separated {
            return false;
        }
        let after = value.get(at + 1..).unwrap_or(&[]);
        if let Some(event) = name.strip_prefix(b"on") {
            // Event names consist of letters. A parameter with such a prefix is part of a query.
            // `onlydirs = true` is a program's.
            let letters = (3..=24).contains(&event.len())
                && event.iter().all(u8::is_ascii_alphabetic)
                && !event.starts_with(b"ly")
                && !event.starts_with(b"ce");
            let quoted = matches!(separator, Some(b'"' | b'\'' | b'`' | b'/' | b'<' | b'>'));
            return letters && (tag || quoted || code(after));
        }
        let dangerous = matches!(
            name,
            b"formaction"
                | b"srcdoc"
                | b"fscommand"
                | b"seeksegmenttime"
                | b"xlink:href"
                | b"dynsrc"
                | b"lowsrc"
                | b"xmlns:ev"
                | b"-moz-binding"
                | b"autofocus"
                | b"style"
                | b"ontoggle"
                | b"poster"
                | b"background"
                | b"datasrc"
                | b"dataformatas"
                | b"datafld"
        );
        dangerous
            && match name {
                b"style" => {
                    let end = after.iter().position(|&b| b == b'>').unwrap_or(after.len()).min(512);
                    let style = after.get(..end).unwrap_or(&[]);
                    [
                        "expression",
                        "javascript",
                        "behavior",
                        "-moz-binding",
                        "@import",
                        "url(data",
                        "animation-name",
                        "-o-link",
                    ]
                    .iter()
                    .any(|w| squeezed(style, w))
                }
                b"poster" | b"background" | b"lowsrc" | b"dynsrc" | b"datasrc" => tag && schemes(after),
                _ => tag || matches!(separator, Some(b'"' | b'\'')),
            }
    })
}

/// Whether the text may begin with the code of an event handler.
fn code(after: &[u8]) -> bool {
    let text = after.trim_ascii_start();
    let text = text.strip_prefix(b"\"").or_else(|| text.strip_prefix(b"'")).unwrap_or(text);
    let until = text.get(..text.len().min(64)).unwrap_or(text);
    until.contains(&b'(') && CALLS.iter().any(|c| memchr::memmem::find(until, c.as_bytes()).is_some())
        || until.contains(&b'`')
}

/// Whether `text` contains `word` when white space, comments and control characters are ignored.
fn squeezed(text: &[u8], word: &str) -> bool {
    let mut plain = Vec::with_capacity(text.len());
    let mut at = 0;
    while let Some(&b) = text.get(at) {
        if b == b'/' && text.get(at + 1) == Some(&b'*') {
            let rest = text.get(at + 2..).unwrap_or(&[]);
            at += memchr::memmem::find(rest, b"*/").map_or(rest.len(), |i| i + 2) + 2;
            continue;
        }
        if b > b' ' && b != b'\\' {
            plain.push(b);
        }
        at += 1;
    }
    memchr::memmem::find(&plain, word.as_bytes()).is_some()
}

/// Whether a URL runs code. Its scheme may contain white space, as browsers allow.
fn schemes(value: &[u8]) -> bool {
    memchr::memchr_iter(b':', value).any(|at| {
        // The letters before it, ignoring characters between them.
        let mut name = Vec::new();
        for &b in value.get(..at).unwrap_or(&[]).iter().rev().take(64) {
            if b <= b' ' || b == b'\\' {
                continue;
            }
            if !(b.is_ascii_alphanumeric() || b == b'-') || name.len() >= 16 {
                break;
            }
            name.push(b);
        }
        name.reverse();
        let after = value.get(at..(at + 32).min(value.len())).unwrap_or(&[]);
        let after: Vec<u8> = after.iter().copied().filter(|&b| b > b' ').collect();
        SCHEMES.iter().any(|scheme| {
            let colon = scheme.find(':').unwrap_or(0);
            let (scheme, rest) = scheme.as_bytes().split_at(colon);
            let starts = name.ends_with(scheme) && after.starts_with(rest);
            // A picture of a style sheet runs no script.
            let picture = scheme == b"data" && rest == b":image/svg+xml" && in_url(value.get(..at).unwrap_or(&[]));
            // Harmless pages use `javascript:void(0)`.
            starts
                && !picture
                && (rest != b":" || !names_words(value.get(at + 1..).unwrap_or(&[])))
                && !after.starts_with(b":void0")
                && !after.starts_with(b":void(0)")
                && !after.starts_with(b":;")
                && (rest.len() > 1 || after.len() > 1 && after != b":```")
                && (rest != b":," && rest != b":;" || name == scheme && at < 8)
        })
    })
}

/// Whether the text before a scheme ends with the beginning of a style sheet's address: `url("data`.
fn in_url(before: &[u8]) -> bool {
    let before = before.strip_suffix(b"data").unwrap_or(before);
    let before = before.strip_suffix(b"\"").or_else(|| before.strip_suffix(b"'")).unwrap_or(before);
    before.ends_with(b"url(")
}

/// Whether words follow that are no program: `javascript: the good parts`. In a program, marks separate names.
fn names_words(rest: &[u8]) -> bool {
    let words = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b' ' | b',' | b'.' | b'?' | b'!' | b'-' | b'&');
    rest.first() == Some(&b' ') && rest.iter().all(words) && text::is_words(rest, 2)
}

/// Whether two strings without anything between them begin in a parenthesis.
fn joins_strings(text: &[u8]) -> bool {
    let Some(inner) = text.strip_prefix(b"(").map(<[u8]>::trim_ascii_start) else { return false };
    let Some(first) = inner.strip_prefix(b"\"") else { return false };
    let end = memchr::memchr(b'"', first).unwrap_or(first.len());
    first.get(end + 1..).is_some_and(|t| t.trim_ascii_start().starts_with(b"\""))
}

/// Whether the value is JavaScript that reaches the page.
fn script(value: &[u8]) -> bool {
    // Attacks are short; a long text is some program's source.
    if value.len() > PROGRAM || !value.iter().any(|b| matches!(b, b'(' | b'[' | b'=' | b'`' | b'.')) {
        return false;
    }
    // A bit for each word of the list that the value has.
    let (mut words, mut shows) = (0_u128, false);
    for found in WORDS.find_overlapping_iter(value) {
        let word = found.pattern().as_usize();
        let ahead = value.get(..found.start()).unwrap_or(&[]);
        if word < CALLS.len() {
            let before = ahead.last().copied();
            let rest = value.get(found.end()..).unwrap_or(&[]);
            if before.is_some_and(|b| b.is_ascii_alphanumeric() || b == b'_') {
                continue;
            }
            // `import ("os" "regexp")` of Go: between arguments JavaScript has commas.
            if CALLS[word] == "import" && joins_strings(rest.trim_ascii_start()) {
                continue;
            }
            // `alert ( not alarm )`: the arguments are words without marks between them.
            if rest.first() == Some(&b' ') {
                let inner = rest.trim_ascii_start().strip_prefix(b"(").unwrap_or(&[]);
                let inner = inner.get(..memchr::memchr(b')', inner).unwrap_or(0)).unwrap_or(&[]);
                if text::only_words(inner) && text::is_words(inner, 2) {
                    continue;
                }
            }
            // `alert(1) meaning`: two names without an operator between them are no program.
            let behind = memchr::memchr(b')', rest).and_then(|at| rest.get(at + 1..)).unwrap_or(&[]);
            if rest.first() == Some(&b'(')
                && before.is_none()
                && behind.first() == Some(&b' ')
                && text::only_words(behind)
                && !text::is_operator(behind)
            {
                continue;
            }
            shows |= word < SHOWS && matches!(rest.first(), Some(b'(' | b'`'));
            let space =
                rest.iter().take_while(|&&b| matches!(b, b' ' | b'\n' | b'/' | b'*' | b'?' | b'.')).count().min(8);
            if before == Some(b'$') || !matches!(rest.get(space), Some(b'(' | b'`')) {
                continue;
            }
        }
        // `--location=here`: an option of a command.
        if ahead.ends_with(b" --") || ahead.ends_with(b"[--") {
            continue;
        }
        words |= 1 << word;
    }
    let calls = (words & ((1 << CALLS.len()) - 1)).count_ones();
    let names = (words >> CALLS.len()).count_ones();
    shows
        || names + calls >= 2
        || names == 1 && value.len() <= 160 && value.contains(&b'(')
        || calls == 1 && value.len() < 60 && value.ends_with(b")")
}
