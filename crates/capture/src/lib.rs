//! Where packets come from: capture files, filters.
