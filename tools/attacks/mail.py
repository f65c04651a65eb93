"""Attacks on SMTP and MIME, and on FTP."""
from . import STREAM, attack

ENVELOPE = b'EHLO a\r\nMAIL FROM:<a@b>\r\nRCPT TO:<c@d>\r\nDATA\r\n'


def mails(wire, message, count=4):
    while not wire.full:
        c = wire.connect(25)
        c.say(1, b'220 a\r\n')
        for _ in range(count):
            c.say(0, ENVELOPE)
            c.say(1, b'250 a\r\n250 ok\r\n250 ok\r\n354 go\r\n')
            c.say(0, message + b'\r\n.\r\n')
            c.say(1, b'250 ok\r\n')


@attack('mime-parts', caps=STREAM)
def mime_parts(wire):
    """mails of thousands of parts, each a file"""
    part = b'--b\r\nContent-Type: application/x; name="f"\r\nContent-Transfer-Encoding: base64\r\n\r\neA==\r\n'
    mails(wire, b'Content-Type: multipart/mixed; boundary=b\r\n\r\n' + part * 400 + b'--b--\r\n')


@attack('mime-nested', caps=STREAM)
def mime_nested(wire):
    """mails of parts within parts within parts"""
    message = b''.join(b'Content-Type: multipart/mixed; boundary=b%d\r\n\r\n--b%d\r\n' % (n, n) for n in range(300))
    mails(wire, message + b'Content-Type: text/plain\r\n\r\nx\r\n')


@attack('mail-headers', caps=STREAM)
def mail_headers(wire):
    """mails of thousands of headers, folded and encoded"""
    lines = b''.join(b'Received: from a\r\n by b\r\n' + b'X%d: =?utf-8?q?=41=42?=\r\n' % n for n in range(600))
    mails(wire, lines + b'\r\nx')


@attack('mail-links', caps=STREAM)
def mail_links(wire):
    """a text of nothing but beginnings of links"""
    mails(wire, b'Content-Type: text/html\r\n\r\n' + (b'http://a ' * 8 + b'\r\n') * 200)


@attack('smtp-commands', caps=STREAM)
def smtp_commands(wire):
    """the shortest commands, which nobody answers"""
    while not wire.full:
        c = wire.connect(25)
        c.say(1, b'220 a\r\n')
        c.say(0, b'EHLO a\r\n')
        c.say(1, b'250-a\r\n250 PIPELINING\r\n')
        for _ in range(40):
            c.say(0, b'NOOP\r\n' * 240)


@attack('ftp-commands', counters=['app_layer.expectations_refused'], caps=STREAM + ('app-layer.protocols.ftp.memcap',))
def ftp_commands(wire):
    """data connections that are announced and never opened"""
    while not wire.full:
        c = wire.connect(21)
        c.say(1, b'220 a\r\n')
        for n in range(400):
            c.say(0, b'PASV\r\n')
            c.say(1, b'227 Entering Passive Mode (192,0,2,2,%d,%d)\r\n' % (4 + n // 250, n % 250))
            c.say(0, b'RETR f%d\r\n' % n)
