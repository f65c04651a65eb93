//! Files that protocols carry: what is known of them, their hashes, magic, and where they are stored.

use margay_flow::Direction;

use crate::window::{Window, WindowLimits};

/// Settings of files.
#[derive(Debug, Clone, Default)]
pub struct FileConfig {}

/// What `fileinfo` events show.
#[derive(Debug, Clone, Default)]
pub struct FileLogOptions {}

/// What one worker needs for files: hashing, magic, the store.
#[derive(Debug, Default)]
pub struct FileEngine {}

/// State of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FileState {
    /// More may come.
    #[default]
    Open,
    /// Complete.
    Closed,
    /// Its end, or a part, was not seen.
    Truncated,
    /// It could not be followed.
    Error,
}

/// One file.
#[derive(Debug, Clone, Default)]
pub struct File {
    /// Direction that it goes in.
    pub to_client: bool,
    /// Name as the protocol gives it; may be empty.
    pub name: Vec<u8>,
    /// State.
    pub state: FileState,
    /// Bytes seen of it.
    pub size: u64,
    /// Range within the whole file, where only a part is sent: first byte, last byte.
    pub range: Option<(u64, u64)>,
    /// Its data, as far as detection has still to look at it.
    pub window: Window,
}

/// The files of a transaction.
#[derive(Debug, Clone, Default)]
pub struct Files {
    list: Vec<File>,
}

impl Files {
    /// A file begins in a direction. One that is still open there is closed as truncated.
    pub fn open(
        &mut self,
        engine: &mut FileEngine,
        config: &FileConfig,
        dir: Direction,
        name: &[u8],
        range: Option<(u64, u64)>,
    ) {
        self.close(engine, config, dir, true);
        self.list.push(File { to_client: dir == Direction::ToClient, name: name.to_vec(), range, ..File::default() });
    }

    /// Data of the open file of a direction.
    pub fn append(&mut self, _engine: &mut FileEngine, _config: &FileConfig, dir: Direction, data: &[u8]) {
        if let Some(f) = self.current(dir) {
            f.size += data.len() as u64;
            f.window.append(data);
        }
    }

    /// Bytes of the open file of a direction are missing.
    pub fn gap(&mut self, _engine: &mut FileEngine, _config: &FileConfig, dir: Direction, len: u64) {
        if let Some(f) = self.current(dir) {
            f.window.gap(len);
        }
    }

    /// The open file of a direction is at its end, or (`truncated`) will not be seen to its end.
    pub fn close(&mut self, _engine: &mut FileEngine, _config: &FileConfig, dir: Direction, truncated: bool) {
        if let Some(f) = self.current(dir) {
            f.state = if truncated { FileState::Truncated } else { FileState::Closed };
        }
    }

    /// Whether a file is open in a direction.
    pub fn is_open(&self, dir: Direction) -> bool {
        self.of(dir).any(|f| f.state == FileState::Open)
    }

    /// Files of a direction, oldest first.
    pub fn of(&self, dir: Direction) -> impl Iterator<Item = &File> {
        let to_client = dir == Direction::ToClient;
        self.list.iter().filter(move |f| f.to_client == to_client)
    }

    /// All files, oldest first.
    pub fn all(&self) -> &[File] {
        &self.list
    }

    /// Detection has looked at what was due of the files of a direction.
    pub fn inspected(&mut self, dir: Direction, limits: WindowLimits) {
        let to_client = dir == Direction::ToClient;
        for f in self.list.iter_mut().filter(|f| f.to_client == to_client) {
            f.window.looked_at(limits, f.state != FileState::Open);
        }
    }

    fn current(&mut self, dir: Direction) -> Option<&mut File> {
        let to_client = dir == Direction::ToClient;
        self.list.iter_mut().rfind(|f| f.to_client == to_client && f.state == FileState::Open)
    }
}
