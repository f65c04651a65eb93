"""The configuration of ../shared in the form that Suricata 7 reads, for the tools that run it beside the engine."""
import re

# Types of events that Suricata 7 does not write.
NEW_TYPES = 'doh2 mdns websocket ntp enip pop3 arp ldap'.split()


def for_peer(text):
    """The YAML text with the units of Suricata 7, and without event types that it does not have."""
    text = re.sub(r'(\d+) ([KM])iB', lambda m: m[1] + m[2].lower() + 'b', text)
    for t in NEW_TYPES: text = re.sub(rf'^(\s*)- {t}(:\n\1    .*)?\n', '', text, flags=re.M)
    return text


def read_list(path):
    """The lines `WHAT: reason` of a list of known differences, as pairs."""
    with open(path) as f: return [l.rstrip('\n').split(': ', 1) for l in f if l.strip() and not l.startswith('#')]
