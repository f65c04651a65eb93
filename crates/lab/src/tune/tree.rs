//! File access for facts and settings: this machine's files, or a recorded machine's in memory.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use super::card::{Answer, Refusal};

/// The longest CPU wake-up time that a program allows, in microseconds; this module presents it as text.
pub(crate) const DMA_LATENCY: &str = "/dev/cpu_dma_latency";

/// Files by their absolute paths.
pub(crate) trait Tree {
    /// A file's unmodified text.
    fn read(&self, path: &str) -> Answer<String>;
    /// Writes to an existing kernel file, in one call.
    fn write(&self, path: &str, text: &str) -> Answer<()>;
    /// The names in a folder, sorted; empty if it does not exist.
    fn names(&self, folder: &str) -> Vec<String>;
    /// The target of a symbolic link.
    fn link(&self, path: &str) -> Option<String>;
    fn exists(&self, path: &str) -> bool;
    /// Creates, replaces or removes a file of our own, and syncs it to disk before it returns.
    fn put_file(&self, path: &str, text: Option<&str>) -> Answer<()>;
    /// Creates or removes a symbolic link of our own.
    fn put_link(&self, path: &str, target: Option<&str>) -> Answer<()>;
    /// Creates a folder, or removes an empty one.
    fn put_folder(&self, path: &str, there: bool) -> Answer<()>;

    /// A file's trimmed text; `None` if it cannot be read.
    fn text(&self, path: &str) -> Option<String> {
        self.read(path).ok().map(|text| text.trim().to_owned())
    }
}

/// The number in a file; `None` if there is none.
pub(crate) fn number<T: std::str::FromStr>(tree: &dyn Tree, path: &str) -> Option<T> {
    tree.text(path)?.parse().ok()
}

/// The files of this machine below a folder, which is `/` except in tests.
pub(crate) struct Root(pub(crate) PathBuf);

impl Root {
    fn path(&self, path: &str) -> PathBuf {
        self.0.join(path.trim_start_matches('/'))
    }

    fn durable(path: &Path) -> std::io::Result<()> {
        path.parent().map_or(Ok(()), |folder| fs::File::open(folder)?.sync_all())
    }
}

impl Tree for Root {
    fn read(&self, path: &str) -> Answer<String> {
        // This file is a binary number of four bytes, and has no end.
        if path == DMA_LATENCY {
            let mut bytes = [0; 4];
            fs::File::open(self.path(path))?.read_exact(&mut bytes)?;
            return Ok(i32::from_ne_bytes(bytes).to_string());
        }
        let bytes = fs::read(self.path(path))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn write(&self, path: &str, text: &str) -> Answer<()> {
        let mut file = fs::OpenOptions::new().write(true).open(self.path(path))?;
        Ok(file.write_all(text.as_bytes())?)
    }

    fn names(&self, folder: &str) -> Vec<String> {
        let entries = fs::read_dir(self.path(folder)).into_iter().flatten().flatten();
        let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    fn link(&self, path: &str) -> Option<String> {
        fs::read_link(self.path(path)).ok().map(|target| target.to_string_lossy().into_owned())
    }

    fn exists(&self, path: &str) -> bool {
        self.path(path).symlink_metadata().is_ok()
    }

    fn put_file(&self, path: &str, text: Option<&str>) -> Answer<()> {
        let path = self.path(path);
        match text {
            // Atomic, so that a power failure leaves the old or the new file.
            Some(text) => {
                let mut beside = path.clone().into_os_string();
                beside.push(".new");
                let mut file = fs::File::create(&beside)?;
                file.write_all(text.as_bytes())?;
                file.sync_all()?;
                fs::rename(&beside, &path)?;
            }
            None => match fs::remove_file(&path) {
                Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(e.into()),
                _ => {}
            },
        }
        Ok(Root::durable(&path)?)
    }

    fn put_link(&self, path: &str, target: Option<&str>) -> Answer<()> {
        self.put_file(path, None)?;
        let path = self.path(path);
        if let Some(target) = target {
            symlink(target, &path)?;
        }
        Ok(Root::durable(&path)?)
    }

    fn put_folder(&self, path: &str, there: bool) -> Answer<()> {
        let path = self.path(path);
        match there {
            true => fs::create_dir(&path)?,
            false => fs::remove_dir(&path)?,
        }
        Ok(Root::durable(&path)?)
    }
}

/// An entry at a path of a recorded machine.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Entry {
    File(String),
    Link(String),
    Folder,
}

/// A machine's files in memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Memory(RefCell<BTreeMap<String, Entry>>);

impl Memory {
    pub(crate) fn set(&self, path: &str, text: &str) {
        self.0.borrow_mut().insert(path.to_owned(), Entry::File(text.to_owned()));
    }

    pub(crate) fn set_link(&self, path: &str, target: &str) {
        self.0.borrow_mut().insert(path.to_owned(), Entry::Link(target.to_owned()));
    }

    pub(crate) fn set_folder(&self, path: &str) {
        self.0.borrow_mut().insert(path.trim_end_matches('/').to_owned(), Entry::Folder);
    }

    /// Removes a path with everything below it.
    pub(crate) fn remove(&self, path: &str) {
        let below = format!("{path}/");
        self.0.borrow_mut().retain(|at, _| at != path && !at.starts_with(&below));
    }

    fn has_below(&self, folder: &str) -> bool {
        let prefix = format!("{}/", folder.trim_end_matches('/'));
        self.0.borrow().range(prefix.clone()..).next().is_some_and(|(path, _)| path.starts_with(&prefix))
    }

    /// Every path with its text or target.
    #[cfg(test)]
    pub(crate) fn all(&self) -> BTreeMap<String, String> {
        let text = |entry: &Entry| match entry {
            Entry::File(text) => text.clone(),
            Entry::Link(target) => format!("-> {target}"),
            Entry::Folder => String::new(),
        };
        self.0.borrow().iter().map(|(path, entry)| (path.clone(), text(entry))).collect()
    }
}

impl Tree for Memory {
    fn read(&self, path: &str) -> Answer<String> {
        match self.0.borrow().get(path) {
            Some(Entry::File(text)) => Ok(text.clone()),
            _ => Err(Refusal::Missing),
        }
    }

    fn write(&self, path: &str, text: &str) -> Answer<()> {
        match self.0.borrow_mut().get_mut(path) {
            Some(Entry::File(now)) => *now = format!("{}\n", text.trim_end()),
            _ => return Err(Refusal::Missing),
        }
        Ok(())
    }

    fn names(&self, folder: &str) -> Vec<String> {
        let prefix = format!("{}/", folder.trim_end_matches('/'));
        let all = self.0.borrow();
        let mut names: Vec<String> = Vec::new();
        let mut from = prefix.clone();
        while let Some((path, _)) = all.range(from.clone()..).next().filter(|(path, _)| path.starts_with(&prefix)) {
            let rest = &path[prefix.len()..];
            let name = rest.split('/').next().unwrap_or(rest);
            names.push(name.to_owned());
            // Skip everything below: '0' is the character after '/'.
            from = if rest == name { format!("{path}\0") } else { format!("{prefix}{name}0") };
        }
        names.sort();
        names.dedup();
        names
    }

    fn link(&self, path: &str) -> Option<String> {
        match self.0.borrow().get(path) {
            Some(Entry::Link(target)) => Some(target.clone()),
            _ => None,
        }
    }

    fn exists(&self, path: &str) -> bool {
        self.0.borrow().contains_key(path) || self.has_below(path)
    }

    fn put_file(&self, path: &str, text: Option<&str>) -> Answer<()> {
        match text {
            Some(text) => self.set(path, text),
            None => self.remove(path),
        }
        Ok(())
    }

    fn put_link(&self, path: &str, target: Option<&str>) -> Answer<()> {
        match target {
            Some(target) => self.set_link(path, target),
            None => self.remove(path),
        }
        Ok(())
    }

    fn put_folder(&self, path: &str, there: bool) -> Answer<()> {
        match there {
            true => self.set_folder(path),
            false if !self.has_below(path) => self.remove(path),
            false => return Err(Refusal::Other("the folder is not empty".to_owned())),
        }
        Ok(())
    }
}

/// A tree that records reads from another one, to write a recorded machine.
pub(crate) struct Recording<'a, T: Tree> {
    of: &'a T,
    seen: Memory,
}

impl<'a, T: Tree> Recording<'a, T> {
    pub(crate) fn of(of: &'a T) -> Recording<'a, T> {
        Recording { of, seen: Memory::default() }
    }

    /// Everything that was read, in the format of [`super::recorded`].
    pub(crate) fn written(&self) -> String {
        let mut out = String::new();
        for (path, entry) in self.seen.0.borrow().iter() {
            match entry {
                Entry::File(text) if text.trim_end().contains('\n') => {
                    out += &format!("{path} <<\n");
                    text.trim_end().lines().for_each(|line| out += &format!("  {line}\n"));
                }
                Entry::File(text) => out += &format!("{path} = {}\n", text.trim()),
                Entry::Link(target) => out += &format!("{path} -> {target}\n"),
                Entry::Folder => out += &format!("{path}/\n"),
            }
        }
        out
    }
}

impl<T: Tree> Tree for Recording<'_, T> {
    fn read(&self, path: &str) -> Answer<String> {
        let text = self.of.read(path)?;
        self.seen.set(path, &text);
        Ok(text)
    }

    fn write(&self, path: &str, text: &str) -> Answer<()> {
        self.of.write(path, text)
    }

    fn names(&self, folder: &str) -> Vec<String> {
        let names = self.of.names(folder);
        for name in &names {
            let path = format!("{}/{name}", folder.trim_end_matches('/'));
            if !self.seen.exists(&path) {
                self.seen.set_folder(&path);
            }
        }
        names
    }

    fn link(&self, path: &str) -> Option<String> {
        let target = self.of.link(path)?;
        self.seen.set_link(path, &target);
        Some(target)
    }

    fn exists(&self, path: &str) -> bool {
        let there = self.of.exists(path);
        if there && !self.seen.exists(path) {
            self.seen.set_folder(path);
        }
        there
    }

    fn put_file(&self, path: &str, text: Option<&str>) -> Answer<()> {
        self.of.put_file(path, text)
    }

    fn put_link(&self, path: &str, target: Option<&str>) -> Answer<()> {
        self.of.put_link(path, target)
    }

    fn put_folder(&self, path: &str, there: bool) -> Answer<()> {
        self.of.put_folder(path, there)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs the same test with files and in memory.
    fn a_tree(tree: &dyn Tree) {
        tree.put_folder("/etc", true).unwrap();
        tree.put_file("/etc/a", Some("one\n")).unwrap();
        tree.put_file("/etc/a", Some("two\n")).unwrap();
        assert_eq!((tree.read("/etc/a").as_deref(), tree.text("/etc/a").as_deref()), (Ok("two\n"), Some("two")));
        tree.write("/etc/a", "three\n").unwrap();
        assert_eq!(tree.text("/etc/a").as_deref(), Some("three"));
        assert_eq!(tree.write("/etc/none", "1"), Err(Refusal::Missing));
        tree.put_link("/etc/l", Some("../a")).unwrap();
        assert_eq!((tree.link("/etc/l").as_deref(), tree.link("/etc/a")), (Some("../a"), None));
        assert_eq!(tree.names("/etc"), ["a", "l"]);
        assert!(tree.exists("/etc/l") && tree.exists("/etc") && !tree.exists("/etc/b"));
        assert!(tree.put_folder("/etc", false).is_err(), "it is not empty");
        tree.put_link("/etc/l", None).unwrap();
        tree.put_file("/etc/a", None).unwrap();
        tree.put_file("/etc/a", None).unwrap();
        tree.put_folder("/etc", false).unwrap();
        assert!(!tree.exists("/etc") && tree.names("/").is_empty());
    }

    #[test]
    fn files_and_memory_are_alike() {
        let dir = tempfile::tempdir().unwrap();
        a_tree(&Root(dir.path().to_owned()));
        a_tree(&Memory::default());
    }
}
