//! DRAM chips with open rows. A chip serves one access at a time, in the order of the requests.

/// The parameters of the chips.
#[derive(Debug, Clone, PartialEq)]
pub struct Timing {
    /// Number of chips. Consecutive rows are on consecutive chips.
    pub chips: u32,
    /// Banks of a chip, each with one open row.
    pub banks: u32,
    /// Bytes in a row, a power of two.
    pub row: u32,
    /// Time to open a row, in ps.
    pub open: u64,
    /// Time from the request to the first byte of an open row, in ps. It overlaps with other accesses.
    pub first: u64,
    /// Time for each byte that a chip transfers, in fs.
    pub byte: u64,
    /// Minimum bytes of a transfer.
    pub burst: u32,
}

/// The chips with their state.
#[derive(Debug, Clone)]
pub struct Dram {
    timing: Timing,
    /// Binary logarithm of the bytes in a row.
    shift: u32,
    /// Binary logarithms of chips and banks, if both are powers of two. An access then needs no division.
    powers: Option<(u32, u32)>,
    open: Vec<u32>,
    free: Vec<u64>,
    /// Time each chip was busy, in ps.
    pub busy: Vec<u64>,
    /// Accesses.
    pub accesses: u64,
    /// Accesses that had to open a row.
    pub opened: u64,
    /// Bytes transferred.
    pub bytes: u64,
}

impl Dram {
    /// Idle chips without an open row.
    pub fn new(timing: Timing) -> Dram {
        let chips = timing.chips as usize;
        Dram {
            open: vec![u32::MAX; chips * timing.banks as usize],
            free: vec![0; chips],
            busy: vec![0; chips],
            shift: timing.row.trailing_zeros(),
            powers: (timing.chips.is_power_of_two() && timing.banks.is_power_of_two())
                .then(|| (timing.chips.trailing_zeros(), timing.banks.trailing_zeros())),
            timing,
            accesses: 0,
            opened: 0,
            bytes: 0,
        }
    }

    /// Transfers `bytes` within one row, in `parts` consecutive transfers, requested at `now`. Returns the arrival time of the last
    /// byte.
    #[inline]
    pub fn access(&mut self, now: u64, address: u32, bytes: u32, parts: u32) -> u64 {
        let t = &self.timing;
        let row = address >> self.shift;
        let (chip, bank) = match self.powers {
            Some((chips, banks)) => {
                let chip = row & (t.chips - 1);
                (chip as usize, (chip << banks | row >> chips & (t.banks - 1)) as usize)
            }
            None => {
                let chip = row % t.chips;
                (chip as usize, (chip * t.banks + row / t.chips % t.banks) as usize)
            }
        };
        let part = if parts == 1 { bytes } else { bytes / parts };
        let each = u64::from(part.max(t.burst)) * t.byte / 1000;
        let mut time = each * u64::from(parts);
        if self.open[bank] != row {
            self.open[bank] = row;
            self.opened += 1;
            time += t.open;
        }
        let end = now.max(self.free[chip]) + time;
        self.free[chip] = end;
        self.busy[chip] += time;
        self.accesses += u64::from(parts);
        self.bytes += u64::from(bytes);
        end + t.first * u64::from(parts)
    }
}
