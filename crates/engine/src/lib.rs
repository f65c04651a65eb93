//! Workers, run modes, counters, start and shutdown.
