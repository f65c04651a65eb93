//! Scripts that exceed their limits.
#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by it")]

use std::time::Duration;

use margay_lua::{ErrorKind, Limits, LuaError, Mode, NoHost, Script, Settings, Source};

/// Instructions and memory limit a script here, not the clock, so that a slow machine gives the same result.
fn untimed(limits: Limits) -> Settings {
    Settings { limits: Limits { time: Duration::from_secs(24 * 3600), ..limits }, ..Settings::default() }
}

fn load(text: &str, settings: &Settings) -> Result<Script, LuaError> {
    let mut s = Script::load(&Source::new("t.lua", text.as_bytes()), settings)?;
    s.init(&mut NoHost, "match")?;
    Ok(s)
}

/// Runs the body of a `match`, and returns its result.
fn run_in(body: &str, settings: &Settings) -> Result<bool, LuaError> {
    let text = format!("function init() return {{}} end\nfunction match(args)\n{body}\nend");
    let s = load(&text, settings)?;
    let result = s.call(&mut NoHost, &[]);
    // The state can be called again.
    let again = s.call(&mut NoHost, &[]);
    assert_eq!(again.is_ok(), result.is_ok(), "{body}");
    result
}

fn run(body: &str) -> Result<bool, LuaError> {
    run_in(body, &untimed(Limits::RULES))
}

fn kind(body: &str) -> ErrorKind {
    match run(body) {
        Err(e) => e.kind,
        Ok(v) => panic!("{body}: {v}"),
    }
}

#[test]
fn endless_loops() {
    for body in [
        "while true do end",
        "local function f() return f() end return f()",
        "local n = 0 repeat n = n + 1 until n < 0",
        "for i = 1, math.huge do end",
        "goto a ::a:: goto a",
        "for _ in function() return 1 end do end",
        "table.sort({1, 2, 3, 4, 5}, function() while true do end end)",
        "string.gsub('aaa', 'a', function() while true do end end)",
    ] {
        assert_eq!(kind(body), ErrorKind::Instructions, "{body}");
    }
    // Deep but not endless recursion: each level needs memory.
    assert_eq!(kind("local function f() return 1 + f() end return f()"), ErrorKind::Memory);
}

#[test]
fn memory() {
    for body in [
        "local t = {} for i = 1, 1e9 do t[i] = {} end",
        "local s = 'x' while true do s = s .. s end",
        "return #string.rep('x', 1e9)",
        "return #string.rep('x', 1 << 40, 'yy')",
        "return #(('%d'):rep(400000)):gsub('%%d', '0123456789')",
        "local t = {} for i = 1, 100000 do t[i] = string.rep('x', 1000) .. i end",
        "return #string.pack('c100000000', '')",
        "local s = string.rep('x', 200000) return #table.concat({s, s, s, s})",
    ] {
        assert_eq!(kind(body), ErrorKind::Memory, "{body}");
    }
}

#[test]
fn memory_is_given_back() {
    let text = "function init() return {} end\nfunction match()\nlocal t = {} for i = 1, 2000 do t[i] = {i} end\nreturn 1\nend";
    let s = load(text, &Settings::default()).unwrap();
    for _ in 0..200 {
        assert_eq!(s.call(&mut NoHost, &[]), Ok(true));
    }
}

/// Work that C does between two instructions.
#[test]
fn work_without_instructions() {
    for body in [
        "return ('a'):rep(5000):find(('.-'):rep(12) .. 'b')",
        "return ('a'):rep(5000):match(('a*'):rep(20) .. 'b')",
        "for w in ('a'):rep(5000):gmatch(('.-'):rep(12) .. 'b') do end",
        "return ('a'):rep(5000):gsub(('.-'):rep(12) .. 'b', '')",
        "return ('(')  :rep(100000):find('%b()')",
        "table.move({}, 1, 1 << 60, 2)",
        "table.move({}, 1, 1 << 60, 2, {})",
        // A sparse table, for which Lua finds a very large length.
        "local t = {} for i = 0, 61 do t[1 << i] = 1 end table.insert(t, 1, 2) while true do end",
        "local t = {1} for i = 0, 61 do t[1 << i] = 1 end table.remove(t, 1) while true do end",
    ] {
        assert_eq!(kind(body), ErrorKind::Instructions, "{body}");
    }
    // An empty text repeated any number of times is empty.
    assert_eq!(run("return #string.rep('', 1 << 60) == 0 and 1 or 0"), Ok(true));
    for body in [
        "return table.unpack({}, 1, 1e7)",
        "return table.unpack({}, 1, 1 << 60)",
        "return table.concat({}, '', 1, 1 << 60)",
        "return ('x'):rep(100000):byte(1, -1)",
    ] {
        assert!(run(body).is_err(), "{body}");
    }
}

/// Each instruction may copy as much as memory allows. Then time is the limit.
#[test]
fn much_work_for_an_instruction() {
    // The clock ends such a call on any machine that needs longer for 500,000 instructions. The result is the same.
    let limits = Limits { time: Duration::from_millis(100), ..Limits::RULES };
    let settings = Settings { limits, ..Settings::default() };
    for body in [
        "local s = ('x'):rep(200000) while true do local t = s .. 'y' end",
        "local s = ('x'):rep(100000) while true do local t = s:upper() end",
        "local s = ('x'):rep(100000) while true do local t = s:reverse() == s end",
        "local s = ('x'):rep(100000) while true do local t = s:format() end",
        "local s = ('x'):rep(100000) while true do local t = s:find('y', 1, true) end",
        "local s = ('x'):rep(100000) while true do local t = {s:byte(1, 5000)} end",
    ] {
        let result = run_in(body, &settings);
        assert_eq!(result.unwrap_err().kind, ErrorKind::Instructions, "{body}");
    }
}

#[test]
fn what_is_not_there() {
    for (body, name) in [
        ("pcall(print)", "pcall"),
        ("xpcall(print, print)", "xpcall"),
        ("load('return 1')", "load"),
        ("loadfile('/etc/passwd')", "loadfile"),
        ("dofile('/etc/passwd')", "dofile"),
        ("setmetatable({}, {__gc = function() end})", "setmetatable"),
        ("getmetatable('')", "getmetatable"),
        ("collectgarbage('stop')", "collectgarbage"),
    ] {
        let e = run(body).unwrap_err();
        assert_eq!((e.kind, e.message.contains(name)), (ErrorKind::Blocked, true), "{e}");
        assert!(e.message.starts_with("t.lua:3: "), "{e}");
    }
    for body in [
        "return io.open('/etc/passwd')",
        "return os.execute('true')",
        "return os.getenv('HOME')",
        "return debug.getregistry()",
        "return coroutine.create(print)",
        "return package.path",
        "return require('os')",
        "return require('../x')",
        "return require('suricata.nothing')",
        "return jit.off()",
    ] {
        assert_eq!(kind(body), ErrorKind::Script, "{body}");
    }
    for name in ["io", "os", "debug", "coroutine", "package", "loadstring2", "native", "module"] {
        assert_eq!(run(&format!("return {name} == nil and 1 or 0")), Ok(true), "{name}");
    }
}

#[test]
fn what_is_there() {
    for (library, names) in [
        ("_G", "assert ipairs next pairs print rawequal rawlen select tonumber tostring type warn rawget rawset error"),
        ("table", "concat insert move pack remove sort unpack"),
        ("string", "byte char dump find format gmatch gsub len lower match pack packsize rep reverse sub unpack upper"),
        (
            "math",
            "abs acos asin atan atan2 ceil cos cosh deg exp floor fmod frexp ldexp log log10 max min modf pow rad random \
             randomseed sin sinh sqrt tan tanh tointeger type ult",
        ),
        ("utf8", "offset len codes char codepoint"),
    ] {
        for name in names.split_whitespace() {
            assert_eq!(run(&format!("return type({library}.{name}) == 'function' and 1 or 0")), Ok(true), "{name}");
        }
    }
    for expression in [
        "math.pow(2, 10) == 1024",
        "math.log10(1000) > 2.999 and math.log10(1000) < 3.001",
        "math.atan2(0, 1) == 0",
        "math.abs(math.sinh(1) - 1.1752011936) < 1e-9",
        "math.abs(math.cosh(1) - 1.5430806348) < 1e-9",
        "math.abs(math.tanh(1) - 0.7615941559) < 1e-9",
        "math.ldexp(0.5, 4) == 8",
        "select(2, math.frexp(8)) == 4 and math.frexp(8) == 0.5",
        "table.concat({1, 2, 3}, ',', 2) == '2,3'",
        "select('#', table.unpack({1, 2, nil, 4}, 1, 4)) == 4",
        "#table.move({1, 2, 3}, 1, 3, 2) == 4",
        "(function() local t = {3, 1, 2} table.sort(t) return t[1] == 1 and t[3] == 3 end)()",
        "(function() local t = {1, 3} table.insert(t, 2, 2) return t[2] == 2 and table.remove(t) == 3 end)()",
        "(function() local n = 0 for k, v in ('a=1, b=2'):gmatch('(%w+)=(%w+)') do n = n + v end return n == 3 end)()",
        "(function() local n = 0 for p in ('abc'):gmatch('()') do n = n + p end return n == 10 end)()",
        "('hello world'):gsub('o', '0', 1) == 'hell0 world'",
        "('hello'):gsub('', '-') == '-h-e-l-l-o-'",
        "('$a $b'):gsub('%$(%w)', {a = 'x'}) == 'x $b'",
        "('abc'):gsub('%w', '%0%0') == 'aabbcc'",
        "('abc'):gsub('^%w', function(c) return c:upper() end) == 'Abc'",
        "('x.y'):find('.', 1, true) == 2 and ('x.y'):find('y', -1) == 3",
        "('key = value'):match('^(%w+)%s*=%s*(%w+)$') == 'key'",
        "('ab'):rep(3, '-') == 'ab-ab-ab' and ('x'):rep(-1) == ''",
        "(7 & 3) == 3 and utf8.char(228) == 'ä'",
    ] {
        assert_eq!(run(&format!("return ({expression}) and 1 or 0")), Ok(true), "{expression}");
    }
}

/// Calls that nest through Rust and back fail before the stack overflows.
#[test]
fn deep_calls() {
    let thread = std::thread::Builder::new().stack_size(margay_lua::STACK).spawn(nest).expect("a thread");
    thread.join().expect("nothing panics");
}

fn nest() {
    for body in [
        "local function f() return ('a'):gsub('a', f) end return f()",
        "local function f() table.sort({2, 1}, f) end return f()",
        "local function f() for w in ('a'):gmatch('a') do f() end end return f()",
        "local t = {} for i = 1, 10000 do t = {t} end return #tostring(t)",
    ] {
        let result = run(body);
        assert!(
            matches!(&result, Err(e) if matches!(e.kind, ErrorKind::Script | ErrorKind::Memory)) || result == Ok(false),
            "{body}: {result:?}"
        );
    }
    let settings = Settings { mode: Mode::Open, ..untimed(Limits::OUTPUT) };
    for body in [
        "local function f() return pcall(f) end return f() and 1 or 1",
        "local function f() return coroutine.wrap(f)() end return pcall(f) and 1 or 1",
        "local t = {} for i = 1, 200000 do t[i] = ('a'):gmatch('a') end return 1",
        "local t = {} for i = 1, 900000 do t[i] = t end return pcall(table.concat, table.unpack(t)) and 0 or 1",
        "local t = {} for i = 1, 900000 do t[i] = 'x' .. i end return #table.pack(table.unpack(t)) > 0 and 1 or 0",
    ] {
        // So many arguments exceed Lua's stack. It only matters that this is an error.
        let result = run_in(body, &settings);
        assert!(
            result == Ok(true) || matches!(&result, Err(e) if e.message.contains("overflow")),
            "{body}: {result:?}"
        );
    }
}

/// Written lines are expensive.
#[test]
fn floods() {
    for body in ["while true do require('suricata.log').info('x') end", "while true do warn('x') end"] {
        assert_eq!(kind(body), ErrorKind::Instructions, "{body}");
    }
}

/// With all of Lua available, a limit still applies, and the process survives.
#[test]
fn open_mode() {
    let settings = Settings { mode: Mode::Open, ..Settings::default() };
    for body in [
        "while true do pcall(function() while true do end end) end",
        "while true do xpcall(function() while true do end end, print) end",
        "while true do coroutine.resume(coroutine.create(function() while true do end end)) end",
        "coroutine.wrap(function() while true do end end)()",
    ] {
        assert_eq!(run_in(body, &settings).unwrap_err().kind, ErrorKind::Instructions, "{body}");
    }
    assert_eq!(run_in("os.exit(3)", &settings).unwrap_err().kind, ErrorKind::Blocked);
    for body in [
        "return pcall(error, 'x') and 0 or 1",
        "return select(2, pcall(error, {code = 1})).code",
        "return load('return 1')()",
        "return load('x = ...; return x', 'n', 'b', {})(1)",
        "return load(string.dump(function() return 1 end)) == nil and 1 or 0",
        "return io.open('/nonexistent/x') == nil and 1 or 0",
        "return pcall(setmetatable, {}, {__gc = print}) and 0 or 1",
        "return setmetatable({}, {__index = function() return 1 end}).x",
        "return type(os.time()) == 'number' and 1 or 0",
        "return package.loadlib == nil and 1 or pcall(package.loadlib, '/lib/x.so', 'f') and 1 or 1",
    ] {
        assert_eq!(run_in(body, &settings), Ok(true), "{body}");
    }
}

#[test]
fn limits_are_those_of_the_settings() {
    let loops = |n: u32| format!("for i = 1, {n} do end return 1");
    let with = |instructions| untimed(Limits { instructions, ..Limits::RULES });
    assert_eq!(run_in(&loops(1000), &with(5000)), Ok(true));
    assert_eq!(run_in(&loops(10_000), &with(5000)).unwrap_err().kind, ErrorKind::Instructions);
    // The limit applies to one call, not to all calls together.
    let s =
        load(&format!("function init() return {{}} end function match() {} end", loops(1000)), &with(5000)).unwrap();
    assert!((0..50).all(|_| s.call(&mut NoHost, &[]) == Ok(true)));
    let with = |bytes| untimed(Limits { bytes, ..Limits::RULES });
    let body = "local s = string.rep('x', 100000) return 1";
    assert_eq!(run_in(body, &with(400_000)), Ok(true));
    assert_eq!(run_in(body, &with(50_000)).unwrap_err().kind, ErrorKind::Memory);
}

#[test]
fn errors_name_file_and_line() {
    for (text, want) in [
        ("1x", "t.lua:1: malformed number near '1x'"),
        ("\nfunction init(", "t.lua:2: <name> or '...' expected near <eof>"),
        ("x = 1", "t.lua: there is no function init() in the script"),
        ("function init() end", "t.lua: init() returns no table"),
        ("function init() return {} end", "t.lua: there is no function match() in the script"),
        ("function init()\nreturn nil + 1 end", "t.lua:2: attempt to perform arithmetic on a nil value"),
        ("function init() return {[1] = true} end", "t.lua: init() returns a table with a key that is no name"),
        ("function init() return {packet = 3} end", "t.lua: init() has a integer for packet"),
        ("error('stop')", "t.lua:1: stop"),
        ("while true do end", "t.lua:1: instruction limit exceeded"),
        ("\x1bLua", "t.lua: "),
    ] {
        let e = load(text, &untimed(Limits::RULES)).map(|_| ()).unwrap_err();
        assert!(e.message.starts_with(want), "{text}: {e}");
    }
    assert!(run("return nil .. 'x'").unwrap_err().message.starts_with("t.lua:3: attempt to concatenate a nil value"));
    assert!(run("return ('x'):find('[')").unwrap_err().message.starts_with("t.lua:3: malformed pattern"));
}

#[test]
fn what_match_returns() {
    for (value, want) in [
        ("1", true),
        ("1.0", true),
        ("0", false),
        ("2", false),
        ("true", false),
        ("nil", false),
        ("{retval = 1}", true),
    ] {
        assert_eq!(run(&format!("return {value}")), Ok(want), "{value}");
    }
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig {
        cases: 400,
        failure_persistence: None,
        ..proptest::prelude::ProptestConfig::default()
    })]
    /// Any program assembled from pieces of Lua ends soon, with or without an error.
    #[test]
    fn any_script_ends(pieces in proptest::collection::vec(0usize..48, 0..24), bytes in "\\PC{0,8}") {
        const PIECES: [&str; 48] = [
            "x", "y", "=", "(", ")", "{", "}", "[1]", ".", "..", ",", ";", " end ", " do ", " while true ", " if x ",
            " then ", " else ", " function f(a) ", " return ", " local ", " for i = 1, 1e9 ", " repeat ", " until x ",
            " not ", "#", "-", "*", " and ", " or ", "1", "1e300", "'a'", "('a'):rep(1000)", "x = x or {} ", "f()",
            "x = {x} ", "string.gsub('aaa', 'a*', f)", "table.insert(x, 1, x)", "x = x .. x ", "string.format('%q', x)",
            "('x'):find(('x*'):rep(30) .. 'y')", "table.sort(x, f)", "next(x)", "error(x)", "require('suricata.hashing').md5()",
            "SCPacketTuple()", "goto l ::l:: ",
        ];
        let body: String = pieces.iter().map(|p| PIECES[*p]).collect();
        let settings = untimed(Limits { instructions: 20_000, bytes: 200_000, ..Limits::RULES });
        for text in [format!("x = {{}} function f(a) return a end {body}"), format!("{body}{bytes}"), bytes] {
            let _ = Script::load(&Source::new("t.lua", text.as_bytes()), &settings);
        }
    }
}
