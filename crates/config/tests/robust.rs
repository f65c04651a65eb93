//! Arbitrary text and arguments: a result or an error comes soon, and nothing panics.
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

use margay_config::{Cli, Config, typed};
use proptest::prelude::*;

/// Pieces with a meaning in YAML or in the configuration tree.
fn piece() -> impl Strategy<Value = String> {
    prop_oneof![
        prop::sample::select(vec![
            "\n",
            "\n  ",
            "\n    ",
            " ",
            ": ",
            ":",
            "- ",
            "-",
            "? ",
            "[",
            "]",
            "{",
            "}",
            ",",
            "&a ",
            "*a",
            "&b ",
            "*b",
            "!include ",
            "!!str ",
            "!",
            "|",
            "|\n",
            ">",
            ">-\n",
            "'",
            "\"",
            "\\",
            "#",
            "%",
            "%YAML 1.1",
            "---",
            "...",
            "<<: ",
            "include: ",
            "a.b",
            "a_b",
            "vars",
            "address-groups",
            "0",
            "~",
            "null",
            "\t",
            "\r\n",
            "\u{feff}",
            "\u{85}",
            "é",
            "\0",
        ])
        .prop_map(str::to_owned),
        "[a-z]{1,4}",
        any::<char>().prop_map(String::from),
    ]
}

fn text() -> impl Strategy<Value = String> {
    prop::collection::vec(piece(), 0..60).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_text_is_answered(text in text()) {
        for text in [text.clone(), format!("%YAML 1.1\n---\n{text}")] {
            if let Ok(mut config) = Config::from_str(&text, "any") {
                let _ = config.set("a.b.c=1");
                let _ = config.unknown_keys();
                let mut out = Vec::new();
                config.dump(&mut out).unwrap();
            }
        }
    }

    #[test]
    fn what_is_set_is_found(path in "[a-z0-9_-]{1,5}(\\.[a-z0-9_-]{1,5}){0,6}", value in "[^=\\s][^\\n]{0,10}", text in text()) {
        let mut config = Config::new();
        config.set(&format!("{path}={value}")).unwrap();
        let _ = config.read_str(&format!("%YAML 1.1\n---\n{text}"), "any");
        prop_assert_eq!(config.get(&path), Some(value.as_str()));
    }

    #[test]
    fn any_setting_is_answered(setting in any::<String>()) {
        let _ = Config::new().set(&setting);
    }

    #[test]
    fn any_arguments_are_answered(args in prop::collection::vec(prop_oneof![
        any::<String>(),
        "-{1,2}[a-zA-Z-]{1,12}(=[a-z0-9:]{0,4})?",
        prop::sample::select(vec!["-r", "-c", "-q", "-k", "--set", "--af-packet", "--", "-", "", "-q0:65535", "a=b", "none", "--pcap=x"])
            .prop_map(str::to_owned),
    ], 0..12)) {
        if let Err(e) = Cli::parse(&args) {
            prop_assert!(!e.0.is_empty());
        }
    }

    #[test]
    fn any_value_is_answered(text in "[0-9.+xkKmMgGbBiI% -]{0,12}|\\PC*") {
        let _ = typed::parse_bool(&text);
        let _ = typed::parse_int(&text);
        let _ = typed::parse_size(&text);
        let _ = typed::parse_float(&text);
        let _ = typed::parse_percent(&text);
    }
}

#[test]
fn long_texts_of_one_kind_take_no_long_time() {
    let begin = std::time::Instant::now();
    for unit in [
        "a: ", "- ", "? ", "[", "{", "[a,", "{a: ", "'", "\"", "&a ", "*a ", "!a ", "a\n", "a:\n", "- -\n", "#", "%",
        "\t", " ", ": ", "|\n", "a: |\n", "{}", "[],", "a: b\n", "- a\n",
    ] {
        let text = format!("%YAML 1.1\n---\n{}", unit.repeat(100_000));
        let started = std::time::Instant::now();
        let _ = Config::from_str(&text, "long");
        assert!(started.elapsed().as_secs() < 20, "{unit:?}");
    }
    assert!(begin.elapsed().as_secs() < 60);
}
