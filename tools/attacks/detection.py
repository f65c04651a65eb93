"""Attacks on detection: traffic that makes rules expensive."""
from . import FLOW, HTTP, STREAM, attack
from .wire import SERVER, address
from .web import get, post

HOSTS = FLOW + ('host.memcap',)


@attack('backtracking', caps=HTTP, rules='''
alert http any any -> any any (msg:"nested repetition"; flow:to_server; http.uri; content:"/backtrack"; pcre:"/(a+)+$/"; sid:1;)
alert http any any -> any any (msg:"alternatives"; flow:to_server; http.uri; content:"/backtrack"; pcre:"/(a|aa)+b/"; sid:2;)
alert http any any -> any any (msg:"three stars"; flow:to_server; http.uri; content:"/backtrack"; pcre:"/a.*a.*a.*c/"; sid:3;)
''')
def backtracking(wire):
    """paths on which regular expressions of rules try all ways"""
    while not wire.full:
        c = wire.connect(80)
        for _ in range(20):
            c.say(0, get(b'/backtrack' + b'a' * 1200))


#: Sentences with quotes, dashes and words of SQL and shells, which every judgement reads to the end.
SENTENCES = (b"'select' the \"best\" of 'them', and order it from where you are -- or not; cat or dog | 'union' of ls and id, "
             b"if (a = b) then 'drop' by /bin/table, where 1 or \"two\" like it & "
             b"echo 'values' of sleep into a = 'b' . ")


@attack('judged-text', caps=HTTP, rules='''
alert http any any -> any any (msg:"SQL"; flow:to_server; http.arg; canonicalise; sqli; sid:1;)
alert http any any -> any any (msg:"scripts"; flow:to_server; http.arg; canonicalise; xss; sid:2;)
alert http any any -> any any (msg:"shells"; flow:to_server; http.arg; canonicalise; shell_injection; sid:3;)
''')
def judged_text(wire):
    """forms with a text that reads like SQL and shell commands, and is neither"""
    n = 0
    while not wire.full:
        c = wire.connect(80)
        for _ in range(4):
            # Each text is another one, so that no result is known.
            n += 1
            body = b'text=' + b'%d ' % n + (SENTENCES * 40)[:8000].replace(b'&', b'%26').replace(b' ', b'+')
            c.say(0, post(b'application/x-www-form-urlencoded', body))


RELATIVE = '''
alert tcp any any -> any 9999 (msg:"three"; content:"aa"; content:"ab"; distance:0; content:"ac"; distance:0; content:"zz"; distance:0; sid:1;)
alert tcp any any -> any 9999 (msg:"jump"; content:"aa"; byte_jump:1,0,relative; content:"ab"; within:400; content:"zz"; within:9; sid:2;)
'''


@attack('relative-contents', caps=STREAM, rules=RELATIVE)
def relative_contents(wire):
    """data in which contents that follow each other are found everywhere but for the last"""
    while not wire.full:
        c = wire.connect(9999)
        for _ in range(20):
            c.say(0, b'aaabac' * 230)


@attack('relative-places', caps=STREAM, rules=RELATIVE)
def relative_places(wire):
    """data in which contents that follow each other are found everywhere, and the last one before them"""
    while not wire.full:
        c = wire.connect(9999)
        for _ in range(20):
            c.say(0, b'zz' + b'aaabac' * 230)


@attack('patterns-everywhere', caps=STREAM)
def patterns_everywhere(wire):
    """data made of the patterns that rules are looked for by"""
    words = [w for line in wire.rules for w in line]
    while not wire.full:
        c = wire.connect(80)
        for _ in range(20):
            c.say(0, b''.join(wire.draw.choice(words) for _ in range(100))[:1400])


@attack('alerts', caps=FLOW, rules='''
alert udp any any -> any 9 (msg:"every packet"; content:"alert"; sid:1;)
alert udp any any -> any 9 (msg:"every packet, twice"; content:"alert"; nocase; sid:2;)
''')
def alerts(wire):
    """packets that alert, each of them twice"""
    while not wire.full:
        wire.udp(b'alert' * 20)


@attack('thresholds', counters=['detect.threshold_memcap'], caps=HOSTS + ('detect.thresholds.memcap',), rules='''
alert udp any any -> any 9 (msg:"limit"; content:"count"; threshold:type limit, track by_src, count 1, seconds 3600; sid:1;)
alert udp any any -> any 9 (msg:"threshold"; content:"count"; threshold:type threshold, track by_src, count 100, seconds 3600; sid:2;)
alert udp any any -> any 9 (msg:"filter"; content:"count"; detection_filter:track by_src, count 100, seconds 3600; sid:3;)
''')
def thresholds(wire):
    """matches that are counted by address, each from another one"""
    while not wire.full:
        wire.udp(b'count', address(wire.draw.getrandbits(32)), SERVER, 40000, 9)


@attack('host-bits', counters=['detect.host_memcap'], caps=HOSTS + ('ippair.memcap',), rules='''
alert udp any any -> any 9 (msg:"host"; content:"bit"; hostbits:set,seen,src; noalert; sid:1;)
alert udp any any -> any 9 (msg:"pair"; content:"bit"; xbits:set,met,track ip_pair,expire 3600; noalert; sid:2;)
alert udp any any -> any 9 (msg:"both"; content:"bit"; xbits:set,seen2,track ip_src,expire 3600; noalert; sid:3;)
''')
def host_bits(wire):
    """bits that are set for addresses, each another one"""
    while not wire.full:
        wire.udp(b'bit', address(wire.draw.getrandbits(32)), SERVER, 40000, 9)


@attack('datasets', counters=['detect.dataset_memcap'], caps=HTTP + ('datasets.defaults.memcap',), rules='''
alert http any any -> any any (msg:"new"; flow:to_server; http.user_agent; dataset:set,agents,type string,memcap 256kb; noalert; sid:1;)
''')
def datasets(wire):
    """values that a rule keeps, each another one"""
    n = 0
    while not wire.full:
        c = wire.connect(80)
        for _ in range(20):
            n += 1
            c.say(0, get(b'/', b'User-Agent: %d%s\r\n' % (n, b'x' * 200)))


@attack('tags', counters=['detect.tag_memcap'], caps=HOSTS, rules='''
alert udp any any -> any 9 (msg:"tag"; content:"tag"; tag:host,100,packets,src; noalert; sid:1;)
''')
def tags(wire):
    """hosts that are tagged, each another one"""
    while not wire.full:
        wire.udp(b'tag', address(wire.draw.getrandbits(32)), SERVER, 40000, 9)


@attack('short-values', caps=HTTP)
def short_values(wire):
    """values that never come again, of which what was found is kept"""
    n = 0
    while not wire.full:
        c = wire.connect(80)
        for _ in range(20):
            n += 1
            c.say(0, b'M%d /%d HTTP/1.1\r\nHost: %d.example\r\nUser-Agent: %d\r\n\r\n' % (n, n, n, n))
