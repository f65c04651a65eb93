//! A captured main mode of version 1, and messages of version 2.

use margay_flow::Direction::{ToClient, ToServer};

use super::*;
use crate::testing::Talk;

fn bytes(text: &str) -> Vec<u8> {
    text.as_bytes().chunks(2).map(|c| u8::from_str_radix(std::str::from_utf8(c).unwrap(), 16).unwrap()).collect()
}

const REQUEST: &str = "e47a591fd057587f00000000000000000110020000000000000000a80d00003c00000001000000010000003001010001000000280101000080010007800e0080800200028004000280030001800b0001000c0004000151800d0000144a131c81070358455c5728f20e95452f0d000014439b59f8ba676c4c7737ae22eab8f5820d0000147d9419a65310ca6f2c179d9215529d560000001490cb80913ebb696e086381b5ec427b1f";
const RESPONSE: &str = "e47a591fd057587fa00b8ef0902bb8ec01100200000000000000006c0d00003c00000001000000010000003001010001000000280101000080010007800e0080800200028004000280030001800b0001000c000400015180000000144a131c81070358455c5728f20e95452f";
const ENCRYPTED: &str = "e47a591fd057587fa00b8ef0902bb8ec05100201000000000000004cb032aaa62a70718ef2f099cdd8bf6eb90442ed9d726daa6b6dad624026f5fbb173d9f77571c232a56acfe12c7403e953";
const ATTRIBUTES: &str = r#""alg_enc":"EncAesCbc","alg_enc_raw":7,"sa_key_length":"Unknown","sa_key_length_raw":128,"alg_hash":"HashSha","alg_hash_raw":2,"alg_dh":"GroupAlternate1024BitModpGroup","alg_dh_raw":2,"alg_auth":"AuthPreSharedKey","alg_auth_raw":1,"sa_life_type":"LifeTypeSeconds","sa_life_type_raw":1,"sa_life_duration":"Unknown","sa_life_duration_raw":86400"#;

/// A message of version 2 with this first payload.
fn v2(to_server: bool, first: u8, payloads: &[u8]) -> Vec<u8> {
    let mut m = vec![7; 28];
    m[16..20].copy_from_slice(&[first, 0x20, 34, if to_server { 8 } else { 0x20 }]);
    m[20..24].fill(0);
    m[24..28].copy_from_slice(&(28 + payloads.len() as u32).to_be_bytes());
    if to_server {
        m[8..16].fill(0);
    }
    m.extend_from_slice(payloads);
    m
}

fn payload(next: u8, content: &[u8]) -> Vec<u8> {
    let len = (content.len() + 4) as u16;
    [&[next, 0][..], &len.to_be_bytes(), content].concat()
}

fn association(next: u8, protocol: u8, transforms: &[(u8, u16)]) -> Vec<u8> {
    let mut content = vec![1, protocol, 0, transforms.len() as u8];
    for (i, (kind, n)) in transforms.iter().enumerate() {
        let last = i + 1 == transforms.len();
        content.extend(payload(if last { 0 } else { 3 }, &[&[*kind, 0][..], &n.to_be_bytes()].concat()));
    }
    payload(next, &payload(0, &content))
}

#[test]
fn extended_events_name_the_exchange_of_version_1() {
    let mut talk = Talk::udp(AppProto::Ike, 500);
    talk.options.options.set(AppProto::Ike, EXTENDED, 1);
    talk.client(&bytes(REQUEST));
    assert!(talk.logs()[0].contains(r#""exchange_type":2,"exchange_type_verbose":"Identity Protection","payload""#));
    let mut unnamed = bytes(REQUEST);
    unnamed[18] = 240;
    let mut talk = Talk::udp(AppProto::Ike, 500);
    talk.options.options.set(AppProto::Ike, EXTENDED, 1);
    talk.client(&unnamed);
    assert!(talk.logs()[0].contains(r#""exchange_type":240,"payload""#));
}

#[test]
fn version_1() {
    let mut talk = Talk::udp(AppProto::Ike, 500);
    talk.client(&bytes(REQUEST)).server(&bytes(RESPONSE)).client(&bytes(ENCRYPTED));
    let logs = talk.logs();
    let head = |resp: &str| {
        format!(
            r#"{{"ike":{{"version_major":1,"version_minor":0,"init_spi":"e47a591fd057587f","resp_spi":"{resp}","message_id":0,"exchange_type":2,"#
        )
    };
    let vendors = r#""vendor_ids":["4a131c81070358455c5728f20e95452f","439b59f8ba676c4c7737ae22eab8f582","7d9419a65310ca6f2c179d9215529d56","90cb80913ebb696e086381b5ec427b1f"]"#;
    assert_eq!(
        logs[0],
        format!(
            r#"{}"payload":["SecurityAssociation","Proposal","Transform","VendorID"],"ikev1":{{"doi":1,"encrypted_payloads":false,"client":{{"proposals":[{{{ATTRIBUTES}}}]}},"server":{{}},{vendors}}}}}}}"#,
            head("0000000000000000")
        )
    );
    assert_eq!(
        logs[2],
        format!(
            r#"{}{ATTRIBUTES},"payload":["Identification"],"ikev1":{{"doi":1,"encrypted_payloads":true}}}}}}"#,
            head("a00b8ef0902bb8ec")
        )
    );
    assert_eq!(talk.buffers("ike.init_spi", ToServer), ["e47a591fd057587f"; 2]);
    assert_eq!(talk.buffers("ike.resp_spi", ToClient), ["a00b8ef0902bb8ec"]);
    assert_eq!(talk.buffers("ike.vendor", ToServer).len(), 4);
    assert_eq!(talk.numbers("ike.exchtype", ToServer), [2, 2]);
    assert!(talk.numbers("ike.chosen_sa_attribute", ToClient).contains(&(2 << 32 | 2)));
    assert!(talk.numbers("ike.chosen_sa_attribute", ToServer).is_empty());
    assert!(talk.events().is_empty());
}

#[test]
fn version_2() {
    let proposed = association(40, 1, &[(1, 12), (1, 3), (2, 5), (3, 12), (3, 2), (3, 1), (4, 14), (4, 2)]);
    let nonce = payload(41, b"nonce");
    let notify = payload(0, &[0, 0, 0x40, 4]);
    let mut talk = Talk::udp(AppProto::Ike, 500);
    talk.client(&v2(true, 33, &[proposed, nonce, notify].concat()));
    talk.server(&v2(false, 33, &association(0, 1, &[(1, 20), (2, 7), (4, 30), (5, 0)])));
    talk.server(&v2(false, 41, &payload(0, &[0, 0, 0, 17])));
    talk.server(&v2(false, 46, &payload(43, b"secret")));
    assert_eq!(
        talk.logs(),
        [
            r#"{"ike":{"version_major":2,"version_minor":0,"init_spi":"0707070707070707","resp_spi":"0000000000000000","message_id":0,"exchange_type":34,"role":"initiator","payload":["SecurityAssociation","Nonce","Notify","NoNextPayload"],"ikev2":{"errors":0,"notify":["NAT_DETECTION_SOURCE_IP"]}}}"#,
            r#"{"ike":{"version_major":2,"version_minor":0,"init_spi":"0707070707070707","resp_spi":"0707070707070707","message_id":0,"exchange_type":34,"role":"responder","alg_enc":"ENCR_AES_GCM_16","alg_auth":"NONE","alg_prf":"PRF_HMAC_SHA2_512","alg_dh":"BrainpoolP512r1","alg_esn":"NoESN","payload":["SecurityAssociation","NoNextPayload"],"ikev2":{"errors":0}}}"#,
            r#"{"ike":{"version_major":2,"version_minor":0,"init_spi":"0707070707070707","resp_spi":"0707070707070707","message_id":0,"exchange_type":34,"role":"responder","alg_enc":"ENCR_AES_GCM_16","alg_auth":"NONE","alg_prf":"PRF_HMAC_SHA2_512","alg_dh":"BrainpoolP512r1","alg_esn":"NoESN","payload":["Notify","NoNextPayload"],"ikev2":{"errors":1,"notify":["INVALID_KE_PAYLOAD"]}}}"#,
            r#"{"ike":{"version_major":2,"version_minor":0,"init_spi":"0707070707070707","resp_spi":"0707070707070707","message_id":0,"exchange_type":34,"role":"responder","alg_enc":"ENCR_AES_GCM_16","alg_auth":"NONE","alg_prf":"PRF_HMAC_SHA2_512","alg_dh":"BrainpoolP512r1","alg_esn":"NoESN","payload":["EncryptedAndAuthenticated","VendorID"],"ikev2":{"errors":0}}}"#,
        ]
    );
    // Each weak transform raises an event.
    assert_eq!(talk.events(), ["weak_crypto_enc", "weak_crypto_auth", "weak_crypto_auth", "weak_crypto_dh"]);
    assert_eq!(talk.buffers("ike.nonce_payload", ToServer), ["nonce"]);
    assert_eq!(talk.numbers("ike.nonce_payload_length", ToServer), [5]);
    assert!(talk.numbers("ike.chosen_sa_attribute", ToClient).contains(&(4 << 32 | 30)));
}

#[test]
fn proposals_and_what_is_wrong_with_them() {
    let of = |protocol, transforms: &[(u8, u16)]| {
        let mut talk = Talk::udp(AppProto::Ike, 500);
        talk.client(&v2(true, 33, &association(0, protocol, transforms))).events()
    };
    assert_eq!(of(1, &[(1, 12), (2, 5), (3, 12)]), ["weak_crypto_no_dh"]);
    assert_eq!(of(1, &[(1, 12), (2, 5), (3, 0), (4, 14)]), ["weak_crypto_no_auth"]);
    assert!(of(1, &[(1, 20), (2, 5), (4, 14)]).is_empty());
    assert_eq!(of(2, &[(3, 12), (5, 0)]), ["weak_crypto_no_dh", "no_encryption"]);
    assert_eq!(of(1, &[(1, 12), (2, 5), (3, 12), (4, 14), (7, 1)]), ["unknown_proposal"]);
    assert_eq!(of(1, &[(1, 12), (2, 0), (3, 12), (4, 0)]), ["invalid_proposal", "invalid_proposal"]);
    // The event list stays short whatever their number.
    assert_eq!(of(1, &[(3, 1); 255]).len(), crate::AppEvents::MOST + 1);
}

#[test]
fn lengths_are_not_trusted() {
    let whole = bytes(REQUEST);
    for at in 0..whole.len() {
        let mut cut = whole[..at].to_vec();
        let mut talk = Talk::udp(AppProto::Ike, 500);
        talk.client(&cut);
        let headed = at >= HEADER;
        assert_eq!((talk.outcome == Outcome::Failed, talk.logs().len()), (at > 0 && !headed, headed.into()), "{at}");
        // The same with a matching length.
        if at >= HEADER {
            cut[24..28].copy_from_slice(&(at as u32).to_be_bytes());
            assert_eq!(Talk::udp(AppProto::Ike, 500).client(&cut).logs().len(), 1);
        }
        for byte in [0, 1, 3, 0x7f, 0xff] {
            let mut odd = whole.clone();
            odd[at] = byte;
            Talk::udp(AppProto::Ike, 500).client(&odd).server(&odd).logs();
        }
    }
    let mut talk = Talk::udp(AppProto::Ike, 500);
    talk.client(&v2(true, 34, &[40, 0, 0, 3]));
    assert_eq!(talk.events(), ["malformed_data"]);
}

#[test]
fn who_is_the_client() {
    let request = v2(true, 41, &payload(0, &[0; 4]));
    let response = v2(false, 41, &payload(0, &[0; 4]));
    assert_eq!(probe(ToServer, &request), Probed::Yes { reverse: false });
    assert_eq!(probe(ToClient, &response), Probed::Yes { reverse: false });
    assert_eq!(probe(ToClient, &request), Probed::Yes { reverse: true });
    assert_eq!(probe(ToClient, &request[..27]), Probed::No);
}

#[test]
fn attributes_of_rules() {
    assert_eq!(chosen_attribute("alg_hash=2"), Ok(NumberCondition::Tagged { tag: 2, text: Some("2".into()) }));
    assert!(chosen_attribute("alg_hash").is_err() && chosen_attribute("alg=2").is_err());
}
