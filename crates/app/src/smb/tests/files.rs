//! When rules inspect files.

use super::*;

/// Rules inspect a file from 32 KiB on, or once it ends.
#[test]
fn when_a_file_is_inspected() {
    let due = |t: &Talk| {
        let tx = t.parser.tx(2).unwrap();
        tx.base().files.all()[0].data(tx.file_window(ToServer, false)).map(|d| d.data.len())
    };
    let mut t = Talk::connected();
    t.say(ToServer, &write(4, 1, 0, b"small"));
    assert_eq!(due(&t), None);
    t.say(ToServer, &smb2(6, 5, false, 0, 1, &close_body(FILE)));
    assert_eq!(due(&t), Some(5));
    let mut t = Talk::connected();
    t.say(ToServer, &write(4, 1, 0, &[b'a'; 32_767]));
    assert_eq!(due(&t), None);
    t.say(ToServer, &write(5, 1, 32_767, b"b"));
    assert_eq!(due(&t), Some(32_768));
}

/// At the end of the stream, rules inspect what there is of a file that is still open.
#[test]
fn a_file_that_is_open_at_the_end() {
    let t = Talk::new();
    let (mut session, mut shared) = (AppSession::default(), Shared::default());
    shared.files.wants.data = true;
    let mut due = |dir, bytes: &[u8], end| {
        let mut cx = Parse { config: &t.config, shared: &mut shared, flow: &t.flow, time: Time(0), end, inline: false };
        session.data(&mut cx, dir, bytes);
        let tx = session.parsers().first().and_then(|p| p.tx(p.txs().end - 1)).unwrap();
        let file = tx.base().files.all().first();
        file.and_then(|f| f.data(tx.file_window(ToServer, false))).map(|d| (d.data.len(), tx.base().updated[0]))
    };
    assert_eq!(due(ToServer, &tree(1, "\\\\srv\\data"), false), None);
    assert_eq!(due(ToClient, &tree_response(1, 1, 1), false), None);
    assert_eq!(due(ToServer, &write(4, 1, 0, b"small"), false), None);
    assert_eq!(due(ToServer, b"", true), Some((5, true)));
}
