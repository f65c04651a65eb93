"""Generators of words, names and rules, with the same output for a seed on every machine and Python release."""
import random

WORDS = """account action admin agent ajax api archive auth backup banner base beacon build cache cart cgi chat check
client cloud cmd code config connect content cookie core data date debug default delete demo dev dir doc domain down
download edit email engine error event exec export file filter flash form forum frame front game gate get group guest
handler hash help home host html http image import inc include index info init install item java job key language lib
link list live load local log login logo mail main manager map media member menu message meta mobile mod module name
net news node note object office option order page panel parse pass password path payload php ping plugin port portal
post print process profile proxy public query read redirect register remote report request reset resource response
result root route rpc run sample save script search secure select send server service session set shell shop site soap
sort source sql stage start stat static status stream submit support sync system table tag task temp template test text
theme thread time title token tool track tracker update upload url user util value version video view web wiki worker
write www xml zip zone""".split()
TLDS = "com net org info biz ru cn top xyz site online club io co de br in eu pw tk".split()
AGENTS = "Mozilla curl Wget python-requests Go-http-client Java libwww-perl WinHTTP Opera AutoIt Delphi NSIS".split()
CLASSES = ["trojan-activity", "attempted-admin", "web-application-attack", "policy-violation", "misc-activity",
           "attempted-recon", "bad-unknown", "domain-c2", "attempted-user", "shellcode-detect"]


class Draw(random.Random):
    """A generator with the same results in every release of Python, which promises that only for `random()`."""

    def randrange(self, start, stop=None):
        low, high = (0, start) if stop is None else (start, stop)
        return low + int(self.random() * (high - low))

    def randint(self, low, high):
        return self.randrange(low, high + 1)

    def choice(self, of):
        return of[self.randrange(len(of))]


class Maker:
    """Generates rules as varied as those of real rule sets."""

    def __init__(self, seed):
        self.r = Draw(seed)

    def word(self):
        return self.r.choice(WORDS)

    def token(self, low, high):
        return "".join(self.r.choice("abcdefghijklmnopqrstuvwxyz0123456789") for _ in range(self.r.randint(low, high)))

    def hexes(self, low, high):
        return "|" + " ".join(f"{self.r.randrange(256):02x}" for _ in range(self.r.randint(low, high))) + "|"

    def domain(self):
        parts = [self.token(4, 14) if self.r.random() < 0.7 else self.word() + self.token(1, 6)]
        if self.r.random() < 0.3:
            parts.insert(0, self.word())
        return ".".join(parts) + "." + self.r.choice(TLDS)

    def address(self):
        a = self.r.randrange(1, 224)
        return f"{a}.{self.r.randrange(256)}.{self.r.randrange(256)}.{self.r.randrange(1, 255)}"

    def addresses(self):
        n = self.r.choice([1, 1, 2, 5, 20, 60])
        out = []
        for _ in range(n):
            a = self.address()
            out.append(a if self.r.random() < 0.8 else a.rsplit(".", 1)[0] + ".0/24")
        return "[" + ",".join(out) + "]" if n > 1 else out[0]

    def port(self):
        k = self.r.random()
        if k < 0.55:
            return "any"
        if k < 0.75:
            return str(self.r.choice([21, 22, 23, 25, 53, 80, 110, 135, 139, 143, 443, 445, 1433, 3306, 3389, 8080]))
        if k < 0.87:
            return str(self.r.randrange(1, 65536))
        if k < 0.92:
            low = self.r.randrange(1, 60000)
            return f"{low}:{low + self.r.randrange(1, 4000)}"
        if k < 0.96:
            return "[" + ",".join(str(self.r.randrange(1, 65536)) for _ in range(self.r.randint(2, 8))) + "]"
        if k < 0.98:
            return "!" + str(self.r.choice([80, 443, 25]))
        return "1024:"

    def ends(self):
        """Source and destination with their ports, and the direction in the flow."""
        k = self.r.random()
        if k < 0.55:
            return "$HOME_NET any -> $EXTERNAL_NET " + self.port(), "to_server"
        if k < 0.75:
            return "$EXTERNAL_NET any -> $HOME_NET " + self.port(), "to_server"
        if k < 0.85:
            return f"$EXTERNAL_NET {self.port()} -> $HOME_NET any", "to_client"
        if k < 0.9:
            return "any any -> any " + self.port(), "to_server"
        if k < 0.95:
            return f"$HOME_NET any -> {self.addresses()} {self.port()}", "to_server"
        return "$EXTERNAL_NET any -> $HTTP_SERVERS $HTTP_PORTS", "to_server"

    def uri(self):
        path = "/" + "/".join(self.word() for _ in range(self.r.randint(1, 3)))
        tail = self.r.choice([".php?", ".asp?", "/?", ".cgi?", ".jsp?", "?"])
        return f"{path}{tail}{self.word()}{self.token(1, 4)}="

    def http(self):
        o = []
        if self.r.random() < 0.6:
            o.append('http.method; content:"%s"' % self.r.choice(["GET", "POST", "POST", "PUT"]))
        k = self.r.random()
        if k < 0.55:
            o.append('http.uri; content:"%s"; %s' % (self.uri(), self.r.choice(["fast_pattern", "startswith", "nocase"])))
            if self.r.random() < 0.25:
                o.append('content:"&%s="; distance:0' % self.token(2, 5))
            if self.r.random() < 0.2:
                o.append('pcre:"/^\\/%s\\/[a-z0-9]{%d,%d}\\.%s/U"' % (
                    self.word(), self.r.randint(2, 9), self.r.randint(10, 30), self.r.choice(["php", "gif", "exe"])))
        elif k < 0.85:
            o.append('http.host; content:"%s"; bsize:>4; fast_pattern' % self.domain())
        else:
            o.append('http.user_agent; content:"%s/%s"; fast_pattern' % (self.r.choice(AGENTS), self.token(2, 8)))
        if self.r.random() < 0.15:
            o.append('http.request_body; content:"%s="; depth:%d' % (self.token(3, 9), self.r.randint(12, 60)))
        if self.r.random() < 0.1:
            o.append('http.header_names; content:!"Referer"')
        return o

    def tcp(self):
        o = []
        for n in range(self.r.choice([1, 1, 2, 2, 3, 4])):
            c = self.hexes(2, 10) if self.r.random() < 0.5 else self.word() + self.r.choice([" ", "=", ":", "/"]) + self.token(2, 9)
            place = "" if n == 0 else self.r.choice(["; distance:0", f"; within:{self.r.randint(20, 90)}", ""])
            if n == 0 and self.r.random() < 0.4:
                place = f"; depth:{self.r.randint(20, 40)}"
            o.append(f'content:"{c}"{place}' + ("; nocase" if self.r.random() < 0.2 else ""))
        k = self.r.random()
        if k < 0.08:
            o.append(f"byte_test:2,>,{self.r.randrange(4000)},{self.r.randrange(8)}")
        elif k < 0.12:
            o.append(f"dsize:>{self.r.randrange(20, 900)}")
        elif k < 0.15:
            o.append('pcre:"/%s\\s*=\\s*[^\\r\\n]{%d}/i"' % (self.word(), self.r.randint(20, 200)))
        return o

    def rule(self, sid):
        k = self.r.random()
        ends, way = self.ends()
        flow = f"flow:established,{way}"
        if k < 0.42:
            proto, o = "http", [flow] + self.http()
            ends = ends if way == "to_server" else "$HOME_NET any -> $EXTERNAL_NET any"
            o[0] = "flow:established,to_server"
        elif k < 0.55:
            proto, o = "dns", ['dns.query; content:"%s"; nocase; bsize:<%d' % (self.domain(), self.r.randint(80, 255))]
            ends = "$HOME_NET any -> any any"
        elif k < 0.65:
            proto, o = "tls", ["flow:established,to_server", 'tls.sni; content:"%s"; bsize:>3; nocase' % self.domain()]
            ends = "$HOME_NET any -> $EXTERNAL_NET any"
        elif k < 0.88:
            proto, o = "tcp", [flow] + self.tcp()
        elif k < 0.93:
            proto, o = "udp", self.tcp()
        elif k < 0.955:
            # A rule without a pattern, which only flags and header fields decide.
            proto, o = "tcp", [f"flags:{self.r.choice(['S', 'SF', 'A', 'FPU'])}", f"window:{self.r.randrange(65536)}"]
        elif k < 0.965:
            proto, o, ends = "icmp", [f"itype:{self.r.randrange(20)}", f"icode:{self.r.randrange(16)}"], "any any -> any any"
        else:
            proto, o, ends = "ip", [], f"{self.addresses()} any -> $HOME_NET any"
        if proto in ("http", "tcp") and self.r.random() < 0.05:
            verb = self.r.choice(["set", "isset"])
            o.append(f"flowbits:{verb},state.{self.r.randrange(2000)}")
        if self.r.random() < 0.04:
            o.append("threshold:type limit,track by_src,count 1,seconds %d" % self.r.choice([60, 120, 300]))
        o.append(f"classtype:{self.r.choice(CLASSES)}")
        if self.r.random() < 0.4:
            o.append(f"reference:url,{self.domain()}/{self.token(4, 20)}")
        o.append(f"sid:{sid}; rev:{self.r.randint(1, 9)}")
        o.append(f"metadata:created_at 2021_0{self.r.randint(1, 9)}_1{self.r.randint(0, 9)}, "
                 f"signature_severity {self.r.choice(['Major', 'Minor', 'Critical'])}")
        msg = f"MADE UP {proto.upper()} {self.word()} {self.token(4, 10)} {self.word()}"
        return f'alert {proto} {ends} (msg:"{msg}"; {"; ".join(o)};)'
