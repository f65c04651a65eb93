//! Conversations of clients and servers: sessions, data, errors, encryption; malformed and truncated.

use margay_flow::Direction::{ToClient, ToServer};

use super::*;
use crate::testing::Talk;

const SSL_REQUEST: &[u8] = b"\0\0\0\x08\x04\xd2\x16\x2f";
const STARTUP: &[u8] = b"\0\0\0\x31\0\x03\0\0user\0rules\0database\0rules\0TimeZone\0Etc/UTC\0\0";

/// A message of a type.
fn msg(of: u8, body: &[u8]) -> Vec<u8> {
    let mut out = vec![of];
    out.extend_from_slice(&(body.len() as u32 + 4).to_be_bytes());
    out.extend_from_slice(body);
    out
}

fn startup() -> Vec<u8> {
    let mut data = STARTUP.to_vec();
    data[3] = data.len() as u8;
    data
}

fn talk() -> Talk {
    Talk::tcp(AppProto::Pgsql, 5432)
}

/// A client that the server accepted.
fn session() -> Talk {
    let mut talk = talk();
    talk.client(SSL_REQUEST).server(b"N").client(&startup()).server(&msg(b'R', b"\0\0\0\x05Z\xdc\xfdf"));
    talk.client(&msg(b'p', b"md5e4cf\0"));
    let let_in =
        [msg(b'R', b"\0\0\0\0"), msg(b'S', b"DateStyle\0ISO, MDY\0"), msg(b'K', b"\0\0\x03\x0d\x96\xad\x66\x2c")];
    talk.server(&let_in.concat()).server(&msg(b'Z', b"I"));
    talk
}

#[test]
fn a_session() {
    let mut talk = session();
    talk.client(&msg(b'Q', b"select * from rule;\0"));
    let row = |values: &[&[u8]]| {
        let mut body = (values.len() as u16).to_be_bytes().to_vec();
        for v in values {
            body.extend_from_slice(&(v.len() as u32).to_be_bytes());
            body.extend_from_slice(v);
        }
        msg(b'D', &body)
    };
    talk.server(&[msg(b'T', b"\0\x02"), row(&[b"Hagrid", b"x@y"]), row(&[b"", b"abc"])].concat());
    assert_eq!(talk.complete().last(), Some(&[true, false]));
    talk.server(&[msg(b'C', b"SELECT 2\0"), msg(b'Z', b"I")].concat()).client(&msg(b'X', b""));
    assert_eq!(
        talk.logs(),
        [
            r#"{"pgsql":{"tx_id":1,"request":{"message":"SSL Request"},"response":{"ssl_accepted":false}}}"#,
            concat!(
                r#"{"pgsql":{"tx_id":2,"request":{"protocol_version":"3.0","startup_parameters":{"user":"rules","#,
                r#""optional_parameters":[{"database":"rules"},{"time_zone":"Etc/UTC"}]}},"response":{"authentication_md5_password":"Z\\xdc\\xfdf"}}}"#,
            ),
            concat!(
                r#"{"pgsql":{"tx_id":3,"request":{"password_redacted":true},"response":{"message":"authentication_ok","#,
                r#""parameter_status":[{"date_style":"ISO, MDY"}],"process_id":781,"secret_key":2527946284}}}"#,
            ),
            concat!(
                r#"{"pgsql":{"tx_id":4,"request":{"simple_query":"select * from rule;"},"#,
                r#""response":{"field_count":2,"data_rows":2,"data_size":12,"command_completed":"SELECT 2"}}}"#,
            ),
            r#"{"pgsql":{"tx_id":5,"request":{"message":"termination_message"}}}"#,
        ]
    );
    assert_eq!(talk.complete(), [[true, true]; 5]);
    assert_eq!(talk.buffers("pgsql.query", ToServer), ["select * from rule;"]);
    assert_eq!(talk.buffers("pgsql.query", ToClient), [""; 0]);
    assert_eq!(talk.events(), [""; 0]);
    talk.options.options.set(AppProto::Pgsql, 0, 1);
    assert!(talk.logs()[2].contains(r#""request":{"password":"md5e4cf"}"#));
}

#[test]
fn messages_behind_a_gap() {
    let mut talk = session();
    // The response to the first query is lost, the next one belongs to the second.
    talk.client(&msg(b'Q', b"select 1;\0")).gap(ToClient, 30).client(&msg(b'Q', b"select 2;\0"));
    let next = [&b"C\0 rest\0"[..], &msg(b'C', b"SELECT 2\0"), &msg(b'Z', b"I")].concat();
    talk.server(&next[..11]).server(&next[11..]);
    let logs = talk.logs();
    assert_eq!(
        logs[3..],
        [
            r#"{"pgsql":{"tx_id":4,"request":{"simple_query":"select 1;"}}}"#,
            r#"{"pgsql":{"tx_id":5,"request":{"simple_query":"select 2;"},"response":{"command_completed":"SELECT 2"}}}"#
        ]
    );
    assert_eq!(talk.events(), [""; 0]);
    // The response to a request for encryption may be lost.
    let mut talk = self::talk();
    talk.client(SSL_REQUEST).gap(ToClient, 1);
    assert_eq!(talk.outcome, Outcome::Failed);
}

#[test]
fn sasl() {
    let mut talk = talk();
    talk.client(&startup()).server(&msg(b'R', b"\0\0\0\x0aSCRAM-SHA-256\0\0"));
    talk.client(&msg(b'p', b"SCRAM-SHA-256\0\0\0\0\x05n,,n=")).server(&msg(b'R', b"\0\0\0\x0br=x"));
    talk.client(&msg(b'p', b"c=biws")).server(&msg(b'R', b"\0\0\0\x0cv=axx")).server(&msg(b'R', b"\0\0\0\0"));
    talk.server(&msg(b'Z', b"I"));
    assert_eq!(
        talk.logs()[1..],
        [
            concat!(
                r#"{"pgsql":{"tx_id":2,"request":{"sasl_authentication_mechanism":"scram_SHA256","sasl_param":"n,,n="},"#,
                r#""response":{"message":"authentication_sasl_continue"}}}"#,
            ),
            concat!(
                r#"{"pgsql":{"tx_id":3,"request":{"sasl_response":"c=biws"},"#,
                r#""response":{"authentication_sasl_final":"v=axx","message":"authentication_ok"}}}"#,
            ),
        ]
    );
    assert_eq!(talk.complete(), [[true, true]; 3]);
}

#[test]
fn errors() {
    let mut talk = session();
    talk.client(&msg(b'Q', b"SELECT 1/0;\0")).server(&msg(b'N', b"SNOTICE\0\0"));
    talk.server(&msg(b'E', b"SERROR\0VERROR\0C22012\0Mdivision by zero\0Fint.c\0L824\0Rint4div\0SAGAIN\0\0"));
    assert_eq!(talk.complete()[3], [true, false]);
    talk.server(&msg(b'Z', b"I"));
    assert_eq!(
        talk.logs()[3],
        concat!(
            r#"{"pgsql":{"tx_id":4,"request":{"simple_query":"SELECT 1/0;"},"response":{"severity_localizable":"ERROR","#,
            r#""severity_non_localizable":"ERROR","code":"22012","message":"division by zero","file":"int.c","line":"824","routine":"int4div"}}}"#,
        )
    );
    // A client that the server refuses.
    let mut talk = Talk::tcp(AppProto::Pgsql, 5432);
    talk.client(&startup()).server(&msg(b'E', b"SFATAL\0\0"));
    assert_eq!(talk.complete(), [[true, true]]);
}

#[test]
fn data_is_copied() {
    let mut talk = session();
    talk.client(&msg(b'Q', b"COPY tmp FROM STDIN\0")).server(&msg(b'G', b"\0\0\x0d"));
    // Data may be large, so only its length is kept.
    let large = msg(b'd', &[b'x'; 3000]);
    talk.client(&large[..1000]).gap(ToServer, 1000).client(&large[2000..]).client(&msg(b'd', b"abc"));
    talk.client(&msg(b'c', b"")).server(&msg(b'C', b"COPY 2\0")).server(&msg(b'Z', b"I"));
    talk.client(&msg(b'Q', b"COPY tmp TO STDOUT\0")).server(&msg(b'H', b"\0\0\x02")).server(&msg(b'd', b"1\t2\n"));
    talk.server(&msg(b'c', b"")).server(&msg(b'C', b"COPY 1\0")).server(&msg(b'Z', b"I"));
    assert_eq!(
        talk.logs()[3..],
        [
            r#"{"pgsql":{"tx_id":4,"request":{"simple_query":"COPY tmp FROM STDIN"},"response":{"copy_in_response":{"columns":13}}}}"#,
            concat!(
                r#"{"pgsql":{"tx_id":5,"request":{"copy_data_in":{"msg_count":2,"data_size":3003},"message":"copy_done"},"#,
                r#""response":{"command_completed":"COPY 2"}}}"#,
            ),
            concat!(
                r#"{"pgsql":{"tx_id":6,"request":{"simple_query":"COPY tmp TO STDOUT"},"response":{"copy_out_response":{"columns":2},"#,
                r#""copy_data_out":{"row_count":1,"data_size":4},"command_completed":"COPY 1"}}}"#,
            ),
        ]
    );
    assert_eq!(talk.complete(), [[true, true]; 6]);
}

#[test]
fn a_request_to_cancel() {
    let mut talk = talk();
    talk.client(b"\0\0\0\x10\x04\xd2\x16\x2e\0\0\x71\x1a\x35\x0a\x89\x31");
    assert_eq!(
        talk.logs(),
        [r#"{"pgsql":{"tx_id":1,"request":{"message":"cancel_request","process_id":28954,"secret_key":889882929}}}"#]
    );
    assert_eq!(talk.complete(), [[true, true]]);
}

#[test]
fn encryption() {
    let mut talk = talk();
    talk.client(SSL_REQUEST).client(b"\x16\x03\x01");
    assert_eq!(talk.txs().len(), 1);
    talk.server(b"S");
    assert_eq!(talk.outcome, Outcome::Change(Some(AppProto::Tls)));
    assert_eq!(
        talk.logs(),
        [r#"{"pgsql":{"tx_id":1,"request":{"message":"SSL Request"},"response":{"ssl_accepted":true}}}"#]
    );

    // Messages before the response do not hide the handshake.
    let mut talk = Talk::tcp(AppProto::Pgsql, 5432);
    talk.client(&[SSL_REQUEST, &startup(), b"\x16\x03\x01"].concat());
    assert_eq!(talk.txs().len(), 2);
    talk.server(b"S");
    assert_eq!(talk.outcome, Outcome::Change(Some(AppProto::Tls)));

    let mut talk = Talk::tcp(AppProto::Pgsql, 5432);
    talk.client(b"\0\0\0\x08\x04\xd2\x16\x30").server(b"G");
    assert_eq!(talk.outcome, Outcome::Done);
}

#[test]
fn what_nobody_asked_for() {
    let mut talk = session();
    // An extended query and its response; a notice.
    talk.client(
        &[msg(b'P', b"\0select 1\0\0\0"), msg(b'B', b"\0\0\0\0\0\0"), msg(b'E', b"\0\0\0\0\0"), msg(b'S', b"")]
            .concat(),
    );
    talk.server(&[msg(b'1', b""), msg(b'2', b""), msg(b'D', b"\0\x01\0\0\0\x011"), msg(b'C', b"SELECT 1\0")].concat());
    talk.server(&msg(b'Z', b"I")).server(&msg(b'N', b"SWARNING\0\0"));
    talk.client(&msg(b'Q', b"select 2\0")).server(&msg(b'Z', b"I"));
    assert_eq!(talk.logs()[3..], [r#"{"pgsql":{"tx_id":4,"request":{"simple_query":"select 2"}}}"#]);
    assert_eq!(talk.complete(), [[true, true]; 4]);
}

#[test]
fn malformed() {
    for (bad, outcome) in [
        (&b"\0\0\0\x08\0\xff\0\xff"[..], Outcome::More),
        (b"\0\0\0\x0a\x04\xd2\x16\x2e\0\0", Outcome::More),
        (b"\0\0\x40\0\0\x03\0\0", Outcome::Failed),
        (b"Q\0\0\0\x03", Outcome::Failed),
        (b"GET / HTTP/1.1", Outcome::Failed),
    ] {
        let mut talk = talk();
        talk.client(bad);
        assert_eq!((talk.events(), talk.outcome), (vec!["malformed_request"], outcome), "{bad:x?}");
    }
    let mut talk = session();
    talk.server(b"HTTP/1.1 200");
    assert_eq!((talk.events(), talk.outcome), (vec![], Outcome::More));
    talk.server(b"\0\0\0\0\0");
    let mut talk = session();
    talk.server(b"x\0\0\0\x04");
    assert_eq!((talk.events(), talk.outcome), (vec!["malformed_response"], Outcome::Failed));
}

#[test]
fn what_is_cut_off_and_never_answered() {
    let mut talk = talk();
    talk.client(b"Q\0\0\0\x20select").end();
    assert_eq!(talk.logs(), [""; 0]);
    let mut talk = Talk::tcp(AppProto::Pgsql, 5432).set("max-tx", 2);
    for _ in 0..5 {
        talk.client(&msg(b'Q', b"select 1\0"));
    }
    assert_eq!((talk.txs().len(), talk.outcome), (2, Outcome::Full));
    assert_eq!(talk.events(), ["too_many_transactions"; 2]);
}

#[test]
fn recognised() {
    assert_eq!(probe(ToServer, SSL_REQUEST), Probed::Yes { reverse: false });
    assert_eq!(probe(ToServer, &SSL_REQUEST[..7]), Probed::More);
    assert_eq!(probe(ToClient, b"N"), Probed::Yes { reverse: false });
    // The segmentation does not change the result.
    assert_eq!(probe(ToClient, b"N\x16\x03"), Probed::Yes { reverse: false });
    assert_eq!(probe(ToClient, b"+OK"), Probed::No);
}
