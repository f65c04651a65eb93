"""Programs of tools/conversations: keys of networks, addresses, boot files, clocks, desktops, newer web protocols."""
import shutil, subprocess

from conversation_lab import CLIENT, SERVER, program


@program('swanctl', 'charon-systemd')
def ike(lab):
    def conf(name, side, version, proposal, child, extra):
        me, peer = (SERVER, CLIENT) if side == 's' else (CLIENT, SERVER)
        path = lab.path(f'ike/{name}/{side}/swanctl.conf', f'''
            connections {{
              c {{
                version = {version}
                local_addrs = {me}
                remote_addrs = {peer}
                proposals = {proposal}
                {extra}
                local {{
                  auth = psk
                  id = {me}
                }}
                remote {{
                  auth = psk
                  id = {peer}
                }}
                children {{
                  n {{
                    local_ts = {me}/32
                    remote_ts = {peer}/32
                    esp_proposals = {child}
                    rekey_time = 4s
                  }}
                }}
              }}
            }}
            secrets {{
              ike-a {{
                secret = "secret"
              }}
            }}
            ''')
        strong = lab.path(f'ike/{name}/{side}/strongswan.conf', f'''
            charon-systemd {{
              load = random nonce openssl aes sha1 sha2 hmac kdf gmp gcm md5 pem pkcs1 x509 constraints pubkey kernel-netlink socket-default vici
              install_routes = no
              piddir = {lab.work}/ike/{name}/{side}
              plugins {{
                vici {{
                  socket = unix://{lab.work}/ike/{name}/{side}.vici
                }}
              }}
            }}
            ''')
        return path, strong
    for name, version, proposal, child, extra in (
            ('v2', 2, 'aes256-sha256-modp2048', 'aes256-sha256', ''), ('v2-gcm', 2, 'aes128gcm16-prfsha384-ecp256,aes256-sha1-modp1024', 'aes128gcm16', ''),
            ('v2-wrong', 2, '{s}', 'aes256-sha256', ''), ('v1', 1, 'aes256-sha256-modp2048', 'aes256-sha256', ''), ('v1-aggressive', 1, '3des-sha1-modp1024', '3des-sha1', 'aggressive = yes'),
            ('v1-wrong', 1, '{s}', 'aes128-sha1', '')):
        of = lambda side: {'s': 'aes256-sha256-modp2048', 'c': '3des-md5-modp1024,aes128-sha1-modp1536'}[side] if proposal == '{s}' else proposal
        files = {side: conf(name, side, version, of(side), child, extra) for side in 'sc'}
        at = lambda side: f'--uri unix://{lab.work}/ike/{name}/{side}.vici'
        # Each daemon writes its process number below /run, so each has a /run of its own.
        start = lambda side: f'unshare -m sh -c "mount -t tmpfs none /run; STRONGSWAN_CONF={files[side][1]} exec charon-systemd"'
        lab.serve(start('s'), 500)
        subprocess.run(f'for i in 1 2 3 4 5 6; do sleep .3; swanctl --load-all {at("s")} --file {files["s"][0]} && break; done', shell=True, capture_output=True)
        lab.record(f'ike-{name}', f'{start("c")} & p=$!; for i in 1 2 3 4 5 6; do sleep .3; swanctl --load-all {at("c")} --file {files["c"][0]} && break; done; timeout 4 swanctl -i {at("c")} --child n; sleep 5; '
                   f'timeout 2 swanctl -t {at("c")} --ike c; kill -9 $p', seconds=30)
        lab.stop()


@program('dnsmasq', 'udhcpc', 'atftp')
def boot(lab):
    lab.path('tftp/small', 'hallo\n' * 20); lab.path('tftp/exact', 'x' * 1024); lab.path('tftp/big', 'y' * 60000)
    script = lab.path('dhcp/script', '#!/bin/sh\nexit 0\n', 0o755)
    lab.serve(f'dnsmasq -k -C /dev/null -i s0 --bind-dynamic --port=0 --user=root --dhcp-leasefile={lab.work}/leases --dhcp-range=10.9.0.50,10.9.0.90,255.255.255.0,2m --dhcp-option=option:router,{SERVER} '
              f'--dhcp-option=option:dns-server,{SERVER},10.9.0.3 --dhcp-option=option:domain-name,example.org --dhcp-boot=boot.img,server,{SERVER} --dhcp-host=02:00:00:00:00:09,10.9.0.77,named --enable-tftp --tftp-root={lab.work}/tftp '
              f'--dhcp-option=option:ntp-server,{SERVER} --dhcp-option=121,192.0.2.0/24,{SERVER} --dhcp-range=fd09::100,fd09::200,64,2m', 67)
    once = f'udhcpc -i c0 -f -q -n -t 3 -T 1 -s {script}'
    for name, options in dict(plain='', named='-x hostname:laptop -F laptop.example.org -V vendor-x', asked='-r 10.9.0.66', outside='-r 192.0.2.1', all='-O router -O dns -O staticroutes -O ntpsrv -O bootfile -O tftp -x 0x3d:0102030405').items():
        lab.record(f'dhcp-{name}', f'{once} {options}')
    lab.record('dhcp-release', f'udhcpc -i c0 -f -R -t 3 -T 1 -s {script} & sleep 2; kill -USR1 $!; sleep 1; kill -USR2 $!; sleep .5; kill $!; wait')
    get = lambda name, options='': f'atftp {options} -g -r {name} -l {lab.work}/out {SERVER} 69'
    lab.record('tftp-get', '; '.join([get('small'), get('exact'), get('big'), get('nope')]))
    lab.record('tftp-options', '; '.join([get('big', '--option "blksize 1400"'), get('big', '--option "blksize 1024" --option "tsize 0" --option "timeout 3"'), get('exact', '--option "windowsize 4"')]))
    lab.record('tftp-put', f'atftp -p -l {lab.work}/tftp/big -r new {SERVER} 69')


@program('chronyd', 'ntpdate')
def clock(lab):
    lab.serve('chronyd -d -x -f ' + lab.path('chrony.conf', f'local stratum 3\nallow all\nbindaddress {SERVER}\ncmdport 0\npidfile {lab.work}/chrony.pid\n'), 123)
    lab.record('ntp-date', f'ntpdate -q {SERVER}')
    lab.record('ntp-chrony', f'timeout 8 chronyd -d -x -f {lab.path("client.conf", f"server {SERVER} iburst minpoll 0 maxpoll 0 xleave" + chr(10) + "cmdport 0" + chr(10) + f"pidfile {lab.work}/c.pid" + chr(10))}')
    lab.script('ntp-odd', r'''
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(.3)
        for first in 0x1b, 0x23, 0x0b, 0x13, 0x16, 0x17, 0xdb, 0x21, 0x24, 0x00:
            s.sendto(bytes([first]) + bytes(47), (S, 123))
            try: s.recv(999)
            except OSError: pass
        for n in 1, 12, 47, 48, 52, 68, 100: s.sendto(b'\x23' + bytes(n - 1), (S, 123)); time.sleep(.05)''')


@program('xrdp', 'xfreerdp', 'xvfb-run')
def rdp(lab):
    cert, key = lab.certificate()
    for layer, port in ('rdp', 3389), ('tls', 3390), ('negotiate', 3391):
        shutil.copy('/etc/xrdp/rsakeys.ini', lab.path('rdp/rsakeys.ini'))
        lab.serve('xrdp -n -c ' + lab.path(f'rdp/{layer}.ini', f'''
            [Globals]
            ini_version=1
            fork=true
            port=tcp://{SERVER}:{port}
            security_layer={layer}
            crypt_level=high
            certificate={cert}
            key_file={key}
            ssl_protocols=TLSv1.2, TLSv1.3
            autorun=
            allow_channels=true
            [Logging]
            LogFile={lab.work}/rdp/{layer}.log
            [Channels]
            rdpdr=true
            [Xorg]
            name=Xorg
            lib=libxup.so
            username=ask
            password=ask
            ip={SERVER}
            port=-1
            code=20
            '''), port)
        for sec in 'rdp', 'tls', 'nla':
            lab.record(f'rdp-{layer}-{sec}', f'xvfb-run -a timeout 4 xfreerdp /v:{SERVER}:{port} /u:user /p:secret /sec:{sec} /cert:ignore /size:640x480 +clipboard', seconds=12)


@program('nghttpd', 'nghttp', 'curl')
def http2(lab):
    cert, key = lab.certificate(); lab.path('h2/index.html', '<html>' + 'x' * 3000); lab.path('h2/big', 'b' * 200000); lab.path('h2/style.css', 'p{}')
    lab.serve(f'nghttpd --no-tls -d {lab.work}/h2 -p /index.html=/style.css 8080', 8080)
    lab.serve(f'nghttpd --no-tls -d {lab.work}/h2 --trailer "x-end: yes" 8081', 8081)
    lab.serve(f'nghttpd -d {lab.work}/h2 8443 {key} {cert}', 8443)
    body = lab.path('body', 'q=1&' * 5000)
    for name, options in dict(get=f'http://{SERVER}:8080/', several=f'-m 6 http://{SERVER}:8080/index.html http://{SERVER}:8080/big http://{SERVER}:8080/nope', upgrade=f'-u http://{SERVER}:8080/', post=f'-d {body} -H "content-type: application/x-www-form-urlencoded" http://{SERVER}:8080/x',
                              continuation=f'--continuation -H "x-a: {"a" * 9000}" http://{SERVER}:8080/', trailers=f'-d {body} --trailer "x-t: 1" http://{SERVER}:8081/', padding=f'-b 200 --no-dep http://{SERVER}:8080/', assets=f'-a http://{SERVER}:8080/index.html',
                              windows=f'-w 10 -W 12 --header-table-size=0 http://{SERVER}:8080/big', tls=f'https://{SERVER}:8443/').items(): lab.record(f'h2-{name}', f'timeout 5 nghttp -n {options}')
    lab.record('h2-curl', f'curl -s --http2-prior-knowledge http://{SERVER}:8080/ http://{SERVER}:8080/big -o /dev/null -o /dev/null -X PUT -H "Cookie: a=b; c=d" -A agent -e http://r.example/ -u user:word')
    lab.record('h2-curl-upgrade', f'curl -s --http2 http://{SERVER}:8080/big -o /dev/null')


@program(modules=['websockets'])
def websocket(lab):
    lab.serve(f'{lab.python} ' + lab.path('wsd.py', f'''
        import asyncio, websockets
        async def echo(ws, path=None):
            async for m in ws: await ws.send(m)
        async def main():
            async with websockets.serve(echo, '{SERVER}', 8765, subprotocols=['chat'], max_size=None): await asyncio.Future()
        asyncio.run(main())'''), 8765)
    head = '''
        import asyncio, websockets
        async def go(**options):
            async with websockets.connect(f'ws://{S}:8765/path?q=1', max_size=None, **options) as w:
                for m in ('hallo', 'blå', b'\\0\\1', '', 'x' * 200, 'y' * 70000): await w.send(m); await w.recv()
                await (await w.ping(b'pp')); await w.close(1001, 'bye')
        asyncio.run(go({0}))'''
    for name, options in dict(plain='compression=None', deflate='', protocol='subprotocols=["chat"], compression=None').items(): lab.script(f'ws-{name}', head.replace('{0}', options))
    lab.script('ws-raw', r'''
        s = socket.create_connection((S, 8765)); s.settimeout(.5)
        s.sendall(b'GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n'); time.sleep(.2); s.recv(999)
        def frame(first, data, mask=b'abcd', length=None):
            n = len(data); head = bytes([first, 0x80 | n]) if n < 126 else bytes([first, 0x80 | 126]) + n.to_bytes(2, 'big')
            return head + mask + bytes(b ^ mask[i % 4] for i, b in enumerate(data))
        for f in frame(1, b'par'), frame(0, b'ti'), frame(0x80, b'al'), frame(0x89, b'p'), frame(0x8a, b''), frame(0x82, bytes(300)), frame(0x81, b'x' * 125), frame(0x88, b'\x03\xe8ok'): s.sendall(f); time.sleep(.05)
        try: s.recv(9999)
        except OSError: pass''')


@program('telnet', 'inetutils-inetd', 'telnetd')
def telnet(lab):
    lab.serve('inetutils-inetd -d ' + lab.path('inetd.conf', f'{SERVER}:23 stream tcp nowait root {shutil.which("telnetd")} telnetd\n'), 23)
    lab.record('telnet-login', f'(sleep 1; printf "user\\r"; sleep .5; printf "wrong\\r"; sleep 3) | timeout 6 telnet {SERVER}')


@program(modules=['aioquic'])
def quic(lab):
    cert, key = lab.certificate()
    lab.serve(f'{lab.python} ' + lab.path('quicd.py', f'''
        import asyncio
        from aioquic.asyncio import QuicConnectionProtocol, serve
        from aioquic.quic.configuration import QuicConfiguration
        from aioquic.h3.connection import H3_ALPN, H3Connection
        from aioquic.h3.events import HeadersReceived
        from aioquic.quic.events import ProtocolNegotiated
        class P(QuicConnectionProtocol):
            h = None
            def quic_event_received(self, e):
                if isinstance(e, ProtocolNegotiated): self.h = H3Connection(self._quic)
                if self.h:
                    for x in self.h.handle_event(e):
                        if isinstance(x, HeadersReceived): self.h.send_headers(x.stream_id, [(b':status', b'200')]); self.h.send_data(x.stream_id, b'x' * 5000, True); self.transmit()
        c = QuicConfiguration(is_client=False, alpn_protocols=H3_ALPN); c.load_cert_chain({cert!r}, {key!r})
        async def main(): await serve('{SERVER}', 4433, configuration=c, create_protocol=P, retry=False); await serve('{SERVER}', 4434, configuration=c, create_protocol=P, retry=True); await asyncio.Future()
        asyncio.run(main())'''), 4433)
    head = '''
        import asyncio
        from aioquic.asyncio import connect
        from aioquic.quic.configuration import QuicConfiguration
        async def go(port, **options):
            c = QuicConfiguration(is_client=True, alpn_protocols=['h3'], server_name='www.example.org', verify_mode=ssl.CERT_NONE, **options)
            async with connect(S, port, configuration=c) as p: await p.ping()
        asyncio.run(asyncio.wait_for(go({0}), 5))'''
    for name, options in dict(plain='4433', retry='4434', v2='4433, original_version=0x6b3343cf').items(): lab.script(f'quic-{name}', head.replace('{0}', options))
