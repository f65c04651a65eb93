"""Programs of tools/conversations: mail, web, names, directories, telephony, keys."""
import glob, os, shutil, subprocess, textwrap

from conversation_lab import CLIENT, SERVER, SERVER6, program


@program('swaks', modules=['aiosmtpd'])
def smtp(lab):
    cert, key = lab.certificate()
    lab.serve(f'{lab.python} ' + lab.path('smtpd.py', f'''
        import asyncio, ssl
        from aiosmtpd.smtp import SMTP, AuthResult
        class Handler:
            async def handle_RCPT(self, server, session, envelope, address, options):
                if address.startswith('no'): return '550 5.1.1 User unknown'
                if address.startswith('later'): return '450 4.2.0 greylisted'
                envelope.rcpt_tos.append(address); return '250 2.1.5 OK'
            async def handle_DATA(self, server, session, envelope): return '250 2.0.0 Ok: queued as ABC'
        def auth(server, session, envelope, mechanism, data): return AuthResult(success=data.password == b'secret')
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER); context.load_cert_chain({cert!r}, {key!r})
        async def main():
            make = lambda: SMTP(Handler(), authenticator=auth, auth_require_tls=False, enable_SMTPUTF8=True, tls_context=context, hostname='mx.example.org')
            await (await asyncio.get_running_loop().create_server(make, host=['{SERVER}', '{SERVER6}'], port=2525)).serve_forever()
        asyncio.run(main())'''), 2525)
    send = f'swaks --from a@example.com -s {SERVER} -p 2525 --timeout 8s'
    one, attached = f'{send} --to b@example.org', lab.path('data.bin', 'x' * 20000)
    for kind in 'PLAIN', 'LOGIN':
        for word in 'secret', 'wrong': lab.record(f'smtp-{kind.lower()}-{word}', f'{one} -a {kind} -au user -ap {word}')
    for name, command in dict(plain=one, helo=f'{one} --protocol SMTP', starttls=f'{one} -tls', pipeline=f'{one} --pipeline',
                              unknown=f'{send} --to nobody@example.org', drop=f'{one} -da DATA',
                              several=f'{send} --to nobody@example.org,later@example.org,x@example.org', attach=f'{one} --attach @{attached}').items():
        lab.record(f'smtp-{name}', command)
    lab.script('smtp-mails', '''
        import smtplib
        from email.message import EmailMessage
        c = smtplib.SMTP(S6, 2525, timeout=8)
        for code in 'base64', 'quoted-printable':
            m = EmailMessage(); m['Subject'], m['From'], m['To'] = 'Grüße', 'Bjørn <b@example.com>', 'a@example.org, c@example.org'
            m.set_content('Hei\\n.\\n..\\nhttps://example.org/x\\n', cte='quoted-printable')
            m.add_alternative('<a href="http://html.example/">x</a>', subtype='html', cte=code)
            m.add_attachment(bytes(range(256)) * 9, maintype='application', subtype='octet-stream', filename='rapport æ.bin')
            m.add_attachment('a,b\\n' * 300, subtype='csv', filename='t.csv', cte=code)
            c.send_message(m)
        for command in 'RSET', 'NOOP', 'VRFY a', 'EXPN l', 'HELP', 'FOO', 'DATA', 'RCPT TO:<a@b>', 'MAIL FROM:<a b>', 'HELO', 'QUIT': print(c.docmd(command))''')
    lab.script('smtp-early', r'''
        s = socket.create_connection((S, 2525)); s.sendall(b'EHLO x\r\nMAIL FROM:<a@b.c>\r\nRCPT TO:<d@example.org>\r\nDATA\r\nSubject: one\r\n\r\nbody\r\n.\r\nQUIT\r\n'); time.sleep(1)''')


@program('dovecot')
def mailboxes(lab):
    cert, key = lab.certificate(); box = os.path.dirname(lab.path('box/mail/cur/x'))
    for folder in 'new', 'tmp': os.makedirs(os.path.join(box, '..', folder), exist_ok=True)
    for i in range(4): lab.path(f'box/mail/cur/170000000{i}.m{i}.h:2,', f'Subject: mail {i}\n\n.dot\n.\n' + 'line\n' * 200 * i)
    subprocess.run(['chown', '-R', 'mail:mail', lab.path('box')])
    lab.serve('dovecot -F -c ' + lab.path('dovecot.conf', f'''
        protocols = imap pop3
        base_dir = {lab.work}/run
        state_dir = {lab.work}/state
        log_path = {lab.work}/log
        listen = {SERVER}, {SERVER6}
        ssl = yes
        ssl_cert = <{cert}
        ssl_key = <{key}
        disable_plaintext_auth = no
        auth_mechanisms = plain login cram-md5 apop
        mail_location = maildir:{lab.work}/box/mail
        first_valid_uid = 1
        passdb {{
          driver = static
          args = password=secret
        }}
        userdb {{
          driver = static
          args = uid=mail gid=mail home={lab.work}/box
        }}
        '''), 110)
    lab.script('pop3', '''
        import poplib
        c = poplib.POP3(S, 110); c.capa(); c.user('user'); c.pass_('secret'); c.stat(); c.list(); c.uidl()
        for i in range(1, 5): c.retr(i)
        c.top(1, 2); c.dele(1); c.rset()
        for command in 'RETR 99', 'TOP 1', 'FOO', 'LIST x', 'NOOP':
            try: c._shortcmd(command)
            except poplib.error_proto: pass
        c.quit()
        c = poplib.POP3(S6, 110); c.stls(ssl._create_unverified_context()); c.user('user'); c.pass_('secret'); c.quit()
        c = poplib.POP3(S, 110); c.apop('user', 'secret'); c.quit()
        c = poplib.POP3(S, 110); c.user('user')
        try: c.pass_('wrong')
        except poplib.error_proto: c.quit()''')
    lab.script('imap', '''
        import imaplib
        c = imaplib.IMAP4(S, 143); c.login('user', 'secret'); c.list(); c.select(); c.search(None, 'ALL'); c.fetch('1:*', '(RFC822)')
        c.store('1', '+FLAGS', '\\\\Seen'); c.append('INBOX', None, None, b'Subject: x\\r\\n\\r\\nbody'); c.xatom('FOO'); c.logout()
        c = imaplib.IMAP4(S6, 143); c.starttls(ssl._create_unverified_context()); c.login('user', 'secret'); c.logout()''')


@program('curl', modules=['pyftpdlib'])
def ftp(lab):
    cert, key = lab.certificate(); home = os.path.dirname(lab.path('ftp/hello.txt', 'hello\n')); lab.path('ftp/empty', ''); lab.path('ftp/med.bin', 'x' * 60000)
    with open(cert) as c, open(key) as k: pem = lab.path('both.pem', c.read() + k.read())
    for port, handler in (21, 'FTPHandler'), (2121, 'TLS_FTPHandler'):
        lab.serve(f'{lab.python} ' + lab.path(f'ftpd{port}.py', f'''
            from pyftpdlib import authorizers, handlers, servers
            users = authorizers.DummyAuthorizer(); users.add_user('user', 'secret', {home!r}, perm='elradfmwMT'); users.add_anonymous({home!r})
            class Handler(handlers.{handler}): authorizer, certfile, permit_foreign_addresses = users, {pem!r}, True
            servers.FTPServer(('::', {port}), Handler).serve_forever()'''), port)
    head = '''
        import ftplib, io
        def connect(port=21, host=S, cls=ftplib.FTP, **options):
            f = cls(timeout=6, **options); f.encoding = 'utf-8'; f.connect(host, port); f.login('user', 'secret'); return f
        drop = lambda data: None
        def attempt(f, *a):
            try: f(*a)
            except ftplib.all_errors: pass
        '''
    use = ("f.retrlines('LIST', drop); f.retrbinary('RETR hello.txt', drop); f.storbinary('STOR æ.bin', io.BytesIO(b'A' * 9000)); "
           "f.retrbinary('RETR med.bin', drop, rest=30000); f.delete('æ.bin'); attempt(f.retrbinary, 'RETR nope', drop); f.quit()\n")
    for name, options in dict(passive='', v6='host=S6').items(): lab.script(f'ftp-{name}', textwrap.dedent(head) + f'f = connect({options}); {use}')
    lab.script('ftp-active', textwrap.dedent(head) + f'f = connect(); f.set_pasv(False); {use}')
    lab.script('ftp-tls', textwrap.dedent(head) + f'f = connect(2121, cls=ftplib.FTP_TLS, context=ssl._create_unverified_context()); f.prot_p(); {use}')
    lab.script('ftp-commands', textwrap.dedent(head) + textwrap.dedent('''
        f = connect()
        for command in ('FEAT SYST HELP STAT NOOP TYPE?I MODE?B STRU?R ALLO?10 CDUP PWD MKD?d RMD?d RNFR?nope RNTO?x SIZE?hello.txt MDTM?hello.txt '
                        'MLST?hello.txt ABOR EPSV?ALL FOO PBSZ?0 AUTH?GSSAPI REIN LIST USER?nobody PASS?x QUIT').split(): attempt(f.sendcmd, command.replace('?', ' '))'''))
    lab.record('ftp-curl-tls', f'curl -sk --ssl-reqd ftp://user:secret@{SERVER}:2121/hello.txt; curl -s -T {lab.path("ftp/hello.txt")} '
               f'ftp://user:secret@{SERVER}/up.txt')


@program('nginx', 'curl')
def http(lab):
    cert, key = lab.certificate(); root = os.path.dirname(lab.path('www/index.html', '<html>hello</html>'))
    lab.path('www/seq.txt', ''.join(f'{i}\n' for i in range(6000))); lab.path('www/empty', '')
    lab.serve(f'nginx -p {lab.work} -c ' + lab.path('nginx.conf', f'''
        user root; daemon off; pid {lab.work}/nginx.pid; error_log {lab.work}/log; events {{ }}
        http {{ access_log off; client_body_temp_path {lab.work}/t1; proxy_temp_path {lab.work}/t2; fastcgi_temp_path {lab.work}/t3;
        uwsgi_temp_path {lab.work}/t4; scgi_temp_path {lab.work}/t5;
        gzip on; gzip_types *; default_type text/plain; root {root};
        server {{ listen 80; listen [::]:80; location /old {{ return 302 /index.html; }} location /up {{ proxy_pass http://127.0.0.1:81; }} }}
        server {{ listen 127.0.0.1:81; return 200 "got it"; }}
        server {{ listen 443 ssl http2; ssl_certificate {cert}; ssl_certificate_key {key}; }}
        server {{ listen 8081 http2; location /up {{ proxy_pass http://127.0.0.1:81; }} }} }}'''), 8081)
    get, url, data = 'curl -s -m 6', f'http://{SERVER}', lab.path('www/seq.txt')
    for name, command in dict(
            get=f'{get} {url}/ {url}/seq.txt {url}/nope {url}/empty', v6=f'{get} -g "http://[{SERVER6}]/"', gzip=f'{get} --compressed {url}/seq.txt',
            old=f'{get} -0 {url}/', redirect=f'{get} -L {url}/old', proxy=f'{get} -x {SERVER}:80 http://other.example/',
            range=f'{get} -r 0-99 {url}/seq.txt; {get} -r 1-2,5-9 {url}/seq.txt; {get} -r 999999- {url}/seq.txt',
            post=f'{get} -d a=b {url}/up; {get} -F f=@{data} -F n=v {url}/up; {get} -H "Transfer-Encoding: chunked" -d @{data} {url}/up',
            expect=f'{get} -H "Expect: 100-continue" --data-binary @{data} {url}/up',
            methods=f'for m in HEAD OPTIONS PUT DELETE TRACE PATCH FOO; do {get} -X $m {url}/; done').items():
        lab.record(f'http-{name}', command)
    lab.script('http-pipelined', r'''
        s = socket.create_connection((S, 80)); s.sendall(b''.join(b'GET /%s HTTP/1.1\r\nHost: x\r\n\r\n' % p for p in (b'', b'empty', b'nope', b'seq.txt'))); time.sleep(.5); s.recv(99999)''')
    lab.record('http2', f'{get} --http2-prior-knowledge {url}:8081/ {url}:8081/seq.txt {url}:8081/nope; {get} --http2-prior-knowledge -d a=b {url}:8081/up; {get} -k https://{SERVER}/')
    if shutil.which('nghttp'):
        lab.record('http2-nghttp', f'nghttp -n -a {url}:8081/ {url}:8081/seq.txt; nghttp -n -p 10 --trailer "t: v" -d {data} {url}:8081/up; '
                   f'nghttp -n --padding=30 {url}:8081/')


@program('openssl')
def tls(lab):
    cert, key = lab.certificate()
    for port, options in (4430, '-alpn h2,http/1.1 -cipher ALL:@SECLEVEL=0'), (4431, f'-Verify 2 -CAfile {cert}'):
        lab.serve(f'openssl s_server -www -accept {port} -cert {cert} -key {key} {options}', port)

    def talk(options, port=4430):
        return f'(printf "GET / HTTP/1.0\\r\\n\\r\\n"; sleep 0.4) | timeout 4 openssl s_client -ign_eof -connect {SERVER}:{port} {options}'
    for version in 'tls1', 'tls1_1', 'tls1_2', 'tls1_3': lab.record(f'tls-{version}', talk(f'-{version} -cipher ALL:@SECLEVEL=0 -servername www.example.org -alpn h2'))
    for name, options in dict(nosni='-noservername', rsa='-tls1_2 -cipher AES128-SHA', mismatch='-tls1_2 -cipher PSK', hrr='-groups P-521:X25519',
                              fragments='-max_send_frag 512 -split_send_frag 512', alpn='-alpn foo', status='-status').items(): lab.record(f'tls-{name}', talk(options))
    for version in '1_2', '1_3':
        session = lab.path(f's{version}')
        lab.record(f'tls-resumed{version}', talk(f'-tls{version} -sess_out {session}') + '; ' + talk(f'-tls{version} -sess_in {session}'))
        lab.record(f'tls-client{version}', talk(f'-tls{version} -cert {cert} -key {key}', 4431) + '; ' + talk(f'-tls{version}', 4431))


@program('ssh-keygen', 'ssh', 'sshd')
def ssh(lab):
    for name in 'host', 'user': subprocess.run(['ssh-keygen', '-q', '-N', '', '-t', 'ed25519', '-f', lab.path(name)], check=True)
    os.makedirs('/run/sshd', exist_ok=True)
    lab.serve(f'/usr/sbin/sshd -D -e -f /dev/null -o HostKey={lab.path("host")} -o AuthorizedKeysFile={lab.path("user.pub")} '
              '-o StrictModes=no -o UsePAM=no -o PermitRootLogin=yes -p 22', 22)
    login = f'-i {lab.path("user")} -o BatchMode=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null'
    for name, options in dict(plain='', compressed='-C', gcm='-c aes256-gcm@openssh.com', gex='-o KexAlgorithms=diffie-hellman-group-exchange-sha256',
                              mismatch='-o HostKeyAlgorithms=ecdsa-sha2-nistp384').items(): lab.record(f'ssh-{name}', f'ssh {options} {login} root@{SERVER} "ls /"')
    lab.record('ssh-denied', f'ssh {login} nobody@{SERVER} true')


@program('slapd', 'ldapsearch')
def ldap(lab):
    cert, key = lab.certificate(); lab.path('ldap/db/x')
    base, schema = 'dc=example,dc=org', '/etc/ldap/schema'
    lab.serve(f'slapd -d 0 -h "ldap://{SERVER}:389 ldap://[{SERVER6}]:389" -f ' + lab.path('ldap/slapd.conf', f'''
        include {schema}/core.schema
        include {schema}/cosine.schema
        include {schema}/inetorgperson.schema
        modulepath /usr/lib/ldap
        moduleload back_mdb
        TLSCertificateFile {cert}
        TLSCertificateKeyFile {key}
        database mdb
        suffix {base}
        rootdn cn=admin,{base}
        rootpw secret
        directory {lab.work}/ldap/db
        '''.replace('        ', '')), 389)
    people = ''.join(f'\ndn: uid=u{i},{base}\nobjectClass: inetOrgPerson\nuid: u{i}\ncn: Bruker {i}\nsn: Nå{i}\nuserPassword: pw{i}\n' for i in range(30))
    with open(lab.path('ldap/base'), 'w') as f: f.write(f'dn: {base}\nobjectClass: dcObject\nobjectClass: organization\no: Example\ndc: example\n' + people)
    any_, admin = f'-x -H ldap://{SERVER}', f'-x -H ldap://{SERVER} -D cn=admin,{base} -w secret'
    lab.record('ldap-add', f'ldapadd {admin} -f {lab.path("ldap/base")}')
    search = f'ldapsearch {any_} -b {base}'
    lab.record('ldap-search', f'{search} "(uid=u1)"; ldapsearch {any_} -b dc=nope; {search} "(&(cn=B*)(|(uid>=a)(!(sn~=x)))(uid:dn:caseExactMatch:=u1))"; '
               f'ldapsearch {admin} -b {base} -E pr=10/noprompt dn; ldapsearch -x -H "ldap://[{SERVER6}]" -b "" -s base +')
    change = f'dn: uid=u1,{base}\\nchangetype: modify\\nreplace: sn\\nsn: x\\n-\\nadd: mail\\nmail: a@b\\n'
    lab.record('ldap-change', f'printf "{change}" | ldapmodify {admin}; ldapmodrdn {admin} uid=u2,{base} uid=v2; ldapdelete {admin} uid=u3,{base}; '
               f'ldapdelete {admin} uid=nope,{base}; ldapcompare {any_} uid=u4,{base} sn:x; ldappasswd {admin} -s new uid=u5,{base}')
    lab.record('ldap-bind', f'ldapwhoami {any_} -D uid=u6,{base} -w pw6; ldapwhoami {any_} -D uid=u6,{base} -w wrong; '
               f'ldapwhoami -Y EXTERNAL -H ldap://{SERVER}; LDAPTLS_REQCERT=never ldapwhoami {any_} -ZZ')


@program('redis-server', 'redis-cli')
def redis(lab):
    lab.serve(f'redis-server --bind {SERVER} --protected-mode no --save "" --dir {lab.work}', 6379)
    lab.record('redis', f'printf "PING\\nSET a 1\\nGET a\\nLPUSH l 1 2\\nLRANGE l 0 -1\\nHELLO 3\\nFOO\\nINFO\\n" | redis-cli -h {SERVER}')


@program('postfix', 'swaks', 'curl')
def postfix(lab):
    cert, key = lab.certificate(); home = os.path.dirname(lab.path('pf/x', ''))
    for folder in 'q', 'data': os.makedirs(lab.path(folder))
    shutil.chown(lab.path('data'), 'postfix')
    lab.path('pf/main.cf', f'''
        compatibility_level = 3.6
        queue_directory = {lab.work}/q
        data_directory = {lab.work}/data
        config_directory = {home}
        maillog_file = /dev/stdout
        myhostname = mx.example.org
        mydestination = example.org
        mynetworks = 127.0.0.0/8
        local_recipient_maps =
        local_transport = discard
        smtpd_tls_cert_file = {cert}
        smtpd_tls_key_file = {key}
        smtpd_tls_security_level = may
        smtpd_authorized_xclient_hosts = {CLIENT}
        smtpd_recipient_restrictions = check_recipient_access inline:{{no@example.org=REJECT,later@example.org=DEFER}},permit_mynetworks,reject_unauth_destination
        message_size_limit = 200000
        alias_maps =
        ''')
    services = ('pickup:60:1 qmgr:300:1 tlsmgr:1000?:1 cleanup::0 bounce::0 defer::0:bounce trace::0:bounce anvil::1 rewrite:::trivial-rewrite smtp::: discard::: error::: proxymap:::').split()
    rows = (s.split(':') + [''] * 3 for s in services)
    lab.path('pf/master.cf', '25 inet n - n - - smtpd\npostlog unix-dgram n - n - 1 postlogd\n' +
             ''.join(f'{name} unix {"n" if name in ("pickup", "cleanup", "qmgr") else "-"} - n {wake or "-"} {most or "-"} {command or name}\n' for name, wake, most, command, *_ in rows))
    lab.serve(f'postfix -c {home} start-fg', 25, 30)
    one, big = f'swaks --from a@example.com -s {SERVER} -p 25 --timeout 8s --to b@example.org', lab.path('big.bin', 'x' * 150000)
    for name, options in dict(plain='', tls='-tls', pipelined='--pipeline', xclient='--xclient-addr 192.0.2.9 --xclient-name a.example', large=f'--attach @{big} --attach @{big}',
                              refused='--to no@example.org,later@example.org,b@example.org').items(): lab.record(f'postfix-{name}', f'{one} {options}')
    lab.record('postfix-curl', f'curl -s smtp://{SERVER}:25 --mail-from a@b.example --mail-rcpt c@example.org -F "=hei;type=text/plain" -F "file=@{big};encoder=base64"')
    head = 's = socket.create_connection((S, 25), timeout=5); s.recv(999)\nfor line in '
    tail = ':\n    s.sendall(line); time.sleep(.15)\n    try: s.recv(9999)\n    except OSError: break\n'
    for name, lines in dict(
            bdat=[b'EHLO c\r\n', b'MAIL FROM:<a@b.example> BODY=8BITMIME\r\n', b'RCPT TO:<b@example.org>\r\n', b'BDAT 20\r\nSubject: x\r\n\r\nhallo\n', b'BDAT 6 LAST\r\nhallo\n', b'QUIT\r\n'],
            first=[b'XCLIENT ADDR=192.0.2.9\r\n', b'MAIL FROM:<a@b.example>\r\n', b'QUIT\r\n'], binary=[b'EHLO c\r\n', b'MAIL FROM:<a@b.example> BODY=BINARYMIME\r\n', b'ETRN example.org\r\n', b'TURN\r\n', b'QUIT\r\n']).items():
        lab.script(f'postfix-{name}', head + repr(lines) + tail)
    # Its master is in a process group of its own.
    subprocess.run(['postfix', '-c', home, 'stop'], capture_output=True)


ZONE = '''$ORIGIN example.org.
$TTL 300
@ SOA ns hostmaster 1 2 3 4 5
 NS ns
 MX 10 mail
 TXT "v=spf1 -all" "second"
 CAA 0 issue "ca.example"
 HTTPS 1 . alpn="h2,h3" ipv4hint=192.0.2.1
 NAPTR 10 20 "S" "SIP+D2U" "" _sip._udp
ns A 10.9.0.2
mail AAAA fd09::5
www CNAME web
web A 192.0.2.6
_sip._udp SRV 1 2 5060 ns
_443._tcp.www TLSA 3 1 1 0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef
sub NS ns.sub
ns.sub A 192.0.2.2
''' + ''.join(f'many A 192.0.2.{i}\n' for i in range(200))
QUESTIONS = 'for q in "@ SOA" "@ MX" "@ TXT" "@ CAA" "@ HTTPS" "@ NAPTR" "@ ANY" "www A" "_sip._udp SRV" "_443._tcp.www TLSA" "x.sub A" "nope A" "many A"; do set -- $q; dig +tries=1 +time=2 @{0} {1} $(echo $1.example.org | sed s/^@.//) $2; done'


@program('named', 'dig', 'nsupdate')
def bind(lab):
    cert, key = lab.certificate(); lab.path('named/zone', ZONE)
    lab.path('named/named.conf', f'''
        tls t {{ cert-file "{cert}"; key-file "{key}"; }};
        options {{ directory "{lab.work}/named"; listen-on {{ any; }}; listen-on-v6 {{ any; }}; listen-on port 853 tls t {{ any; }}; listen-on port 443 tls t http default {{ any; }};
        listen-on port 8053 tls none http default {{ any; }}; recursion no; pid-file none; session-keyfile none; allow-transfer {{ any; }}; dnssec-validation no; notify no; ixfr-from-differences yes; }};
        controls {{ }};
        zone "example.org" {{ type primary; file "{lab.work}/named/zone"; allow-update {{ any; }}; }};''')
    lab.serve(f'named -g -u root -c {lab.path("named/named.conf")}', 53)
    for name, options in dict(plain='', tcp='+tcp +keepalive', options='+dnssec +nsid +cookie=0123456789abcdef +subnet=192.0.2.0/24 +padding=128', old='+noedns', dot='+tls', doh='+https', get='+https-get',
                              clear='-p 8053 +http-plain').items(): lab.record(f'bind-{name}', QUESTIONS.format(SERVER, options), seconds=30)
    lab.record('bind-v6', QUESTIONS.format(SERVER6, ''), seconds=30)
    update = f'server {SERVER}\\nzone example.org\\nupdate add new.example.org 60 A 192.0.2.3\\nprereq nxdomain q.example.org\\nsend\\n'
    lab.record('bind-update', f'printf "{update}" | nsupdate; printf "{update}" | nsupdate -v; dig @{SERVER} example.org AXFR; dig @{SERVER} example.org IXFR=1; dig @{SERVER} version.bind CH TXT; dig @{SERVER} +opcode=NOTIFY example.org SOA')


@program(modules=['pymodbus'])
def modbus(lab):
    lab.serve(f'{lab.python} ' + lab.path('modbusd.py', f'''
        import asyncio
        from pymodbus.server import StartAsyncTcpServer
        from pymodbus.datastore import ModbusDeviceContext, ModbusSequentialDataBlock, ModbusServerContext
        block = lambda: ModbusSequentialDataBlock(1, [5] * 3000)
        device = ModbusDeviceContext(di=block(), co=block(), hr=block(), ir=block())
        asyncio.run(StartAsyncTcpServer(ModbusServerContext(devices=device, single=True), address=('{SERVER}', 502)))'''), 502)
    lab.script('modbus', '''
        import struct
        s = socket.create_connection((S, 502)); s.settimeout(1)
        for n, request in enumerate(('03 0000 0002', '04 0000 0002', '01 0000 0009', '05 0001 ff00', '06 0001 0007', '10 0001 0001 02 0005', '17 0001 0003 0007 0001 02 0009', '16 0004 00f2 0025',
                                     '2b 0e 01 00', '5a 0002', '08 0000 abcd', '11', '07', '0b', '0c', '41 616263', '03 ea60 0009')):
            pdu = bytes.fromhex(request); s.sendall(struct.pack('>HHHB', n, 0, len(pdu) + 1, 1) + pdu); time.sleep(.1); s.recv(999)''')


@program('sipp')
def sipp(lab):
    for name, port, kind in ('udp', 5060, 'u1'), ('tcp', 5061, 't1'):
        lab.serve(f'sipp -sn uas -i {SERVER} -p {port} -nostdin -t {kind}', port)
        lab.record(f'sip-{name}', f'sipp -sn uac -i {CLIENT} -m 3 -r 5 -d 200 -t {kind} -nostdin {SERVER}:{port}'); lab.stop()


@program('kamailio', 'baresip')
def registrar(lab):
    modules = glob.glob('/usr/lib/*/kamailio/modules/') + ['/usr/lib/kamailio/modules/']
    lab.serve(f'kamailio -DD -E -Y {lab.work} -f ' + lab.path('kamailio.cfg', f'''
        #!KAMAILIO
        fork=no
        children=1
        listen=udp:{SERVER}:5060
        listen=tcp:{SERVER}:5060
        mpath="{modules[0]}"
        '''.replace('\n        ', '\n').lstrip() + ''.join(f'loadmodule "{m}.so"\n' for m in 'tm sl rr pv maxfwd textops siputils usrloc registrar'.split()) + '''
        request_route {
          if (is_method("REGISTER")) { save("location"); exit; }
          if (is_method("OPTIONS")) { sl_send_reply("200", "OK"); exit; }
          record_route();
          if (loose_route()) { t_relay(); exit; }
          if (!lookup("location")) { sl_send_reply("404", "Not Found"); exit; }
          t_relay();
        }
        '''), 5060)
    for kind in 'udp', 'tcp':
        for who, port in ('a', 5070), ('b', 5080):
            lab.path(f'{kind}{who}/accounts', f'<sip:{who}@{SERVER};transport={kind}>;auth_pass=x;regint=60;answermode=auto\n'); lab.path(f'{kind}{who}/contacts', '')
            lab.path(f'{kind}{who}/config', f'sip_listen {CLIENT}:{port}\nmodule_path /usr/lib/baresip/modules\nmodule g711.so\nmodule ausine.so\nmodule aufile.so\nmodule_app account.so\nmodule_app menu.so\n'
                     'audio_source ausine,440\naudio_player aufile,/dev/null\n')
        lab.record(f'sip-call-{kind}', f'export HOME={lab.work}; timeout 8 baresip -f {lab.work}/{kind}b & sleep 1; timeout 6 baresip -f {lab.work}/{kind}a -e "/dial b@{SERVER}" -t 5; wait')


@program('krb5kdc', 'kdb5_util', 'kadmin.local', 'kinit', 'kvno')
def kerberos(lab):
    lab.path('kdc/acl', ''); base = f'{lab.work}/kdc'
    for name, limit in ('udp', 9000), ('tcp', 1):
        lab.path(f'kdc/{name}.conf', f'[libdefaults]\ndefault_realm=EXAMPLE.ORG\ndns_lookup_kdc=false\nrdns=false\nudp_preference_limit={limit}\n[realms]\nEXAMPLE.ORG={{\nkdc={SERVER}:88\n}}\n')
    lab.path('kdc/kdc.conf', f'[realms]\nEXAMPLE.ORG={{\nkdc_ports=88\nkdc_tcp_ports=88\ndatabase_name={base}/db\nkey_stash_file={base}/stash\nacl_file={base}/acl\nmax_renewable_life=7d\n}}\n')
    env = f'env KRB5_CONFIG={base}/udp.conf KRB5_KDC_PROFILE={base}/kdc.conf'
    subprocess.run(f'{env} kdb5_util -P m create -s; {env} kadmin.local -q "addprinc -pw secret +requires_preauth user"; {env} kadmin.local -q "addprinc -randkey host/a.example"', shell=True, capture_output=True)
    lab.serve(f'{env} krb5kdc -n', 88)
    for name in 'udp', 'tcp':
        lab.record(f'krb5-{name}', f'export KRB5_CONFIG={base}/{name}.conf KRB5CCNAME={base}/cc{name}; echo secret | kinit -r 2d user; kvno host/a.example; kinit -R; kvno nope/x; echo wrong | kinit user; echo x | kinit nobody; '
                   'echo secret | kinit -S host/a.example user; kvno -U user host/a.example')
