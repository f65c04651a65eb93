"""An engine's events through a real broker that crashes, is slow, or has a bad certificate. The tests compare what arrives with a file, and check
the log.

The engine needs the feature kafka (`make sensor`).
"""

import collections
import datetime
import ipaddress
import json
import os
import socket
import struct
import subprocess
import threading
import time

import pytest
from conftest import did_not_run, ip, udp

confluent = pytest.importorskip("confluent_kafka")
confluent_admin = pytest.importorskip("confluent_kafka.admin")
pytestmark = pytest.mark.extras

CONFIG = """%YAML 1.1
---
stats: {{enabled: yes, interval: 1}}
outputs:
  - eve-log: {{enabled: yes, filetype: regular, filename: eve.json, community-id: true, types: [alert]}}
  - eve-log: {{enabled: yes, filetype: regular, filename: stats.json, types: [stats]}}
  - eve-log:
      enabled: yes
      community-id: true
      filetype: kafka
      kafka: {{brokers: "{servers}", topic: eve, properties: [{properties}]}}
      queue-size: {queue}
      {more}
      types: [alert]
"""
# A rule on addresses and ports alone would alert once for each flow.
RULE = 'alert udp any any -> any any (msg:"each packet"; dsize:8; sid:1;)\n'


@pytest.fixture(scope="module")
def kafka_engine(engine):
    done = subprocess.run([engine, "--build-info"], capture_output=True, text=True, check=False)
    if "kafka" not in done.stdout.lower():
        did_not_run("events through Kafka", "the engine was built without the feature kafka")
    return engine


@pytest.fixture
def made(tmp_path):
    """Creates a broker."""
    import broker

    try:
        broker.jars()
    except broker.NoJars as e:
        did_not_run("events through Kafka", str(e), "unavailable")
    running = []

    def make(**options):
        running.append(broker.Broker(tmp_path / f"broker-{len(running)}", partitions=4, **options).start())
        return running[-1]

    yield make
    for each in running:
        each.stop(at_once=True)


def packets(count, start=1_700_000_000):
    """Datagrams of fifty flows, in turn."""
    for n in range(count):
        a = f"10.0.0.{n % 50 + 1}"
        yield start + n / 10_000, ip(a, "10.1.0.1", 17, udp(a, "10.1.0.1", 1000 + n % 50, 9999, b"%08d" % n))


def settings(folder, servers, queue="64mb", more="", properties=""):
    folder.mkdir(exist_ok=True)
    (folder / "margay.yaml").write_text(CONFIG.format(servers=servers, queue=queue, more=more, properties=properties))
    (folder / "a.rules").write_text(RULE)
    return ["-c", folder / "margay.yaml", "-S", folder / "a.rules", "-l", folder, "--runmode", "single"]


def lines(file):
    with open(file, encoding="utf-8") as f:
        return [line.rstrip("\n") for line in f]


def consumed(servers, count, **config):
    """The lines on the topic, in partition order: (partition, line)."""
    consumer = confluent.Consumer({"bootstrap.servers": servers, "group.id": "test", "auto.offset.reset": "earliest", "enable.auto.commit": False, **config})
    partitions = consumer.list_topics("eve", 30).topics["eve"].partitions
    consumer.assign([confluent.TopicPartition("eve", p, 0) for p in partitions])
    got, last = [], time.monotonic()
    # Wait a little after the expected number, so that duplicates show.
    while time.monotonic() - last < (2 if len(got) >= count else 20):
        for message in consumer.consume(10_000, 0.5):
            assert message.error() is None, message.error()
            got.append((message.partition(), message.value().decode()))
            last = time.monotonic()
    consumer.close()
    return got


def same(got, expected):
    """Checks that every event arrived once, and each flow's events in one partition and in order."""
    assert collections.Counter(line for _, line in got) == collections.Counter(expected)
    flow = lambda line: json.loads(line)["community_id"]  # noqa: E731
    before, after, places = (collections.defaultdict(list) for _ in range(3))
    for line in expected:
        before[flow(line)].append(line)
    for partition, line in got:
        after[flow(line)].append(line)
        places[flow(line)].append(partition)
    assert before == after
    assert all(len(set(p)) == 1 for p in places.values())


def last_stats(folder):
    return json.loads(lines(folder / "stats.json")[-1])["stats"]["output"]["remote"]


def paced(process, count, a_second):
    """Feeds an engine's standard input at a steady rate, as a wire would. Returns how long the longest write blocked."""
    longest, began = 0.0, time.monotonic()
    head = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 101)
    process.stdin.write(head)
    for n, (at, packet) in enumerate(packets(count)):
        if n % 100 == 0:
            time.sleep(max(0.0, began + n / a_second - time.monotonic()))
        now = time.monotonic()
        process.stdin.write(struct.pack("<IIII", int(at), int(at % 1 * 1e6), len(packet), len(packet)) + packet)
        if n % 100 == 99:
            process.stdin.flush()
            longest = max(longest, time.monotonic() - now)
    process.stdin.close()
    return longest


def start(engine, line, folder):
    said = open(folder / "said", "wb")
    return subprocess.Popen([engine, *map(str, line)], stdin=subprocess.PIPE, stdout=said, stderr=said)


@pytest.mark.parametrize("away", [int(os.environ.get("MARGAY_BROKER_AWAY", "10"))])
def test_a_broker_that_is_killed_under_load(kafka_engine, made, tmp_path, away):
    """The broker is away for some seconds (MARGAY_BROKER_AWAY) while 2,000 events a second arrive: no loss, no duplicates, no reordering, no wait."""
    server, folder, rate = made(), tmp_path / "engine", 2000
    topic = confluent_admin.NewTopic("eve", 4, 1)
    admin = confluent_admin.AdminClient({"bootstrap.servers": server.address})
    admin.create_topics([topic])["eve"].result(30)
    del admin
    spool = f"spool: {{dir: {tmp_path / 'spool'}, max-size: 4gb}}\n      when-full: drop"
    process = start(kafka_engine, [*settings(folder, server.address, queue="2mb", more=spool), "-r", "-"], folder)
    # Before the kill, while the broker is away and restarts, and after that.
    seconds = 5 + away + 30

    def kill():
        time.sleep(5)
        server.stop(at_once=True)
        time.sleep(away)
        server.start()

    thread = threading.Thread(target=kill)
    thread.start()
    longest = paced(process, rate * seconds, rate)
    thread.join()
    assert process.wait(120) == 0, (folder / "said").read_text()
    told = (folder / "said").read_text()
    assert "kafka" in told.lower(), told
    assert len(lines(folder / "eve.json")) == rate * seconds
    # Events that a slowly starting broker has not taken are on disk, and later runs send them first.
    for _ in range(6):
        process = start(kafka_engine, [*settings(folder, server.address, queue="2mb", more=spool), "-r", "-"], folder)
        paced(process, 1, 100)
        assert process.wait(60) == 0, (folder / "said").read_text()
        if not any(f.stat().st_size for f in (tmp_path / "spool").rglob("*") if f.suffix != ".lock" and f.is_file()):
            break
    expected = lines(folder / "eve.json")
    same(consumed(server.address, len(expected)), expected)
    assert longest < 1.0, f"a write of 100 packets was held up for {longest:.2f} s"


def test_a_disk_that_is_full(kafka_engine, tmp_path):
    """The broker is away and the spool is full: lost events are counted and logged, and the run does not block."""
    if os.geteuid() != 0:
        did_not_run("a spool on a full disk", "a small file system takes root")
    spool, folder = tmp_path / "spool", tmp_path / "engine"
    spool.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "margay-spool", spool], check=True)
    try:
        more = f"spool: {{dir: {spool}, max-size: 1gb}}\n      when-full: drop"
        process = start(kafka_engine, [*settings(folder, "127.0.0.1:1", queue="1mb", more=more), "-r", "-"], folder)
        began = time.monotonic()
        longest = paced(process, 40_000, 10_000)
        # Status 1: the run over a capture lost events.
        assert process.wait(60) == 1
        took = time.monotonic() - began
    finally:
        subprocess.run(["umount", spool], check=True)
    told, expected = (folder / "said").read_text(), lines(folder / "eve.json")
    assert len(expected) == 40_000
    assert "No space left" in told or "cannot be written" in told, told
    assert longest < 1.0 and took < 30, (longest, took)
    assert 0 < last_stats(folder)["lost"] <= 40_000


class Slow(threading.Thread):
    """A proxy that forwards bytes to a broker slowly."""

    def __init__(self, a_second):
        super().__init__(daemon=True)
        self.to, self.pause = None, 16384 / a_second
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]

    def run(self):
        while True:
            client, _ = self.listener.accept()
            server = socket.create_connection(("127.0.0.1", self.to))
            for a, b, pause in ((client, server, self.pause), (server, client, 0)):
                threading.Thread(target=self.copy, args=(a, b, pause), daemon=True).start()

    @staticmethod
    def copy(a, b, pause):
        try:
            while data := a.recv(16384):
                b.sendall(data)
                time.sleep(pause)
        except OSError:
            pass
        finally:
            for s in (a, b):
                try:
                    s.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass


def test_a_broker_that_is_slow(kafka_engine, made, tmp_path):
    """A link slower than the events: those that find no room are counted, the rest arrives once and in order, and the run does not block."""
    slow, folder = Slow(400_000), tmp_path / "engine"
    server = made(advertised=slow.port)
    slow.to = server.port
    slow.start()
    # LZ4 would compress these events to a small stream.
    line = settings(folder, f"127.0.0.1:{slow.port}", queue="1mb", more="when-full: drop", properties='"compression.codec=none"')
    process = start(kafka_engine, [*line, "-r", "-"], folder)
    longest = paced(process, 40_000, 10_000)
    # The remaining events have ten seconds.
    assert process.wait(60) == 1
    expected, told = lines(folder / "eve.json"), last_stats(folder)
    assert len(expected) == 40_000 and longest < 1.0
    got = consumed(server.address, 1)
    assert 0 < len(got) < 40_000 and told["lost"] > 0
    assert max(collections.Counter(line for _, line in got).values()) == 1
    place = {line: n for n, line in enumerate(expected)}
    for partition in range(4):
        numbers = [place[line] for p, line in got if p == partition]
        assert numbers == sorted(numbers)


def certificate(folder, days):
    """A self-signed certificate for 127.0.0.1, valid for `days` from a year ago on: one file with its key, and one with only the certificate."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    begin = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(days=365)
    made = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key()).serial_number(7)
    made = made.not_valid_before(begin).not_valid_after(begin + datetime.timedelta(days=days))
    address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    made = made.add_extension(address, False).add_extension(x509.BasicConstraints(True, None), True).sign(key, hashes.SHA256())
    pem = serialization.Encoding.PEM
    secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / "both.pem").write_bytes(secret + made.public_bytes(pem))
    (folder / "ca.pem").write_bytes(made.public_bytes(pem))
    return folder / "both.pem", folder / "ca.pem"


@pytest.mark.parametrize("days", [730, 300])
def test_a_certificate_that_is_good_or_expired(kafka_engine, made, tmp_path, days):
    both, ca = certificate(tmp_path, days)
    server = made(tls=True, more=f"ssl.keystore.type=PEM\nssl.keystore.location={both}")
    folder = tmp_path / "engine"
    properties = f'"security.protocol=ssl", "ssl.ca.location={ca}"'
    process = start(kafka_engine, [*settings(folder, server.address, more="when-full: drop", properties=properties), "-r", "-"], folder)
    longest = paced(process, 20_000, 10_000)
    status, told = process.wait(60), (folder / "said").read_text()
    expected = lines(folder / "eve.json")
    assert len(expected) == 20_000 and longest < 1.0
    if days > 365:
        assert status == 0, told
        same(consumed(server.address, 20_000, **{"security.protocol": "ssl", "ssl.ca.location": str(ca)}), expected)
    else:
        assert status == 1 and "certificate verify failed" in told, told
        assert "20000 events could not be written and are lost" in told, told
