-- Functions of scripts besides Lua's own: the libraries that scripts require, the older global functions, and bounded or
-- blocked replacements of Lua functions.
local native, mode = ...
local error, type, select, tostring, ipairs, pairs = error, type, select, tostring, ipairs, pairs
local rawget, concat, format = rawget, table.concat, string.format

-- Sends a query to the engine, with at most three arguments. The engine answers only while it calls the script.
local function ask(subject, what, a, b, c)
    local host = native.host
    if not host then
        error("the engine can only be asked for this while it calls a function of the script", 3)
    end
    return host(subject, what, a, b, c)
end

-- An object whose methods query a subject; for a transaction, with the protocol.
local function methods(object, subject, names, protocol)
    for _, name in ipairs(names) do
        if protocol then
            object[name] = function(_, a) return ask(subject, name, protocol, a) end
        else
            object[name] = function(_, a) return ask(subject, name, a) end
        end
    end
    return object
end

-- A library with a function that returns the object, if it is available now.
local function library(getter, subject, names, protocol)
    local object = methods({}, subject, names, protocol)
    return {
        [getter] = function()
            local there, why = ask(subject, "get", protocol)
            if there then return object end
            return nil, why
        end,
    }, object
end

-- The cost of a written line, in instructions.
local LINE = 500

local libs = {}

local packet
libs["suricata.packet"], packet = library("get", "packet",
    { "timestamp", "timestring_legacy", "timestring_iso8601", "tuple", "sp", "dp", "payload", "packet", "pcap_cnt" })
packet.timestring = packet.timestring_iso8601

local flow
libs["suricata.flow"], flow = library("get", "flow",
    { "timestamps", "timestring_legacy", "timestring_iso8601", "tuple", "app_layer_proto", "has_alerts", "id", "stats" })

local rule
libs["suricata.rule"], rule = library("get_rule", "rule",
    { "sid", "gid", "rev", "msg", "action", "class_description", "priority", "class" })

local file
libs["suricata.file"], file = library("get_file", "file",
    { "file_id", "tx_id", "name", "size", "magic", "md5", "sha1", "sha256", "get_state", "is_stored" })

local http
libs["suricata.http"], http = library("get_tx", "tx",
    { "request_header", "response_header", "request_line", "response_line", "request_headers_raw", "response_headers_raw",
      "request_uri_raw", "request_uri_normalized", "request_headers", "response_headers", "request_body", "response_body",
      "request_host" }, "http")

local tls
libs["suricata.tls"], tls = library("get_tx", "tx",
    { "get_client_version", "get_client_cert_chain", "get_client_cert_not_after", "get_client_cert_not_before",
      "get_client_serial", "get_sni", "get_server_version", "get_server_cert_chain", "get_server_cert_not_after",
      "get_server_cert_not_before", "get_server_serial", "get_client_cert_info", "get_server_cert_info" }, "tls")

local ssh
libs["suricata.ssh"], ssh = library("get_tx", "tx",
    { "server_proto", "client_proto", "server_software", "client_software", "client_hassh", "client_hassh_string",
      "server_hassh", "server_hassh_string" }, "ssh")
libs["suricata.ssh"].enable_hassh = function() native.register("hassh", "hassh") end

local smtp
libs["suricata.smtp"], smtp = library("get_tx", "tx",
    { "get_mime_field", "get_mime_list", "get_mail_from", "get_rcpt_list" }, "smtp")

local ja3
libs["suricata.ja3"], ja3 = library("get_tx", "tx",
    { "ja3_get_hash", "ja3_get_string", "ja3s_get_hash", "ja3s_get_string" }, "ja3")
libs["suricata.ja3"].enable_ja3 = function() native.register("ja3", "ja3") end

-- Functions of the library, and methods of the result of get_tx(): both forms are documented.
local dns, dns_methods = library("get_tx", "tx",
    { "answers", "authorities", "additionals", "queries", "rcode", "rcode_string", "recursion_desired", "rrname", "txid" },
    "dns")
for name, f in pairs(dns_methods) do dns[name] = f end
libs["suricata.dns"] = dns

-- A table with all fields of the message, not an object.
libs["suricata.dnp3"] = {
    get_tx = function()
        local tx, why = ask("tx", "table", "dnp3")
        return tx, why
    end,
}

local ntp
libs["suricata.ntp"], ntp = library("get_tx", "tx", { "version", "mode", "stratum", "reference_id" }, "ntp")

libs["suricata.flowvar"] = {
    register = function(name) native.register("flowvar", name) end,
    get = function(name)
        return {
            value = function() return (ask("flowvar", "get", name)) end,
            set = function(_, value, len)
                value = tostring(value)
                if len then value = value:sub(1, len) end
                return (ask("flowvar", "set", name, value))
            end,
        }
    end,
}

local function flowint(name)
    local function get() return (ask("flowint", "get", name)) end
    local function set(n) return (ask("flowint", "set", name, tonumber(n) or n)) end
    return {
        value = get,
        set = function(_, n) return set(n) end,
        incr = function()
            set((get() or 0) + 1)
            -- It may have wrapped.
            return get()
        end,
        decr = function()
            local n = get() or 0
            if n > 0 then n = n - 1 end
            set(n)
            return n
        end,
    }
end
libs["suricata.flowint"] = {
    register = function(name) native.register("flowint", name) end,
    get = flowint,
}

libs["suricata.bytevar"] = {
    map = function(_, name)
        ask("bytevar", "map", name)
        native.register("bytevar", name)
    end,
    get = function(name)
        if not native.registered("bytevar", name) then
            error("the byte variable " .. tostring(name) .. " was not mapped in init()", 2)
        end
        return { value = function() return (ask("bytevar", "get", name)) end }
    end,
}

libs["suricata.dataset"] = {
    new = function()
        local set, asked
        return {
            get = function(_, name, kind)
                -- Scripts open sets in thread_init() and setup(), before there is any: the first add() opens it then.
                if not native.host or not ask("dataset", "ready") then
                    asked = { name, kind }
                    return 0
                end
                local there, why = ask("dataset", "get", name, kind)
                if not there then return nil, why end
                set = name
                return 0
            end,
            add = function(_, data, len)
                if asked then
                    local there, why = ask("dataset", "get", asked[1], asked[2])
                    if not there then return nil, why end
                    set, asked = asked[1], nil
                end
                if not set then return nil, "the dataset was not opened: call get() first" end
                if len then data = data:sub(1, len) end
                return ask("dataset", "add", set, data)
            end,
        }
    end,
}

libs["suricata.base64"] = {
    encode = native.base64_encode,
    decode = native.base64_decode,
    encode_nopad = native.base64_nopad_encode,
    decode_nopad = native.base64_nopad_decode,
}

local hashing = {}
for _, name in ipairs({ "md5", "sha1", "sha256" }) do
    hashing[name .. "_digest"] = function(text)
        local h = native.hasher(name)
        native.hash_update(h, text)
        return native.hash_finish(h)
    end
    hashing[name .. "_hex_digest"] = function(text) return native.hex(hashing[name .. "_digest"](text)) end
    -- Called with a dot, as in the manual's example, or with a colon.
    hashing[name] = function()
        local h = native.hasher(name)
        return {
            update = function(a, b)
                if b == nil then b = a end
                native.hash_update(h, b)
            end,
            finalize = function() return native.hash_finish(h) end,
            finalize_to_hex = function() return native.hex(native.hash_finish(h)) end,
        }
    end
end
libs["suricata.hashing"] = hashing

local log = {}
for _, level in ipairs({ "info", "notice", "warning", "error", "debug", "config", "perf" }) do
    local write = native["log_" .. level]
    log[level] = function(text)
        native.spend(LINE)
        write(tostring(text))
    end
end
libs["suricata.log"] = log

libs["suricata.config"] = {
    log_path = function()
        if native.log_path then return native.log_path end
        return nil, "there is no folder for logs here"
    end,
}

libs["suricata.util"] = {
    thread_info = function()
        local id, name, group = ask("thread", "info")
        -- The first 8.0 releases document group_name.
        return { id = id, name = name, group = group, group_name = group }
    end,
}

local require_file = require
function require(name)
    local found = libs[name]
    if found then return found end
    if require_file then return require_file(name) end
    error(format("module '%s' not found: there are the suricata.* libraries only", tostring(name)), 2)
end

-- The global functions of older releases.
local function get(protocol, name)
    return function(a) return ask("tx", name, protocol, a) end
end
for old, name in pairs({
    HttpGetRequestBody = "request_body", HttpGetResponseBody = "response_body", HttpGetRequestHost = "request_host",
    HttpGetRequestHeader = "request_header", HttpGetResponseHeader = "response_header",
    HttpGetRequestLine = "request_line", HttpGetResponseLine = "response_line",
    HttpGetRawRequestHeaders = "request_headers_raw", HttpGetRawResponseHeaders = "response_headers_raw",
    HttpGetRequestUriRaw = "request_uri_raw", HttpGetRequestUriNormalized = "request_uri_normalized",
    HttpGetRequestHeaders = "request_headers", HttpGetResponseHeaders = "response_headers",
}) do _G[old] = get("http", name) end
for old, name in pairs({
    DnsGetQueries = "queries", DnsGetAnswers = "answers", DnsGetAuthorities = "authorities", DnsGetRcode = "rcode_string",
    DnsGetRecursionDesired = "recursion_desired", DnsGetDnsRrname = "rrname", DnsGetTxid = "txid",
}) do _G[old] = get("dns", name) end
for old, name in pairs({
    TlsGetVersion = "get_client_version", TlsGetCertInfo = "get_server_cert_info", TlsGetCertChain = "get_server_cert_chain",
    TlsGetCertNotAfter = "get_server_cert_not_after", TlsGetCertNotBefore = "get_server_cert_not_before",
    TlsGetCertSerial = "get_server_serial", TlsGetSNI = "get_sni",
}) do _G[old] = get("tls", name) end
for old, name in pairs({
    Ja3GetHash = "ja3_get_hash", Ja3GetString = "ja3_get_string", Ja3SGetHash = "ja3s_get_hash",
    Ja3SGetString = "ja3s_get_string",
}) do _G[old] = get("ja3", name) end
for old, name in pairs({
    SshGetServerProtoVersion = "server_proto", SshGetServerSoftwareVersion = "server_software",
    SshGetClientProtoVersion = "client_proto", SshGetClientSoftwareVersion = "client_software",
    HasshGet = "client_hassh", HasshGetString = "client_hassh_string", HasshServerGet = "server_hassh",
    HasshServerGetString = "server_hassh_string",
}) do _G[old] = get("ssh", name) end
for old, name in pairs({
    SMTPGetMimeField = "get_mime_field", SMTPGetMimeList = "get_mime_list", SMTPGetMailFrom = "get_mail_from",
    SMTPGetRcptList = "get_rcpt_list",
}) do _G[old] = get("smtp", name) end
for old, from in pairs({
    SCPacketTimestamp = { packet, "timestamp" }, SCPacketTimeString = { packet, "timestring_legacy" },
    SCPacketTuple = { packet, "tuple" }, SCPacketPayload = { packet, "payload" },
    SCFlowTimestamps = { flow, "timestamps" }, SCFlowTimeString = { flow, "timestring_legacy" },
    SCFlowTuple = { flow, "tuple" }, SCFlowAppLayerProto = { flow, "app_layer_proto" },
    SCFlowHasAlerts = { flow, "has_alerts" }, SCFlowStats = { flow, "stats" }, SCFlowId = { flow, "id" },
    SCRuleAction = { rule, "action" }, SCRuleMsg = { rule, "msg" },
}) do
    local f = from[1][from[2]]
    _G[old] = function() return f() end
end
-- The class as alerts show it; class() of the library has its short name.
function SCRuleClass()
    return (ask("rule", "class_description")), (ask("rule", "priority"))
end
function SCRuleIds()
    return (ask("rule", "sid")), (ask("rule", "rev")), (ask("rule", "gid"))
end
function SCFileInfo()
    return file.file_id(), file.tx_id(), (file.name()), (file.size()), (file.magic()), (file.md5()), (file.sha1()),
        (file.sha256())
end
function SCFileState()
    return (file.get_state()), (file.is_stored())
end
function SCStreamingBuffer()
    local stream = native.args and native.args.stream
    if not stream then return nil, "there is no stream here" end
    return stream.data, stream.open, stream.close, stream.toserver, stream.toclient
end
function SCThreadInfo()
    return ask("thread", "info")
end
function SCLogPath()
    return libs["suricata.config"].log_path()
end
for name, level in pairs({
    SCLogDebug = "debug", SCLogInfo = "info", SCLogNotice = "notice", SCLogWarning = "warning", SCLogError = "error",
}) do _G[name] = log[level] end
-- By their index, from 0, among those that init() named.
local function at(kind, index)
    local name = native.registered(kind, index)
    if not name then error(format("there is no %s number %s: init() names them", kind, tostring(index)), 3) end
    return name
end
function SCFlowvarGet(index) return (ask("flowvar", "get", at("flowvar", index))) end
function SCFlowvarSet(index, value, len)
    value = tostring(value)
    if len then value = value:sub(1, len) end
    return (ask("flowvar", "set", at("flowvar", index), value))
end
function SCFlowintGet(index) return (ask("flowint", "get", at("flowint", index))) end
function SCFlowintSet(index, n) return (ask("flowint", "set", at("flowint", index), tonumber(n) or n)) end
function SCFlowintIncr(index) return flowint(at("flowint", index)).incr() end
function SCFlowintDecr(index) return flowint(at("flowint", index)).decr() end
function SCByteVarGet(index) return (ask("bytevar", "get", at("bytevar", index))) end

-- Replaces Lua functions whose work is not bounded by their arguments.
local string, table, math = string, table, math
string.find, string.match, string.gsub, string.rep = native.find, native.match, native.gsub, native.rep
function string.gmatch(text, pattern, init)
    local next_match, from, last = native.next_match, init or 1, -1
    text, pattern = text .. "", pattern .. ""
    if from < 0 then from = #text + from + 1 end
    if from < 1 then from = 1 end
    from = from - 1
    local function step(stop, ...)
        if stop < 0 then
            from = #text + 1
            return nil
        end
        from, last = stop, stop
        return ...
    end
    return function() return step(next_match(text, pattern, from, last)) end
end
local pay = native.pay
for _, name in ipairs({ "insert", "remove", "move", "unpack", "concat", "sort" }) do
    local f = table[name]
    table[name] = function(...)
        local a, b, c, d = ...
        pay(name, select("#", ...), a, b, c, d)
        return f(...)
    end
end

for _, name in ipairs({ "print", "warn" }) do
    local f = _G[name]
    _G[name] = function(...)
        native.spend(LINE)
        return f(...)
    end
end

-- Functions of older Lua releases that the manual lists.
local exp, log_of = math.exp, math.log
math.pow = math.pow or function(x, y) return x ^ y end
math.log10 = math.log10 or function(x) return log_of(x, 10) end
math.atan2 = math.atan2 or math.atan
math.sinh = math.sinh or function(x) return (exp(x) - exp(-x)) / 2 end
math.cosh = math.cosh or function(x) return (exp(x) + exp(-x)) / 2 end
math.tanh = math.tanh or function(x)
    if x > 20 then return 1.0 elseif x < -20 then return -1.0 end
    local a, b = exp(x), exp(-x)
    return (a - b) / (a + b)
end
math.ldexp = math.ldexp or function(m, e) return m * 2.0 ^ e end
math.frexp = math.frexp or function(x)
    if x == 0 or x ~= x or x == math.huge or x == -math.huge then return x, 0 end
    local e = math.floor(log_of(x < 0 and -x or x, 2)) + 1
    local m = x / 2.0 ^ e
    if m >= 1 or m <= -1 then m, e = m / 2, e + 1 end
    if m < 0.5 and m > -0.5 then m, e = m * 2, e - 1 end
    return m, e
end

local function blocked(name)
    return function() native.blocked(name) end
end
if mode == "sandbox" then
    for _, name in ipairs({ "collectgarbage", "dofile", "getmetatable", "load", "loadfile", "loadstring", "pcall",
        "setmetatable", "xpcall" }) do
        _G[name] = blocked(name)
    end
else
    -- All of Lua, except functions that would end the process, outlast a limit, or run byte code.
    os.exit = blocked("os.exit")
    local is_over = native.is_over
    local function caught(ok, ...)
        if not ok and is_over() then error("instruction limit exceeded", 0) end
        return ok, ...
    end
    local pcall_of, xpcall_of, resume = pcall, xpcall, coroutine.resume
    function pcall(...) return caught(pcall_of(...)) end
    function xpcall(...) return caught(xpcall_of(...)) end
    function coroutine.resume(...) return caught(resume(...)) end
    local set = setmetatable
    function setmetatable(t, meta)
        if type(meta) == "table" and rawget(meta, "__gc") ~= nil then
            error("finalizers (__gc) are not possible: no limit would hold for them", 2)
        end
        return set(t, meta)
    end
    local load_of, loadfile_of = load, loadfile
    function load(chunk, name, _, ...) return load_of(chunk, name, "t", ...) end
    function loadfile(name, _, ...) return loadfile_of(name, "t", ...) end
    function dofile(name)
        local f, why = loadfile_of(name, "t")
        if not f then error(why, 2) end
        return f()
    end
end
