//! Messages of SMB1.

use super::*;

/// A message of a negotiation.
fn negotiation(response: bool, number: u8, words: &[u8], length: u16, bytes: &[u8]) -> Vec<u8> {
    let mut m = b"\xffSMB\x72".to_vec();
    m.resize(32, 0);
    (m[9], m[30]) = (u8::from(response) << 7, number);
    m.push((words.len() / 2) as u8);
    m.extend_from_slice(words);
    m.extend_from_slice(&length.to_le_bytes());
    m.extend_from_slice(bytes);
    record(&m)
}

const OFFER: &[u8] = b"\x02LANMAN1.0\0\x02NT LM 0.12\0";

#[test]
fn a_request_that_is_sent_twice() {
    let mut t = Talk::new();
    let request = negotiation(false, 1, &[], OFFER.len() as u16, OFFER);
    t.say(ToServer, &request);
    assert!(t.logs()[0].contains("\"server_guid\":\"\"") && !t.has(0, Event::DuplicateNegotiate), "{:?}", t.logs());
    t.say(ToServer, &request);
    assert!(t.logs().len() == 1 && t.has(0, Event::DuplicateNegotiate), "{:?}", t.logs());
    // An ioctl that cannot be read is a transaction, too.
    t.say(ToServer, &smb2(11, 3, false, 0, 1, &[57, 0]));
    assert!(t.logs()[1].contains("IOCTL") && t.has(1, Event::MalformedData), "{:?}", t.logs());
}

#[test]
fn dialects_are_read_leniently() {
    let both = "\"client_dialects\":[\"LANMAN1.0\",\"NT LM 0.12\"]";
    for (length, bytes) in [
        (24, OFFER),
        (0, OFFER),
        (999, OFFER),
        (24, b"\x03LANMAN1.0\0\x20NT LM 0.12\0"),
        (26, b"\x02LANMAN1.0\0\x02NT LM 0.12\0xy"),
        (26, b"\x02LANMAN1.0\0\x02NT LM 0.12\0\0\0"),
    ] {
        let mut t = Talk::new();
        t.say(ToServer, &negotiation(false, 1, &[], length, bytes));
        // The answer may have another number.
        t.say(ToClient, &negotiation(true, 9, &[1, 0], 0, &[]));
        let logs = t.logs();
        assert!(logs[0].contains(both) && logs[0].contains("\"dialect\":\"NT LM 0.12\""), "{logs:?}");
        assert!(!t.has(0, Event::NegotiateMalformedDialects) && !t.has(0, Event::MalformedData));
    }
    for (bytes, event) in [
        (&b"\x02NT LM 0.12"[..], Event::MalformedData),
        (b"", Event::MalformedData),
        (b"\x02\0\x02NT LM 0.12\0", Event::NegotiateMalformedDialects),
    ] {
        let mut t = Talk::new();
        t.say(ToServer, &negotiation(false, 1, &[], bytes.len() as u16, bytes));
        assert!(t.has(0, event), "{event:?}");
    }
    // The server chooses what was not offered.
    let mut t = Talk::new();
    t.say(ToServer, &negotiation(false, 1, &[], 24, OFFER));
    t.say(ToClient, &negotiation(true, 1, &[7, 0], 0, &[]));
    assert!(t.has(0, Event::NegotiateMalformedDialects) && t.logs()[0].contains("\"dialect\":\"unknown\""));
}

#[test]
fn a_file_that_is_renamed_by_its_name() {
    let mut request = negotiation(false, 1, &[0x16, 0], 16, b"\x04\\a.txt\0\x04\\b.txt\0");
    request[8] = 7;
    let mut t = Talk::new();
    t.say(ToServer, &request);
    let logs = t.logs();
    assert!(logs[0].contains("\"rename\":{\"from\":\"\\\\a.txt\",\"to\":\"\\\\b.txt\"},\"fuid\":\"\""), "{logs:?}");
}

/// A refusal has no words (MS-CIFS section 2.2.4.53.2): its response is shown with empty names.
#[test]
fn a_session_that_is_refused() {
    let mut words = [0; 24];
    words[0] = 0xff;
    let setup = |response, words: &[u8], bytes: &[u8]| {
        let mut m = negotiation(response, 2, words, bytes.len() as u16, bytes);
        m[8] = 0x73;
        m
    };
    let mut t = Talk::new();
    t.say(ToServer, &setup(false, &words, b"Unix\0Samba\0"));
    let mut refusal = setup(true, &[], b"");
    refusal[9..13].copy_from_slice(&0xc000_006d_u32.to_le_bytes());
    // Its status is one of Windows NT.
    refusal[15] = 0x40;
    t.say(ToClient, &refusal);
    let logs = t.logs();
    assert!(logs[0].contains("STATUS_LOGON_FAILURE"), "{logs:?}");
    assert!(logs[0].contains("\"request\":{\"native_os\":\"Unix\",\"native_lm\":\"Samba\"}"), "{logs:?}");
    assert!(logs[0].contains("\"response\":{\"native_os\":\"\",\"native_lm\":\"\"}"), "{logs:?}");
}

/// A file that the client reads ends with the response to the close, a file that it writes with the request.
#[test]
fn when_a_file_ends() {
    let message = |command: u8, response, number, words: &[u8], bytes: &[u8]| {
        let mut m = negotiation(response, number, words, bytes.len() as u16, bytes);
        m[8] = command;
        m
    };
    let mut t = Talk::new();
    t.say(ToServer, &message(0x0a, false, 1, &[7, 0, 4, 0, 0, 0, 0, 0, 0, 0], b""));
    t.say(ToClient, &message(0x0a, true, 1, &[4, 0, 0, 0, 0, 0, 0, 0, 0, 0], b"\x01\x04\0data"));
    let state = |t: &Talk| t.parser.tx(0).unwrap().base().files.all()[0].state;
    t.say(ToServer, &message(4, false, 2, &[7, 0, 0, 0, 0, 0], b""));
    assert_eq!(state(&t), FileState::Open);
    t.say(ToClient, &message(4, true, 2, &[], b""));
    assert_eq!(state(&t), FileState::Closed);
    let mut t = Talk::new();
    t.say(ToServer, &message(0x0b, false, 1, &[7, 0, 4, 0, 0, 0, 0, 0, 0, 0], b"\x01\x04\0data"));
    t.say(ToServer, &message(4, false, 2, &[7, 0, 0, 0, 0, 0], b""));
    assert_eq!(state(&t), FileState::Closed);
}
