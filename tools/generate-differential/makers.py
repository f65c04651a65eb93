"""Generates rules from the contents of a capture, with a function for each family. A case is a list of texts that belong together: one sets state
that another checks. `@` in the name of a bit or an integer stands for the case's number."""
import ipaddress

from captures import values

FLAGS = 'FSRPAUEC'


def text(data):
    """Bytes as the argument of `content`."""
    out, hexed = [], False
    for b in data:
        plain = 32 <= b < 127 and chr(b) not in '"\\;:|@'
        if plain == hexed: out.append('|'); hexed = not plain
        elif hexed: out.append(' ')
        out.append(chr(b) if plain else f'{b:02X}')
    return ''.join(out) + ('|' if hexed else '')


def cut(r, data, least=1, most=16):
    """A random piece of `data`, and its offset."""
    n = min(len(data), r.randint(least, most))
    at = r.randint(0, len(data) - n)
    return at, data[at:at + n]


def compare(r, n, top=None):
    """A comparison with `n` or a number near it."""
    top = n * 2 + 2 if top is None else top
    m = max(0, min(top, n + r.choice([-1, 0, 0, 0, 1, r.randint(-9, 9)])))
    return r.choice([f'{m}', f'<{m + 1}', f'>{m}', f'!{m}', f'>={m}', f'<={m}', f'{max(0, m - 2)}<>{m + 2}'])


def address(r, ip, v6):
    bits = r.choice([64, 48, 128] if v6 else [24, 16, 32])
    net = ipaddress.ip_network(f'{ip}/{bits}', strict=False)
    return r.choice(['any'] * 4 + ['$HOME_NET', ip, str(net), f'[{ip},192.0.2.1]', f'[{net},!192.0.2.7]', '!192.0.2.0/24', f'!{ip}', '!2001:db8::/32', '[!192.0.2.0/24,2000::/3]'])


def port(r, n):
    low, high = max(0, n - r.randint(0, 9)), min(65535, n + r.randint(0, 9))
    return r.choice(['any'] * 4 + [str(n), f'{low}:{high}', f'{n}:', f':{n}', f'!{(n + 999) % 65535}', f'[{n},1:3]', f'[{low}:{high},!{(n + 500) % 65535}]'])


def header(r, p, protocols=None):
    name = {6: 'tcp', 17: 'udp', 1: 'icmp', 58: 'icmp'}.get(p.proto, 'ip')
    if protocols is None:
        protocols = [name] * 5 + ['ip'] + (['tcp-pkt', 'tcp-stream'] if p.proto == 6 else []) + ['pkthdr']
    ports = p.proto in (6, 17)
    sides = [(p.src, p.sport), (p.dst, p.dport)]
    if r.random() < .1: sides.reverse()
    (a, ap), (b, bp) = sides
    return 'alert {} {} {} {} {} {}'.format(r.choice(protocols), address(r, a, p.v6), port(r, ap) if ports else 'any', r.choice(['->'] * 9 + ['<>']), address(r, b, p.v6), port(r, bp) if ports else 'any')


def flow(r):
    return r.choice([[]] * 5 + [['flow:established'], ['flow:to_server'], ['flow:to_client'], ['flow:established,from_server'], ['flow:stateless'], ['flow:not_established'], ['flow:no_frag']])


def content(r, data, at=None, relative=False):
    """A `content` with modifiers, which `data` mostly matches."""
    if not data: return ['content:"a"']
    at, found = cut(r, data) if at is None else (at, data[at:at + r.randint(1, 9)])
    out = []
    if r.random() < .2: found = found.swapcase(); out.append('nocase')
    if relative: out += [f'distance:{r.randint(0, 4)}'] if r.random() < .5 else [f'distance:0', f'within:{len(found) + r.randint(0, 9)}']
    else:
        if r.random() < .3: out.append(f'offset:{max(0, at - r.randint(0, 3))}')
        if r.random() < .3: out.append(f'depth:{len(found) + r.randint(0, at + 3)}')
        if not out and r.random() < .15: out.append('startswith')
    if r.random() < .1: out.append('endswith')
    if r.random() < .1: out.append('fast_pattern')
    return [f'content:{r.choice(["", "", "", "", "!"])}"{text(found)}"', *[m for m in out if not (m == 'startswith' and 'endswith' in out)]]


def expression(r, data):
    _, found = cut(r, data, 1, 8)
    parts = [r.choice([f'\\x{b:02x}'] * 6 + ['.', '[\\x00-\\xff]', '\\w+', '.{1}']) for b in found]
    return f'pcre:{r.choice(["", "", "!"])}"/{"".join(parts)}{r.choice(["", "", "$"])}/{r.choice(["", "s", "i", "m", "si"])}"'


def pieces(r, data):
    """One or more contents, and perhaps an expression, for a buffer."""
    out = content(r, data)
    if r.random() < .25: out += content(r, data, relative=r.random() < .6)
    if r.random() < .15 and data: out.append(expression(r, data))
    return out


def rule(head, options): return f'{head} (' + ' '.join(f'{o};' for o in options) + ' sid:@;)'


def payload(r, w):
    p = r.choice(w.loaded())
    size = [f'dsize:{compare(r, len(p.payload))}'] if r.random() < .2 else []
    return [rule(header(r, p), flow(r) + size + pieces(r, p.payload))]


def stream(r, w):
    if not w.streams: return payload(r, w)
    p, data = r.choice(w.streams)
    at, found = cut(r, data, 4, 24)
    half = len(found) // 2
    options = [f'content:"{text(found)}"'] if r.random() < .5 else [f'content:"{text(found[:half])}"', f'content:"{text(found[half:])}"', 'distance:0', f'within:{len(found) - half}']
    extra = r.choice([[]] * 3 + [['flow:only_stream'], ['flow:established'], ['flow:no_stream']])
    return [rule(header(r, p, ['tcp', 'tcp', 'tcp-stream', 'tcp-pkt']), extra + options)]


def number_at(data, at, n, order): return int.from_bytes(data[at:at + n], order) if at + n <= len(data) else 0


def bytes_of(r, w):
    """A rule with a byte keyword (`byte_test`, `byte_jump` and others)."""
    p = r.choice(w.loaded()); data = p.payload or b'\0'
    n, order = r.choice([1, 2, 2, 4]), r.choice(['big', 'big', 'little'])
    at = r.randint(0, max(0, min(len(data) - n, 64))); v = number_at(data, at, n, order)
    little = f',{order}' if order == 'little' or r.random() < .3 else ''
    near = max(0, v + r.choice([0, 0, 0, 1, -1]))
    kind = r.randrange(8)
    if kind < 3:
        options = [f'byte_test:{n},{r.choice(["", "!"])}{r.choice(["=", "<", ">", "<=", ">=", "&", "^"])},{near},{at}{little}{r.choice(["", "", f",bitmask 0x{(1 << r.randint(1, 8 * n)) - 1:x}"])}']
    elif kind == 3:
        options = [f'byte_jump:{n},{at}{little}{r.choice(["", ",from_beginning", ",from_end", ",align"])}{r.choice(["", f",post_offset {r.randint(-9, 9)}", f",multiplier {r.randint(1, 3)}"])}', r.choice([f'isdataat:{r.randint(0, 9)},relative', f'isdataat:!{r.randint(1, 9)},relative', 'content:"|00|"; distance:0'])]
    elif kind == 4:
        options = [f'byte_extract:{n},{at},x{little}', r.choice([*[f'isdataat:{q}x' for q in ('', '!')], f'content:"{text(cut(r, data)[1])}"; offset:x', f'content:"{text(cut(r, data)[1])}"; depth:x', f'byte_test:1,>,x,{r.randint(0, 9)}'])]
    elif kind == 5:
        options = [f'byte_math:bytes {n}, offset {at}, oper {r.choice(["+", "-", "*", "/", "<<", ">>"])}, rvalue {r.randint(1, 9)}, result y{r.choice(["", ", endian little", ", bitmask 0xff"])}', r.choice([f'byte_test:{n},>,y,{r.randint(0, 9)}', 'isdataat:y', 'isdataat:!y', 'content:"|00|"; offset:y'])]
    elif kind == 6:
        options = [f'isdataat:{r.choice(["", "!"])}{max(0, len(data) + r.randint(-3, 3))}']
    else:
        options = [f'byte_test:{r.randint(1, 3)},{r.choice("=<>")},{r.randint(0, 99)},{r.randint(0, 9)},string,{r.choice(["dec", "hex", "oct"])}']
    before = [f'content:"{text(cut(r, data)[1])}"'] if r.random() < .2 else []
    return [rule(header(r, p), before + options)]


def headers(r, w):
    p = r.choice(w.packets)
    choices = [f'ttl:{compare(r, p.ttl, 255)}', f'dsize:{compare(r, len(p.payload))}', f'ip_proto:{r.choice(["", "!", "<", ">"])}{p.proto}', 'sameip', f'fragbits:{r.choice(["", "!", "+", "*"])}{r.choice(["D", "M", "R"])}', f'ipopts:{r.choice(["any", "ts", "rr"])}',
               'l3_proto:' + r.choice(['ipv4', 'ipv6']), f'ipv4.hdr; content:"{text(cut(r, bytes([p.ttl, p.proto]), 1, 2)[1])}"', f'geoip:src,US'][:8]
    if not p.v6: choices.append(f'id:{p.ident}')
    if p.proto == 6:
        set_ = ''.join(f for i, f in enumerate(FLAGS) if p.flags >> i & 1) or '0'
        choices += [f'flags:{r.choice(["", "+", "*", "!"])}{set_}{r.choice(["", ",CE"])}', f'flags:{r.choice(["", "+", "*", "!"])}{r.choice(["S", "SA", "FA", "R", "PA"])}', f'seq:{p.seq}', f'ack:{p.ack}', f'window:{r.choice(["", "!"])}{p.window}', f'stream_size:{r.choice(["server", "client", "both", "either"])},{r.choice(["<", ">", "=", "!=", ">=", "<="])},{r.choice([0, 1, 27, 100, 1448, 9000])}', f'tcp.mss:{r.choice(["<", ">"])}1400', f'tcp.hdr; content:"{text(cut(r, p.head, 1, 3)[1])}"' if p.head else 'ack:0']
    if p.proto == 17 and p.head: choices += [f'udp.hdr; content:"{text(cut(r, p.head, 1, 3)[1])}"; offset:{r.randint(0, 4)}']
    if p.proto in (1, 58) and p.head:
        choices += [f'itype:{compare(r, p.head[0], 255)}', f'icode:{compare(r, p.head[1], 255)}', f'icmp_id:{int.from_bytes(p.head[4:6], "big")}', f'icmp_seq:{int.from_bytes(p.head[6:8], "big")}', f'icmpv4.hdr; content:"{text(p.head[:1])}"']
    choices += [f'flow.age:{compare(r, 3)}', 'flow.pkts_toserver:>1', 'flow.bytes_toclient:>100']
    return [rule(header(r, p), flow(r) + r.sample(choices, r.choice([1, 1, 2])))]


def cause(r, w):
    """The header and options of a rule that many packets match."""
    p = r.choice(w.loaded())
    name = {6: 'tcp', 17: 'udp'}.get(p.proto, 'ip')
    check = r.choice([f'dsize:>{r.randint(0, 60)}', f'content:"{text(cut(r, p.payload, 1, 2)[1])}"' if p.payload else 'dsize:>0', f'ip_proto:{p.proto}'])
    return f'alert {"ip" if check.startswith("ip_proto") else name} any any -> any any', [*r.choice([[]] * 4 + [['flow:established'], ['flow:to_server'], ['flow:to_client']]), check]


def state(r, w):
    """Two rules on a bit or an integer: one sets it, the other checks it."""
    (h1, c1), (h2, c2) = cause(r, w), cause(r, w)
    kind = r.choice(['flowbits', 'xbits', 'hostbits', 'flowint'])
    if kind == 'flowbits': change, ask = f'flowbits:{r.choice(["set", "toggle", "unset"])},b@', f'flowbits:{r.choice(["isset", "isnotset"])},b@'
    elif kind == 'xbits':
        track, expire = r.choice(['ip_src', 'ip_dst', 'ip_pair']), r.choice(['', '', ', expire 5', ', expire 300'])
        change, ask = f'xbits:{r.choice(["set", "set", "toggle", "unset"])},b@,track {track}{expire}', f'xbits:{r.choice(["isset", "isnotset"])},b@,track {r.choice([track, track, "ip_src"])}'
    elif kind == 'hostbits':
        change, ask = f'hostbits:{r.choice(["set", "toggle"])},b@,{r.choice(["src", "dst"])}', f'hostbits:{r.choice(["isset", "isnotset"])},b@,{r.choice(["src", "dst"])}'
    else: change, ask = f'flowint:bb@,{r.choice(["+", "="])},{r.randint(1, 3)}', f'flowint:bb@,{r.choice(["isset", "isnotset", ">,1", "==,2", "<,3"])}'
    both = [rule(h1, [*c1, change, *r.choice([[], [], ['noalert']])]), rule(h2, [*c2, ask])]
    if r.random() < .2: both.reverse()
    return both


def threshold(r, w):
    head, options = cause(r, w)
    track, count, seconds = r.choice(['by_src', 'by_dst', 'by_both', 'by_rule', 'by_src', 'by_dst']), r.randint(1, 6), r.choice([1, 2, 10, 60, 600])
    kind = r.choice(['limit', 'threshold', 'both'])
    return [rule(head, [*options, r.choice([f'threshold:type {kind}, track {track}, count {count}, seconds {seconds}'] * 2 + [f'detection_filter:track {r.choice(["by_src", "by_dst"])}, count {count}, seconds {seconds}'])])]


def options(r, w):
    head, parts = cause(r, w)
    extra = r.choice(['gid:2', 'rev:3', 'priority:1', 'classtype:misc-activity', 'metadata:a b, c d', 'reference:url,a.example', 'target:src_ip', 'tag:session,5,packets', 'tag:host,3,packets,src', 'noalert', 'prefilter', 'rawbytes', 'requires:version >= 7', 'requires:feature geoip', 'requires:keyword http.uri', 'bypass', 'sid:5'])
    return [rule(head, [*parts, extra])]


PROTOCOLS = ['http', 'tls', 'dns', 'ftp', 'smtp', 'ssh', 'smb', 'dcerpc', 'nfs', 'ntp', 'dhcp', 'sip', 'rdp', 'rfb', 'mqtt', 'snmp', 'krb5', 'ike', 'tftp', 'http2', 'quic', 'modbus', 'dnp3', 'failed', 'unknown']


def protocol(r, w):
    seen = [e['app_proto'] for e in w.events if e.get('app_proto')] or PROTOCOLS
    name = r.choice([r.choice(seen), r.choice(seen), r.choice(PROTOCOLS)])
    p = r.choice(w.packets)
    head = f'alert {r.choice(["ip", {6: "tcp", 17: "udp"}.get(p.proto, "ip")])} any any -> any any'
    return [rule(head, flow(r) + [f'app-layer-protocol:{r.choice(["", "", "!"])}{name}'])]


# Event type, member, and the buffer with its value.
BUFFERS = [('http', 'http.hostname', 'http.host'), ('http', 'http.url', 'http.uri'), ('http', 'http.url', 'http.uri.raw'), ('http', 'http.http_user_agent', 'http.user_agent'), ('http', 'http.http_method', 'http.method'), ('http', 'http.http_content_type', 'http.content_type'), ('http', 'http.http_refer', 'http.referer'), ('http', 'http.protocol', 'http.protocol'), ('http', 'http.status', 'http.stat_code'), ('http', 'http.hostname', 'http.header'), ('http', 'http.url', 'http.request_line'), ('http', 'http.protocol', 'http.response_line'), ('http', 'http.hostname', 'http.host.raw'), ('http', 'http.http_content_type', 'file.data'), ('http', 'http.server', 'http.server'),
           ('dns', 'dns.queries.rrname', 'dns.query'), ('dns', 'dns.query.rrname', 'dns.query'), ('tls', 'tls.sni', 'tls.sni'), ('tls', 'tls.subject', 'tls.cert_subject'), ('tls', 'tls.issuerdn', 'tls.cert_issuer'), ('tls', 'tls.serial', 'tls.cert_serial'), ('tls', 'tls.fingerprint', 'tls.cert_fingerprint'), ('tls', 'tls.ja3.hash', 'ja3.hash'), ('tls', 'tls.ja3.string', 'ja3.string'), ('tls', 'tls.ja3s.hash', 'ja3s.hash'), ('tls', 'tls.version', 'tls.certs'),
           ('ssh', 'ssh.client.software_version', 'ssh.software'), ('ssh', 'ssh.client.proto_version', 'ssh.proto'), ('ssh', 'ssh.client.hassh.hash', 'ssh.hassh'), ('ssh', 'ssh.server.hassh.string', 'ssh.hassh.server.string'), ('smb', 'smb.filename', 'smb.named_pipe'), ('smb', 'smb.share', 'smb.share'), ('smb', 'smb.ntlmssp.user', 'smb.ntlmssp_user'), ('krb5', 'krb5.cname', 'krb5_cname'), ('krb5', 'krb5.sname', 'krb5_sname'), ('snmp', 'snmp.community', 'snmp.community'),
           ('sip', 'sip.method', 'sip.method'), ('sip', 'sip.uri', 'sip.uri'), ('sip', 'sip.request_line', 'sip.request_line'), ('sip', 'sip.response_line', 'sip.response_line'), ('sip', 'sip.code', 'sip.stat_code'), ('quic', 'quic.sni', 'quic.sni'), ('quic', 'quic.ua', 'quic.ua'), ('quic', 'quic.version', 'quic.version'), ('rfb', 'rfb.name', 'rfb.name'), ('mqtt', 'mqtt.publish.topic', 'mqtt.publish.topic'), ('mqtt', 'mqtt.connect.client_id', 'mqtt.connect.clientid'), ('ike', 'ike.init_spi', 'ike.init_spi'), ('ike', 'ike.resp_spi', 'ike.resp_spi'), ('fileinfo', 'fileinfo.filename', 'file.name'), ('fileinfo', 'fileinfo.magic', 'file.magic'), ('dhcp', 'dhcp.client_mac', 'dhcp.leasetime')]
OWN = {'dns.query': 'dns', 'file.name': 'http', 'file.magic': 'http', 'file.data': 'http', 'ja3.hash': 'tls', 'ja3.string': 'tls', 'ja3s.hash': 'tls'}
TRANSFORMS = ['to_lowercase', 'to_uppercase', 'strip_whitespace', 'compress_whitespace', 'to_md5', 'to_sha1', 'to_sha256', 'url_decode', 'dotprefix', 'strip_pseudo_headers', 'header_lowercase', 'xor:"0d0ac8ff"', 'pcrexform:"(.*)"']


def buffers_seen(w):
    out = []
    for kind, member, keyword in BUFFERS:
        found = values(w.events, kind, member)
        if found: out.append((keyword, found))
    return out


def header_of(keyword): return OWN.get(keyword) or keyword.split('.')[0].split('_')[0]


def one_buffer(r, keyword, found):
    data = str(r.choice(found)).encode()
    transforms = [r.choice(TRANSFORMS)] if r.random() < .2 else []
    size = [f'bsize:{compare(r, len(data))}'] if r.random() < .25 else []
    parts = pieces(r, data) if not size or r.random() < .5 else []
    return [keyword, *transforms, *parts, *size]


def application(r, w):
    seen = buffers_seen(w)
    if not seen: return payload(r, w)
    keyword, found = r.choice(seen)
    parts = one_buffer(r, keyword, found)
    if r.random() < .25:
        more = [s for s in seen if header_of(s[0]) == header_of(keyword) and s[0] != keyword]
        if more: parts += one_buffer(r, *r.choice(more))
    return [rule(f'alert {header_of(keyword)} any any -> any any', flow(r) + parts)]


def mixed(r, w):
    """Contents of the payload beside a buffer of a transaction."""
    seen = buffers_seen(w)
    if not seen: return payload(r, w)
    keyword, found = r.choice(seen)
    sent = [p for p in w.loaded() if p.proto == (17 if header_of(keyword) in ('dns', 'quic', 'dhcp', 'snmp') else 6)] or w.loaded()
    data = r.choice(sent).payload[:400]
    buffer = one_buffer(r, keyword, found)
    parts = pieces(r, data) + buffer if r.random() < .7 else buffer + ['pkt_data'] + pieces(r, data)
    return [rule(f'alert {header_of(keyword)} any any -> any any', flow(r) + parts)]


# Event type, member, and a keyword with a number.
NUMBERS = [('http', 'http.url', 'urilen', len), ('dns', 'dns.rcode', 'dns.rcode', None), ('tls', 'tls.version', 'tls.version', None), ('tls', 'tls.version', 'ssl_version', lambda v: 0), ('tls', 'tls.notbefore', 'tls_cert_notbefore', None), ('fileinfo', 'fileinfo.size', 'filesize', None), ('smb', 'smb.command', 'smb.version', lambda v: 1), ('ike', 'ike.version_major', 'ike.exchtype', None), ('snmp', 'snmp.version', 'snmp.version', None), ('rfb', 'rfb.authentication.security_type', 'rfb.sectype', None), ('mqtt', 'mqtt.publish.qos', 'mqtt.qos', None), ('krb5', 'krb5.error_code', 'krb5_err_code', None), ('dhcp', 'dhcp.lease_time', 'dhcp.leasetime', None), ('fileinfo', 'tx_id', 'stream_size', None)][:13]
STATES = ['client_hello', 'server_hello', 'client_keyx', 'server_keyx', '!client_hello', 'client_hello|server_hello']


def numbers(r, w):
    seen = [(k, v, f) for kind, member, k, f in NUMBERS if (v := values(w.events, kind, member))]
    if not seen: return headers(r, w)
    keyword, found, how = r.choice(seen)
    head = {'urilen': 'http', 'filesize': 'http', 'ssl_version': 'tls', 'tls_cert_notbefore': 'tls', 'krb5_err_code': 'krb5'}.get(keyword, keyword.split('.')[0])
    if keyword == 'ssl_version': option = r.choice([f'ssl_version:{r.choice(["tls1.0", "tls1.2", "tls1.3", "!tls1.2", "sslv3"])}', f'ssl_state:{r.choice(STATES)}'])
    elif keyword == 'tls.version': option = f'tls.version:{r.choice(["1.0", "1.1", "1.2", "1.3"])}'
    elif keyword == 'tls_cert_notbefore': option = f'tls_cert_{r.choice(["notbefore", "notafter"])}:{r.choice("<>")}{str(r.choice(found))[:10]}'
    else:
        v = how(r.choice(found)) if how else r.choice(found)
        if not isinstance(v, int): return headers(r, w)
        option = f'{keyword}:{compare(r, v)}'
    return [rule(f'alert {head} any any -> any any', flow(r) + [option])]


FRAMES = {'http': ['http1.request', 'http1.response'], 'tls': ['tls.pdu', 'tls.hdr', 'tls.data', 'tls.stream'], 'dns': ['dns.pdu'], 'sip': ['sip.pdu', 'sip.request_line', 'sip.headers'], 'smb': ['smb1.pdu', 'smb2.pdu', 'nbss.pdu'], 'smtp': ['smtp.command_line', 'smtp.response_line'], 'ssh': ['ssh.record.pdu'], 'dcerpc': ['dcerpc.pdu'], 'nfs': ['nfs.rpc.pdu'], 'telnet': ['telnet.data'], 'mqtt': ['mqtt.pdu']}


def frames(r, w):
    seen = sorted({e['app_proto'] for e in w.events if e.get('app_proto') in FRAMES})
    if not seen: return stream(r, w)
    name = r.choice(seen)
    p = r.choice(w.loaded())
    parts = [f'bsize:{compare(r, r.choice([4, 8, 40, 100, len(p.payload)]))}'] if r.random() < .3 else pieces(r, p.payload or b'a')
    return [rule(f'alert {name} any any -> any any', flow(r) + [f'frame:{r.choice(FRAMES[name])}', *parts])]


EVENTS = {'app-layer-event': ['applayer_mismatch_protocol_both_directions', 'applayer_wrong_direction_first_data', 'applayer_detect_protocol_only_one_direction', 'applayer_proto_detection_skipped', 'applayer_unexpected_protocol'],
          'stream-event': ['3whs_ack_in_wrong_dir', '3whs_synack_with_wrong_ack', 'est_synack_resend', 'est_packet_out_of_window', 'est_invalid_ack', 'fin_out_of_window', 'closewait_fin_out_of_window', 'pkt_broken_ack', 'pkt_invalid_ack', 'pkt_invalid_timestamp', 'pkt_retransmission', 'pkt_bad_window_update', 'reassembly_seq_gap', 'reassembly_overlap_different_data', 'rst_but_no_session', 'suspected_rst_inject', 'shutdown_syn_resend', 'timewait_ack_wrong_seq'],
          'decode-event': ['ipv4.trunc_pkt', 'ipv4.opt_pad_required', 'ipv6.trunc_pkt', 'tcp.opt_invalid_len', 'udp.hlen_invalid', 'udp.len_invalid', 'icmpv4.unknown_type', 'icmpv6.unknown_type', 'ethernet.pkt_too_small', 'vlan.header_too_small', 'gre.wrong_version']}


def events(r, w):
    kind = r.choice(list(EVENTS))
    names = list(EVENTS[kind])
    for e in w.events:
        name = e.get('anomaly', {}).get('event', '').lower()
        if e.get('event_type') == 'anomaly' and name:
            if kind == 'app-layer-event' and e['anomaly'].get('type') == 'applayer': names.append(name if name.startswith('applayer') else f'{e["anomaly"].get("app_proto", "http")}.{name}')
            if kind == 'stream-event' and e['anomaly'].get('type') == 'stream': names.append(name.removeprefix('stream.'))
            if kind == 'decode-event' and e['anomaly'].get('type') == 'decode': names.append(name.removeprefix('decoder.'))
    return [rule(f'alert {"tcp" if kind == "stream-event" else r.choice(["ip", "pkthdr"]) if kind == "decode-event" else "ip"} any any -> any any', (flow(r) if kind != 'decode-event' else []) + [f'{kind}:{r.choice(names)}'])]


def base64(r, w):
    p = r.choice(w.loaded())
    where = r.choice(['', f':offset {r.randint(0, 40)}', f':bytes {r.randint(4, 40)}, offset {r.randint(0, 40)}', f':bytes {r.randint(4, 40)}'])
    return [rule(header(r, p), [f'base64_decode{where}', 'base64_data', f'content:"{text(cut(r, p.payload or b"a", 1, 2)[1])}"'])]


def broken(r, w):
    """A rule with an error in a random place."""
    made = r.choice([payload, headers, bytes_of, application, threshold, state])(r, w)
    body = made[-1]
    head, _, rest = body.partition(' (')
    parts = [o for o in rest.removesuffix(';)').split('; ')]
    how = r.randrange(9)
    spot = r.randrange(len(parts))
    if how == 0: parts[spot] = parts[spot].replace(':', ' ', 1)
    elif how == 1: parts.insert(spot, r.choice(['content:"a"; offset:1; distance:2', 'content:""', 'content:"|0|"', 'content:"a"; within:0', 'nocase', 'depth:3', 'isdataat:!', 'pcre:"a"', 'pcre:"/(/"', 'flow:to_server,to_client', 'ttl:300', 'dsize:5<>4', 'flags:Z', 'no_such_keyword', 'http.uri', 'fast_pattern', 'byte_test:9,>,1,0', 'flowbits:set', 'xbits:set,a', 'tag:session,5', 'threshold:type limit, track by_src, count 1', 'urilen:9999999']))
    elif how == 2: parts.insert(spot, parts[spot])
    elif how == 3: head = head.replace('any', r.choice(['$NO_SUCH', '!any', '300.1.1.1', '1.2.3.4/33', '[1.2.3.4', '70000']), 1)
    elif how == 4: head = head.replace('alert', r.choice(['allert', 'ALERT', 'alert ']), 1)
    elif how == 5: head = head.replace('->', r.choice(['<-', '=>', '-', '<>']), 1)
    elif how == 6: parts[spot] = parts[spot].replace('"', '', 1)
    elif how == 7: parts[spot] += r.choice([',', ' ', 'x', ':'])
    else: parts = [p for p in parts if not p.startswith('sid')] if r.random() < .2 else parts[::-1]
    return [*made[:-1], f'{head} ({"; ".join(parts)};)']


# Keywords by protocol: buffers, and other checks with one number or word. `#` is a number that the capture shows, or a small one.
DEEP = {
    'smb': (['smb.named_pipe', 'smb.share', 'smb.ntlmssp_user', 'smb.ntlmssp_domain', 'file.name', 'file.data', 'dce_stub_data'], ['filesize:>#', 'filesize:<#', 'fileext:"txt"', 'dce_opnum:#', 'dce_opnum:0-#', 'dce_iface:UUID', 'dce_iface:UUID,any_frag', 'dce_iface:UUID,>#']),
    'dcerpc': (['dce_stub_data'], ['dce_opnum:#', 'dce_opnum:0-#', 'dce_opnum:#,0', 'dce_iface:UUID', 'dce_iface:UUID,any_frag', 'dce_iface:UUID,<9']),
    'nfs': (['file.name', 'file.data'], ['nfs_procedure:#', 'nfs_procedure:<#', 'nfs_procedure:#<>9', 'nfs.version:3', 'nfs.version:>#', 'nfs.version:<4', 'filesize:>#', 'fileext:"txt"']),
    'krb5': (['krb5.cname', 'krb5.sname'], ['krb5_msg_type:#', 'krb5_msg_type:10', 'krb5_msg_type:13', 'krb5_msg_type:30', 'krb5_err_code:#', 'krb5_err_code:25', 'krb5.ticket_encryption:weak', 'krb5.ticket_encryption:23', 'krb5.ticket_encryption:aes256-cts-hmac-sha1-96,rc4-hmac']),
    'snmp': (['snmp.community', 'snmp.usm'], ['snmp.version:1', 'snmp.version:>1', 'snmp.version:3', 'snmp.pdu_type:#', 'snmp.pdu_type:0', 'snmp.pdu_type:2', 'snmp.pdu_type:8']),
    'sip': (['sip.method', 'sip.uri', 'sip.protocol', 'sip.stat_code', 'sip.stat_msg', 'sip.request_line', 'sip.response_line'], []),
    'rfb': (['rfb.name'], ['rfb.secresult:ok', 'rfb.secresult:fail', 'rfb.sectype:#', 'rfb.sectype:>1', 'rfb.sectype:2']),
    'mqtt': (['mqtt.connect.clientid', 'mqtt.connect.username', 'mqtt.connect.password', 'mqtt.connect.willtopic', 'mqtt.connect.willmessage', 'mqtt.publish.topic', 'mqtt.publish.message', 'mqtt.subscribe.topic', 'mqtt.unsubscribe.topic'],
             ['mqtt.type:CONNECT', 'mqtt.type:CONNACK', 'mqtt.type:PUBLISH', 'mqtt.type:PUBACK', 'mqtt.type:PUBREC', 'mqtt.type:SUBSCRIBE', 'mqtt.type:SUBACK', 'mqtt.type:UNSUBSCRIBE', 'mqtt.type:PINGREQ', 'mqtt.type:DISCONNECT', 'mqtt.flags:dup', 'mqtt.flags:!retain', 'mqtt.flags:retain', 'mqtt.qos:0', 'mqtt.qos:1', 'mqtt.qos:2', 'mqtt.protocol_version:#', 'mqtt.protocol_version:4', 'mqtt.protocol_version:>4', 'mqtt.reason_code:0', 'mqtt.reason_code:135', 'mqtt.reason_code:#', 'mqtt.connect.flags:username', 'mqtt.connect.flags:!will', 'mqtt.connect.flags:clean_session', 'mqtt.connack.session_present:no', 'mqtt.connack.session_present:yes']),
    'modbus': ([], ['modbus: function #', 'modbus: function !#', 'modbus: function public', 'modbus: function !public', 'modbus: function user', 'modbus: function 8, subfunction #', 'modbus: access read', 'modbus: access write', 'modbus: access read discretes', 'modbus: access read coils', 'modbus: access read input', 'modbus: access write holding', 'modbus: access write coils', 'modbus: access read holding, address <#', 'modbus: access read holding, address >#', 'modbus: access write holding, address #, value >#', 'modbus: unit #', 'modbus: unit >#', 'modbus: unit 0<>9', 'modbus: unit <9, function #', 'modbus: unit 1<>250, access write']),
    'dnp3': (['dnp3.data', 'dnp3_data'], ['dnp3_func:#', 'dnp3_func:read', 'dnp3_func:write', 'dnp3_func:confirm', 'dnp3_func:response', 'dnp3_func:unsolicited_response', 'dnp3_ind:class_1_events', 'dnp3_ind:need_time', 'dnp3_ind:device_restart,local_control', 'dnp3_obj:60,#', 'dnp3_obj:60,2', 'dnp3_obj:#,1', 'dnp3_obj:2,1']),
    'enip': ([], ['cip_service:#', 'cip_service:1', 'cip_service:14', 'cip_service:75', 'cip_service:82', 'cip_service:1,1', 'cip_service:#,#', 'cip_service:1,1,1', 'enip_command:#', 'enip_command:99', 'enip_command:101', 'enip_command:111', 'enip_command:112']),
    'ike': (['ike.init_spi', 'ike.resp_spi', 'ike.vendor', 'ike.nonce_payload', 'ike.key_exchange_payload'], ['ike.exchtype:#', 'ike.exchtype:2', 'ike.exchtype:34', 'ike.exchtype:>4', 'ike.nonce_payload_length:>#', 'ike.nonce_payload_length:<200', 'ike.key_exchange_payload_length:>#', 'ike.key_exchange_payload_length:<500', 'ike.chosen_sa_attribute:alg_hash=2', 'ike.chosen_sa_attribute:alg_enc=7', 'ike.chosen_sa_attribute:sa_life_type=1', 'ike.chosen_sa_attribute:alg_auth=1']),
    'dhcp': ([], ['dhcp.leasetime:#', 'dhcp.leasetime:>#', 'dhcp.rebinding_time:>#', 'dhcp.renewal_time:>#', 'dhcp.renewal_time:<99999']),
    'ssh': (['ssh.proto', 'ssh.software', 'ssh.hassh', 'ssh.hassh.server', 'ssh.hassh.string', 'ssh.hassh.server.string'], ['ssh.protoversion:2_compat', 'ssh.protoversion:2.0', 'ssh.softwareversion:"OpenSSH"']),
    'smtp': (['file.name', 'file.data'], ['filesize:>#', 'fileext:"txt"']),
    'ftp': ([], ['ftpbounce']), 'ftp-data': (['file.name', 'file.data'], ['ftpdata_command:retr', 'ftpdata_command:stor', 'filesize:>#']),
    'http2': (['http2.header_name', 'http.request_header', 'http.response_header', 'http.uri', 'http.host', 'http.method', 'http.stat_code', 'http.user_agent', 'file.data', 'http.header', 'http.header_names'], ['http2.frametype:HEADERS', 'http2.frametype:DATA', 'http2.frametype:SETTINGS', 'http2.frametype:WINDOWUPDATE', 'http2.errorcode:NO_ERROR', 'http2.errorcode:CANCEL', 'http2.priority:>#', 'http2.window:>#', 'http2.window:<99999999', 'http2.size_update:<99', 'http2.settings:SETTINGS_ENABLE_PUSH=0', 'http2.settings:SETTINGS_MAX_HEADER_LIST_SIZE >#', 'http2.settings:SETTINGS_INITIAL_WINDOW_SIZE>1', 'http2.settings:SETTINGS_MAX_CONCURRENT_STREAMS<999']),
    'quic': (['quic.sni', 'quic.ua', 'quic.version', 'quic.cyu.hash', 'quic.cyu.string', 'ja3.hash', 'ja3.string', 'ja3s.string'], []),
    'dns': (['dns.query'], ['dns.opcode:0', 'dns.opcode:!0', 'dns.opcode:#']),
    'tls': (['tls.sni', 'tls.certs', 'tls.cert_issuer', 'tls.cert_subject', 'tls.cert_serial', 'tls.cert_fingerprint', 'tls.random', 'tls.random_time', 'tls.random_bytes', 'ja3.hash', 'ja3.string', 'ja3s.hash', 'ja3s.string'], ['tls.version:1.2', 'ssl_version:tls1.2', 'tls.cert_chain_len:>#', 'tls_cert_expired', 'tls_cert_valid']),
    'http': (['http.uri', 'http.uri.raw', 'http.method', 'http.protocol', 'http.start', 'http.request_body', 'http.response_body', 'http.header', 'http.header.raw', 'http.header_names', 'http.accept', 'http.accept_lang', 'http.accept_enc', 'http.connection', 'http.content_len', 'http.content_type', 'http.location', 'http.server', 'http.referer', 'http.stat_msg', 'http.stat_code', 'http.user_agent', 'http.host', 'http.host.raw', 'http.request_line', 'http.response_line', 'http.cookie', 'file.data', 'file.name', 'http.request_header', 'http.response_header'], ['urilen:>#', 'urilen:<#', 'urilen:#,raw', 'filesize:>#', 'fileext:"html"']),
    'rdp': ([], []), 'tftp': ([], []), 'pgsql': ([], []), 'telnet': ([], []), 'bittorrent-dht': ([], []), 'imap': ([], []), 'ntp': ([], []),
}
DEEP_FRAMES = {
    'smb': ['smb.' + n for n in 'nbss.pdu nbss.hdr nbss.data smb1.pdu smb1.hdr smb1.data smb2.pdu smb2.hdr smb2.data smb3.pdu smb3.hdr smb3.data stream'.split()],
    'nfs': ['nfs.' + n for n in 'rpc.pdu rpc.hdr rpc.data rpc.creds nfs.pdu nfs.status nfs4.pdu nfs4.hdr nfs4.ops nfs4.status stream'.split()],
    'sip': ['sip.' + n for n in 'pdu request.line response.line request.headers response.headers request.body response.body'.split()],
    'rfb': ['rfb.pdu', 'rfb.stream'], 'mqtt': ['mqtt.pdu', 'mqtt.header', 'mqtt.data', 'mqtt.stream'], 'telnet': ['telnet.pdu', 'telnet.ctl', 'telnet.data', 'telnet.stream'],
    'tls': ['tls.' + n for n in 'pdu hdr data stream alert heartbeat ssl2.hdr ssl2.pdu'.split()], 'dns': ['dns.pdu', 'dns.stream'], 'http1': ['http1.request', 'http1.response', 'http1.stream'],
}
# Protocols without TCP, which have no stream frames.
OVER_UDP = {'snmp', 'ike', 'tftp', 'ntp', 'dhcp', 'quic', 'bittorrent-dht', 'sip'}
DEEP_EVENTS = {
    'smb': 'malformed_data record_overflow malformed_ntlmssp_request malformed_ntlmssp_response duplicate_negotiate negotiate_malformed_dialects file_overlap'.split(), 'dcerpc': [], 'nfs': ['malformed_data', 'nonexisting_version', 'unsupported_version'],
    'krb5': ['malformed_data', 'weak_encryption'], 'snmp': ['malformed_data', 'unknown_security_model', 'version_mismatch'], 'sip': ['incomplete_data', 'invalid_data'],
    'rfb': ['unimplemented_security_type', 'unknown_security_result', 'malformed_message', 'confused_state'], 'mqtt': 'missing_connect missing_publish missing_subscribe missing_unsubscribe double_connect unintroduced_message invalid_qos_level missing_msg_id unassigned_msg_type malformed_traffic'.split(),
    'modbus': 'unsolicited_response invalid_protocol_id invalid_length invalid_function_code invalid_value value_mismatch invalid_unit_identifier invalid_exception_code flooded'.split(),
    'dnp3': 'flooded len_too_small bad_link_crc bad_transport_crc unknown_object'.split(), 'ike': 'malformed_data weak_crypto_enc weak_crypto_prf weak_crypto_auth weak_crypto_dh weak_crypto_no_dh no_encryption payload_extra_data multiple_server_proposal invalid_proposal unknown_proposal'.split(),
    'dhcp': ['truncated_options', 'malformed_options'], 'ssh': ['invalid_banner', 'long_banner', 'invalid_record', 'long_kex_record'], 'ntp': ['malformed_data', 'unsolicited_response', 'notification' ], 'bittorrent-dht': ['malformed_packet'], 'telnet': [],
}


def small(r, w, proto):
    """A number that events of the protocol show, or a small one."""
    found = [v for v in leaves(w.events, proto) if isinstance(v, int) and not isinstance(v, bool) and 0 <= v < 70000]
    return max(0, r.choice(found) + r.choice([-1, 0, 0, 0, 0, 1])) if found and r.random() < .7 else r.randint(0, 9)


def leaves(events, proto):
    """The values of a protocol's own members in the capture's events."""
    out = []
    def down(v):
        if isinstance(v, dict): [down(x) for x in v.values()]
        elif isinstance(v, list): [down(x) for x in v]
        else: out.append(v)
    for e in events:
        if e.get('app_proto') == proto or e.get('event_type') in (proto, proto.replace('-', '_')):
            for k in (proto, proto.replace('-', '_'), 'fileinfo', 'dcerpc', 'http'): down(e.get(k))
    return [v for v in out if v is not None]


def deep(r, w):
    """A rule on a protocol: one of its keywords, frames or events, contents of the payload, or nothing more."""
    seen = sorted({e[k] for e in w.events for k in ('app_proto', 'app_proto_tc', 'app_proto_ts', 'app_proto_orig') if e.get(k) in DEEP})
    if not seen: return payload(r, w)
    proto = r.choice(seen)
    buffers, checks = DEEP[proto]
    uuids = [v for v in leaves(w.events, proto) if isinstance(v, str) and v.count('-') == 4] or ['367abb81-9844-35f1-ad32-98f038001003']
    strings = [v.encode() for v in leaves(w.events, proto) if isinstance(v, str) and v]
    payloads = [p.payload for p in w.loaded() if p.payload] or [b'a']
    def check(): return r.choice(checks).replace('UUID', r.choice(uuids)) if checks else f'dsize:>{r.randint(0, 99)}'
    def filled(o):
        while '#' in o: o = o.replace('#', str(small(r, w, proto)), 1)
        return o
    def buffer():
        data = r.choice(strings) if strings and r.random() < .7 else r.choice(payloads)
        kind = r.random()
        if kind < .25: return [f'bsize:{compare(r, r.choice([0, 1, 4, len(data), 100]))}']
        if kind < .4: return [f'content:{r.choice(["", "!"])}"{text(cut(r, data, 1, 2)[1])}"', *r.choice([[], [], ['startswith'], ['endswith'], [f'depth:{r.randint(2, 9)}'], ['nocase'], [f'offset:{r.randint(0, 9)}']])]
        if kind < .5: return [f'byte_test:{r.choice([1, 2, 4])},{r.choice("<>")},{r.randint(0, 255)},{r.randint(0, 12)}{r.choice(["", ",little"])}']
        if kind < .6: return [f'isdataat:{r.choice(["", "!"])}{r.randint(0, 60)}']
        if kind < .67: return [expression(r, data)]
        return pieces(r, data)
    head = f'alert {proto} any any -> any any'
    kind = r.random()
    if kind < .3 and buffers:
        b = r.choice(buffers)
        parts = [b, *([r.choice(TRANSFORMS)] if r.random() < .15 else []), *buffer()]
        if r.random() < .2: parts += [r.choice(buffers), *buffer()]
        if checks and r.random() < .15: parts = [filled(check())] + parts
    elif kind < .55 and checks:
        parts = [filled(check()) for _ in range(r.choice([1, 1, 1, 2]))]
        if r.random() < .2: parts += pieces(r, r.choice(payloads))
    elif kind < .75 and (proto in DEEP_FRAMES or proto == 'http' or (r.random() < .4 and proto not in OVER_UDP)):
        name = 'http1' if proto == 'http' else proto
        parts = [f'frame:{r.choice(DEEP_FRAMES.get(name, [name + ".stream"]))}', *buffer()]
    elif kind < .82 and DEEP_EVENTS.get(proto): parts = [f'app-layer-event:{proto}.{r.choice(DEEP_EVENTS[proto])}']
    elif kind < .88: parts = [r.choice(['dsize:>0', 'dsize:<99', 'dsize:8'])]
    else: parts = pieces(r, r.choice(payloads))
    made = [rule(head, flow(r) + parts)]
    if r.random() < .04: made = [rule(head, flow(r) + parts + ['flowbits:set,d@']), rule(f'alert {r.choice([proto, "ip"])} any any -> any any', [f'flowbits:{r.choice(["isset", "isset", "isnotset"])},d@', *r.choice([[], ['dsize:>0'], flow(r)])])]
    return made


FAMILIES = {f.__name__: f for f in [payload, stream, bytes_of, headers, state, threshold, options, protocol, application, mixed, numbers, frames, events, base64, broken, deep]}
WEIGHTS = dict(payload=12, stream=6, bytes_of=10, headers=14, state=10, threshold=6, options=4, protocol=4, application=16, mixed=8, numbers=6, frames=6, events=4, base64=1, broken=8, deep=16)
