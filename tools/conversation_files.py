"""Programs of tools/conversations: files, databases, messages, devices, a remote desktop."""
import os, shutil, subprocess

from conversation_lab import CLIENT, SERVER, SERVER6, program


@program('smbd', 'smbclient', 'rpcclient')
def smb(lab):
    for folder in 'private lock state cache pid rpc share/sub'.split(): os.makedirs(lab.path('smb/' + folder), exist_ok=True)
    os.chmod(lab.path('smb/share'), 0o777); base = f'{lab.work}/smb'
    conf = lab.path('smb/smb.conf', f'''
        [global]
        workgroup = TEST
        interfaces = {SERVER} {SERVER6}
        bind interfaces only = yes
        server min protocol = NT1
        client min protocol = NT1
        private dir = {base}/private
        lock directory = {base}/lock
        state directory = {base}/state
        cache directory = {base}/cache
        pid directory = {base}/pid
        ncalrpc dir = {base}/rpc
        log file = {base}/log
        passdb backend = tdbsam:{base}/passdb.tdb
        map to guest = Bad User
        guest account = root
        load printers = no
        rpc start on demand helpers = yes
        [share]
        path = {base}/share
        read only = no
        guest ok = yes
        [sealed]
        path = {base}/share
        read only = no
        smb encrypt = required
        ''')
    subprocess.run(f'printf "secret\\nsecret\\n" | smbpasswd -c {conf} -a -s root', shell=True, capture_output=True)
    lab.serve(f'smbd -F --no-process-group -s {conf}', 445)
    small, large = lab.path('small.txt', 'hallo\n' * 50), lab.path('large.bin', 'x' * 700000)
    work = (f'ls; mkdir d; cd d; put {small} a.txt; put {large} b.bin; ls; allinfo a.txt; get a.txt {lab.work}/out; get b.bin {lab.work}/out; rename a.txt c.txt; '
            'del c.txt; del b.bin; get nope.txt; cd ..; rmdir d; rmdir nope; volume; du; posix')
    login = f'-s {conf} -U root%secret'
    for dialect in 'NT1', 'SMB2_02', 'SMB2_10', 'SMB3_00', 'SMB3_11':
        lab.record(f'smb-{dialect.lower()}', f'smbclient {login} -m {dialect} //{SERVER}/share -c "{work}"')
    for name, command in dict(
            anonymous=f'smbclient -s {conf} -N -L {SERVER}', wrong=f'smbclient -s {conf} -U root%wrong //{SERVER}/share -c ls', noshare=f'smbclient {login} //{SERVER}/nope -c ls',
            sealed=f'smbclient {login} //{SERVER}/sealed -c "{work}"', signed=f'smbclient {login} --option="client signing=required" -m SMB2_10 //{SERVER}/share -c "{work}"',
            netbios=f'smbclient {login} -p 139 -m NT1 //{SERVER}/share -c "{work}"', v6=f'smbclient {login} //{SERVER6}/share -c "{work}"',
            unicode=f'smbclient {login} //{SERVER}/share -c "mkdir \\"blå bær\\"; cd \\"blå bær\\"; put {small} \\"日本.txt\\"; ls; del \\"日本.txt\\"; cd ..; rmdir \\"blå bær\\""').items():
        lab.record(f'smb-{name}', command)
    calls = 'srvinfo;netshareenumall;enumdomusers;lsaquery;lookupnames root;queryuser root;querydominfo;getusername;enumprivs;netsharegetinfo share;netremotetod;winreg_enumkey HKLM'
    lab.record('smb-rpc', f'rpcclient {login} {SERVER} -c "{calls}"', seconds=30)
    lab.record('smb-rpc-nt1', f'rpcclient {login} -m NT1 {SERVER} -c "{calls}"', seconds=30)
    lab.record('rpc-tcp', f'rpcclient {login} "ncacn_ip_tcp:{SERVER}" -c "srvinfo;enumdomusers"; rpcclient {login} "ncacn_ip_tcp:{SERVER}[sign]" -c "lsaquery"; '
               f'rpcclient {login} "ncacn_ip_tcp:{SERVER}[seal]" -c "srvinfo"; rpcclient {login} "ncacn_ip_tcp:{SERVER}[print]" -c epmmap', seconds=30)


@program('psql', 'initdb', 'runuser')
def postgres(lab):
    cert, key = lab.certificate(); data = lab.path('pg/data')
    os.chmod(lab.work, 0o755); shutil.chown(os.path.dirname(data), 'postgres')
    for name, source in ('server.crt', cert), ('server.key', key): shutil.copy(source, lab.path('pg/' + name)); os.chmod(lab.path('pg/' + name), 0o600); shutil.chown(lab.path('pg/' + name), 'postgres')
    lab.path('pg/password', 'secret'); shutil.chown(lab.path('pg/password'), 'postgres')
    subprocess.run(f'runuser -u postgres -- initdb -D {data} -A scram-sha-256 --pwfile={lab.work}/pg/password -E UTF8', shell=True, capture_output=True, cwd='/')
    with open(os.path.join(data, 'pg_hba.conf'), 'w') as f: f.write('host trusted all all trust\nhost clear all all password\nhost all old all md5\nhost all all all scram-sha-256\n')
    lab.serve(f'runuser -u postgres -- postgres -D {data} -h {SERVER},{SERVER6} -p 5432 -k {lab.work}/pg -c ssl=on -c ssl_cert_file={lab.work}/pg/server.crt -c ssl_key_file={lab.work}/pg/server.key', 5432, 30)
    to = f'PGPASSWORD=secret psql -X -h {SERVER} -U postgres'
    lab.record('pgsql-setup', f'{to} "sslmode=disable dbname=postgres" -c "create database trusted" -c "create database clear" -c "set password_encryption=md5" -c "create role old login password \'secret\'"')
    work = ('-c "create table t(a int, b text)" -c "insert into t select i, repeat(i::text, 50) from generate_series(1,300) i" -c "select * from t" -c "copy t to stdout" -c "copy t from \'/dev/null\'" '
            '-c "select nope" -c "begin; notify x; listen x; commit" -c "select 1; select 2" -c "do \\$\\$ begin raise notice \'hei\'; end \\$\\$" -c "drop table t"')
    for name, db in dict(scram='postgres', clear='clear', trust='trusted').items(): lab.record(f'pgsql-{name}', f'{to} "sslmode=disable dbname={db}" {work}')
    for name, rest in dict(wrong='PGPASSWORD=x psql -X -h {0} -U postgres "sslmode=disable" -c "select 1"', md5='PGPASSWORD=secret psql -X -h {0} -U old "sslmode=disable dbname=postgres" -c "select 1"',
                           nobody='PGPASSWORD=x psql -X -h {0} -U nobody "sslmode=disable" -c "select 1"', tls='PGPASSWORD=secret psql -X -h {0} -U postgres "sslmode=require" -c "select 1"',
                           prefer='PGPASSWORD=secret psql -X -h {0} -U postgres "sslmode=prefer gssencmode=prefer" -c "select 1"', nodb='PGPASSWORD=secret psql -X -h {0} -U postgres "sslmode=disable dbname=nope"').items():
        lab.record(f'pgsql-{name}', rest.format(SERVER))
    copy = lab.path('pg/rows.csv', ''.join(f'{i},row {i}\n' for i in range(500)))
    lab.record('pgsql-copy', f'{to} "sslmode=disable dbname=postgres" -c "create table c(a int, b text)" -c "\\\\copy c from {copy} csv" -c "\\\\copy c to {lab.work}/rows.out" -c "drop table c"')
    lab.record('pgsql-bench', f'PGPASSWORD=secret PGSSLMODE=disable pgbench -h {SERVER} -U postgres -i -s 1 postgres; for m in simple extended prepared; do PGPASSWORD=secret PGSSLMODE=disable pgbench -h {SERVER} -U postgres -M $m -t 5 postgres; done', seconds=30)
    lab.record('pgsql-cancel', f'timeout -s INT 1 env PGPASSWORD=secret psql -X -h {SERVER} -U postgres "sslmode=disable dbname=postgres" -c "select pg_sleep(9)"')


@program('mosquitto', 'mosquitto_pub', 'mosquitto_sub')
def mqtt(lab):
    subprocess.run(['mosquitto_passwd', '-b', '-c', lab.path('mqtt/pw'), 'user', 'secret'], capture_output=True)
    os.chmod(lab.path('mqtt/pw'), 0o644)
    lab.serve('mosquitto -c ' + lab.path('mqtt/conf', f'''
        per_listener_settings true
        listener 1883
        allow_anonymous true
        listener 1884
        password_file {lab.work}/mqtt/pw
        '''.replace('        ', '')), 1883)
    for version in 'mqttv31', 'mqttv311', 'mqttv5':
        for qos in 0, 1, 2:
            extra = '-D connect user-property a b -D publish user-property c d -D publish content-type text/plain -D publish response-topic r/t -D publish message-expiry-interval 30' if version == 'mqttv5' else ''
            sub = f'mosquitto_sub -h {SERVER} -V {version} -q {qos} -t a/# -t b/+/c -C 3 -W 4 -i sub{qos} {"-D subscribe user-property e f -x 60" if version == "mqttv5" else ""} & '
            pub = f'sleep .4; for i in 1 2 3; do mosquitto_pub -h {SERVER} -V {version} -q {qos} -t a/b -m "hallo $i" -i pub{qos} {extra} -r --will-topic w/t --will-payload gone --will-qos 1; done; wait'
            lab.record(f'mqtt-{version}-{qos}', sub + pub)
    big = lab.path('mqtt/big', 'y' * 200000)
    lab.record('mqtt-large', f'mosquitto_sub -h {SERVER} -t big -C 1 -W 4 & sleep .3; mosquitto_pub -h {SERVER} -t big -f {big}; wait')
    lab.record('mqtt-login', f'for w in secret wrong; do for v in mqttv311 mqttv5; do mosquitto_pub -h {SERVER} -p 1884 -V $v -u user -P $w -t a -m b -i me; done; done; mosquitto_pub -h {SERVER} -p 1884 -t a -m b')
    lab.record('mqtt-keepalive', f'timeout 14 mosquitto_sub -h {SERVER} -k 5 -t \\$SYS/broker/uptime -U x -W 13', seconds=20)


@program('snmpd', 'snmpget')
def snmp(lab):
    lab.serve('snmpd -f -Lo -C -c ' + lab.path('snmp/conf', f'''
        agentaddress udp:{SERVER}:161,tcp:{SERVER}:161
        rwcommunity public
        rwcommunity private
        createUser auth SHA "secretsecret" AES "secretsecret"
        rwuser auth
        createUser plain MD5 "secretsecret"
        rwuser plain auth
        sysLocation here
        '''.replace('        ', '')) + f' --persistentDir={lab.work}/snmp', 161)
    for v in '1', '2c':
        lab.record(f'snmp-v{v}', f'snmpget -v{v} -c public {SERVER} 1.3.6.1.2.1.1.1.0 1.3.6.1.2.1.1.5.0; snmpgetnext -v{v} -c public {SERVER} 1.3.6.1.2.1.1; snmpwalk -v{v} -c public {SERVER} 1.3.6.1.2.1.1; '
                   f'snmpset -v{v} -c private {SERVER} 1.3.6.1.2.1.1.4.0 s me; snmpget -v{v} -c wrong -r 0 -t 1 {SERVER} 1.3.6.1.2.1.1.1.0; snmpget -v{v} -c public {SERVER} 1.3.6.1.9.9.9')
    lab.record('snmp-bulk', f'snmpbulkget -v2c -c public -Cn1 -Cr20 {SERVER} 1.3.6.1.2.1.1 1.3.6.1.2.1.2; snmpbulkwalk -v2c -c public {SERVER} 1.3.6.1.2.1.4; snmpget -v2c -c public tcp:{SERVER} 1.3.6.1.2.1.1.1.0; '
               f'snmpinform -v2c -c public -r 0 -t 1 {SERVER} "" 1.3.6.1.6.3.1.1.5.1; snmptrap -v2c -c public {SERVER} "" 1.3.6.1.6.3.1.1.5.2; snmptrap -v1 -c public {SERVER} 1.3.6.1.4.1.8072 {CLIENT} 6 17 ""')
    lab.record('snmp-v3', f'for l in "-u auth -l authPriv -a SHA -A secretsecret -x AES -X secretsecret" "-u plain -l authNoPriv -a MD5 -A secretsecret" "-u plain -l authNoPriv -a MD5 -A wrongwrong" "-u nobody -l noAuthNoPriv"; do '
               f'snmpget -v3 -r 0 -t 1 $l {SERVER} 1.3.6.1.2.1.1.1.0; snmpwalk -v3 -r 0 -t 1 $l {SERVER} 1.3.6.1.2.1.1; done')


@program('ganesha.nfsd', 'rpcbind', 'nfs-ls')
def nfs(lab):
    os.makedirs(lab.path('nfs/share/sub'), exist_ok=True); os.makedirs(lab.path('nfs/recovery/v4recov'), exist_ok=True); os.chmod(lab.path('nfs/share'), 0o777)
    lab.path('nfs/share/big', 'z' * 300000); lab.path('nfs/share/small', 'hallo\n'); lab.path('nfs/share/sub/blå', 'x')
    os.symlink('small', lab.path('nfs/share/link'))
    lab.serve('rpcbind -f -w -i -h ' + SERVER, 111)
    lab.serve(f'ganesha.nfsd -F -L {lab.work}/nfs/log -p {lab.work}/nfs/pid -f ' + lab.path('nfs/conf', f'''
        NFS_CORE_PARAM {{ Protocols = 3,4; Bind_addr = {SERVER}; Enable_NLM = true; mount_path_pseudo = true; Dbus_Name_Prefix = m{os.getpid()}; }}
        NFSV4 {{ Grace_Period = 0; Graceless = true; RecoveryRoot = {lab.work}/nfs/recovery; }}
        EXPORT {{ Export_Id = 1; Path = {lab.work}/nfs/share; Pseudo = /share; Access_Type = RW; Squash = No_Root_Squash; SecType = sys; Protocols = 3,4; Transports = UDP,TCP; FSAL {{ Name = VFS; }} }}
        '''), 2049, 30)
    copied = lab.path('nfs/copy.bin', 'w' * 70000)
    for version, root in ('3', f'{lab.work}/nfs/share'), ('4', '/share'):
        at = lambda name: f'"nfs://{SERVER}{root}{name}?version={version}"'
        lab.record(f'nfs-list-{version}', f'nfs-ls {at("")}; nfs-ls {at("/sub")}; nfs-stat {at("/small")}; nfs-ls {at("/nope")}')
        lab.record(f'nfs-read-{version}', f'nfs-cat {at("/small")}; nfs-cp {at("/big")} {lab.work}/out; nfs-cat {at("/link")}; nfs-cat {at("/sub/blå")}; nfs-cat {at("/nope")}')
        lab.record(f'nfs-write-{version}', f'nfs-cp {copied} {at("/new")}; nfs-cp {copied} {at("/sub/new")}; nfs-cp {copied} {at("/nope/new")}')


@program('Xtigervnc', 'vncpasswd', modules=['Crypto'])
def vnc(lab):
    subprocess.run(f'printf secret | vncpasswd -f > {lab.path("vnc/pw")}', shell=True, capture_output=True)
    for name, port, kind in ('none', 5901, 'None'), ('password', 5902, 'VncAuth'), ('tls', 5903, 'TLSNone,X509None'):
        lab.serve(f'Xtigervnc :{port - 5900} -rfbport {port} -interface {SERVER} -SecurityTypes {kind} -rfbauth {lab.work}/vnc/pw -geometry 640x480 -desktop "Test {name}"', port)
    hello = r'''
        from Crypto.Cipher import DES
        def go(port, version, kind, password=None, more=()):
            s = socket.create_connection((S, port), timeout=3)
            def read(n):
                got = b''
                while len(got) < n:
                    x = s.recv(n - len(got))
                    if not x: return got
                    got += x
                return got
            read(12); s.sendall(version)
            if version == b'RFB 003.003\n': chosen = int.from_bytes(read(4), 'big')
            else: read(read(1)[0]); s.sendall(bytes([kind])); chosen = kind
            if chosen == 2:
                flip = bytes(int(f'{b:08b}'[::-1], 2) for b in password.ljust(8, b'\0')[:8])
                s.sendall(DES.new(flip, DES.MODE_ECB).encrypt(read(16)))
            if chosen == 2 or version == b'RFB 003.008\n':
                if int.from_bytes(read(4), 'big'): read(200); return
            s.sendall(b'\1'); head = read(24); read(int.from_bytes(head[20:24], 'big'))
            for m in (b'\0\0\0\0' + bytes([32, 24, 0, 1, 0, 255, 0, 255, 0, 255, 16, 8, 0, 0, 0, 0]), b'\2\0\0\2' + (0).to_bytes(4, 'big') + (7).to_bytes(4, 'big'),
                      b'\3\0' + bytes([0, 0, 0, 0, 0, 64, 0, 64]), b'\4\1\0\0\0\0\0a', b'\5\0\0\1\0\1', b'\6\0\0\0\0\0\0\3abc', *more): s.sendall(m); time.sleep(.1)
            time.sleep(.3); s.close()
    '''.replace('\n        ', '\n')
    for name, calls in dict(none="go(5901, b'RFB 003.008\\n', 1)", password="go(5902, b'RFB 003.008\\n', 2, b'secret')", wrong="go(5902, b'RFB 003.008\\n', 2, b'wrong')", old="go(5902, b'RFB 003.003\\n', 2, b'secret')",
                            seven="go(5901, b'RFB 003.007\\n', 1); go(5902, b'RFB 003.007\\n', 2, b'wrong')", odd="go(5901, b'RFB 004.001\\n', 1)", refused="go(5902, b'RFB 003.008\\n', 1)", tls="go(5903, b'RFB 003.008\\n', 18)").items():
        lab.script(f'vnc-{name}', hello.strip() + '\n' + calls)
