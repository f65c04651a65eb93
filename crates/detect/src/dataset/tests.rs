use std::collections::HashSet;
use std::fs;
use std::sync::atomic::{AtomicU32, Ordering};

use margay_rules::{Context, load_str};
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

/// A temporary folder, removed at the end of the test.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Folder {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("margay-sets-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(path.join("data")).expect("a folder");
        Folder(path)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.0.join(name), text).expect("written");
    }

    fn config(&self) -> DatasetsConfig {
        DatasetsConfig { data_dir: self.0.join("data"), ..DatasetsConfig::default() }
    }

    /// Loads the datasets of rules with these keywords; also returns the messages.
    fn load(&self, config: DatasetsConfig, keywords: &[&str]) -> (Datasets, Vec<String>) {
        let mut ctx = Context::default();
        ctx.available.extend(["http", "dataset"].map(str::to_owned));
        let mut builder = DatasetsBuilder::new(config, None);
        let mut said = Vec::new();
        for k in keywords {
            let text = format!("alert http any any -> any any (http.host; {k}; sid:1;)");
            let l = load_str(&text, &self.0.join("t.rules").to_string_lossy(), &ctx);
            let ok = builder.rule(&l.rules[0]);
            said.extend(builder.messages().into_iter().map(|m| m.text));
            said.push(ok.to_string());
        }
        (builder.finish(), said)
    }

    fn one(&self, keyword: &str) -> Arc<DataSet> {
        let (sets, said) = self.load(self.config(), &[keyword]);
        assert_eq!(said, ["true"], "{keyword}");
        sets.sets[0].clone()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn loaded_and_changed() {
    let f = Folder::new();
    f.write("s.lst", "YWJj\n\nZGVm\r\nYWJj\n");
    let s = f.one("dataset:isset,s,type string,load s.lst,save out.csv");
    assert_eq!(s.len(), 2);
    assert!(s.contains(b"abc") && s.contains(b"def") && !s.contains(b"ab") && !s.contains(b""));
    assert_eq!((s.add(b"abc"), s.add(b"new"), s.add(b"new")), (Added::There, Added::New, Added::There));
    assert!(s.contains(b"new"));
    assert_eq!((s.remove(b"def"), s.remove(b"def"), s.remove(b"none")), (true, false, false));
    assert!(!s.contains(b"def"));
    s.save().expect("saved");
    assert_eq!(fs::read_to_string(f.0.join("data/out.csv")).expect("there"), "bmV3\nYWJj\n");
    assert_eq!((s.add(b"def"), s.remove(b"new")), (Added::New, true));
    s.save().expect("saved");
    assert_eq!(fs::read_to_string(f.0.join("data/out.csv")).expect("there"), "ZGVm\nYWJj\n");
}

#[test]
fn kinds() {
    let f = Folder::new();
    f.write("md5", "900150983cd24fb0d6963f7d28e17f72\n");
    let s = f.one("dataset:isset,s,type md5,load md5");
    let digest = *b"\x90\x01\x50\x98\x3c\xd2\x4f\xb0\xd6\x96\x3f\x7d\x28\xe1\x7f\x72";
    assert!(s.contains(&digest) && !s.contains(&digest[..15]));
    assert_eq!(s.add(b"short"), Added::Unfit);
    f.write("v4", "1.2.3.4\n");
    let s = f.one("dataset:isset,s,type ipv4,load v4");
    assert!(s.contains(&[1, 2, 3, 4]) && !s.contains(&[0; 16]));
    f.write("ip", "1.2.3.4\n::ffff:5.6.7.8\n4:5::6\n");
    let s = f.one("dataset:isset,s,type ip,load ip");
    assert!(s.contains(&[1, 2, 3, 4]) && s.contains(&[5, 6, 7, 8]) && !s.contains(&[1, 2, 3, 5]));
    let mut mapped = [0; 16];
    mapped[10..].copy_from_slice(&[0xff, 0xff, 1, 2, 3, 4]);
    assert!(s.contains(&mapped));
    let mut out = Vec::new();
    s.write(&mut out).expect("written");
    let text = String::from_utf8(out).expect("text");
    assert_eq!(text, "1.2.3.4\n5.6.7.8\n0004:0005:0000:0000:0000:0000:0000:0006\n");
}

/// Written base64 can be read back, for all lengths.
#[test]
fn base64_of_all_lengths() {
    let (mut text, mut back) = (Vec::new(), Vec::new());
    for n in 1..20u8 {
        let data: Vec<u8> = (0..n).map(|i| i.wrapping_mul(77) ^ 0xf3).collect();
        text.clear();
        file::encode(SetKind::String, &data, &mut text);
        assert_eq!(file::decode(SetKind::String, &text, &mut back), Ok(()));
        assert_eq!(back, data);
    }
}

#[test]
fn reputations() {
    let f = Folder::new();
    f.write("r", "YWJj,200\nZGVm,0\n");
    let s = f.one("datarep:s,>,1,load r,type string");
    assert_eq!((s.find(b"abc"), s.find(b"def"), s.find(b"x")), (Some(200), Some(0), None));
    let check = |op, with| {
        let check = SetCheck { name: "s".into(), test: SetTest::Reputation(op, with), set: Some(s.clone()) };
        matches!(check.run(b"abc"), SetOutcome::Holds(_))
    };
    assert!(check(DataRepOp::Greater, 199) && !check(DataRepOp::Greater, 200));
    assert!(check(DataRepOp::Equal, 200) && check(DataRepOp::Less, 201) && !check(DataRepOp::Less, 200));
}

#[test]
fn bad_entries() {
    for (kind, text, says) in [
        ("string", "YWJj,-1\n", "invalid datarep value s in"),
        ("string", "YWJj,65536\n", "invalid datarep value s in"),
        ("string", "YWJj,1\nZGVm\n", "Cannot mix dataset and datarep values for set s"),
        ("string", "YWJj\nZGVm,1\n", "Cannot mix dataset and datarep values for set s"),
        ("string", "Y\n", "\"Y\" in"),
        ("md5", "zz\n", "is not 32 hexadecimal digits"),
        ("ip", "1.2.3\n", "is not an address"),
    ] {
        let f = Folder::new();
        f.write("x", text);
        let keyword = format!("dataset:isset,s,type {kind},load x");
        let strict = DatasetsConfig { strict: true, ..f.config() };
        let (sets, said) = f.load(strict, &[&keyword, &keyword]);
        // The reason is logged once.
        assert_eq!(said.iter().filter(|s| s.contains(says)).count(), 1, "{text:?}: {said:?}");
        assert!(sets.is_empty() && said.last().is_some_and(|s| s == "false"));
        // Otherwise invalid entries are skipped.
        let (sets, said) = f.load(f.config(), &[&keyword]);
        assert!(said[0].contains(says) && said[1] == "true" && sets.len() == 1, "{said:?}");
    }
}

#[test]
fn files_of_rules() {
    let f = Folder::new();
    let says = |config: DatasetsConfig, k: &str| f.load(config, &[k]).1[0].clone();
    let open = || DatasetsConfig { allow_absolute: true, ..f.config() };
    let shut = || DatasetsConfig { allow_write: false, ..f.config() };
    let keyword = |file: &str| format!("dataset:isset,s,type string,{file}");
    for (config, file, want) in [
        (f.config(), "state /x", "Absolute paths not allowed: /x"),
        (f.config(), "save a/../x", "Directory traversals not allowed: a/../x"),
        (shut(), "state x", "Rules containing save/state datasets have been disabled"),
        (open(), "state /nowhere/../x", "Allowing absolute filename for dataset rule: /nowhere/../x"),
        (f.config(), "state x", "true"),
        (shut(), "load none", "fopen '"),
    ] {
        let said = says(config, &keyword(file));
        assert!(said.starts_with(want), "{file}: {said}");
    }
}

#[test]
fn a_folder_to_write_in_must_be_there() {
    let f = Folder::new();
    let missing = DatasetsConfig { data_dir: f.0.join("none"), ..f.config() };
    for keyword in ["dataset:set,s,type string,state x", "dataset:set,s,type string,save x"] {
        let (sets, said) = f.load(missing.clone(), &[keyword]);
        assert!(sets.is_empty() && said[0].contains("there is no folder"), "{said:?}");
    }
    assert_eq!(f.load(missing, &["dataset:set,s,type string"]).0.len(), 1);
}

#[test]
fn entries_may_be_added_with_context() {
    let f = Folder::new();
    f.write("b.json", "{\"ip\": \"1.2.3.4\", \"t\": 1}\n");
    let s = f.one("dataset:isset,s,type ip,load b.json,format ndjson,value_key ip,context_key k");
    let check = SetCheck { name: "s".into(), test: SetTest::Command(SetCommand::IsSet), set: Some(s.clone()) };
    let shown = |data: &[u8]| match check.run(data) {
        SetOutcome::Holds(Some(hit)) => hit.context().map(|c| String::from_utf8_lossy(c.1).into_owned()),
        _ => None,
    };
    let used = s.used.load(Ordering::Relaxed);
    assert_eq!(s.add_json(&[5, 6, 7, 8], b"{\"h\":1}".to_vec()), Added::New);
    assert_eq!(s.add_json(&[5, 6, 7, 8], b"{\"h\":2}".to_vec()), Added::There);
    assert_eq!(s.add_json(&[1, 2, 3, 4], b"{}".to_vec()), Added::There);
    assert_eq!(shown(&[5, 6, 7, 8]).as_deref(), Some("{\"h\":1}"));
    // An entry of the file that was removed comes back with the new context.
    assert!(s.remove(&[1, 2, 3, 4]));
    assert_eq!(s.add_json(&[1, 2, 3, 4], b"{\"h\":3}".to_vec()), Added::New);
    assert_eq!(shown(&[1, 2, 3, 4]).as_deref(), Some("{\"h\":3}"));
    s.clear();
    assert_eq!((shown(&[5, 6, 7, 8]), s.used.load(Ordering::Relaxed)), (None, used));
    let plain = f.one("dataset:isset,p,type ip");
    assert_eq!(plain.add_json(&[1, 2, 3, 4], b"{}".to_vec()), Added::Unfit);
}

#[test]
fn a_set_is_what_it_was_first() {
    let f = Folder::new();
    f.write("x", "YWJj\n");
    let (sets, said) = f.load(
        f.config(),
        &[
            "dataset:isset,s",
            "dataset:isset,s,type string",
            "dataset:isset,t,type string,load x",
            "dataset:set,t",
            "dataset:isset,t,type md5",
            "dataset:isset,t,type string,load y",
            "dataset:isset,t,type string,state y",
            "dataset:isset,u,type string,hashsize 1000000",
        ],
    );
    let failed: Vec<_> = said.iter().filter(|s| s.starts_with("dataset") || s.starts_with("hashsize")).collect();
    assert_eq!(failed.len(), 5, "{said:?}");
    assert!(failed[0].starts_with("dataset s not defined"));
    assert_eq!(failed[1], "dataset t already exists and is of type string");
    assert!(failed[2].starts_with("dataset t load mismatch") && failed[3].starts_with("dataset t load mismatch"));
    assert!(failed[4].contains("'single-hashsize' limit (262144)"));
    assert_eq!(sets.len(), 1);
}

#[test]
fn memcaps() {
    let f = Folder::new();
    assert_eq!(f.one("dataset:set,s,type string,memcap 0").add(b"without a limit"), Added::New);
    let s = f.one("dataset:set,s,type string,memcap 400");
    let added: Vec<Added> = (0..8u8).map(|n| s.add(&[n + 1; 10])).collect();
    assert!(added[..4].iter().all(|a| *a == Added::New), "{added:?}");
    assert_eq!(added[7], Added::Full);
    assert!(s.remove(&[1; 10]));
    assert_eq!(s.add(&[9; 10]), Added::New);
    f.write("big", &"YWJjZGVm\n".repeat(3));
    let (_, said) = f.load(f.config(), &["dataset:isset,s,type string,memcap 10,load big"]);
    assert!(said[0].contains("takes more than the memcap of 10 bytes"), "{said:?}");
}

#[test]
fn json() {
    let f = Folder::new();
    f.write(
        "a.json",
        r#"{"info": {"x": [{"h": {"n": "abc", "d": 1}, "y": 5}, {"h": {"n": "abc"}, "y": 6}, {"y": 7}]}}"#,
    );
    let s = f.one("dataset:isset,s,type string,load a.json,format json,value_key h.n,array_key info.x,context_key k");
    let value = s.find(b"abc").expect("there");
    assert_eq!(s.context(value), Some(("k", &br#"{"h":{"n":"abc","d":1},"y":5}"#[..])));
    f.write("b.json", "{\"ip\": \"1.2.3.4\", \"t\": 1}\n\n{\"ip\": \"4::5\"}\n");
    let keyword = "dataset:isset,s,type ip,load b.json,format ndjson,value_key ip,context_key k,remove_key";
    let s = f.one(keyword);
    let value = s.find(&[1, 2, 3, 4]).expect("there");
    assert_eq!(s.context(value), Some(("k", &b"{\"t\":1}"[..])));
    let check = SetCheck { name: "s".into(), test: SetTest::Command(SetCommand::IsSet), set: Some(s) };
    match check.run(&[1, 2, 3, 4]) {
        SetOutcome::Holds(Some(hit)) => assert_eq!(hit.context().map(|c| c.0), Some("k")),
        other => panic!("{other:?}"),
    }
    let (_, said) =
        f.load(f.config(), &["dataset:isset,s,type ip,load b.json,format ndjson,value_key ip", "datarep:s,>,1"]);
    assert!(said[1].contains("only isset and isnotset are possible"), "{said:?}");
}

#[test]
fn bad_json() {
    let f = Folder::new();
    let strict = || DatasetsConfig { strict: true, ..f.config() };
    for (text, format, says) in [
        ("10.16.1.12,42\n", "json", "is not a JSON document"),
        ("10.16.1.12,42\n", "ndjson", "no JSON"),
        ("{\"v\": [1]}", "ndjson", "failed to get value because it is not a string"),
        ("[{\"v\": \"x\"}]", "json", "\"x\" is not an address"),
        ("[{\"w\": \"x\"}]", "json", "has a value at \"v\""),
        ("{\"v\": \"1.2.3.4\"}", "json", "has no array of objects"),
        (&"[".repeat(100_000), "json", "is not a JSON document"),
    ] {
        f.write("x", text);
        let (_, said) = f.load(strict(), &[&format!("dataset:isset,s,type ip,load x,format {format},value_key v")]);
        assert!(said[0].contains(says), "{text}: {said:?}");
    }
}

/// Threads that add, remove and look up the same entries: no entry is lost or duplicated.
#[test]
fn shared_by_threads() {
    let f = Folder::new();
    let s = f.one("dataset:set,s,type string");
    let new = AtomicU32::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for n in 0..2000u32 {
                    if s.add(&n.to_be_bytes()) == Added::New {
                        new.fetch_add(1, Ordering::Relaxed);
                    }
                    assert!(s.contains(&n.to_be_bytes()));
                }
            });
        }
    });
    assert_eq!((new.load(Ordering::Relaxed), s.len()), (2000, 2000));
}

proptest! {
    /// A dataset behaves like a plain set, whatever entries were loaded and in whatever order it changes.
    #[test]
    fn as_a_plain_set(loaded in vec(1u8..12, 0..8), ops in vec((0u8..3, 1u8..16), 0..60)) {
        let f = Folder::new();
        let mut text = Vec::new();
        for &n in &loaded {
            file::encode(SetKind::String, &[n], &mut text);
            text.push(b'\n');
        }
        fs::write(f.0.join("x"), &text).expect("written");
        let s = f.one("dataset:set,s,type string,load x,save y");
        let mut model: HashSet<u8> = loaded.into_iter().collect();
        for (op, n) in ops {
            match op {
                0 => prop_assert_eq!(s.add(&[n]) == Added::New, model.insert(n)),
                1 => prop_assert_eq!(s.remove(&[n]), model.remove(&n)),
                _ => prop_assert_eq!(s.contains(&[n]), model.contains(&n)),
            }
        }
        let mut left: Vec<u8> = model.into_iter().collect();
        left.sort_unstable_by(|a, b| b.cmp(a));
        let mut want = Vec::new();
        for n in left {
            file::encode(SetKind::String, &[n], &mut want);
            want.push(b'\n');
        }
        let mut out = Vec::new();
        s.write(&mut out).expect("written");
        prop_assert_eq!(out, want);
    }
}

/// Datasets that rules change survive a reload; datasets that are only loaded are read again.
#[test]
fn reloads() {
    let f = Folder::new();
    f.write("x", "YWJj\n");
    let keywords =
        ["dataset:set,d,type string,save d.csv", "dataset:isset,l,type string,load x", "dataset:set,m,type ip"];
    let (old, _) = f.load(f.config(), &keywords);
    old.get("d").expect("there").add(b"new");
    f.write("x", "ZGVm\n");
    let mut ctx = Context::default();
    ctx.available.extend(["http", "dataset"].map(str::to_owned));
    let mut builder = DatasetsBuilder::new(f.config(), Some(&old));
    for k in ["dataset:set,d,type string,save d.csv", "dataset:isset,l,type string,load x", "dataset:set,m,type string"]
    {
        let text = format!("alert http any any -> any any (http.host; {k}; sid:1;)");
        let l = load_str(&text, &f.0.join("t.rules").to_string_lossy(), &ctx);
        assert!(builder.rule(&l.rules[0]), "{:?}", builder.messages());
    }
    let new = builder.finish();
    assert!(new.get("d").expect("there").contains(b"new"));
    let l = new.get("l").expect("there");
    assert!(l.contains(b"def") && !l.contains(b"abc"));
    // With another type it is another dataset.
    assert_eq!(new.get("m").expect("there").kind(), SetKind::String);
}
