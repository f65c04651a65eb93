//! IP reputation: scores of addresses by category, from a categories file and lists.
//!
//! A categories file has lines `id,short name,description` with an id of 1 to 60. A list has lines `address,id,score`
//! with an address or CIDR network and a score of 0 to 127. `#` begins a comment. For each category the longest prefix
//! that contains an address decides; of two lines for the same prefix, the later one.

use std::collections::HashMap;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use margay_rules::ast::Place;

/// Largest category id.
pub const CATEGORY_MAX: u8 = 60;
/// Largest score.
pub const SCORE_MAX: u8 = 127;

/// A line that could not be used, and the reason.
pub type LineError = (Place, String);

/// The networks of one category as sorted, disjoint ranges, each with the score of the innermost prefix.
#[derive(Debug, Default, Clone)]
struct Networks {
    v4: Box<[(u32, u32, u8)]>,
    v6: Box<[(u128, u128, u8)]>,
}

/// Scores of addresses. Immutable once loaded, shared by all workers.
#[derive(Debug, Default)]
pub struct IpReputation {
    categories: HashMap<String, u8>,
    networks: HashMap<u8, Networks>,
    entries: usize,
}

/// A prefix as its first and last address, with its score.
type Prefix<T> = (T, T, u8);

/// Collects lines before the networks are sorted.
#[derive(Debug, Default)]
pub struct IpReputationBuilder {
    categories: HashMap<String, u8>,
    v4: HashMap<u8, Vec<Prefix<u32>>>,
    v6: HashMap<u8, Vec<Prefix<u128>>>,
    entries: usize,
}

fn place(file: &Arc<str>, line: usize, column: usize) -> Place {
    let n = |v: usize| u32::try_from(v).unwrap_or(u32::MAX);
    Place { file: file.clone(), line: n(line), column: n(column) }
}

/// The lines of `text` that are neither empty nor comments, with their numbers.
fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    // Some editors end lines with only a carriage return.
    let end = if text.contains('\n') { '\n' } else { '\r' };
    (1..).zip(text.split(end)).map(|(n, l)| (n, l.trim())).filter(|(_, l)| !l.is_empty() && !l.starts_with('#'))
}

/// Turns nested prefixes into disjoint ranges: the innermost prefix wins, and of equal prefixes the last.
fn flatten<T: Copy + Ord>(mut list: Vec<Prefix<T>>, next: fn(T) -> Option<T>, before: fn(T) -> T) -> Box<[Prefix<T>]> {
    // Outer prefixes first. The sort is stable, so equal prefixes keep their order.
    list.sort_by(|a, b| a.0.cmp(&b.0).then(b.1.cmp(&a.1)));
    let mut out: Vec<Prefix<T>> = Vec::with_capacity(list.len());
    // Open prefixes, innermost last, and the first address not yet written.
    let mut open: Vec<Prefix<T>> = Vec::new();
    let mut from: Option<T> = None;
    let mut close = |open: &mut Vec<Prefix<T>>, from: &mut Option<T>, until: Option<T>| {
        while let Some(&(_, end, score)) = open.last() {
            if until.is_some_and(|u| end >= u) {
                break;
            }
            if let Some(f) = *from
                && f <= end
            {
                out.push((f, end, score));
                *from = next(end);
            }
            open.pop();
        }
        if let (Some(&(_, _, score)), Some(f), Some(u)) = (open.last(), *from, until)
            && f < u
        {
            out.push((f, before(u), score));
        }
    };
    for p in list {
        close(&mut open, &mut from, Some(p.0));
        if let Some(last) = open.last_mut()
            && (last.0, last.1) == (p.0, p.1)
        {
            *last = p;
        } else {
            open.push(p);
        }
        from = Some(p.0);
    }
    close(&mut open, &mut from, None);
    out.into_boxed_slice()
}

fn lookup<T: Copy + Ord>(ranges: &[Prefix<T>], a: T) -> Option<u8> {
    let i = ranges.partition_point(|r| r.0 <= a).checked_sub(1)?;
    ranges.get(i).filter(|r| a <= r.1).map(|r| r.2)
}

impl IpReputationBuilder {
    /// Reads a categories file's text; `file` names it in errors.
    pub fn categories(&mut self, file: &str, text: &str) -> Vec<LineError> {
        let file: Arc<str> = file.into();
        let mut errors = Vec::new();
        for (n, line) in lines(text) {
            let mut fields = line.splitn(3, ',').map(str::trim);
            let (id, name) = (fields.next().unwrap_or(""), fields.next().unwrap_or(""));
            match id.parse::<u8>() {
                Ok(id) if (1..=CATEGORY_MAX).contains(&id) && !name.is_empty() => {
                    self.categories.insert(name.to_owned(), id);
                }
                _ => errors.push((
                    place(&file, n, 1),
                    format!("not a reputation category: {line:?}; expected an id of 1 to {CATEGORY_MAX}, a short name and a description, separated by commas"),
                )),
            }
        }
        errors
    }

    /// Reads a list's text; `file` names it in errors.
    pub fn list(&mut self, file: &str, text: &str) -> Vec<LineError> {
        let file: Arc<str> = file.into();
        let mut errors = Vec::new();
        for (n, line) in lines(text) {
            if let Err(message) = self.entry(line) {
                errors.push((place(&file, n, 1), message));
            }
        }
        errors
    }

    fn entry(&mut self, line: &str) -> Result<(), String> {
        let mut fields = line.split(',').map(str::trim);
        let (Some(address), Some(id), Some(score), None) = (fields.next(), fields.next(), fields.next(), fields.next())
        else {
            return Err(format!(
                "not a reputation entry: {line:?}; expected address, category id and score, separated by commas"
            ));
        };
        let category = id
            .parse::<u8>()
            .ok()
            .filter(|c| (1..=CATEGORY_MAX).contains(c))
            .ok_or_else(|| format!("category {id:?} is not a number of 1 to {CATEGORY_MAX}"))?;
        let score = score
            .parse::<u8>()
            .ok()
            .filter(|s| *s <= SCORE_MAX)
            .ok_or_else(|| format!("score {score:?} is not a number of 0 to {SCORE_MAX}"))?;
        let (ip, len) = address.split_once('/').map_or((address, None), |(a, l)| (a, Some(l)));
        let ip: IpAddr = ip.parse().map_err(|_| format!("{address:?} is neither an address nor a network"))?;
        let bits = if ip.is_ipv4() { 32 } else { 128 };
        let len = match len {
            None => bits,
            Some(l) => l
                .parse::<u32>()
                .ok()
                .filter(|l| *l <= bits)
                .ok_or_else(|| format!("prefix length of {address:?} is not a number of 0 to {bits}"))?,
        };
        match ip {
            IpAddr::V4(a) => {
                let rest = u32::MAX.checked_shr(len).unwrap_or(0);
                let a = u32::from(a) & !rest;
                self.v4.entry(category).or_default().push((a, a | rest, score));
            }
            IpAddr::V6(a) => {
                let rest = u128::MAX.checked_shr(len).unwrap_or(0);
                let a = u128::from(a) & !rest;
                self.v6.entry(category).or_default().push((a, a | rest, score));
            }
        }
        self.entries += 1;
        Ok(())
    }

    /// Reads files; `dir` is the folder for lists with a relative name. An unreadable file is an error at its line 0.
    pub fn files(&mut self, categories: &Path, lists: &[impl AsRef<Path>], dir: Option<&Path>) -> Vec<LineError> {
        let mut errors = Vec::new();
        let mut read = |path: &Path| {
            let name = path.display().to_string();
            match std::fs::read(path) {
                Ok(bytes) => Some((name, String::from_utf8_lossy(&bytes).into_owned())),
                Err(e) => {
                    errors.push((place(&name.into(), 0, 0), format!("cannot read reputation file: {e}")));
                    None
                }
            }
        };
        let categories = read(categories);
        let lists: Vec<_> = lists
            .iter()
            .filter_map(|l| read(&dir.map_or_else(|| l.as_ref().to_path_buf(), |d| d.join(l.as_ref()))))
            .collect();
        if let Some((name, text)) = categories {
            errors.extend(self.categories(&name, &text));
        }
        for (name, text) in lists {
            errors.extend(self.list(&name, &text));
        }
        errors
    }

    /// Builds the lookup tables.
    pub fn build(self) -> IpReputation {
        let mut networks: HashMap<u8, Networks> = HashMap::new();
        for (c, list) in self.v4 {
            networks.entry(c).or_default().v4 = flatten(list, |a| a.checked_add(1), |a| a - 1);
        }
        for (c, list) in self.v6 {
            networks.entry(c).or_default().v6 = flatten(list, |a| a.checked_add(1), |a| a - 1);
        }
        IpReputation { categories: self.categories, networks, entries: self.entries }
    }
}

impl IpReputation {
    /// The id of the category with that short name.
    pub fn category(&self, name: &str) -> Option<u8> {
        self.categories.get(name).copied()
    }

    /// The score of `a` in a category, 0 to [`SCORE_MAX`]; `None` if no entry contains the address.
    pub fn score(&self, category: u8, a: IpAddr) -> Option<u8> {
        let n = self.networks.get(&category)?;
        match a {
            IpAddr::V4(a) => lookup(&n.v4, u32::from(a)),
            IpAddr::V6(a) => lookup(&n.v6, u128::from(a)),
        }
    }

    /// The number of entries read.
    pub const fn entries(&self) -> usize {
        self.entries
    }
}

impl crate::checks::Reputation for IpReputation {
    fn score(&self, address: IpAddr, category: u8) -> Option<u8> {
        IpReputation::score(self, category, address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn rep(text: &str) -> (IpReputation, Vec<LineError>) {
        let mut b = IpReputationBuilder::default();
        assert!(b.categories("cat", "# comment\r\n1,Bad,Known bad, with comma\r\n2,Good,\n").is_empty());
        let e = b.list("list", text);
        (b.build(), e)
    }

    #[test]
    fn longest_prefix_for_each_category() {
        let (r, e) = rep("10.0.0.0/8,1,5\n10.1.2.3/16,1,0\n10.1.2.3,2,7\n10.1.2.3,1,9\r\n2001:db8::/32,1,3\n");
        assert!(e.is_empty(), "{e:?}");
        let score = |c, a: &str| r.score(c, a.parse().unwrap());
        assert_eq!(r.category("Bad"), Some(1));
        assert_eq!(score(1, "10.0.0.1"), Some(5));
        assert_eq!(score(1, "10.1.0.1"), Some(0));
        assert_eq!(score(1, "10.1.2.3"), Some(9));
        assert_eq!(score(1, "10.1.2.4"), Some(0));
        assert_eq!(score(1, "10.2.0.0"), Some(5));
        assert_eq!(score(1, "11.0.0.0"), None);
        assert_eq!(score(2, "10.1.2.3"), Some(7));
        assert_eq!(score(2, "10.1.2.4"), None);
        assert_eq!(score(1, "2001:db8::1"), Some(3));
        assert_eq!(score(1, "2001:db9::1"), None);
    }

    #[test]
    fn lines_may_end_with_a_carriage_return() {
        let (r, e) = rep("1.2.3.4,1,101\r1.2.3.5,1,102\r# no entry\r1.1.1.0/24,2,88\r");
        assert!(e.is_empty(), "{e:?}");
        assert_eq!(r.entries(), 3);
        assert_eq!(rep("1.2.3.4,1,1\r1.2.3.4,1\r").1[0].0.line, 2);
    }

    #[test]
    fn wrong_lines_have_a_place() {
        let (r, e) = rep("1.2.3.4,1,128\n\n1.2.3.4,61,1\n1.2.3.400,1,1\n1.2.3.4/33,1,1\n1.2.3.4,1\n1.2.3.4,1,127\n");
        assert_eq!(e.iter().map(|x| x.0.line).collect::<Vec<_>>(), [1, 3, 4, 5, 6]);
        assert_eq!(r.entries(), 1);
    }

    proptest! {
        #[test]
        fn as_one_by_one(list in proptest::collection::vec((0u32..64, 26u32..=32, 0u8..5), 0..20), probe in 0u32..70) {
            let text: String = list.iter().map(|(a, l, s)| format!("{}/{l},1,{s}\n", std::net::Ipv4Addr::from(*a))).collect();
            let (r, _) = rep(&text);
            let want = list.iter().filter(|(a, l, _)| a >> (32 - l) == probe >> (32 - l) || *l == 32 && *a == probe)
                .enumerate().max_by_key(|(i, x)| (x.1, *i)).map(|(_, x)| x.2);
            prop_assert_eq!(r.score(1, IpAddr::V4(probe.into())), want);
        }
    }
}
