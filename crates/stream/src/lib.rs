//! TCP sessions and reassembly.
